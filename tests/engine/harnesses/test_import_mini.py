"""Configurations in the shape of mini-swe-agent's, read as data. Their wording is made up."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import jinja2
import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.base import HarnessConfig, PromptFacts
from lab.engine.harnesses.checks import errors
from lab.engine.harnesses.import_mini import import_mini
from lab.engine.harnesses.mini import MARKER, Mini
from lab.engine.harnesses.presets import load_preset
from tests.engine.harnesses.driving import call, calls, drive
from tests.engine.harnesses.recorded import Recorded, RecordedSandbox
from tests.fakes.openai_server import FakeOpenAI, says

NATIVE = """
agent:
  system_template: |
    You type commands.
  instance_template: |
    Do this in {{cwd}} on {{system}}: {{task}}

    {%- if step_limit %} In {{ step_limit }} steps.{% endif %}
  step_limit: 40
  cost_limit: 1.5
  mode: confirm
environment:
  cwd: /testbed
  timeout: 45
  interpreter: [bash, -c]
  env: {PAGER: cat}
  environment_class: docker
model:
  model_name: some/model
  observation_template: |
    {%- if output.output | length < 10000 -%}
    {"code": {{ output.returncode }}, "text": {{ output.output | tojson }}
      {%- if output.exception_info %}, "why": {{ output.exception_info | tojson }}{% endif %}}
    {%- else -%}
    {"code": {{ output.returncode }}, "head": {{ output.output[:5000] | tojson }},
      "tail": {{ output.output[-5000:] | tojson }}, "gone": {{ output.output | length - 10000 }}}
    {%- endif -%}
  format_error_template: |
    {% if finish_reason is defined and (finish_reason == "length" or (finish_reason == "tool_calls" and not has_tool_calls)) -%}
    Too long.
    {%- else -%}
    Wrong: {{error}}
    {%- endif %}
  model_kwargs:
    drop_params: true
    temperature: 0.0
    parallel_tool_calls: false
    api_key: secret-of-mine
"""  # noqa: E501
TAGGED = """
agent:
  system_template: |
    One block:

    ```mswea_bash_command
    ls
    ```
  instance_template: "{{task}} in /testbed"
environment: {cwd: /testbed}
model:
  observation_template: |
    {% if output.exception_info -%}
    <why>{{output.exception_info}}</why>
    {% endif -%}
    <code>{{output.returncode}}</code>
    {% if output.output | length < 10000 -%}
    <text>
    {{ output.output -}}
    </text>
    {%- else -%}
    <careful>
    Long.
    </careful>
    {%- set gone = output.output | length - 10000 -%}
    <head>
    {{ output.output[:5000] }}
    </head>
    <gone>
    {{ gone }} characters
    </gone>
    {%- endif -%}
  format_error_template: "{{actions|length}} blocks, {{error}}"
"""
FIRST = """
agent:
  system_template: "Type."
  instance_template: "{{task}}"
  action_observation_template: "<code>{{output.returncode}}</code>{{ output.output }}"
  timeout_template: "Stopped {{action['action']}}: {{output}}"
  format_error_template: "{{actions|length}} blocks"
  step_limit: 250
  cost_limit: 3.0
model: {model_name: some/model}
environment: {image: some/image, timeout: 60}
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str | bytes, name: str = "mine.yaml") -> Path:
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return to_file


def opening(config: HarnessConfig) -> list[str]:
    facts = PromptFacts("Fix it.\n{{ task }}", "/workspace", "Linux", "6.1", "#1", "x86_64")
    return [message["content"] for message in Mini().opening(config, facts, config.limits)]


def test_prompts_are_the_files_own_as_jinja_reads_them_there(write: Write) -> None:
    config = import_mini(write(NATIVE))
    assert (config.name, config.family, config.protocol) == ("mini-mine", "mini", "native")
    assert opening(config) == [
        "You type commands.",
        "Do this in /workspace on Linux: Fix it.\n{{ task }} In 40 steps.",
    ]
    assert errors(config) == []


def test_limits_shell_and_sampling_are_carried_over(write: Write) -> None:
    config = import_mini(write(NATIVE))
    assert config.limits.model_dump(exclude_none=True) == {
        "max_steps": 40,
        "max_cost_usd": Decimal("1.5"),
        "max_format_errors": 3,
    }
    assert config.tools[0].settings == {"timeout_sec": 45, "shell": "bash -c"}
    assert config.suggested_sampling == {"temperature": 0.0}
    assert config.parallel_tool_calls is False
    assert config.stop == load_preset("mini").stop


def test_zero_is_no_limit_and_what_is_missing_is_what_it_is_there(write: Write) -> None:
    text = NATIVE.replace("step_limit: 40", "step_limit: 0\n  wall_time_limit_seconds: 90")
    text = text.replace("cost_limit: 1.5", "max_consecutive_format_errors: 0")
    limits = import_mini(write(text)).limits.model_dump(exclude_none=True)
    assert limits == {"max_cost_usd": Decimal(3), "max_total_time_sec": 90.0}


def test_the_source_names_file_hash_and_version(write: Write) -> None:
    config = import_mini(write(NATIVE))
    assert config.source["file"] == "mine.yaml"
    assert config.source["sha256"] == hashlib.sha256(NATIVE.encode()).hexdigest()
    assert config.source["version"] == ""
    assert import_mini(write(f"mini_version: 2.4.6\n{NATIVE}")).source["version"] == "2.4.6"
    assert "mine.yaml" in config.wording
    assert import_mini(write(NATIVE, "mini.yaml")).name == "mini-imported"


def test_what_is_not_carried_over_is_named(write: Write) -> None:
    config = import_mini(write(NATIVE + "run: {workers: 4}\n"))
    assert config.source["left_out"] == [
        "agent.mode",
        "environment.cwd",
        "environment.env",
        "environment.environment_class",
        "model.model_kwargs.api_key",
        "model.model_kwargs.drop_params",
        "model.model_name",
        "run",
    ]
    assert "secret-of-mine" not in config.model_dump_json()
    (folder, protocol) = sorted(
        import_mini(write(TAGGED)).source["notes"], key=lambda note: "folder" not in note
    )
    assert "/testbed" in folder
    assert "fenced" in protocol


def test_the_protocol_is_told_from_expression_class_or_prompts(write: Write) -> None:
    def told(text: str) -> tuple[str, object]:
        config = import_mini(write(text))
        return config.protocol, config.options

    assert told(TAGGED) == ("fenced", {})
    classed = NATIVE.replace("model_name: some/model", "model_class: openrouter_textbased")
    assert told(classed) == ("fenced", {})
    expression = "model_name: some/model\n  action_regex: '{}'"
    fence = expression.format(r"```sh\s*\n(.*?)\n```")
    assert told(NATIVE.replace("model_name: some/model", fence)) == ("fenced", {"tag": "sh"})
    element = expression.format("<run_it>(.*?)</run_it>")
    assert told(NATIVE.replace("model_name: some/model", element)) == ("xml", {"tag": "run_it"})
    assert told(FIRST) == ("fenced", {"tag": "bash", "keeps_unread_replies": True})


@pytest.mark.parametrize(
    ("lines", "shell"),
    [
        ("interpreter: [bash, -c]", "bash -c"),
        ("interpreter: [/bin/bash, -lc]", "bash -lc"),
        ("environment_class: docker", "bash -lc"),
        ("environment_class: local", "bash -c"),
        ("timeout: 3", "bash -c"),
    ],
)
def test_the_shell_is_told_from_interpreter_and_place(write: Write, lines: str, shell: str) -> None:
    text = TAGGED.replace("environment: {cwd: /testbed}", f"environment: {{{lines}}}")
    assert import_mini(write(text)).tools[0].settings["shell"] == shell


OUTPUTS = (
    Recorded(""),
    Recorded("one\n"),
    Recorded("{{ output }} {% if %} <b>&\"'\\ ä\u2028\n\n\n", 3),
    Recorded("x" * 9_999),
    Recorded("ab" * 5_000, 1),
    Recorded("head" + "ä" * 20_000 + "tail\n", 137),
    Recorded("until then", None),
)


@pytest.mark.parametrize("text", [NATIVE, TAGGED])
def test_observations_are_those_that_the_templates_make_there(write: Write, text: str) -> None:
    config = import_mini(write(text.replace("timeout: 45", "timeout: 30")))
    template = jinja2.Template(
        text_of(text, "observation_template"), undefined=jinja2.StrictUndefined, keep_trailing_newline=False
    )
    command = "cat 'it'"
    for one in OUTPUTS:
        stopped = (
            f"An error occurred while executing the command: Command {command!r} timed out after 30 seconds"
        )
        expected = template.render(
            output={
                "output": one.output,
                "returncode": -1 if one.exit_code is None else one.exit_code,
                "exception_info": stopped if one.exit_code is None else "",
            }
        )
        assert observed(config, one, command) == expected


def text_of(yaml_text: str, key: str) -> str:
    import yaml

    return str(yaml.safe_load(yaml_text)["model"][key])


def observed(config: HarnessConfig, recorded: Recorded, command: str) -> str:
    """What the model sees of a command."""
    native = config.protocol == "native"
    fenced = says(f"```{config.options.get('tag', 'mswea_bash_command')}\n{command}\n```")
    first = calls(call("bash", {"command": command})) if native else fenced
    with FakeOpenAI(first, first) as server:
        sandbox = RecordedSandbox([recorded, Recorded(f"{MARKER}\n")])
        driven = drive(server, sandbox, config=config)
    assert driven.ending is not None, driven.raised
    assert driven.ending.native_reason == "Submitted"
    return str(driven.sent(1)["messages"][-1]["content"])


def test_answers_to_unreadable_replies_are_the_files_own(write: Write) -> None:
    config = import_mini(write(NATIVE))
    answers = [says("hm"), says("hm", finish="length"), calls(call("bash", {"command": "x"}))]
    with FakeOpenAI(*answers) as server:
        driven = drive(server, RecordedSandbox([Recorded(MARKER)]), config=config)
    assert driven.sent(1)["messages"][-1]["content"].startswith("Wrong: The reply holds no tool call")
    assert driven.sent(2)["messages"][-1] == {"role": "user", "content": "Too long."}


def test_a_configuration_of_version_1_has_its_own_words_for_a_time_out(write: Write) -> None:
    config = import_mini(write(FIRST))
    assert observed(config, Recorded("so far", None), "sleep 99") == "Stopped sleep 99: so far"
    assert observed(config, Recorded("done\n", 2), "true") == "<code>2</code>done\n"
    assert config.limits.max_format_errors is None
    assert config.tools[0].settings == {"timeout_sec": 60, "shell": "bash -lc"}
    assert config.source["left_out"] == ["environment.image", "model.model_name"]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("Do this", "{{ model_name }}", "agent.instance_template"),
        ("You type", "{{ HOME }}", "agent.system_template"),
        ("{{ output.returncode }}", "{{ image }}", "model.observation_template"),
        ("Wrong: {{error}}", "{{ model_response }}", "model.format_error_template"),
        ("You type", "{% for x in range(10**9) %}", "agent.system_template"),
    ],
)
def test_a_name_that_templates_cannot_have_is_refused_with_the_field_of_the_file(
    write: Write, old: str, new: str, field: str
) -> None:
    file = write(NATIVE.replace(old, new, 1))
    with pytest.raises(InvalidValueError) as raised:
        import_mini(file)
    assert str(raised.value).startswith(f"{file}: {field}: ")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("interpreter: [bash, -c]", "interpreter: [python, -c]", "environment.interpreter"),
        ("model_name: some/model", "action_regex: '(a+)+$'", "model.action_regex"),
        ("step_limit: 40", "step_limit: many", "agent.step_limit"),
        ("step_limit: 40", "step_limit: 1.5", "agent"),
        ("timeout: 45", "timeout: -1", "timeout_sec"),
        ("You type commands.", "a: [", "agent.system_template"),
        ("  model_kwargs:", "  model_kwargs: 3\n  other:", "model.model_kwargs"),
        ("agent:", "agents:", "agent.system_template is not in the file"),
    ],
)
def test_what_cannot_be_carried_over_is_refused_by_field(write: Write, old: str, new: str, said: str) -> None:
    text = NATIVE.replace(old, new, 1)
    if said.endswith("in the file"):
        assert any(said in note for note in import_mini(write(text)).source["notes"])
        return
    if "a: [" in new:
        text = NATIVE.replace("|\n    You type commands.", "[no, text]", 1)
    with pytest.raises(InvalidValueError, match=said):
        import_mini(write(text))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no configuration"),
        (b"- 1\n- 2\n", "no configuration"),
        (b"name: leaf\nfamily: leaf\n", "no configuration"),
        (b"agent: [", "YAML"),
        (b"\xff\xfe", "no text in UTF-8"),
        (b"agent: " + b"x" * 1_000_001, "larger than 1,000,000 bytes"),
    ],
)
def test_what_is_no_configuration_is_refused_with_the_files_name(
    write: Write, data: bytes, said: str
) -> None:
    file = write(data)
    with pytest.raises(InvalidValueError, match=said) as raised:
        import_mini(file)
    assert str(file) in str(raised.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"none\.yaml"):
        import_mini(tmp_path / "none.yaml")


def test_nothing_of_a_file_is_run(write: Write, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    text = f"agent: !!python/object/apply:os.system ['touch {touched}']\n"
    with pytest.raises(InvalidValueError, match="YAML"):
        import_mini(write(text))
    assert not touched.exists()


def real_configurations() -> list[Path]:
    data = os.environ.get("LAB_TEST_DATA")
    return sorted(Path(data).glob("configurations/mini-swe-agent/**/*.yaml")) if data else []


@pytest.mark.parametrize(
    "file", real_configurations() or [None], ids=lambda file: file.name if file else "none"
)
def test_real_configurations_are_read(file: Path | None) -> None:
    if file is None:
        pytest.skip(
            "absent data: set LAB_TEST_DATA to a folder with configurations/mini-swe-agent/**/*.yaml, as the "
            "package has them"
        )
    config = import_mini(file)
    assert errors(config) == []
    assert all(opening(config))
