"""Two harnesses side by side: what differs is named, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.difference import (
    Difference,
    content_differences,
    differences,
    differences_beside,
)

BASH = {
    "name": "Bash",
    "executor": "bash",
    "description": "Run a command.",
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
}
GLOB = {"name": "Glob", "executor": "glob", "description": "List files.", "parameters": {"type": "object"}}


def harness(**changes: Any) -> HarnessConfig:
    base = {"name": "base", "family": "leaf", "system_prompt": "Work.\nThen stop.", "tools": [BASH, GLOB]}
    return HarnessConfig.model_validate({**base, **changes})


def found(left: HarnessConfig, right: HarnessConfig) -> list[tuple[str, str]]:
    return [(difference.kind, difference.path) for difference in differences(left, right)]


def test_equal_harnesses_have_no_differences_whatever_they_are_called() -> None:
    other = harness(
        name="other", wording="mine", suggested_sampling={"temperature": 1}, source={"kind": "own"}
    )
    assert differences(harness(), other) == []
    assert other.digest == harness().digest
    assert [difference.path for difference in differences_beside(harness(), other)] == [
        "name",
        "wording",
        "suggested_sampling.temperature",
        "source.kind",
    ]


def test_a_changed_prompt_is_a_text_and_a_changed_limit_is_a_value() -> None:
    other = harness(system_prompt="Work.\nThen answer.", limits={"max_steps": 20})
    assert differences(harness(), other) == [
        Difference("system_prompt", "changed", "Work.\nThen stop.", "Work.\nThen answer.", is_text=True),
        Difference("limits.max_steps", "changed", 100, 20),
    ]


def test_a_tool_under_another_name_is_renamed_and_not_removed_and_added() -> None:
    shell = {**BASH, "name": "Shell", "description": "Run it."}
    assert differences(harness(), harness(tools=[shell, GLOB])) == [
        Difference("tools.Bash", "renamed", "Bash", "Shell"),
        Difference("tools.Bash.description", "changed", "Run a command.", "Run it.", is_text=True),
    ]


def test_a_tool_that_one_side_lacks_is_shown_whole() -> None:
    less = harness(tools=[BASH])
    (removed,) = differences(harness(), less)
    (added,) = differences(less, harness())
    assert (removed.kind, removed.path, removed.left["executor"], removed.right) == (
        *("removed", "tools.Glob"),
        *("glob", None),
    )
    assert (added.kind, added.path, added.left, added.right["executor"]) == (
        *("added", "tools.Glob"),
        *(None, "glob"),
    )


def test_a_schema_is_compared_property_by_property() -> None:
    parameters = {
        "type": "object",
        "properties": {"command": {"type": "string"}, "wait for": {"type": "number"}},
        "required": [],
    }
    changed = {**BASH, "parameters": parameters}
    assert found(harness(), harness(tools=[changed, GLOB])) == [
        ("added", 'tools.Bash.parameters.properties."wait for"'),
        ("changed", "tools.Bash.parameters.required"),
    ]


def test_another_executor_behind_the_same_name_is_a_change_of_that_tool() -> None:
    assert found(harness(), harness(tools=[{**BASH, "executor": "python"}, GLOB])) == [
        ("changed", "tools.Bash.executor")
    ]


def test_of_two_tools_with_one_executor_the_nearest_is_the_renamed_one() -> None:
    far = {**BASH, "name": "Script", "description": "Another.", "parameters": {"type": "object"}}
    near = {**BASH, "name": "Shell"}
    assert found(harness(tools=[BASH]), harness(tools=[far, near])) == [
        ("renamed", "tools.Bash"),
        ("added", "tools.Script"),
    ]


def test_the_order_of_tools_is_a_difference_because_the_model_sees_it() -> None:
    (order,) = differences(harness(), harness(tools=[GLOB, BASH]))
    assert (order.path, order.left, order.right) == ("tools (order)", ["Bash", "Glob"], ["Glob", "Bash"])


@pytest.mark.parametrize("right", [True, 1.0, "1", None])
def test_values_that_only_python_takes_for_equal_differ_as_they_do_in_the_digest(right: object) -> None:
    assert [difference.path for difference in content_differences({"x": 1}, {"x": right})] == ["x"]


def test_configurations_that_no_family_reads_are_compared_as_they_are() -> None:
    left = {"name": "imported", "tools": "unknown", "rounds": {"a": 1}}
    assert [(d.kind, d.path) for d in content_differences(left, {"tools": [BASH], "rounds": {}})] == [
        ("changed", "tools"),
        ("removed", "rounds.a"),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"system_prompt": ""},
        {"parallel_tool_calls": False},
        {"limits": {"max_cost_usd": "2.5"}},
        {"tools": [GLOB, BASH]},
        {"tools": [BASH, {**GLOB, "name": "Find"}]},
        {"tools": [BASH, {**GLOB, "parameters": {"type": "object", "minProperties": 1.0}}]},
        {"tools": []},
    ],
)
def test_whatever_changes_the_digest_is_named(change: dict[str, Any]) -> None:
    other = harness(**change)
    assert other.digest != harness().digest
    assert differences(harness(), other)
