"""Harnesses that can be used and make no sense: each run with one would be worthless, unnoticed."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.presets import load_preset, preset_names
from lab.engine.harnesses.problems import Problem, warning
from lab.engine.harnesses.templates import placeholders

_SUBMITTING = frozenset({"finish", "submit"})
_RESULTS = frozenset({"text", "stdout", "stderr", "output"})


def sense_problems(config: HarnessConfig) -> Iterator[Problem]:
    """Warnings about what the model would never learn, or would take for something else."""
    yield from _unseen_task(config)
    yield from _unseen_results(config)
    yield from _submitting_without_end(config)
    yield from _tools_of_another_family(config)


def _unseen_task(config: HarnessConfig) -> Iterator[Problem]:
    names = _names(config.system_prompt) | _names(config.task_prompt)
    if "task" not in names:
        yield warning(
            "task_prompt",
            config.task_prompt,
            "never shows the task, nor does the system prompt: the model would not know what to do; write "
            "{{ task.statement }} where it shall stand",
        )


def _unseen_results(config: HarnessConfig) -> Iterator[Problem]:
    for tool in config.tools:
        template = tool.observation.template
        if template and not _names(template) & _RESULTS:
            yield warning(
                f"tools.{tool.name}.observation.template",
                template,
                "shows nothing of what the tool says; write {{ text }} where it shall stand",
            )


def _submitting_without_end(config: HarnessConfig) -> Iterator[Problem]:
    for tool in config.tools:
        if tool.executor in _SUBMITTING and tool.name != config.stop.tool:
            yield warning(
                f"tools.{tool.name}.executor",
                tool.executor,
                "tells the model that its work is submitted, and the run goes on; set stop.tool to "
                f"{tool.name}, or choose another executor",
            )


def _tools_of_another_family(config: HarnessConfig) -> Iterator[Problem]:
    """A harness whose family was changed in its YAML, and nothing else."""
    usual = _executors_by_family()
    own = {tool.executor for tool in config.tools}
    if config.family not in usual or not own or own & usual[config.family]:
        return
    others = sorted(family for family, executors in usual.items() if own <= executors)
    if others:
        names = ", ".join(tool.name for tool in config.tools)
        yield warning(
            "family",
            config.family,
            f"has the tools of another one: {names} are as in {', '.join(others)}; choose that family, or "
            f"take over the tools of a preset of {config.family}",
        )


@functools.cache
def _executors_by_family() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for preset in map(load_preset, preset_names()):
        own = frozenset(tool.executor for tool in preset.tools)
        found[preset.family] = found.get(preset.family, frozenset()) | own
    return found


def _names(template: str) -> set[str]:
    """The names that a template asks for; of one that cannot be read, which is told elsewhere, every name."""
    try:
        return placeholders(template)
    except InvalidValueError:
        return {"task", *_RESULTS}
