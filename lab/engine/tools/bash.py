"""Bash: one command in a fresh login shell."""

from __future__ import annotations

import math

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

_SHORTEST = 0.1
# A timeout above this is taken for milliseconds.
_MOST_SECONDS = 1000.0


class BashSettings(Settings):
    """`timeout_sec` holds for a call that names none."""

    timeout_sec: float = Field(default=120.0, gt=0, le=86_400)


class Bash:
    Settings = BashSettings
    read_only = False
    needs = (("command",),)
    runs_commands = True

    def timeout(self, context: ToolContext, arguments: JSONObject) -> float | None:
        try:
            return timeout_seconds(arguments, context.settings(BashSettings).timeout_sec)
        except (TypeError, ValueError):
            return None

    def run(self, context: ToolContext, arguments: JSONObject) -> ToolResult:
        """`Exit code: <n>`, then the `STDOUT:` and `STDERR:` blocks, both always there."""
        command = required(arguments, "command")
        if "\0" in command:
            raise ValueError("embedded null byte")
        seconds = timeout_seconds(arguments, context.settings(BashSettings).timeout_sec)
        result = context.sandbox.exec(["/bin/bash", "-lc", command], timeout=seconds, stop=context.stop)
        stdout = stream_facts(result.stdout, context.redactor)
        stderr = stream_facts(result.stderr, context.redactor)
        text = f"{_status(result, seconds)}\nSTDOUT:\n{stdout.text}\nSTDERR:\n{stderr.text}"
        return command_result(result, text, stdout=stdout, stderr=stderr)


def timeout_seconds(arguments: JSONObject, default: float) -> float:
    """`timeout` in seconds (above 1000: milliseconds), or the hidden `timeout_ms`; at least 0.1.

    Raises:
        ValueError, TypeError: no number.
    """
    if arguments.get("timeout_ms") is not None:
        seconds = float(arguments["timeout_ms"]) / 1000
    elif arguments.get("timeout") is not None:
        seconds = float(arguments["timeout"])
        if seconds > _MOST_SECONDS:
            seconds /= 1000
    else:
        seconds = default
    if not math.isfinite(seconds):
        raise ValueError("timeout must be a finite number of seconds")
    return max(seconds, _SHORTEST)


def _status(result: ExecResult, seconds: float) -> str:
    if result.timed_out:
        return f"Timed out after {seconds:.1f}s"
    return f"Exit code: {'unknown (killed)' if result.exit_code is None else result.exit_code}"
