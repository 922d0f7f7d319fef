"""Translates the tool-neutral actions of a plan into calls of whatever tools a request offers."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.engine.llm.base import JSONObject
from lab.engine.llm.scripted_xml import documented_tools, survives, written

_FINISHING = frozenset({"finish", "submit", "done", "task_complete", "attempt_completion"})
_SHELL_PARAMETERS = ("command", "cmd")
_MINI_MARKER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_FENCE = re.compile(r"```(\w*bash\w*)")
_ELEMENT = re.compile(r"<(\w*bash\w*)>[^<\n]+</\1>")


@dataclass
class Turn:
    """One turn of a scripted model, ready for the wire. `calls` are pairs of name and raw arguments."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)


class Toolbox:
    """The tools of one request, found by the shape of their parameters rather than by their family's name."""

    def __init__(self, body: JSONObject) -> None:
        self._tools: dict[str, JSONObject] = {}
        for tool in body.get("tools") or []:
            function = tool.get("function") or {}
            if isinstance(function.get("name"), str):
                self._tools[function["name"]] = function.get("parameters") or {}
        prompt = "\n".join(_text(message) for message in (body.get("messages") or [])[:2])
        self._in_text = False
        if not self._tools:
            self._tools = documented_tools(prompt)
            self._in_text = bool(self._tools)
        self._one_by_one = self._in_text or body.get("parallel_tool_calls") is False
        self._ends_by_marker = _MINI_MARKER in prompt
        fence, element = _FENCE.search(prompt), _ELEMENT.search(prompt)
        self._fence = fence.group(1) if fence else "bash"
        self._element = element.group(1) if element else ""

    def steps(self, steps: Sequence[JSONObject]) -> list[JSONObject]:
        """A plan's steps for these tools: where a turn takes one call, several actions are as many steps."""
        if not self._one_by_one:
            return list(steps)
        single: list[JSONObject] = []
        for step in steps:
            actions = step.get("parallel") or [step]
            said = {key: step[key] for key in ("say", "reasoning") if step.get(key)}
            single += [{**said, **action} if at == 0 else action for at, action in enumerate(actions)]
        return single

    def turn(self, step: JSONObject) -> Turn:
        """The turn that a plan's step means with these tools."""
        turn = self._turn(step)
        if self._in_text and turn.calls:
            blocks = [written(name, raw) for name, raw in turn.calls]
            turn.content = "\n\n".join([*([turn.content] if turn.content else []), *blocks])
            turn.calls = []
        return turn

    def _turn(self, step: JSONObject) -> Turn:
        turn = Turn(content=step.get("say") or "", reasoning=step.get("reasoning") or "")
        finish = step.get("finish")
        if finish is not None:
            self._finish(turn, finish["message"])
            return turn
        actions = step.get("parallel") or [step]
        if not self._tools:
            commands = [command for command in map(self._command, actions) if command]
            self._fenced(turn, "\n".join(commands))
            return turn
        turn.calls = [call for call in map(self._call, actions) if call is not None]
        return turn

    def _finish(self, turn: Turn, message: str) -> None:
        name = next((name for name in self._tools if name.lower() in _FINISHING), None)
        if name is not None:
            arguments = self._closing_arguments(name, message)
            turn.calls = [(name, _dump(arguments))]
            if message in arguments.values():
                return
            turn.content = f"{turn.content}\n\n{message}" if turn.content else message
            return
        turn.content = f"{turn.content}\n\n{message}" if turn.content else message
        if self._ends_by_marker:
            command = f"echo {_MINI_MARKER}"
            if self._tools:
                turn.calls = [call for call in [self._shell_call(command)] if call is not None]
            else:
                self._fenced(turn, command)

    def _closing_arguments(self, name: str, message: str) -> JSONObject:
        arguments: JSONObject = {}
        for parameter, schema in self._properties(name).items():
            choices = schema.get("enum")
            if choices:
                arguments[parameter] = "submit" if "submit" in choices else choices[0]
            elif schema.get("type", "string") == "string":
                arguments[parameter] = message
        return arguments

    def _fenced(self, turn: Turn, command: str) -> None:
        tag = self._element
        block = f"<{tag}>{command}</{tag}>" if tag else f"```{self._fence}\n{command}\n```"
        turn.content = f"{turn.content}\n\n{block}" if turn.content else block

    def _call(self, action: JSONObject) -> tuple[str, str] | None:
        malformed = action.get("malformed")
        # A harness that ends by a marker drops what it cannot read, and would be sent the same again: there
        # the raw text is a command, as it is where commands stand in the text.
        if malformed is not None and not self._ends_by_marker:
            name = self._name_of(malformed["tool"])
            return (name, malformed["raw"]) if name else None
        native = self._native_call(action)
        if native is not None and (not self._in_text or survives(native[1])):
            return native
        run = action.get("run") or {}
        command = self._command(action)
        return self._shell_call(command, timeout=run.get("timeout")) if command else None

    def _native_call(self, action: JSONObject) -> tuple[str, str] | None:
        """A call of a tool made for this kind of action, None where only a shell can do it."""
        if (read := action.get("read")) and (name := self._with("file_path", "offset")):
            wanted = {"file_path": read["path"], "offset": read.get("offset"), "limit": read.get("limit")}
            return name, _dump({key: value for key, value in wanted.items() if value is not None})
        if (write := action.get("write")) and (name := self._with("file_path", "content")):
            return name, _dump({"file_path": write["path"], "content": write["content"]})
        if edit := action.get("edit"):
            return self._native_edit(edit)
        search = action.get("search")
        if search and search.get("glob") and (name := self._with("pattern")):
            where = {"path": search["path"]} if search.get("path") else {}
            return name, _dump({"pattern": search["glob"], **where})
        return None

    def _native_edit(self, edit: JSONObject) -> tuple[str, str] | None:
        if name := self._with("file_path", "old_string", "new_string"):
            arguments = {"file_path": edit["path"], "old_string": edit["old"], "new_string": edit["new"]}
            return name, _dump(arguments)
        if name := self._with("command", "path", "old_str", "new_str"):
            arguments = {"command": "str_replace", "path": edit["path"]}
            return name, _dump({**arguments, "old_str": edit["old"], "new_str": edit["new"]})
        return None

    def _shell_call(self, command: str, *, timeout: float | None = None) -> tuple[str, str] | None:
        found = self._shell()
        if found is None:
            return None
        name, parameter = found
        arguments: JSONObject = {parameter: command}
        if timeout is not None and "timeout" in self._properties(name):
            arguments["timeout"] = timeout
        for required in self._tools[name].get("required") or []:
            arguments.setdefault(required, "")
        return name, _dump(arguments)

    def _shell(self) -> tuple[str, str] | None:
        for name in self._tools:
            for parameter in _SHELL_PARAMETERS:
                schema = self._properties(name).get(parameter)
                # A `command` with fixed choices belongs to an editor, not to a shell.
                if schema and schema.get("type", "string") == "string" and "enum" not in schema:
                    return name, parameter
        return None

    def _name_of(self, kind: str) -> str | None:
        shapes = {
            "read": ("file_path", "offset"),
            "write": ("file_path", "content"),
            "edit": ("file_path", "old_string"),
            "search": ("pattern",),
        }
        shell = self._shell()
        return (self._with(*shapes[kind]) if kind in shapes else None) or (shell[0] if shell else None)

    def _with(self, *parameters: str) -> str | None:
        return next((name for name in self._tools if set(parameters) <= self._properties(name).keys()), None)

    def _properties(self, name: str) -> dict[str, JSONObject]:
        properties: dict[str, JSONObject] = self._tools[name].get("properties") or {}
        return properties

    def _command(self, action: JSONObject) -> str:
        """The action as a shell command that needs nothing but a POSIX userland."""
        if run := action.get("run"):
            return str(run["command"])
        if read := action.get("read"):
            return _read_command(read)
        if write := action.get("write"):
            return _write_command(write["path"], write["content"])
        if edit := action.get("edit"):
            return _edit_command(edit["path"], edit["old"], edit["new"])
        if search := action.get("search"):
            return _search_command(search)
        malformed = action.get("malformed")
        return str(malformed["raw"]) if malformed else ""


def _read_command(read: JSONObject) -> str:
    path = shlex.quote(read["path"])
    first, limit = read.get("offset"), read.get("limit")
    if first is None and limit is None:
        return f"cat {path}"
    first = first or 1
    last = "$" if limit is None else first + limit - 1
    return f"sed -n '{first},{last}p' {path}"


def _search_command(search: JSONObject) -> str:
    where = shlex.quote(search.get("path") or ".")
    if search.get("pattern"):
        return f"grep -rnI --exclude-dir=.git -e {shlex.quote(search['pattern'])} {where}"
    folder, _, name = search["glob"].rpartition("/")
    command = f"find {where} -name .git -prune -o -type f -name {shlex.quote(name)}"
    if folder and folder != "**":
        command += f" -path {shlex.quote('*/' + folder.removesuffix('/**') + '/*')}"
    return command + " -print | sort"


def _write_command(path: str, content: str) -> str:
    target = shlex.quote(path)
    folder = path.rpartition("/")[0]
    prefix = f"mkdir -p {shlex.quote(folder)} && " if folder else ""
    if not content.endswith("\n"):
        return f"{prefix}printf '%s' {shlex.quote(content)} > {target}"
    mark = "EOF"
    while mark in content:
        mark += "_"
    return f"{prefix}cat > {target} <<'{mark}'\n{content}{mark}"


# Replaces a text that occurs exactly once. The texts go through the environment, because awk would read
# escapes in a -v assignment; the file is one record, because the texts may span lines.
_REPLACE = (
    'BEGIN { RS = "\\001"; ORS = "" } { old = ENVIRON["OLD"]; at = index($0, old); '
    "rest = substr($0, at + length(old)); "
    "if (!at || index(rest, old)) { bad = 1; exit 1 } "
    'print substr($0, 1, at - 1) ENVIRON["NEW"] rest } END { exit bad }'
)


def _edit_command(path: str, old: str, new: str) -> str:
    target, copy = shlex.quote(path), shlex.quote(path + ".edited")
    return (
        f"OLD={shlex.quote(old)} NEW={shlex.quote(new)} awk {shlex.quote(_REPLACE)} {target} > {copy} "
        f"&& cat {copy} > {target} && rm {copy} && echo edited {target} "
        f"|| {{ rm -f {copy}; echo 'the text to replace does not occur exactly once' >&2; false; }}"
    )


def _dump(arguments: JSONObject) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _text(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else json.dumps(content)
