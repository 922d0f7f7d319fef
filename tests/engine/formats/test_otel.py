"""A trace of GenAI spans is a run: steps, tools, usage, times and verdicts, in whatever order spans come."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import Span, Status, StatusCode

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document
from lab.engine.formats.catalogue import FORMATS
from lab.engine.formats.detection import probe, recognise
from lab.engine.formats.otel import OpenTelemetry, trajectory_of
from lab.engine.formats.otel_spans import GenAISpan, read_span
from lab.engine.formats.otlp_wire import PROTOBUF_TYPE, read_request
from lab.engine.formats.trajectory import (
    FailedRequest,
    Message,
    Problem,
    Rewritten,
    Trajectory,
    Turn,
)
from lab.engine.verify.base import Outcome
from tests.otel_agent import CALL, TASK, Told, as_protobuf, told, two_steps


def spans(tell: Callable[[Told], None]) -> list[GenAISpan]:
    request = read_request(as_protobuf(told(tell)), content_type=PROTOBUF_TYPE)
    read = [read_span(one.body) for one in request.spans]
    return [one for one in read if one is not None]


def run_of(tell: Callable[[Told], None]) -> Trajectory:
    found = trajectory_of(spans(tell), file="a.json")
    assert found is not None
    return found


def text_part(words: str) -> dict[str, Any]:
    return {"type": "text", "content": words}


def test_calls_become_steps_with_their_tools_usage_and_times() -> None:
    run = run_of(two_steps)
    first, last = run.turns
    assert (first.reasoning, first.finish_reason, first.model) == ("hm", "tool_call", "gpt-4o-2024-08-06")
    assert (first.usage.input_total, first.usage.input_uncached, first.usage.output_total) == (100, 60, 10)
    assert first.seconds == 2.0
    (call,) = first.calls
    assert (call.id, call.name, call.arguments) == ("c1", "bash", {"command": "pytest -q"})
    assert (call.observation, call.output, call.seconds) == ("1 failed", "1 failed in 0.1s", 1.0)
    assert last.calls == ()
    assert run.final_message == "done"
    assert run.opening == ({"role": "user", "content": "mend the parser"},)
    assert run.statement == "mend the parser"


def test_harness_model_ending_and_verdict_are_read() -> None:
    run = run_of(two_steps)
    assert (run.harness.name, run.harness.version) == ("mender", "3")
    assert (run.model.name, run.model.provider) == ("gpt-4o", "openai")
    assert run.model.sampling == {"temperature": 0.2}
    assert (run.exit_reason, run.native_reason) == (ExitReason.AGENT, "stop")
    (grading,) = run.gradings
    assert (grading.rule, grading.outcome) == ("otel:tests", Outcome.RESOLVED)
    assert run.totals.seconds == 5.0


def test_the_order_in_which_spans_come_does_not_matter() -> None:
    found = spans(two_steps)
    expected = trajectory_of(found, file="a")
    for seed in range(5):
        shuffled = [*found, found[0]]
        random.Random(seed).shuffle(shuffled)
        assert trajectory_of(shuffled, file="a") == expected


def test_without_recorded_contents_usage_and_times_stay_and_the_run_says_so() -> None:
    def bare(agent: Told) -> None:
        agent.span("chat m", {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 7}, 1)
        agent.span("execute_tool bash", {"gen_ai.tool.name": "bash"}, 1)

    run = run_of(bare)
    (turn,) = run.turns
    assert (turn.usage.input_total, turn.usage.output_total) == (7, None)
    assert turn.message == {"role": "assistant", "content": ""}
    (call,) = turn.calls
    assert (call.name, call.observation, call.synthesised_id) == ("bash", None, True)
    assert "gen_ai.output.messages" in [note.field for note in run.notes]


def test_a_call_that_failed_is_no_step() -> None:
    def fail(span: Span) -> None:
        span.set_status(Status(StatusCode.ERROR, "slow down"))

    def failing(agent: Told) -> None:
        def work() -> None:
            attributes = {"gen_ai.operation.name": "chat", "error.type": "429"}
            agent.span("chat m", attributes, 1, ending=fail)
            agent.chat([TASK], [text_part("done")], "stop")

        agent.agent(work)

    run = run_of(failing)
    failed = run.items[0]
    assert isinstance(failed, FailedRequest)
    assert (failed.error, failed.status, failed.message) == ("rate_limit", 429, "slow down")
    assert len(run.turns) == 1


def test_what_people_say_between_calls_and_a_replaced_history_are_told_apart() -> None:
    more = {"role": "user", "parts": [text_part("and the tests")]}
    fresh = {"role": "user", "parts": [text_part("summary of before")]}

    def talk(agent: Told) -> None:
        def work() -> None:
            agent.chat([TASK], [text_part("one")], "stop")
            agent.chat([TASK, more], [text_part("two")], "stop")
            agent.chat([fresh], [text_part("three")], "stop")

        agent.agent(work)

    kinds = [type(item) for item in run_of(talk).items]
    assert kinds == [Turn, Message, Turn, Rewritten, Turn]


def test_a_subagents_answers_are_marked_with_its_name() -> None:
    def nested(agent: Told) -> None:
        def below() -> None:
            agent.chat([{"role": "user", "parts": [text_part("look")]}], [text_part("seen")], "stop")

        def work() -> None:
            agent.chat([TASK], [CALL], "tool_call")
            agent.agent(below, "scout")
            agent.chat([TASK], [text_part("done")], "stop")

        agent.agent(work)

    assert [turn.agent for turn in run_of(nested).turns] == ["", "scout", ""]


OLDER: dict[str, dict[str, Any]] = {
    "numbered": {
        "attributes": {
            "gen_ai.system": "openai",
            "gen_ai.request.model": "m",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "mend it",
            "gen_ai.completion.0.content": "done",
            "gen_ai.completion.0.finish_reason": "stop",
            "gen_ai.usage.prompt_tokens": 5,
            "gen_ai.usage.completion_tokens": 6,
        },
        "events": [],
    },
    "events": {
        "attributes": {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 5}
        | {"gen_ai.usage.output_tokens": 6},
        "events": [
            ("gen_ai.user.message", {"content": "mend it"}),
            ("gen_ai.choice", {"finish_reason": "stop", "message": '{"content": "done"}'}),
        ],
    },
}


@pytest.mark.parametrize("shape", OLDER)
def test_older_ways_to_record_contents_are_read(shape: str) -> None:
    def older(agent: Told) -> None:
        def record(span: Any) -> None:
            for name, attributes in OLDER[shape]["events"]:
                span.add_event(name, attributes)

        agent.span("chat m", OLDER[shape]["attributes"], 1, ending=record)

    run = run_of(older)
    (turn,) = run.turns
    assert run.opening == ({"role": "user", "content": "mend it"},)
    assert (turn.message["content"], turn.finish_reason) == ("done", "stop")
    assert (turn.usage.input_total, turn.usage.output_total) == (5, 6)


def otlp_json(tell: Callable[[Told], None]) -> dict[str, Any]:
    request = read_request(as_protobuf(told(tell)), content_type=PROTOBUF_TYPE)
    bodies = [one.body for one in request.spans]
    scoped = [{"scope": body["scope"], "spans": [body["span"]]} for body in bodies]
    return {"resourceSpans": [{"resource": bodies[0]["resource"], "scopeSpans": scoped}]}


def document(folder: Path, text: str) -> Document:
    path = folder / "spans"
    path.write_text(text, encoding="utf-8")
    return Document("spans", path)


def test_files_of_otlp_json_are_recognised_and_a_broken_line_stops_no_other(tmp_path: Path) -> None:
    line = json.dumps(otlp_json(two_steps))
    whole = document(tmp_path, line)
    assert isinstance(recognise(FORMATS, probe(whole)), OpenTelemetry)
    assert [type(one) for one in OpenTelemetry().read([whole])] == [Trajectory]
    several = document(tmp_path, f"{line}\n{{broken\n{json.dumps(otlp_json(two_steps))}\n")
    assert isinstance(recognise(FORMATS, probe(several)), OpenTelemetry)
    found = list(OpenTelemetry().read([several]))
    assert [type(one) for one in found] == [Problem, Trajectory, Trajectory]
    assert isinstance(found[0], Problem)
    assert found[0].place == "line 2"


def test_a_trace_without_a_model_call_is_a_problem_with_its_name(tmp_path: Path) -> None:
    def web(agent: Told) -> None:
        agent.span("GET /", {"http.request.method": "GET"}, 1)

    (found,) = OpenTelemetry().read([document(tmp_path, json.dumps(otlp_json(web)))])
    assert isinstance(found, Problem)
    assert "no span of a model call" in found.message


ODD = st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.just([]) | st.just({})


@given(data=st.data())
def test_no_damage_to_a_document_breaks_the_reader(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    damaged = otlp_json(two_steps)
    for _ in range(data.draw(st.integers(1, 4))):
        holder: Any = damaged
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            key = data.draw(st.sampled_from(keys))
            if not (isinstance(holder[key], (dict, list)) and holder[key]) or data.draw(st.booleans()):
                holder[key] = data.draw(ODD)
                break
            holder = holder[key]
        if not damaged.get("resourceSpans"):
            break
    where = document(tmp_path_factory.mktemp("damaged"), json.dumps(damaged))
    for one in OpenTelemetry().read([where]):
        assert isinstance(one, (Trajectory, Problem))
