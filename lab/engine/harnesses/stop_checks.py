"""Whether the stop rules of a harness can end a run."""

from __future__ import annotations

from collections.abc import Iterator

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.problems import Problem, error, warning
from lab.engine.harnesses.tool_checks import executor_of
from lab.engine.tools.base import runs_commands


def stop_problems(config: HarnessConfig, *, plugins: bool = False) -> list[Problem]:
    """Rules that can never fire, and a harness that has no other. `plugins` as for `checks.problems`."""
    found = [*_tool_problems(config, plugins=plugins), *_marker_problems(config, plugins=plugins)]
    stop = config.stop
    if not stop.no_tool_call and not stop.tool and not stop.marker:
        found.append(
            Problem(
                "stop",
                "",
                "has no rule that can ever fire; set no_tool_call, tool or marker",
            )
        )
    return found


def _tool_problems(config: HarnessConfig, *, plugins: bool) -> Iterator[Problem]:
    name = config.stop.tool
    if not name:
        return
    tool = config.tool(name)
    if tool is None:
        offered = ", ".join(one.name for one in config.tools) or "none"
        yield error(
            "stop.tool",
            name,
            f"can never fire, because no tool has that name; the tools are {offered}",
        )
        return
    executor = executor_of(tool, plugins=plugins)
    if executor is not None and runs_commands(executor):
        yield warning(
            "stop.tool",
            name,
            f"ends the run with the first command of {name} that succeeds; name a tool that only submits",
        )


def _marker_problems(config: HarnessConfig, *, plugins: bool) -> Iterator[Problem]:
    marker = config.stop.marker
    if not marker:
        return
    if marker != marker.strip() or len(marker.splitlines()) != 1:
        yield error(
            "stop.marker",
            marker,
            "can never fire, because a line of output is compared without the space around it; write such a "
            "line",
        )
    executors = (executor_of(tool, plugins=plugins) for tool in config.tools)
    if not any(executor is not None and runs_commands(executor) for executor in executors):
        yield error(
            "stop.marker",
            marker,
            "can never fire, because no tool runs commands that could print it; add one, or take out the "
            "marker",
        )
