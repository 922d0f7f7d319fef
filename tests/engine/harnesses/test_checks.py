"""Every mistake that a person can make in a harness, and what is said of it."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.engine import registry
from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig, PromptFacts
from lab.engine.harnesses.checks import problems, read_config
from lab.engine.harnesses.presets import load_preset, preset_names
from lab.engine.harnesses.problems import InvalidConfigError, Problem
from tests.house.tree import ROOT

LEAF = load_preset("leaf-compatible")
Change = Callable[[dict[str, Any]], Any]


def harness(change: Change = lambda raw: None) -> dict[str, Any]:
    """The preset as data, changed."""
    raw = LEAF.model_dump(mode="json")
    change(raw)
    return raw


def refused(raw: object) -> tuple[Problem, ...]:
    with pytest.raises(InvalidConfigError) as raised:
        read_config(raw)
    return raised.value.problems


def tool(raw: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in raw["tools"] if one["name"] == name)
    return found


def put(path: str, value: Any) -> Change:
    """Sets one value; a step that names a tool goes to it."""

    def change(raw: dict[str, Any]) -> None:
        *steps, last = path.split("/")
        at: Any = raw
        for step in steps:
            at = tool(raw, step) if at is raw["tools"] else at[step]
        at[last] = value

    return change


def again(name: str) -> Change:
    return lambda raw: raw["tools"].append(tool(raw, name))


def all_of(*changes: Change) -> Change:
    def change(raw: dict[str, Any]) -> None:
        for one in changes:
            one(raw)

    return change


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"
MARKER_ALONE = {"no_tool_call": False, "marker": "DONE"}


@pytest.mark.parametrize("name", preset_names())
def test_presets_have_no_problems_and_no_warnings(name: str) -> None:
    assert problems(load_preset(name)) == []


@pytest.mark.parametrize(
    ("change", "field", "value", "way_out"),
    [
        # Families, protocols and what belongs to them.
        (put("family", "claude"), "family", "'claude'", "choose one of leaf"),
        (put("family", "os:abort"), "family", "'os:abort'", "choose one of leaf"),
        (put("protocol", "fenced"), "protocol", "'fenced'", "choose native"),
        (put("protocol", "html"), "protocol", "'html'", "choose 'native', 'xml' or 'fenced'"),
        (put("malformed_calls", "requery"), "malformed_calls", "'requery'", "choose explain, as_leaf"),
        (put("options", {"pace": 3}), "options.pace", "3", "leave it out"),
        (put("feedback/steps", "Go on."), "feedback.steps", "'Go on.'", "it says malformed, no_call"),
        (put("feedback/malformed", "{{ why }}"), "feedback.malformed", "'{{ why }}'", "detail, raw, tool"),
        # Templates.
        (put("system_prompt", "In {{ repo }}"), "system_prompt", "{{ repo }}", "workspace"),
        (put("task_prompt", "{{ task.title }}"), "task_prompt", "{{ task.title }}", "statement"),
        (put("task_prompt", "{% if x"), "task_prompt", "{% if x", "is no template"),
        (put("system_prompt", ENDLESS), "system_prompt", "{% for a in range", "loop over less"),
        (put("system_prompt", "x" * 5_000_000), "system_prompt", "'xxx", "5,000,000 characters"),
        (put("system_prompt", "x" * 200_001), "system_prompt", "'xxx", "at most 200,000 are taken"),
        (put("tools/Read/description", "x" * 200_001), "tools.Read.description", "'xxx", "shorten it"),
        (
            put("tools/Bash/observation/template", "{{ returncode }}"),
            "tools.Bash.observation.template",
            "{{ returncode }}",
            "exit_code",
        ),
        (
            put("tools/Bash/observation/template", "{{ arguments.command }}"),
            "tools.Bash.observation.template",
            "{{ arguments.command }}",
            "asks for 'arguments.command'",
        ),
        (put("system_prompt", "a\0b"), "system_prompt", "'a\\x00b'", "take it out"),
        (put("system_prompt", "a\ud800b"), "system_prompt", "'a\\ud800b'", "take it out"),
        # Tools.
        (put("tools", []), "tools", "", "add at least one"),
        (again("Bash"), "tools.Bash.name", "'Bash'", "rename or leave out all but one"),
        (put("tools/Glob/name", "List files"), "tools.List files.name", "'List files'", "letters, digits"),
        (put("tools/Glob/name", "x" * 65), f"tools.{'x' * 65}.name", "'xxx", "1 to 64"),
        (put("tools/Glob/executor", "globe"), "tools.Glob.executor", "'globe'", "choose one of bash"),
        (put("tools/Glob/executor", "os:abort"), "tools.Glob.executor", "'os:abort'", "choose one of bash"),
        (put("tools/Glob/settings", {"limit": -1}), "tools.Glob.settings.limit", "-1", "greater than or"),
        (put("tools/Glob/settings", {"most": 5}), "tools.Glob.settings.most", "5", "known: limit"),
        (
            put("tools/Glob/observation/truncation/keep", "tail"),
            "tools.Glob.observation.truncation.keep",
            "'tail'",
            "choose 'head' or 'head_and_tail'",
        ),
        # Schemas.
        (put("tools/Read/parameters", ["path"]), "tools.Read.parameters", "['path']", "must be a mapping"),
        (put("tools/Read/parameters/type", "objekt"), "tools.Read.parameters.type", "'objekt'", "object"),
        (put("tools/Read/parameters/type", "array"), "tools.Read.parameters.type", "'array'", '"object"'),
        (put("tools/Read/parameters/required", "path"), "tools.Read.parameters.required", "'path'", "array"),
        (
            put("tools/Read/parameters/properties/offset/type", "int"),
            "tools.Read.parameters.properties.offset.type",
            "'int'",
            "a type is one of array, boolean, integer",
        ),
        (
            put("tools/Read/parameters/properties/offset", True),
            "tools.Read.parameters.properties.offset",
            "True",
            'write such as {"type": "string"}',
        ),
        (put("tools/Read/parameters/required", [1]), "tools.Read.parameters.required.1", "1", "'string'"),
        # Stop rules.
        (put("stop", {"no_tool_call": False}), "stop", "", "set no_tool_call, tool or marker"),
        (put("stop/tool", "Submit"), "stop.tool", "'Submit'", "the tools are Read, Write"),
        (put("stop/marker", "DONE\nNOW"), "stop.marker", "'DONE\\nNOW'", "can never fire"),
        (put("stop/marker", " DONE"), "stop.marker", "' DONE'", "without the space around it"),
        (
            all_of(put("stop", MARKER_ALONE), lambda raw: raw["tools"].pop()),
            "stop.marker",
            "'DONE'",
            "no tool runs commands",
        ),
        # Limits and the rest.
        (put("limits/max_steps", 0), "limits.max_steps", "0", "or null for no limit"),
        (put("limits/max_cost_usd", "NaN"), "limits.max_cost_usd", "NaN", "finite number"),
        (
            put("limits/max_total_time_sec", 1e13),
            "limits.max_total_time_sec",
            "10000000000000.0",
            "write fewer",
        ),
        (put("limits/max_turns", 3), "limits.max_turns", "3", "take it out"),
        (put("name", ""), "name", "''", "write one line of text"),
        (put("name", "leaf@2"), "name", "'leaf@2'", "leave it out"),
        (put("name", "x" * 101), "name", "'xxx", "at most 100"),
        (put("temperature", 0.6), "temperature", "0.6", "take it out"),
        (put("parallel_tool_calls", "perhaps"), "parallel_tool_calls", "'perhaps'", "true or false"),
        (
            put("suggested_sampling", {"top_p": float("inf")}),
            "suggested_sampling.top_p",
            "inf",
            "leave it out",
        ),
        (put("options", {1: 2}), "options", "{1: 2}", "put it in quotes"),
    ],
)
def test_a_mistake_is_named_with_field_value_and_way_out(
    change: Change, field: str, value: str, way_out: str
) -> None:
    raw = harness(change)
    found = {problem.field: problem for problem in refused(raw)}
    assert field in found, list(map(str, found.values()))
    assert value in found[field].value
    assert way_out in found[field].message
    assert len(str(found[field])) < 700


def test_everything_that_is_wrong_is_said_at_once() -> None:
    change = all_of(
        put("protocol", "xml"), put("tools/Glob/executor", "globe"), put("stop/tool", "Submit"), again("Bash")
    )
    found = refused(harness(change))
    assert [problem.field for problem in found] == [
        *("protocol", "tools.Bash.name", "tools.Glob.executor", "stop.tool")
    ]


def test_the_error_is_one_that_every_edge_shows_and_says_where_the_harness_came_from() -> None:
    with pytest.raises(InvalidValueError) as raised:
        read_config(harness(put("family", "claude")), source="mine.yaml")
    assert raised.value.field == "family"
    assert str(raised.value).startswith(
        "mine.yaml: family: 'claude' is no family of harnesses; choose one of"
    )


@pytest.mark.parametrize("raw", [None, [], "name: x", 5, {}])
def test_what_is_no_harness_at_all_is_refused(raw: object) -> None:
    assert refused(raw)


def test_a_harness_that_is_nested_too_deeply_is_refused_quickly() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    (problem,) = refused(harness(put("options", deep)))
    assert "make it flatter" in problem.message


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        (put("tools/Write/name", "read"), "tools.read.name", "differs from Read in case alone"),
        (
            lambda raw: tool(raw, "Bash")["parameters"]["properties"].pop("command"),
            "tools.Bash.parameters.properties",
            "has no command, which the executor bash reads",
        ),
        (
            put("tools/Bash/parameters/required", ["command", "why"]),
            "tools.Bash.parameters.required",
            "asks for why",
        ),
        (
            put("tools/Bash/observation/truncation/characters", 3),
            "tools.Bash.observation.truncation.characters",
            "next to nothing",
        ),
        (put("stop/tool", "Bash"), "stop.tool", "first command of Bash that succeeds"),
        (put("limits/max_tokens_per_turn", 200_000), "limits.max_tokens_per_turn", "one reply may fill"),
        (
            put("tools/Read/parameters/properties/offset/pattern", "("),
            "tools.Read.parameters.properties.offset.pattern",
            "may be refused",
        ),
    ],
)
def test_what_is_odd_is_a_warning_and_forbids_nothing(change: Change, field: str, said: str) -> None:
    config = read_config(harness(change))
    warnings = [problem for problem in problems(config) if problem.field == field]
    assert [problem.severity for problem in warnings] == ["warning"]
    assert said in warnings[0].message


def test_no_bound_at_all_is_a_warning() -> None:
    config = LEAF.model_copy(update={"limits": LEAF.limits.lifted(list(type(LEAF.limits).model_fields))})
    assert [(one.field, one.severity) for one in problems(config)] == [("limits", "warning")]


def test_another_familys_option_is_told_whose_it_is() -> None:
    found = refused(harness(put("options", {"soft_max_steps": 40})))
    assert "belongs to r2e" in found[0].message


@pytest.mark.parametrize("protocol", ["fenced", "xml"])
def test_a_tool_that_no_command_in_a_text_can_reach_is_refused(protocol: str) -> None:
    mini = load_preset("mini").model_dump(mode="json") | {"protocol": protocol}
    assert read_config(mini).protocol == protocol
    (unreached,) = refused(mini | {"tools": [*mini["tools"], tool(harness(), "Read")]})
    assert unreached.field == "tools.Read"
    assert "can never be called" in unreached.message
    other = mini["tools"][0] | {"executor": "execute_bash", "settings": {}}
    (unfit,) = refused(mini | {"tools": [other]})
    assert (unfit.field, unfit.message) == (
        "tools.bash.executor",
        "takes no command alone; choose one of bash, shell",
    )


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a harness as data."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in entries:
        yield (*place, key)
        yield from places(inner, (*place, key))


RAW = {name: load_preset(name).model_dump(mode="json") for name in preset_names()}
SPOTS = [(name, place) for name, raw in RAW.items() for place in places(raw)]
ODD = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    "{{ y }}",
    "xml",
    [],
    {},
    [1],
    ["a"],
    [[]],
    {"a": 1},
    {"a": True},
    10**30,
]


@settings(max_examples=150, deadline=None)
@given(spot=st.sampled_from(SPOTS), value=st.sampled_from(ODD))
def test_whatever_stands_somewhere_the_harness_can_be_used_or_its_problems_are_named(
    spot: tuple[str, tuple[Any, ...]], value: Any
) -> None:
    name, (*steps, last) = spot
    raw = copy.deepcopy(RAW[name])
    at: Any = raw
    for step in steps:
        at = at[step]
    at[last] = value
    config, found = None, ()
    try:
        config = read_config(raw)
    except InvalidConfigError as refusal:
        found = refusal.problems
    assert all(problem.field and problem.message for problem in found)
    if config is not None:
        assert registry.family(config.family).opening(config, PromptFacts("It fails."), config.limits)


def test_code_of_ones_own_is_taken_only_where_the_door_allows_it() -> None:
    path = "lab.engine.harnesses.leaf:Leaf"
    change = all_of(put("family", path), put("tools/Bash/executor", "lab.engine.tools.bash:Bash"))
    assert len(refused(harness(change))) == 2
    assert read_config(harness(change), plugins=True).family == path


def test_a_harness_that_was_built_in_code_is_checked_as_one_that_was_read() -> None:
    config = HarnessConfig(name="x", family="leaf", system_prompt="{{ nobody }}", tools=LEAF.tools)
    assert [problem.field for problem in problems(config)] == ["system_prompt"]


def test_reading_a_schemas_rules_costs_no_process_its_start() -> None:
    code = (
        "import sys, lab.engine.__main__, lab.engine.harnesses.checks\n"
        "print([name for name in sys.modules if name.startswith(('jsonschema', 'referencing'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"
