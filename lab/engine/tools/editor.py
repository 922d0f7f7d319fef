"""The editors of two harness families: view, create, str_replace, insert and undo_edit in one tool.

What they do with files is the same and stands here; what they say, show and refuse is each tool's own.
"""

from __future__ import annotations

import json
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import (
    TOOL_TIMEOUT_SECONDS,
    Settings,
    ToolContext,
    ToolResult,
    local_error,
    required,
    whole_number,
)
from lab.engine.tools.documents import (
    BrokenOffError,
    Document,
    Edit,
    EditorError,
    document_of,
    inserted,
    kind_of,
    occurrences,
    read_document,
    replaced,
    written,
)
from lab.engine.tools.edit_history import EditHistory

# Bytes of names taken from find; what is shown of them is cut anyway.
_LISTING_BYTES = 1_000_000


@dataclass(frozen=True)
class Words:
    """An editor's sentences for what it does not do, each a format with the names in its comment.

    An empty `same` means that a replacement by the same text is an edit like any other.
    """

    missing: str  # path
    exists: str  # path
    is_folder: str  # path
    no_parent: str  # path, parent
    not_found: str  # path
    ambiguous: str  # path, count, lines
    insert_range: str  # line, last
    view_range: str  # first, last, lines
    nothing_to_undo: str  # path
    same: str = ""  # path


@dataclass(frozen=True)
class Call:
    """One call of an editor: `path` as the model wrote it, `resolved` where that is in the sandbox."""

    context: ToolContext
    arguments: JSONObject
    path: str
    resolved: str

    @property
    def is_python(self) -> bool:
        return self.resolved.endswith(".py")


class Editor(ABC):
    """What both editors share; a tool gives its words and says what an edit and a view look like."""

    Settings: type[Settings] = Settings
    read_only = False
    needs = (("command",), ("path",))
    words: Words
    # Whether undo_edit takes back the making of a file, which is empty then.
    creation_is_an_edit = False

    def timeout(self, context: ToolContext, arguments: JSONObject) -> float | None:
        return None

    def run(self, context: ToolContext, arguments: JSONObject) -> ToolResult:
        """What the command shows, or what was wrong with it."""
        try:
            path = required(arguments, "path")
            if "\0" in path:
                raise ValueError("path must not contain a NUL character")
            call = Call(context, arguments, written(path), context.resolve(written(path)))
            return self.result(call, self._answer(call))
        except BrokenOffError:
            return ToolResult(observation="", interrupted=True)
        except OSError as error:
            problem = str(local_error(error, str(arguments.get("path", ""))))
        except (EditorError, ValueError, TypeError) as error:
            problem = str(error)
        return ToolResult(observation=self.worded_problem(context.redactor.text(problem)), failed=True)

    def result(self, call: Call, text: str) -> ToolResult:
        return ToolResult(observation=text)

    def worded_problem(self, problem: str) -> str:
        return problem

    def objection(self, call: Call, text: str) -> str:
        """Why the file may not become this text; "" when it may."""
        return ""

    def hidden(self, call: Call) -> str:
        """Why the file is not shown; "" when it is."""
        return ""

    @abstractmethod
    def viewed(self, call: Call, document: Document, span: tuple[int, int] | None) -> str:
        """A file, or its lines from the first to the last of `span`, counted from 1."""

    @abstractmethod
    def made(self, call: Call, document: Document) -> str:
        """What is said of a new file."""

    @abstractmethod
    def edited(self, call: Call, edit: Edit) -> str:
        """What is said of an edited file."""

    @abstractmethod
    def undone(self, call: Call, document: Document) -> str:
        """What is said of a file that was put back."""

    @abstractmethod
    def listed(self, call: Call, paths: list[str]) -> str:
        """What is said of a folder."""

    def only_names(self, call: Call) -> tuple[str, ...]:
        """Patterns of the names of files that a folder's view lists; none: all."""
        return ()

    def _answer(self, call: Call) -> str:
        commands: Mapping[str, Callable[[Call], str]] = {
            "view": self._view,
            "create": self._create,
            "str_replace": self._str_replace,
            "insert": self._insert,
            "undo_edit": self._undo_edit,
        }
        name = required(call.arguments, "command")
        command = commands.get(name)
        if command is None:
            raise EditorError(f"There is no command {name!r}; choose one of {', '.join(commands)}.")
        return call.context.redactor.text(command(call))

    def _view(self, call: Call) -> str:
        kind = kind_of(call.context, call.resolved)
        if kind == "missing":
            raise EditorError(self.words.missing.format(path=call.path))
        span = line_span(call.arguments.get("view_range"))
        if kind == "folder":
            if span is not None:
                raise EditorError(f"view_range is for files, and {call.path} is a directory.")
            return self.listed(call, list_folder(call, self.only_names(call)))
        _refuse(self.hidden(call))
        document = read_document(call.context, call.resolved, call.path)
        if span is not None:
            span = self._within(span, len(document.lines))
        return self.viewed(call, document, span)

    def _within(self, span: tuple[int, int], lines: int) -> tuple[int, int]:
        first, last = span
        if not 1 <= first <= lines or (last != -1 and not first <= last <= lines):
            raise EditorError(self.words.view_range.format(first=first, last=last, lines=lines))
        return first, lines if last == -1 else last

    def _create(self, call: Call) -> str:
        text = written(required(call.arguments, "file_text", may_be_empty=True))
        if kind_of(call.context, call.resolved) != "missing":
            raise EditorError(self.words.exists.format(path=call.path))
        parent = posixpath.dirname(call.resolved)
        if kind_of(call.context, parent) != "folder":
            raise EditorError(self.words.no_parent.format(path=call.path, parent=parent))
        _refuse(self.objection(call, text))
        document = document_of(text.encode())
        self._store(call, b"" if self.creation_is_an_edit else None, document.data)
        return self.made(call, document)

    def _str_replace(self, call: Call) -> str:
        old = written(required(call.arguments, "old_str", may_be_empty=True))
        new = written(optional(call.arguments, "new_str"))
        if not old:
            raise EditorError("old_str must not be empty.")
        document = self._editable(call)
        found = occurrences(document, old)
        if not found.times:
            raise EditorError(self.words.not_found.format(path=call.path))
        if found.times > 1:
            lines = ", ".join(str(document.text.count("\n", 0, place) + 1) for place in found.places)
            lines += ", …" if found.times > len(found.places) else ""
            words = self.words.ambiguous
            raise EditorError(words.format(path=call.path, count=found.times, lines=lines))
        if self.words.same and new == old:
            raise EditorError(self.words.same.format(path=call.path))
        return self._change(call, document, replaced(document, found, new))

    def _insert(self, call: Call) -> str:
        line = whole_number(call.arguments, "insert_line")
        if line is None:
            raise ValueError("missing required argument: insert_line")
        new = written(required(call.arguments, "new_str", may_be_empty=True))
        document = self._editable(call)
        last = len(document.lines)
        if not 0 <= line <= last:
            raise EditorError(self.words.insert_range.format(line=line, last=last))
        return self._change(call, document, inserted(document, new, line))

    def _undo_edit(self, call: Call) -> str:
        self._editable(call)
        history = EditHistory(call.context)
        entry = history.newest(call.resolved)
        if entry is None:
            raise EditorError(self.words.nothing_to_undo.format(path=call.path))
        call.context.sandbox.write(call.resolved, entry.data)
        history.remove(entry.name)
        return self.undone(call, document_of(entry.data))

    def _editable(self, call: Call) -> Document:
        try:
            return read_document(call.context, call.resolved, call.path)
        except IsADirectoryError:
            raise EditorError(self.words.is_folder.format(path=call.path)) from None
        except (FileNotFoundError, NotADirectoryError):
            raise EditorError(self.words.missing.format(path=call.path)) from None

    def _change(self, call: Call, document: Document, edit: Edit) -> str:
        _refuse(self.objection(call, edit.text))
        self._store(call, document.data, document.encoded(edit.text))
        return self.edited(call, edit)

    def _store(self, call: Call, before: bytes | None, after: bytes) -> None:
        """Keep what the file was, None: nothing worth going back to, and write what it becomes."""
        history = EditHistory(call.context)
        name = "" if before is None else history.push(call.resolved, before)
        try:
            call.context.sandbox.write(call.resolved, after)
        except OSError:
            history.remove(name)
            raise


def _refuse(problem: str) -> None:
    if problem:
        raise EditorError(problem)


def optional(arguments: JSONObject, name: str) -> str:
    """A text that need not be there. Raises: TypeError: it is none."""
    return "" if arguments.get(name) is None else required(arguments, name, may_be_empty=True)


def line_span(value: object) -> tuple[int, int] | None:
    """`view_range`: two whole numbers, as a list or written as one; None when it is not given.

    Raises:
        EditorError: it is something else.
    """
    if value is None or value == "" or value == []:
        return None
    try:
        given = json.loads(value) if isinstance(value, str) else value
        if not isinstance(given, list) or len(given) != 2:
            raise ValueError
        first, last = (int(number) for number in given)
    except (ValueError, TypeError, OverflowError):
        raise EditorError(
            f"view_range must be two whole numbers such as [1, 40], or [40, -1] up to the end, not {value!r}."
        ) from None
    return first, last


def list_folder(call: Call, names: tuple[str, ...]) -> list[str]:
    """The folder, and what is in it down to the second level, links followed, hidden things left out.

    `names` are patterns of files' names, none: all. Sorted, beginning with the path as the model wrote it.

    Raises:
        EditorError: it cannot be listed.
        BrokenOffError: the run is being stopped.
    """
    base = call.resolved
    argv = ["find", "-L", base, "-mindepth", "1", "-maxdepth", "2", "-name", ".*", "-prune", "-o"]
    if names:
        argv += ["(", "-type", "d", *(part for name in names for part in ("-o", "-name", name)), ")"]
    argv += ["-print0"]
    context = call.context
    result = context.sandbox.exec(
        argv, timeout=TOOL_TIMEOUT_SECONDS, output_limit=_LISTING_BYTES, stop=context.stop
    )
    if result.interrupted:
        raise BrokenOffError
    found = result.stdout.head.decode("utf-8", "replace").split("\0")[:-1]
    if result.exit_code != 0 and not found:
        said = result.stderr.text().strip()[:300] or "it took too long"
        raise EditorError(f"{call.path} cannot be listed: {said}")
    shown = call.path.rstrip("/") or "/"
    prefix = "/" if shown == "/" else f"{shown}/"
    return [shown, *sorted(prefix + path.removeprefix(base.rstrip("/") + "/") for path in found)]
