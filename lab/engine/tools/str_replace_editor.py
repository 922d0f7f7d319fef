"""str_replace_editor: SWE-agent's editor."""

from __future__ import annotations

from pydantic import Field

from lab.engine.tools.base import Settings
from lab.engine.tools.documents import Document, Edit, displayed, numbered, snippet
from lab.engine.tools.editor import Call, Editor, Words
from lab.engine.tools.python_source import skeleton

# A function's body of so many lines is left out where a file is abbreviated.
_SHORTEST_BODY = 6


class StrReplaceEditorSettings(Settings):
    """`condense_above`: a Python file of more characters is abbreviated without a view_range; 0: never."""

    condense_above: int = Field(default=16_000, ge=0)


class StrReplaceEditor(Editor):
    Settings = StrReplaceEditorSettings
    words = Words(
        missing="The path {path} does not exist. Give the path of something that exists.",
        exists="There is a file at {path} already. The command `create` does not overwrite files.",
        is_folder="The path {path} is a directory, and directories can only be viewed.",
        no_parent="The directory {parent} does not exist. Make it first.",
        not_found="Nothing was replaced: `old_str` does not appear verbatim in {path}.",
        ambiguous="Nothing was replaced: `old_str` appears {count} times in {path}, in lines {lines}. Make "
        "it unique.",
        insert_range="Invalid `insert_line`: {line} is not within the lines of the file, [0, {last}].",
        view_range="Invalid `view_range` [{first}, {last}]: the file has {lines} lines, and the second "
        "number is -1 or at least the first.",
        nothing_to_undo="There is no edit of {path} to undo.",
        same="Nothing was replaced: `old_str` and `new_str` are the same.",
    )

    def viewed(self, call: Call, document: Document, span: tuple[int, int] | None) -> str:
        lines = document.lines
        limit = call.context.settings(StrReplaceEditorSettings).condense_above
        if span is None and call.is_python and 0 < limit < len(document.text):
            abbreviated = _abbreviated(document, lines)
            if abbreviated:
                return abbreviated
        first, last = span or (1, len(lines))
        return f"{_cat(call.path)}\n{numbered(lines[first - 1 : last], first)}"

    def made(self, call: Call, document: Document) -> str:
        return f"The file {call.path} was created."

    def edited(self, call: Call, edit: Edit) -> str:
        return (
            f"The file {call.path} was edited. {_cat(f'the part of {call.path} around the edit')}\n"
            f"{snippet(edit)}\nLook through the changes (indentation, duplicate lines) and edit the file "
            "again if they are not as you want them."
        )

    def undone(self, call: Call, document: Document) -> str:
        return f"The last edit of {call.path} was undone. {_cat(call.path)}\n{numbered(document.lines)}"

    def listed(self, call: Call, paths: list[str]) -> str:
        return (
            f"The files and directories in {call.path}, at most 2 levels deep and without hidden ones:\n"
            + "\n".join(paths)
        )


def _cat(what: str) -> str:
    return f"This is what `cat -n` shows of {what}:"


def _abbreviated(document: Document, lines: list[str]) -> str:
    """The file without long function bodies; "" when it cannot be parsed."""
    try:
        kept = skeleton(displayed(document.text), lines, shortest=_SHORTEST_BODY, docstrings=False)
    except SyntaxError:
        return ""
    body = "\n".join(numbered([line], number, separator=" ") for number, line in kept)
    return (
        "<NOTE>This file is too long to be shown whole, so long function bodies are left out.</NOTE>\n"
        f"{body}\n<NOTE>View the lines you need with `view_range`.</NOTE>"
    )
