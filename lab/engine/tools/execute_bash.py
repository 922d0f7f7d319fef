"""execute_bash: R2E-Gym's shell, one command without state and a few refused ones."""

from __future__ import annotations

from pydantic import Field

from lab.engine.llm.base import JSONObject
from lab.engine.sandboxes.base import ExecResult
from lab.engine.tools.base import (
    Settings,
    ToolContext,
    ToolResult,
    command_result,
    required,
    stream_facts,
)


class ExecuteBashSettings(Settings):
    """`timeout_sec` holds for every command. `blocked` are words that no command may begin with."""

    timeout_sec: float = Field(default=90.0, gt=0, le=86_400)
    blocked: tuple[str, ...] = ("cd", "ipython", "jupyter", "pip", "nohup")


class ExecuteBash:
    Settings = ExecuteBashSettings
    read_only = False
    needs = (("cmd",),)
    runs_commands = True

    def timeout(self, context: ToolContext, arguments: JSONObject) -> float | None:
        return context.settings(ExecuteBashSettings).timeout_sec

    def run(self, context: ToolContext, arguments: JSONObject) -> ToolResult:
        """The sections `[STDOUT]` and `[STDERR]`, both always there, without white space around either.

        A command that was killed has no exit code: harnesses write -1 for it.
        """
        settings = context.settings(ExecuteBashSettings)
        command = required(arguments, "cmd")
        if "\0" in command:
            raise ValueError("cmd must not contain a NUL character")
        first = (command.split() or [""])[0]
        if first in settings.blocked:
            return ToolResult(
                observation=f"Commands that begin with '{first}' are not allowed. Find another way.",
                failed=True,
                exit_code=1,
            )
        result = context.sandbox.exec(
            ["/bin/bash", "-c", command], timeout=settings.timeout_sec, stop=context.stop
        )
        stdout = stream_facts(result.stdout, context.redactor)
        stderr = stream_facts(result.stderr, context.redactor)
        sections = f"[STDOUT]\n\n{stdout.text.strip()}\n\n[STDERR]\n\n{stderr.text.strip()}\n"
        observation = _beginning(result, settings.timeout_sec) + sections
        return command_result(result, observation, stdout=stdout, stderr=stderr)


def _beginning(result: ExecResult, seconds: float) -> str:
    if result.timed_out:
        return f"The command took longer than {seconds:g} seconds and was stopped.\n\n"
    return "" if result.exit_code == 0 else "The command failed.\n\n"
