from __future__ import annotations

import jsonschema
import pytest

from lab.engine import registry
from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import PromptFacts
from lab.engine.harnesses.leaf import Leaf
from lab.engine.harnesses.presets import load_preset, preset_names


def test_leaf_compatible_has_leafs_five_tools_as_on_the_wire() -> None:
    wire = [tool.on_the_wire() for tool in load_preset("leaf-compatible").tools]
    shapes = {
        tool["function"]["name"]: (
            {name: field["type"] for name, field in tool["function"]["parameters"]["properties"].items()},
            tool["function"]["parameters"]["required"],
        )
        for tool in wire
    }
    assert shapes == {
        "Read": ({"file_path": "string", "offset": "integer", "limit": "integer"}, ["file_path"]),
        "Write": ({"file_path": "string", "content": "string"}, ["file_path", "content"]),
        "Edit": (
            {
                "file_path": "string",
                "old_string": "string",
                "new_string": "string",
                "replace_all": "boolean",
            },
            ["file_path", "old_string", "new_string"],
        ),
        "Glob": ({"pattern": "string", "path": "string"}, ["pattern"]),
        "Bash": ({"command": "string", "description": "string", "timeout": "number"}, ["command"]),
    }
    assert list(shapes) == ["Read", "Write", "Edit", "Glob", "Bash"]
    for tool in wire:
        assert tool["type"] == "function"
        assert "strict" not in tool["function"]
        assert "additionalProperties" not in tool["function"]["parameters"]
        jsonschema.Draft202012Validator.check_schema(tool["function"]["parameters"])


def test_leaf_compatible_has_the_limits_and_truncation_of_leafs_published_runs() -> None:
    preset = load_preset("leaf-compatible")
    limits = preset.limits
    assert (limits.max_steps, limits.max_context_tokens) == (150, 131_072)
    assert (limits.max_tokens_per_turn, limits.max_total_time_sec) == (8_192, 10_800)
    assert (limits.max_tokens_total, limits.max_cost_usd, limits.max_format_errors) == (None, None, None)
    characters = {tool.name: tool.observation.truncation.characters for tool in preset.tools}
    assert characters == {"Read": 20_000, "Write": 0, "Edit": 0, "Glob": 0, "Bash": 30_000}
    settings = {tool.name: tool.settings for tool in preset.tools if tool.settings}
    assert settings == {"Glob": {"limit": 1000}, "Bash": {"timeout_sec": 120}}
    assert preset.malformed_calls == "explain"


def test_sampling_is_suggested_and_no_part_of_the_harness() -> None:
    preset = load_preset("leaf-compatible")
    assert preset.suggested_sampling["temperature"] == 0.6
    assert preset.suggested_sampling["chat_template_kwargs"] == {"enable_thinking": True}
    other = preset.model_copy(update={"suggested_sampling": {"temperature": 1.0}, "name": "other"})
    assert other.digest == preset.digest
    assert preset.model_copy(update={"system_prompt": "x"}).digest != preset.digest


def test_the_wording_says_whose_it_is() -> None:
    assert "own" in load_preset("leaf-compatible").wording


def test_the_conversation_opens_with_the_prompt_and_the_statement_unchanged() -> None:
    preset = load_preset("leaf-compatible")
    statement = "Fix it.\n{{ not.a.template }} {% raw %}\n"
    system, user = Leaf().opening(preset, PromptFacts(statement), preset.limits)
    assert system == {"role": "system", "content": preset.system_prompt}
    assert user == {"role": "user", "content": statement}


@pytest.mark.parametrize(
    "template", ["{{ task.nothing }}", "{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{{ x", "{{ task.__class__ }}"]
)
def test_a_broken_template_is_refused_by_field(template: str) -> None:
    preset = load_preset("leaf-compatible").model_copy(update={"task_prompt": template})
    with pytest.raises(InvalidValueError, match="task_prompt"):
        Leaf().opening(preset, PromptFacts("x"), preset.limits)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    assert "leaf-compatible" in preset_names()
    with pytest.raises(InvalidValueError, match="leaf-compatible"):
        load_preset("leef")
    with pytest.raises(InvalidValueError, match="bubblewrap, docker, process"):
        registry.provider("docker-in-docker")
    with pytest.raises(InvalidValueError, match="cannot be loaded"):
        registry.family("no.such.module:Thing")


def test_every_preset_names_executors_that_exist() -> None:
    for name in preset_names():
        for tool in load_preset(name).tools:
            registry.executor(tool.executor)
