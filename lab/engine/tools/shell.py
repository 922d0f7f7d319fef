"""shell: one command, its standard output and error merged in the order they were written."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from lab.engine.llm.base import Frozen, JSONObject
from lab.engine.tools.base import (
    Settings,
    ToolContext,
    ToolResult,
    command_result,
    required,
    stream_facts,
)

# The outer shell is no bash: it would read what BASH_ENV names a first time, before the streams are one.
_MERGED = 'exec "$@" 2>&1'


class Blocked(Frozen):
    """Commands that are not run: those that are one of `exact`, and those that begin with the words of one of
    `prefixes`."""

    exact: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    def blocks(self, command: str) -> bool:
        command = command.strip()
        words = (re.escape(prefix) for prefix in self.prefixes if prefix)
        return command in self.exact or any(
            re.match(word + r"(?=$|[\s;|&<>])", command) is not None for word in words
        )


class ShellSettings(Settings):
    """`timeout_sec` holds for every command, `shell` runs it: as a login shell with -lc."""

    timeout_sec: float = Field(default=30.0, gt=0, le=86_400)
    shell: Literal["bash -c", "bash -lc"] = "bash -c"
    blocked: Blocked = Blocked()


class Shell:
    Settings = ShellSettings
    read_only = False
    needs = (("command",),)
    runs_commands = True

    def timeout(self, context: ToolContext, arguments: JSONObject) -> float | None:
        return context.settings(ShellSettings).timeout_sec

    def run(self, context: ToolContext, arguments: JSONObject) -> ToolResult:
        """What the command wrote, after a sentence when it was stopped; the merged output is `stdout`."""
        settings = context.settings(ShellSettings)
        command = required(arguments, "command")
        if "\0" in command:
            raise ValueError("command must not contain a NUL character")
        if settings.blocked.blocks(command):
            shown = command.strip().splitlines()[0][:100]
            return ToolResult(
                observation=f"The command '{shown}' cannot run here: it waits for a person or does not end.",
                failed=True,
            )
        flag = settings.shell.removeprefix("bash ")
        result = context.sandbox.exec(
            ["/bin/sh", "-c", _MERGED, "sh", "/bin/bash", flag, command],
            timeout=settings.timeout_sec,
            stop=context.stop,
        )
        output = stream_facts(result.stdout, context.redactor)
        text = output.text
        if result.timed_out:
            text = (
                f"The command took longer than {settings.timeout_sec:g} seconds and was stopped. If it waits "
                f"for input, run it so that it does not. What it wrote until then:\n{text}"
            )
        return command_result(result, text, stdout=output)
