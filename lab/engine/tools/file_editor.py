"""file_editor: R2E-Gym's editor, sparing with context."""

from __future__ import annotations

from pydantic import Field

from lab.engine.tools.base import Settings, ToolContext, ToolResult, bounded, truthy
from lab.engine.tools.documents import Document, Edit, EditorError, displayed, numbered, snippet
from lab.engine.tools.editor import Call, Editor, Words
from lab.engine.tools.python_source import skeleton, syntax_error

CLIPPED = (
    "<response clipped><NOTE>Only the beginning is shown, to save context. Find the line numbers you need "
    "with `grep -n` and view them with view_range.</NOTE>"
)
# A function's body of so many lines is left out of a condensed view.
_SHORTEST_BODY = 4


class FileEditorSettings(Settings):
    """`python_only`: view shows files whose name ends in .py alone, and lists those and folders.

    A Python file of more than `condense_above` lines is shown as a skeleton where no view_range is given.
    `linting`: an edit after which a Python file cannot be parsed is refused. `clip_characters` is how much of
    an answer is shown, 0: all.
    """

    python_only: bool = True
    condense_above: int = Field(default=110, ge=0)
    linting: bool = False
    clip_characters: int = Field(default=10_000, ge=0)


class FileEditor(Editor):
    Settings = FileEditorSettings
    creation_is_an_edit = True
    words = Words(
        missing="There is nothing at '{path}'.",
        exists="'{path}' exists already, and create overwrites nothing. Use str_replace or insert.",
        is_folder="'{path}' is a directory. Only view works on directories.",
        no_parent="'{path}' cannot be created: there is no directory {parent}.",
        not_found="old_str was not found in '{path}'. It must be there exactly so, white space included.",
        ambiguous="old_str was found {count} times in '{path}' (lines {lines}). Give more lines around it, "
        "so that it is unique.",
        insert_range="insert_line {line} is not within [0, {last}].",
        view_range="view_range [{first}, {last}] does not fit: the file has {lines} lines. The first number "
        "is at least 1, the second not below the first, or -1 for the end.",
        nothing_to_undo="No edit of '{path}' is left to undo.",
    )

    def worded_problem(self, problem: str) -> str:
        return f"ERROR: {problem}"

    def result(self, call: Call, text: str) -> ToolResult:
        limit = _settings(call.context).clip_characters
        if not 0 < limit < len(text):
            return ToolResult(observation=text)
        return ToolResult(
            observation=f"{text[:limit]}{CLIPPED}", whole=bounded(text), dropped=len(text) - limit
        )

    def objection(self, call: Call, text: str) -> str:
        if not (call.is_python and _settings(call.context).linting):
            return ""
        error = syntax_error(displayed(text))
        return error and (
            "The edit was not made, because the file could not be parsed after it. Mend the edit and try "
            f"again.\n{error}"
        )

    def hidden(self, call: Call) -> str:
        if call.is_python or not _settings(call.context).python_only:
            return ""
        return f"Only Python files can be viewed here, to save context, and '{call.path}' is none."

    def only_names(self, call: Call) -> tuple[str, ...]:
        return ("*.py",) if _settings(call.context).python_only else ()

    def viewed(self, call: Call, document: Document, span: tuple[int, int] | None) -> str:
        lines = document.lines
        concise = truthy(call.arguments.get("concise"))
        long = span is None and len(lines) > _settings(call.context).condense_above
        if call.is_python and (concise or long):
            return self._condensed(call, document, lines, span)
        first, last = span or (1, len(lines))
        body = numbered(lines[first - 1 : last], first, separator=" ")
        return f"Here is {call.path} with line numbers:\n{body}"

    def _condensed(
        self, call: Call, document: Document, lines: list[str], span: tuple[int, int] | None
    ) -> str:
        try:
            kept = skeleton(displayed(document.text), lines, shortest=_SHORTEST_BODY, docstrings=True)
        except SyntaxError as error:
            raise EditorError(
                f"{call.path} cannot be shown condensed, because it cannot be parsed: {error}. It has "
                f"{len(lines)} lines: give a view_range, and leave out concise."
            ) from None
        first, last = span or (1, len(lines))
        body = "\n".join(
            numbered([line], number, separator=" ") for number, line in kept if first <= number <= last
        )
        return (
            f"Here is {call.path} condensed: long bodies are left out. Use view_range without concise to see "
            f"them.\n{body}"
        )

    def made(self, call: Call, document: Document) -> str:
        return (
            f"File {call.path} was created. Here it is with line numbers:\n{numbered(document.lines)}\n"
            "Check that it is as intended, and edit it again if not."
        )

    def edited(self, call: Call, edit: Edit) -> str:
        return (
            f"File {call.path} was edited. Here are the lines around the edit:\n{snippet(edit)}\n"
            "Check that they are as intended (indentation, no line twice), and edit again if not."
        )

    def undone(self, call: Call, document: Document) -> str:
        return f"The last edit of {call.path} was undone. Here is the file now:\n{numbered(document.lines)}"

    def listed(self, call: Call, paths: list[str]) -> str:
        files = "Python files" if _settings(call.context).python_only else "files"
        return "\n".join(
            [
                f"Here are the {files} and directories in {call.path} down to 2 levels, without hidden ones:",
                *paths,
            ]
        )


def _settings(context: ToolContext) -> FileEditorSettings:
    return context.settings(FileEditorSettings)
