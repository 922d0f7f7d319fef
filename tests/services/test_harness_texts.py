"""What a harness's texts hide: characters that turn text around, and schemas that refer to elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.presets import load_preset, preset_names
from lab.services.harness_texts import text_warnings

LEAF = load_preset("leaf-compatible")
OVERRIDE = chr(0x202E)


def with_schema(**schema: Any) -> HarnessConfig:
    tool = LEAF.tools[-1].model_copy(update={"parameters": {"type": "object", **schema}})
    return LEAF.model_copy(update={"tools": (*LEAF.tools[:-1], tool)})


@pytest.mark.parametrize("name", preset_names())
def test_nothing_is_said_of_a_preset(name: str) -> None:
    assert text_warnings(load_preset(name)) == []


def test_a_character_that_turns_text_around_is_named_with_its_place() -> None:
    prompt = f"One.\nTwo {OVERRIDE}eerht{chr(0x202C)}."
    (found,) = text_warnings(LEAF.model_copy(update={"system_prompt": prompt}))
    assert (found.field, found.severity) == ("system_prompt", "warning")
    assert found.message.startswith(
        "holds RIGHT-TO-LEFT OVERRIDE (U+202E) at line 2, character 5 and 1 more such: "
    )
    # It stands in the message as an escape, and turns nothing around there.
    assert found.value == r"'One.\nTwo \u202eeerht\u202c.'"


@pytest.mark.parametrize("code", [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
def test_every_control_of_direction_is_found_wherever_it_stands(code: int) -> None:
    text = f"a{chr(code)}b"
    places = {
        "wording": LEAF.model_copy(update={"wording": text}),
        "task_prompt": LEAF.model_copy(update={"task_prompt": text}),
        "stop.marker": LEAF.model_copy(update={"stop": LEAF.stop.model_copy(update={"marker": text})}),
        "feedback.malformed": LEAF.model_copy(update={"feedback": {"malformed": text}}),
        "tools.Bash.parameters.properties.command.description": with_schema(
            properties={"command": {"type": "string", "description": text}}
        ),
        # The name of an argument, at what holds it.
        "tools.Bash.parameters.properties": with_schema(properties={text: {"type": "string"}}),
        "tools.Bash.parameters.required.1": with_schema(required=[text]),
    }
    for place, config in places.items():
        (found,) = text_warnings(config)
        assert found.field == place
        assert f"(U+{code:04X}) at character 2:" in found.message


def test_other_languages_and_signs_are_no_concern() -> None:
    prompt = "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u200b\u00a0 \U0001f469\u200d\U0001f52c"
    assert text_warnings(LEAF.model_copy(update={"system_prompt": prompt})) == []


def test_of_very_many_texts_that_hold_some_a_few_are_named() -> None:
    properties = {f"p{number}": {"description": OVERRIDE} for number in range(200)}
    assert len(text_warnings(with_schema(properties=properties))) == 20


def test_a_reference_in_a_schema_is_warned_about_once_a_tool() -> None:
    schema = with_schema(
        properties={"command": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/many"}]}, "b": {"$ref": "#"}}
    )
    (found,) = text_warnings(schema)
    assert found.field == "tools.Bash.parameters.properties.command.anyOf.2.$ref"
    assert found.severity == "warning"
    assert found.value == "'#/$defs/many'"
    assert "many servers and models do not follow one" in found.message


def test_what_only_looks_like_a_reference_is_none() -> None:
    named = with_schema(properties={"$ref": {"type": "string"}}, default={"$ref": "#"}, enum=[{"$ref": "#"}])
    assert text_warnings(named) == []
