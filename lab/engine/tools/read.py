"""Read: numbered lines of a text file."""

from __future__ import annotations

import re

from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import Settings, ToolContext, ToolResult, file_path, local_error, whole_number

_LINE_END = re.compile(r"\r\n|\r|\n")


class Read:
    Settings = Settings
    read_only = True
    needs = (("file_path", "path"),)

    def timeout(self, context: ToolContext, arguments: JSONObject) -> float | None:
        return None

    def run(self, context: ToolContext, arguments: JSONObject) -> ToolResult:
        """The displayed path, then `<number>. <text>` for at most `limit` lines from line `offset` on."""
        path = file_path(arguments)
        first = max(whole_number(arguments, "offset") or 1, 1)
        limit = whole_number(arguments, "limit") or 0
        resolved = context.resolve(path)
        try:
            data = context.sandbox.read(resolved)
        except OSError as error:
            raise local_error(error, path) from None
        lines = _LINE_END.split(context.redactor.text(data.decode("utf-8", "replace")))
        if lines[-1] == "":
            lines.pop()
        chosen = lines[first - 1 : first - 1 + limit if limit > 0 else None]
        numbered = [f"{number}. {line}" for number, line in enumerate(chosen, start=first)]
        return ToolResult(observation="\n".join([context.shown(path), *numbered]))
