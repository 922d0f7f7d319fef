"""Harnesses as YAML: what is written can be read by people and by the lab; what is read is not trusted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.checks import read_config
from lab.engine.harnesses.presets import load_preset, preset_names
from lab.engine.harnesses.yaml_form import from_yaml, to_yaml
from lab.engine.harnesses.yaml_reading import plain_yaml

LEAF = load_preset("leaf-compatible")


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_comes_back_as_it_was(name: str) -> None:
    preset = load_preset(name)
    assert from_yaml(to_yaml(preset)) == preset
    assert from_yaml(to_yaml(preset)).digest == preset.digest


# All that YAML can mistake for something else: other types, marks, breaks, spaces at either end, braces.
WORDS = st.sampled_from(
    [
        "yes",
        "null",
        "1e3",
        "0x10",
        "2026-01-01",
        ": ",
        " #",
        "- ",
        "{{ task }}",
        "%",
        "\t",
        "\n",
        "\n\n",
        "  ",
    ]
    + [
        "é",
        "🙂",
        "\u2028",
        "\x85",
        "\x07",
        "\x7f",
        '"',
        "'",
        "|",
        ">",
        "&a",
        "*a",
        "<<",
        "...",
        "---",
        "\r",
        "\ufeff",
    ]
)
TEXTS = st.one_of(
    st.lists(st.one_of(WORDS, st.text(max_size=5)), max_size=8).map("".join),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40),
).filter(lambda text: "\0" not in text)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**60), 2**60),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXTS,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(text=TEXTS, description=TEXTS, value=VALUES)
def test_whatever_its_texts_are_a_harness_keeps_its_digest(text: str, description: str, value: Any) -> None:
    config = LEAF.model_copy(
        update={
            "system_prompt": "{% raw %}" + text + "{% endraw %}",
            "tools": tuple(
                tool.model_copy(
                    update={"description": description, "parameters": {"type": "object", "x-": value}}
                )
                for tool in LEAF.tools
            ),
        }
    )
    written = plain_yaml(to_yaml(config))
    again = HarnessConfig.model_validate(written)
    assert again == config
    assert again.digest == config.digest


def test_prompts_are_written_as_blocks_and_defaults_are_left_out() -> None:
    config = LEAF.model_copy(update={"system_prompt": "You mend code.\n\nBe brief: it matters."})
    text = to_yaml(config)
    assert text.startswith("# A harness of Trajectory Lab")
    assert "system_prompt: |-\n  You mend code.\n\n  Be brief: it matters.\n" in text
    assert "required: [file_path]" in text
    names = [line.partition(":")[0] for line in text.splitlines() if line[0:1].isalpha()]
    assert names == ["name", "family", "protocol", "wording", "system_prompt", "tools", "stop", "limits"] + [
        *("suggested_sampling", "source")
    ]


def test_writing_is_stable() -> None:
    assert to_yaml(from_yaml(to_yaml(LEAF))) == to_yaml(LEAF)


BILLION = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["is empty", "name, family, system_prompt and tools"]),
        ("# only this\n", ["is empty"]),
        ("[1, 2]", ["holds a list"]),
        ("hello", ["holds a text"]),
        ("a: b: c", ["line 1", "is no YAML", "mapping values are not allowed"]),
        ("name: x\nfamily: leaf\nname: y", ["line 3", "'name'", "stands in line 1 already", "leave one"]),
        ("name: 2026-01-01", ["line 1", "'2026-01-01'", "is a timestamp", "put it in quotes"]),
        ("a:\n  on: x", ["line 2", "'on'", "is a name that is no text", "quotes"]),
        ("a: !!python/object/apply:os.abort []", ["python/object/apply:os.abort", "not read here"]),
        ("a: {<<: {b: c}}", ["'<<'", "write its entries out"]),
        ("a: 1\n---\nb: 2", ["line 2", "is no YAML"]),
        ("\tname: x", ["line 1", "is no YAML"]),
        ("a: " + "9" * 5000, ["line 1", "put it in quotes"]),
        ("[" * 100_000, ["line 1", "nest"]),
        ("- " * 100_000, ["line 1", "nested more than 40 levels"]),
        (BILLION, ["more than 200,000 values"]),
        ("a: &a [*a]", ["nested more than 40 levels deep by aliases"]),
        ("name: \0", ["NUL"]),
        ("name: '\ud800'", ["surrogate"]),
        ("x: " + "y" * 9_000_000, ["has 9,000,003 characters", "shorten"]),
        # Files that are something else.
        ("services:\n  web: {image: x}", ["is a compose file", "export_harness"]),
        ("agent: {}\nmodel: {}\nenvironment: {}", ["mini-swe-agent", "import_harness --mini"]),
        ("system_prompt: a\ninstance_prompt: b\ncommand_files: []", ["R2E-Gym", "import_harness --r2e"]),
        ("apiVersion: v1\nkind: Pod", ["Kubernetes"]),
        ("version: 3\nfoo: bar", ["'foo, version'", "is no harness"]),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line_and_the_way_out(text: str, words: list[str]) -> None:
    with pytest.raises(InvalidValueError) as raised:
        from_yaml(text)
    for word in words:
        assert word in str(raised.value)
    assert len(str(raised.value)) < 500


def changed(**fields: Any) -> str:
    return to_yaml(LEAF.model_copy(update=fields))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (changed(family="r2d2"), ["family: 'r2d2' is no family of harnesses", "choose one of leaf"]),
        (
            changed(options={"soft_max_steps": 30}),
            ["options.soft_max_steps: 30", "no option of the family leaf", "belongs to r2e"],
        ),
        (changed(protocol="xml"), ["protocol: 'xml' is not spoken by the family leaf; choose native"]),
        (
            changed(system_prompt="x" * 5_000_000),
            ["system_prompt: 'xxx", "has 5,000,000 characters", "shorten"],
        ),
        ("name: x\nfamily: leaf\n", ["system_prompt: is missing; write it", "tools: is missing"]),
        (to_yaml(LEAF) + "temperature: 1\n", ["temperature: 1 is not known here", "take it out"]),
    ],
)
def test_a_harness_that_cannot_be_used_is_named_by_field(text: str, words: list[str]) -> None:
    with pytest.raises(InvalidValueError) as raised:
        from_yaml(text)
    for word in words:
        assert word in str(raised.value)


def test_an_alias_that_multiplies_nothing_is_read() -> None:
    assert plain_yaml("a: &x {b: 1}\nc: *x") == {"a": {"b": 1}, "c": {"b": 1}}


def test_the_data_that_was_written_is_a_harness_for_every_door() -> None:
    assert read_config(plain_yaml(to_yaml(LEAF))) == LEAF
