"""What the model sees of a tool's text: cut by the harness's limits, and worded by its template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import ToolDefinition, Truncation
from lab.engine.harnesses.templates import render
from lab.engine.llm.base import JSONObject
from lab.engine.tools.base import ToolResult, bounded

# What a killed command has instead of an exit code, as shells and agents write it.
KILLED = -1
_NO_NAMES: Mapping[str, object] = {}


def observed(
    result: ToolResult,
    tool: ToolDefinition,
    *,
    arguments: JSONObject,
    seconds: float,
    names: Mapping[str, object] = _NO_NAMES,
) -> ToolResult:
    """The result with its observation as the model sees it; the whole text is kept beside a cut one.

    `names` are what the family lets the template use beside the common ones. A result that the template
    cannot word, for what the model or a command wrote, is shown as it is, with a note that says so.
    """
    text, dropped = cut(result.observation, tool.observation.truncation)
    whole = result.whole
    if dropped and whole is None and result.stdout is None:
        whole = bounded(result.observation)
    result = replace(result, observation=text, dropped=result.dropped + dropped, whole=whole)
    if not tool.observation.template:
        return result
    variables = observation_variables(result, tool=tool.name, arguments=arguments, seconds=seconds)
    field = f"tools.{tool.name}.observation.template"
    try:
        worded = render(field, tool.observation.template, {**variables, **names})
    except InvalidValueError as error:
        worded = f"{text}\n[not in its usual form, because {field} {error.reason}]"
    return replace(result, observation=worded)


def observation_variables(
    result: ToolResult, *, tool: str, arguments: JSONObject, seconds: float
) -> JSONObject:
    """The names an observation template may use."""
    stdout = result.stdout.text if result.stdout is not None else ""
    stderr = result.stderr.text if result.stderr is not None else ""
    return {
        "text": result.observation,
        "exit_code": KILLED if result.exit_code is None else result.exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "output": stdout + stderr if result.stdout is not None else result.observation,
        "timed_out": result.timed_out,
        "failed": result.failed,
        "seconds": round(seconds, 3),
        "tool": tool,
        "arguments": arguments,
    }


def cut(text: str, truncation: Truncation) -> tuple[str, int]:
    """The text within the limits, and how many of its characters are gone.

    A note stands where something was dropped: after the head, or between head and tail.
    """
    shown, by_lines = _cut_lines(text, truncation)
    shown, by_characters = _cut_characters(shown, truncation)
    return shown, by_lines + by_characters


def _cut_lines(text: str, truncation: Truncation) -> tuple[str, int]:
    limit = truncation.lines
    if limit <= 0:
        return text, 0
    lines = text.split("\n")
    if len(lines) <= limit:
        return text, 0
    tail = limit // 2 if truncation.keep == "head_and_tail" else 0
    first, last = lines[: limit - tail], lines[len(lines) - tail :] if tail else []
    kept = sum(map(len, first)) + sum(map(len, last)) + len(first) + len(last) - 1
    note = f"[{len(lines) - limit} lines truncated]"
    return "\n".join([*first, note, *last]), len(text) - kept


def _cut_characters(text: str, truncation: Truncation) -> tuple[str, int]:
    limit = truncation.characters
    if limit <= 0 or len(text) <= limit:
        return text, 0
    dropped = len(text) - limit
    note = f"[{dropped} characters truncated]"
    if truncation.keep == "head":
        return f"{text[:limit]}\n{note}", dropped
    tail = limit // 2
    return f"{text[: limit - tail]}\n{note}\n{text[len(text) - tail :]}", dropped
