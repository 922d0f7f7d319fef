"""What can be used and makes no sense is warned about, and can still be stored."""

from __future__ import annotations

import pytest

from lab.engine.harnesses.base import HarnessConfig, Observation, StopRules
from lab.engine.harnesses.checks import problems
from lab.engine.harnesses.presets import load_preset, preset_names

LEAF = load_preset("leaf-compatible")


def warned(config: HarnessConfig) -> dict[str, str]:
    found = problems(config)
    assert [problem for problem in found if problem.severity == "error"] == []
    return {problem.field: problem.message for problem in found}


def with_tool(config: HarnessConfig, name: str, **changed: object) -> HarnessConfig:
    tools = [tool.model_copy(update=changed) if tool.name == name else tool for tool in config.tools]
    return config.model_copy(update={"tools": tuple(tools)})


@pytest.mark.parametrize("name", preset_names())
def test_no_preset_is_warned_about(name: str) -> None:
    assert warned(load_preset(name)) == {}


def test_a_prompt_that_never_shows_the_task_is_warned_about() -> None:
    found = warned(LEAF.model_copy(update={"task_prompt": "Fix it."}))
    assert "{{ task.statement }}" in found["task_prompt"]
    shown = {"task_prompt": "Go on.", "system_prompt": "Mend this: {{ task.statement }}"}
    assert warned(LEAF.model_copy(update=shown)) == {}


def test_an_observation_that_shows_nothing_is_warned_about() -> None:
    field = "tools.Bash.observation.template"
    assert "{{ text }}" in warned(with_tool(LEAF, "Bash", observation=Observation(template="Done.")))[field]
    assert warned(with_tool(LEAF, "Bash", observation=Observation(template="Got {{ stdout }}"))) == {}


def test_a_tool_that_only_seems_to_submit_is_warned_about() -> None:
    config = with_tool(
        LEAF, "Glob", executor="submit", parameters={"type": "object", "properties": {}}, settings={}
    )
    assert "stop.tool" in warned(config)["tools.Glob.executor"]
    ends = config.model_copy(update={"stop": StopRules(no_tool_call=True, tool="Glob")})
    assert "tools.Glob.executor" not in warned(ends)


def test_a_harness_of_which_only_the_family_was_changed_is_warned_about() -> None:
    moved = LEAF.model_copy(update={"family": "r2e"})
    assert "leaf" in warned(moved)["family"]


def test_a_tool_more_from_another_family_is_no_mistake() -> None:
    read = LEAF.tools[0]
    config = load_preset("r2e").model_copy(update={"protocol": "native"})
    assert "family" not in warned(config.model_copy(update={"tools": (*config.tools, read)}))
