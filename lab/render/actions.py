"""The normal form of what a step does, so that the same done through two interfaces is the same action.

Subjects are a verb and its target: `read F`, `write F` (the whole file), `edit F`, `grep PATTERN`,
`find NAME`, `ls FOLDER`, `pytest OPERANDS`, `submit`, `answer`, else a program or tool and its main operand.
Paths are those in the workspace. `cat F`, `open F 12` and a tool that reads F are all `read F`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeGuard

from lab.analysis.alignment import Action
from lab.engine.key_shapes import mask_key_shapes
from lab.render.fold import CallView, Payload, StepView
from lab.render.kinds import EDITORS, FINALS, subject_of
from lab.render.normal_form import (
    StoredText,
    content_of,
    digest,
    output_of,
    path_in,
    whole_or_digest,
)
from lab.render.shell_actions import (
    Done,
    Standing,
    command_done,
    lines_edited,
    patch_applied,
    pattern_of,
    text_command,
)
from lab.render.text import Excerpt, one_line, words_of

__all__ = ["Acted", "Standing", "action_of"]

_SUBJECT_CHARACTERS = 300


class Acted(NamedTuple):
    """A step's action, and what the next steps find."""

    action: Action
    standing: Standing


def action_of(view: StepView, standing: Standing) -> Acted:
    """The action of one step; `standing` is what the steps before it left behind.

    Several calls are one action: their subjects joined by " + ", all their files. A step whose reply could
    not be executed is "not understood". Never raises, whatever a model made up.
    """
    if not view.calls:
        return Acted(_without_calls(view), standing)
    done: list[Done] = []
    for call in view.calls:
        one = _call_done(call, standing)
        standing = one.standing or standing
        done.append(one)
    kind = view.kind if view.kind == "final" or not done[0].kind else done[0].kind
    action = Action(
        kind,
        one_line(" + ".join(one.subject for one in done), _SUBJECT_CHARACTERS) or "nothing",
        whole_or_digest("\n".join(one.arguments or "" for one in done)),
        _results(view.calls, standing.roots),
        tuple(dict.fromkeys(mask_key_shapes(path) for one in done for path in one.reads)),
        tuple(dict.fromkeys(mask_key_shapes(path) for one in done for path in one.edits)),
    )
    return Acted(action, standing)


def _without_calls(view: StepView) -> Action:
    if view.told:
        detail = words_of(view.told[0].payload.get("detail"))
        return Action(view.kind, "not understood", whole_or_digest(detail))
    if view.kind == "final":
        content = content_of(view.answer.get("content"))
        return Action("final", "answer", whole_or_digest(" ".join(content.split())))
    return Action(view.kind, "pending" if view.pending else "nothing", "")


# What came of it.


def _results(calls: list[CallView], roots: tuple[str, ...]) -> str:
    """A digest of how all calls ended, exit codes included, and of what was printed; "" while one runs."""
    if any(call.ended is None for call in calls):
        return ""
    return digest(*(part for call in calls for part in _result(call, roots)))


def _result(call: CallView, roots: tuple[str, ...]) -> list[str]:
    payload = call.result
    ended = [str(payload.get("exit_code")), "interrupted" if call.interrupted else ""]
    ended += [name for name in ("timed_out", "out_of_memory", "failed", "submitted") if payload.get(name)]
    streams = [payload.get(name) for name in ("stdout", "stderr")]
    printed = [stream.get("text") for stream in streams if isinstance(stream, (dict, Mapping))]
    if not printed:
        return [*ended, output_of(payload.get("observation"), roots)]
    return [*ended, *(output_of(text, roots) for text in printed)]


# What was asked.

_NAME = re.compile(r"[^a-z0-9]+")
_READS = frozenset(("read", "view", "readfile", "viewfile", "open", "openfile", "catfile", "notebookread"))
_WRITES = frozenset(("write", "create", "writefile", "createfile", "writetofile"))
_EDITS = frozenset(
    ("edit", "insert", "strreplace", "editfile", "multiedit", "replace", "replaceinfile", "undoedit", "edits")
)
_PATTERNS = frozenset(("glob", "findfile", "globsearch", "filesearch"))
_TEXT_SEARCHES = frozenset(("grep", "search", "searchdir", "searchfile", "greps", "grepsearch", "codesearch"))
_LISTS = frozenset(("ls", "list", "listdir", "listfiles", "listdirectory"))
_PATHS = ("file_path", "filePath", "path", "filename", "file", "file_name", "target_file", "notebook_path")


def _call_done(call: CallView, standing: Standing) -> Done:
    if call.malformed:
        return Done(
            f"{_line(call.tool)} not understood", content_of(call.started.payload.get("raw_arguments"))
        )
    if call.submitted or (call.executor or call.tool).lower() in FINALS:
        message = call.arguments.get("message") or call.arguments.get("result")
        return Done("submit", content_of(message))
    name = (call.executor or call.tool).lower()
    arguments = call.arguments
    if name in EDITORS:
        return _editor(words_of(arguments.get("command")).lower(), arguments, standing)
    plain = _NAME.sub("", name)
    handler = _TOOLS.get(plain)
    if handler is not None:
        return handler(plain, arguments, standing)
    command = _command(arguments)
    if command:
        done = command_done(command, standing)
        stored = arguments.get("command") or arguments.get("cmd")
        return done._replace(arguments=content_of(stored)) if isinstance(stored, StoredText) else done
    subject = _line(subject_of(call.tool, call.executor, arguments))
    named = path_in(standing.roots, subject) if subject.startswith("/") else subject
    return Done(f"{_line(name)} {named}".strip(), _json(arguments))


def _line(text: str) -> str:
    return one_line(text, 100)


def _command(arguments: Payload) -> str:
    """The command line of a shell call, also one that comes as a list of words."""
    value = arguments.get("command") or arguments.get("cmd")
    if not isinstance(value, list):
        return words_of(value)
    words = [words_of(word) for word in value]
    if len(words) > 2 and words[0].rpartition("/")[2] in ("bash", "sh", "zsh") and words[1] in ("-c", "-lc"):
        return words[2]
    return shlex.join(words)


def _json(value: Any) -> str:
    """Arguments of any shape as text, in one order."""
    try:
        return json.dumps(value, sort_keys=True, default=_stored, ensure_ascii=False)
    except RecursionError:
        return "nested too deep"


def _stored(value: object) -> str:
    return content_of(value) if isinstance(value, Excerpt) else str(value)


def _path(arguments: Payload, standing: Standing) -> str:
    found = next((text for name in _PATHS if (text := words_of(arguments.get(name)))), "")
    return path_in(standing.roots, found)


def _word(value: object) -> str:
    return words_of(value) or (str(value) if isinstance(value, int) else "")


def _editor(command: str, arguments: Payload, standing: Standing) -> Done:
    if command == "view":
        return _read("view", arguments, standing)
    if command == "create":
        return _write("create", arguments, standing)
    return _edit(command, arguments, standing)


def _read(name: str, arguments: Payload, standing: Standing) -> Done:
    path = _path(arguments, standing)
    lines = arguments.get("view_range")
    where = ":".join(map(str, lines[:2])) if isinstance(lines, list) else _lines(arguments)
    opened = standing._replace(opened=path) if name == "open" else None
    return Done(f"read {path}".strip(), where, (path,) if path else (), kind="read", standing=opened)


def _lines(arguments: Payload) -> str:
    """Which lines are read, "" for as many as the tool shows."""
    first = arguments.get("line_number") or arguments.get("offset") or arguments.get("start_line")
    limit, last = arguments.get("limit"), arguments.get("end_line")
    if _is_count(limit):
        start = first if _is_count(first) and first else 1
        last = start + limit - 1
    return f"{_word(first) or '1'}:{_word(last)}" if last else _word(first)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value < 1_000_000_000


def _write(name: str, arguments: Payload, standing: Standing) -> Done:
    path = _path(arguments, standing)
    content = content_of(arguments.get("content", arguments.get("file_text")))
    opened = standing._replace(opened=path) if name == "create" else None
    return Done(f"write {path}".strip(), content, (), (path,) if path else (), "edit", opened)


_EDIT_NAMES = {f"{name}_{text}": name for name in ("old", "new") for text in ("str", "string", "text")}
# What says where an edit is, or is not what is edited.
_NOT_EDITED = frozenset((*_PATHS, "command", "description", "security_risk", "summary"))


def _edit(name: str, arguments: Payload, standing: Standing) -> Done:
    path = _path(arguments, standing)
    if not path and "replacement_text" in arguments:
        first, last = (_word(arguments.get(f"{end}_line")) for end in ("start", "end"))
        return lines_edited(standing, first, last, arguments["replacement_text"])
    path = path or standing.opened
    # Without what is left at its default; `old_str` of one editor is `old_string` of another.
    asked = {
        _EDIT_NAMES.get(key, key): content_of(value) if key in _EDIT_NAMES else value
        for key, value in arguments.items()
        if key not in _NOT_EDITED and value is not False and value is not None
    }
    return Done(f"edit {path}".strip(), _json(asked), (), (path,) if path else (), "edit")


def _patch(name: str, arguments: Payload, standing: Standing) -> Done:
    patch = next((text for key in ("patch", "input", "diff") if (text := words_of(arguments.get(key)))), "")
    done = patch_applied(patch, standing)
    return done._replace(arguments=_json(arguments))


def _find(name: str, arguments: Payload, standing: Standing) -> Done:
    names = ("pattern", "file_name", "glob_pattern", "query")
    pattern = next((text for key in names if (text := words_of(arguments.get(key)))), "")
    folder = words_of(arguments.get("dir") or arguments.get("path"))
    return Done(f"find {pattern_of(pattern)}".strip(), path_in(standing.roots, folder or "."), kind="read")


def _grep(name: str, arguments: Payload, standing: Standing) -> Done:
    names = ("pattern", "search_term", "query", "regex")
    pattern = next((text for key in names if (text := words_of(arguments.get(key)))), "")
    where = words_of(arguments.get("file") or arguments.get("dir") or arguments.get("path"))
    if name in ("searchdir", "searchfile"):
        folded = "search_file" if name == "searchfile" else "search_dir"
        return text_command(folded, (pattern, where), standing)
    return Done(f"grep {pattern[:100]}".strip(), _json(arguments), kind="read")


def _list(name: str, arguments: Payload, standing: Standing) -> Done:
    folder = words_of(arguments.get("path") or arguments.get("dir")) or "."
    return Done(f"ls {path_in(standing.roots, folder)}", kind="read")


_Tool = Callable[[str, Payload, Standing], Done]
_TOOLS: dict[str, _Tool] = {
    **dict.fromkeys(_READS, _read),
    **dict.fromkeys(_WRITES, _write),
    **dict.fromkeys(_EDITS, _edit),
    **dict.fromkeys(_PATTERNS, _find),
    "applypatch": _patch,
    **dict.fromkeys(_TEXT_SEARCHES, _grep),
    **dict.fromkeys(_LISTS, _list),
}
