"""A run as ATIF: what the reference models take, and what our own reader makes of it."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import atif
from hypothesis import given, settings

from lab.engine.errors import ExitReason
from lab.engine.formats.exported import written
from lab.engine.formats.trajectory import (
    Aside,
    Call,
    FailedRequest,
    Grading,
    HarnessUsed,
    Item,
    Message,
    ModelUsed,
    Origin,
    Rewritten,
    Trajectory,
    Turn,
)
from lab.engine.formats.write_atif import Atif, document
from lab.engine.llm.base import Cost, JSONObject, Usage
from lab.engine.verify.base import Outcome
from tests.engine.formats.made_trajectories import exported, trajectories

AT = dt.datetime(2025, 6, 1, 12, tzinfo=dt.UTC)


def trajectory(*items: Item, **changes: Any) -> Trajectory:
    fields: dict[str, Any] = {
        "origin": Origin(format="trajectory-lab", file="", sha256=""),
        "harness": HarnessUsed(name="leaf", version="4"),
        "model": ModelUsed(name="cedar-large"),
        "instance_id": "click-1",
        "opening": ({"role": "system", "content": "be good"}, {"role": "user", "content": "mend it"}),
        "items": items,
    }
    return Trajectory(**(fields | changes))


def turn(**changes: Any) -> Turn:
    call = Call(
        id="a",
        name="bash",
        arguments={"command": "ls"},
        raw_arguments='{"command": "ls"}',
        observation="a.py",
        message={"role": "tool", "tool_call_id": "a", "content": "a.py"},
        exit_code=0,
    )
    usage = Usage(input_total=100, cache_read=80, output_total=7, reasoning=3, source="provider")
    message = {"role": "assistant", "content": "look", "tool_calls": [{"id": "a"}]}
    made = Turn(
        message=message, reasoning="hm", calls=(call,), usage=usage, ended_at=AT, model="cedar-large-2"
    )
    return replace(made, **changes)


def of(*items: Item, **changes: Any) -> JSONObject:
    """The document after it was written and read, which the reference models take."""
    found: JSONObject = json.loads(written(document(exported(trajectory(*items, **changes)))))
    atif.Trajectory.model_validate(found)
    return found


@given(trajectories())
@settings(max_examples=60, deadline=None)
def test_the_reference_models_take_every_document(found: Trajectory) -> None:
    (member,) = Atif().members([exported(found)])
    atif.Trajectory.model_validate_json(b"".join(member.pieces))


def test_a_turn_is_a_step_of_the_agent_with_its_calls_and_what_came_of_them() -> None:
    system, user, step = of(turn())["steps"]
    assert (system["source"], user["source"], user["message"]) == ("system", "user", "mend it")
    assert step["source"] == "agent"
    assert (step["message"], step["reasoning_content"], step["model_name"]) == ("look", "hm", "cedar-large-2")
    assert step["timestamp"] == "2025-06-01T12:00:00+00:00"
    assert step["llm_call_count"] == 1
    (call,) = step["tool_calls"]
    assert (call["tool_call_id"], call["function_name"], call["arguments"]) == (
        "a",
        "bash",
        {"command": "ls"},
    )
    (result,) = step["observation"]["results"]
    assert (result["source_call_id"], result["content"]) == ("a", "a.py")
    assert result["extra"]["exit_code"] == 0


def test_what_is_not_known_is_left_out_and_no_zero() -> None:
    found = of(turn(usage=Usage(), ended_at=None), turn())
    assert "metrics" not in found["steps"][2]
    assert "timestamp" not in found["steps"][2]
    metrics = found["final_metrics"]
    assert metrics["extra"] == {"requests_with_unknown_cost": 2, "model_calls": 2}
    assert metrics["total_steps"] == 4
    assert not {"total_prompt_tokens", "total_cost_usd"} & metrics.keys()


def test_tokens_and_cost_are_those_recorded_and_say_who_says_so() -> None:
    priced = Cost(amount=Decimal("0.25"), basis="table")
    reported = turn(cost_reported=Decimal("0.5"), priced=priced)
    found = of(reported, turn(priced=priced))
    first, second = (step["metrics"] for step in found["steps"][2:])
    assert (first["prompt_tokens"], first["completion_tokens"], first["cached_tokens"]) == (100, 7, 80)
    assert first["extra"]["reasoning_tokens"] == 3
    assert (first["cost_usd"], first["extra"]["cost_source"]) == (0.5, "reported")
    assert first["extra"]["cost_usd_by_lab_prices"] == 0.25
    assert (second["cost_usd"], second["extra"]["cost_source"]) == (0.25, "table")
    total = found["final_metrics"]
    assert (total["total_cost_usd"], total["total_prompt_tokens"], total["total_cached_tokens"]) == (
        0.75,
        200,
        160,
    )
    assert total["extra"]["cost_source"] == "reported+table"


def test_malformed_arguments_stand_beside_what_the_executor_got() -> None:
    call = Call(id="a", name="bash", arguments={}, raw_arguments='{"command": ', malformed="ends too early")
    (made,) = of(turn(calls=(call,)))["steps"][2]["tool_calls"]
    assert made["arguments"] == {}
    assert made["extra"] == {"raw_arguments": '{"command": ', "malformed": "ends too early"}


def test_a_failed_request_stands_with_the_answer_that_followed_it() -> None:
    failed = FailedRequest(error="rate_limit", message="429", status=429)
    found = of(failed, turn(), failed)
    assert found["steps"][2]["extra"]["failed_requests"][0]["status"] == 429
    assert found["extra"]["failed_requests"][0]["error"] == "rate_limit"


def test_messages_between_turns_say_who_spoke_and_why() -> None:
    told = Message(message={"role": "user", "content": "one command"}, reason="format_error")
    sent = Message(message={"role": "user", "content": "stop"}, by="person")
    first, second = of(turn(), told, sent)["steps"][3:]
    assert (first["source"], first["extra"]) == ("user", {"by": "harness", "reason": "format_error"})
    assert (second["message"], second["extra"]) == ("stop", {"by": "person"})


def test_a_rewritten_history_is_a_step_with_the_new_messages() -> None:
    new = ({"role": "user", "content": "in short"},)
    step = of(turn(), Rewritten(reason="condensed", messages=new))["steps"][3]
    assert step["source"] == "system"
    assert step["extra"]["history_rewritten"] == {"reason": "condensed", "messages": [new[0]]}


def test_a_reply_that_the_harness_left_out_is_there_with_its_words() -> None:
    step = of(turn(message={}, calls=(), kept={"left_out_reply": "two commands"}))["steps"][2]
    assert step["message"] == "two commands"
    assert step["extra"]["kept"] == {"left_out_reply": "two commands"}


def test_the_end_the_patch_and_the_verdict_are_kept() -> None:
    grading = Grading(rule="swe-bench", outcome=Outcome.RESOLVED, rewards={"reward": 1.0})
    found = of(turn(), exit_reason=ExitReason.AGENT, native_reason="Submitted", patch="", gradings=(grading,))
    extra = found["extra"]
    assert (extra["instance_id"], extra["exit_reason"], extra["native_reason"]) == (
        "click-1",
        "agent",
        "Submitted",
    )
    assert extra["patch"] == ""
    assert extra["gradings"] == [{"rule": "swe-bench", "outcome": "resolved", "rewards": {"reward": 1.0}}]
    assert "patch" not in of(turn())["extra"]


def test_the_document_says_what_the_format_does_not_carry() -> None:
    notes = of(turn())["notes"]
    assert all(sentence in notes for sentence in Atif.lost)


def test_what_is_neither_turn_nor_message_keeps_its_place() -> None:
    aside = Aside(name="hook", kept={"x": 1})
    assert of(turn(), aside)["extra"]["asides"] == [{"after_step": 3, "name": "hook", "kept": {"x": 1}}]


def test_texts_that_json_cannot_hold_are_written_so_that_it_can() -> None:
    found = of(turn(message={"role": "assistant", "content": "\ud800 \x00 \u202e"}, kept={"x": float("nan")}))
    assert found["steps"][2]["message"] == "\ufffd \x00 \u202e"
    assert found["steps"][2]["extra"]["kept"] == {"x": "NaN"}
