"""What every family's loop owes: no text of a model ends a run, and no message of a person is lost."""

from __future__ import annotations

import json

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.events import (
    HarnessMessage,
    MessageSent,
    ModelCallStarted,
    ToolCallFinished,
    ToolCallInterrupted,
)
from lab.engine.harnesses.base import HarnessConfig, Observation
from lab.engine.harnesses.conversation import check_inputs
from lab.engine.harnesses.presets import load_preset
from lab.engine.sandboxes.base import Sandbox
from lab.engine.steering import Ask, Steering
from tests.engine.harnesses.driving import PRESET, Driven, bash, call, calls, drive
from tests.fakes.openai_server import Answer, FakeOpenAI, says

# More than a template may write.
HUGE = "x" * 2_100_000
SWE_AGENT = load_preset("swe-agent")
MINI = load_preset("mini")


def run(sandbox: Sandbox, config: HarnessConfig, *answers: Answer, **options: object) -> Driven:
    with FakeOpenAI(*answers) as server:
        driven = drive(server, sandbox, config=config, **options)  # type: ignore[arg-type]
    assert check_inputs(driven.records).differing == []
    assert driven.raised is None
    return driven


def observed_by(template: str) -> HarnessConfig:
    tools = [tool.model_copy(update={"observation": Observation(template=template)}) for tool in PRESET.tools]
    return PRESET.model_copy(update={"tools": tuple(tools)})


@pytest.mark.parametrize("template", ["{{ arguments | tojson }}", "{{ text }} {{ arguments.timeout }}"])
def test_a_result_that_the_harness_cannot_word_is_shown_as_it_is(sandbox: Sandbox, template: str) -> None:
    config = observed_by(template)
    driven = run(sandbox, config, calls(bash("echo here", note=HUGE)), says("done"))
    assert driven.reason == "agent"
    (finished,) = driven.events(ToolCallFinished)
    assert "here" in finished.observation
    assert "tools.Bash.observation.template" in finished.observation
    assert len(finished.observation) < 2_000
    assert driven.changed == [(1, 1)]


def test_feedback_that_cannot_word_a_reply_gives_way_to_the_familys_own(sandbox: Sandbox) -> None:
    config = MINI.model_copy(update={"feedback": {"format_error": "{{ error }} {{ raw * 1 }}"}})
    driven = run(sandbox, config, says(HUGE), calls(call("bash", {"command": f"echo {MINI.stop.marker}"})))
    assert driven.reason == "agent"
    (told,) = driven.events(HarnessMessage)
    assert "no tool call" in json.dumps(told.message)


@pytest.mark.parametrize("name", ["leaf-compatible", "swe-agent", "mini"])
def test_a_name_of_a_tool_as_long_as_a_book_costs_a_step(sandbox: Sandbox, name: str) -> None:
    config = load_preset(name)
    driven = run(
        sandbox, config.model_copy(update={"limits": config.limits.model_copy(update={"max_steps": 1})}),
        calls(call(HUGE, {})),
    )  # fmt: skip
    assert driven.reason == "max_turns"
    told = [
        event.message for event in driven.sink.events if isinstance(event, HarnessMessage | ToolCallFinished)
    ]
    assert len(told) == 1
    assert len(json.dumps(told)) < 10_000


ENDINGS = {
    "submit tool": (
        SWE_AGENT,
        [calls(call("submit", {}), prompt=100), calls(call("submit", {}), prompt=100)],
    ),
    "exit": (SWE_AGENT, [calls(call("bash", {"command": "exit"}))]),
    "marker": (MINI, [calls(call("bash", {"command": f"echo {MINI.stop.marker}"}))]),
    "marker among calls": (
        MINI,
        [calls(call("bash", {"command": f"echo {MINI.stop.marker}"}), call("bash", {"command": "echo b"}))],
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_agent_that_hands_in_hears_a_message_first(sandbox: Sandbox, ending: str) -> None:
    config, answers = ENDINGS[ending]
    steering = Steering()

    def ask(event: object) -> None:
        if isinstance(event, ModelCallStarted) and event.step == len(answers):
            steering.put(Ask("message", "Ada", 1, {"text": "Not yet."}))

    driven = run(sandbox, config, *answers, answers[-1], steering=steering, on_event=ask)
    assert driven.reason == "agent"
    assert [event.message["content"] for event in driven.events(MessageSent)] == ["Not yet."]
    assert len(driven.server.calls) == len(answers) + 1
    *_, last = driven.sent(len(answers))["messages"]
    assert last == {"role": "user", "content": "Not yet."}


def test_what_a_call_did_is_kept_where_the_harness_cannot_word_its_message(sandbox: Sandbox) -> None:
    config = load_preset("r2e").model_copy(
        update={"feedback": {"steps_left": "{{ 10 // (remaining - 39) }} steps"}}
    )
    reply = says("<function=execute_bash><parameter=cmd>echo here</parameter></function>")
    with FakeOpenAI(reply) as server:
        driven = drive(server, sandbox, config=config)
    assert isinstance(driven.raised, InvalidValueError)
    (broken_off,) = driven.events(ToolCallInterrupted)
    assert "feedback.steps_left" in broken_off.reason
    assert broken_off.stdout is not None
    assert broken_off.stdout.text == "here\n"
