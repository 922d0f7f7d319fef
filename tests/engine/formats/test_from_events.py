"""A log gives back the trajectory it was made from, and of the lab's own runs all that a trajectory holds."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.engine import events
from lab.engine.errors import ExitReason
from lab.engine.events import Event, Record
from lab.engine.formats.from_events import from_events
from lab.engine.formats.trajectory import (
    Call,
    FailedRequest,
    HarnessUsed,
    Item,
    Message,
    ModelUsed,
    Origin,
    Rewritten,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import Cost, JSONObject, Reply, ToolCall, Usage
from tests.engine.formats.made_trajectories import logged, trajectories

BEGUN = dt.datetime(2025, 6, 1, tzinfo=dt.UTC)


@given(trajectories())
@settings(max_examples=80, deadline=None)
def test_a_trajectory_comes_back_from_its_log_as_it_was(found: Trajectory) -> None:
    assert from_events(logged(found)) == found


@given(trajectories(), st.lists(st.integers(1, 600), min_size=12, max_size=12))
@settings(max_examples=40, deadline=None)
def test_recorded_times_come_back_as_they_were(found: Trajectory, waits: list[int]) -> None:
    now, items = BEGUN, list[Item]()
    for item, wait in zip(found.items, waits, strict=False):
        begun = now + dt.timedelta(seconds=wait)
        if isinstance(item, Turn):
            now = begun + dt.timedelta(seconds=wait)
            called = []
            for call in item.calls:
                # What has no result has no end either.
                start, now = now + dt.timedelta(seconds=1), now + dt.timedelta(seconds=3)
                if call.observation is None:
                    called.append(replace(call, started_at=start))
                else:
                    called.append(replace(call, started_at=start, ended_at=now, seconds=2.0))
            ended = begun + dt.timedelta(seconds=wait)
            items.append(
                replace(item, started_at=begun, ended_at=ended, seconds=float(wait), calls=tuple(called))
            )
        else:
            now = begun
            items.append(
                replace(item, at=begun, **({"seconds": 0.5} if isinstance(item, FailedRequest) else {}))
            )
    timed = replace(
        found,
        items=tuple(items),
        gradings=(),
        started_at=BEGUN,
        ended_at=now + dt.timedelta(seconds=5),
    )
    assert from_events(logged(timed)) == timed


def test_what_the_lab_priced_stands_beside_what_was_reported() -> None:
    turn = Turn(message={"role": "assistant", "content": "x"}, cost_reported=Decimal("0.5"))
    failed = FailedRequest(error="server", message="500")
    found = Trajectory(
        origin=Origin(format="x", file="", sha256=""), harness=HarnessUsed(name="x"), items=(failed, turn)
    )
    price = Cost(amount=Decimal("0.25"), basis="table")
    back = from_events(logged(found, lambda *_: price))
    assert back.turns[0].priced == price
    assert back.turns[0].cost_reported == Decimal("0.5")
    (first, _) = back.items
    assert isinstance(first, FailedRequest)
    assert (first.priced, first.cost_reported) == (price, None)


def test_a_turn_copied_from_an_earlier_trajectory_stays_one() -> None:
    raw = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    turn = Turn(
        message={"role": "assistant", "content": "x"},
        copied=True,
        usage=Usage(input_total=10, output_total=2, source="provider", raw=raw),
    )
    found = Trajectory(
        origin=Origin(format="x", file="", sha256=""), harness=HarnessUsed(name="x"), items=(turn,)
    )
    (back,) = from_events(logged(found)).turns
    assert back.copied
    assert back.usage.total == 12
    assert back.priced is None


def test_a_file_that_is_still_written_comes_back_as_one() -> None:
    call = Call(id="c", name="bash", arguments={"command": "make"})
    turn = Turn(message={"role": "assistant", "content": "x"}, calls=(call,))
    found = Trajectory(
        origin=Origin(format="x", file="", sha256=""),
        harness=HarnessUsed(name="x"),
        items=(turn,),
        partial=True,
    )
    back = from_events(logged(found))
    assert back.partial
    assert back.turns[0].calls[0].observation is None


# Logs of the lab's own.


def own_log(*found: Event, attempt: int = 1, first: int = 1) -> list[Record]:
    return [
        Record(seq=first + n, attempt=attempt, at=BEGUN + dt.timedelta(seconds=first + n), event=event)
        for n, event in enumerate(found)
    ]


def started(**changes: Any) -> events.AttemptStarted:
    fields: dict[str, Any] = {
        "task": {"id": "click-1", "title": "Mend it", "digest": "d"},
        "harness": {"name": "leaf", "digest": "e", "config": {"family": "leaf"}},
        "model": {"name": "cedar", "model_id": "cedar-large", "base_url": "http://x/v1"},
        "limits": {"max_steps": 5},
        "seed": 2,
        "messages": [{"role": "system", "content": "be good"}, {"role": "user", "content": "mend it"}],
        "parameters": {"model": "cedar-large", "temperature": 0.6, "tools": [{"type": "function"}]},
        "lab_version": "1",
    }
    return events.AttemptStarted.model_validate(fields | changes)


def asked(step: int, request: int = 1) -> events.ModelCallStarted:
    return events.ModelCallStarted(step=step, request=request, body_sha256="0", message_count=2)


def answered(step: int, *called: ToolCall, message: JSONObject | None = None, **reply: Any) -> Event:
    said = {"role": "assistant", "content": reply.get("content", "")}
    return events.ModelCallFinished(
        step=step,
        request=1,
        reply=Reply(tool_calls=called, seconds=1.0, **reply),
        message=said if message is None else message,
        cost=Cost(amount=Decimal("0.1"), basis="table"),
        context_tokens=1,
    )


def ran(step: int, identifier: str, *, index: int = 1, role: str = "tool", **changes: Any) -> list[Event]:
    return [
        events.ToolCallStarted(
            step=step,
            index=index,
            call_id=identifier,
            tool="bash",
            executor="bash",
            arguments={"command": "ls"},
            raw_arguments='{"command": "ls"}',
        ),
        events.ToolCallFinished(
            step=step,
            index=index,
            call_id=identifier,
            observation="a.py",
            message={"role": role, "content": "a.py"},
            seconds=1.0,
            **changes,
        ),
    ]


def test_the_facts_of_an_attempt_are_those_of_its_first_event() -> None:
    found = from_events(own_log(started()))
    assert (found.instance_id, found.seed, found.harness.name, found.harness.family) == (
        *("click-1", 2, "leaf", "leaf"),
    )
    assert found.model == ModelUsed(name="cedar-large", base_url="http://x/v1", sampling={"temperature": 0.6})
    assert found.tools == ({"type": "function"},)
    assert found.task_kept == {"title": "Mend it", "digest": "d"}
    assert found.partial


def test_only_the_newest_attempt_is_there_and_the_others_are_noted() -> None:
    ended = events.AttemptEnded(exit_reason="infrastructure_error", steps=1, wall_seconds=1.0)
    first = own_log(started(), asked(1), answered(1, content="lost"), ended)
    second = own_log(started(), asked(1), answered(1, content="kept"), attempt=2, first=5)
    found = from_events([*first, *second])
    assert [turn.message["content"] for turn in found.turns] == ["kept"]
    (note,) = [note for note in found.notes if note.field == "attempts"]
    assert note.detail == "attempt 1 ended with infrastructure_error; this is attempt 2"
    earlier = from_events([*first, *second], attempt=1)
    assert [turn.message["content"] for turn in earlier.turns] == ["lost"]
    assert earlier.exit_reason is ExitReason.INFRASTRUCTURE_ERROR


def test_failed_and_broken_off_requests_stand_before_the_turn_they_led_to() -> None:
    failed = events.ModelCallFailed(
        step=1, request=1, error="rate_limit", message="429", status=429, retry_in=2.0, seconds=0.1
    )
    broken = events.ModelCallInterrupted(step=1, request=2, reason="the worker died", partial="Let me")
    log = own_log(started(), asked(1), failed, asked(1, 2), broken, asked(1, 3), answered(1, content="x"))
    one, two, turn = from_events(log).items
    assert isinstance(one, FailedRequest)
    assert (one.error, one.status, one.kept) == ("rate_limit", 429, {"retry_in_seconds": 2.0})
    assert isinstance(two, FailedRequest)
    assert (two.error, two.message, two.kept) == ("interrupted", "the worker died", {"partial": "Let me"})
    assert isinstance(turn, Turn)


def test_a_reply_that_did_not_join_the_conversation_is_kept_beside_its_turn() -> None:
    told = events.HarnessMessage(
        step=1, reason="format_error", detail="2 commands", message={"role": "user", "content": "one, please"}
    )
    log = own_log(started(), asked(1), answered(1, content="two commands", message={}), told)
    turn, message = from_events(log).items
    assert isinstance(turn, Turn)
    assert (turn.message, turn.kept["left_out_reply"]) == ({}, "two commands")
    assert isinstance(message, Message)
    assert (message.by, message.reason, message.kept) == ("harness", "format_error", {"detail": "2 commands"})


def test_calls_in_text_have_made_up_names_and_a_result_that_the_user_says() -> None:
    log = own_log(started(), asked(1), answered(1, content="<function=…>"), *ran(1, "call_1_1", role="user"))
    ((call,),) = [turn.calls for turn in from_events(log).turns]
    assert call.synthesised_id
    assert call.message["role"] == "user"


def test_calls_that_the_harness_did_not_run_are_there_without_a_result() -> None:
    announced = [ToolCall(id=name, name="bash", arguments='{"command": "ls"}') for name in ("a", "b")]
    log = own_log(started(), asked(1), answered(1, *announced, content=""), *ran(1, "a"))
    first, second = from_events(log).turns[0].calls
    assert (first.id, first.observation, first.synthesised_id) == ("a", "a.py", False)
    assert (second.id, second.observation, second.arguments) == ("b", None, {"command": "ls"})
    assert second.kept == {"not_run": True}


def test_a_call_that_ran_again_after_its_worker_died_is_one_call() -> None:
    call = ran(1, "a")
    interrupted = events.ToolCallInterrupted(step=1, index=1, call_id="a", reason="the worker died")
    log = own_log(started(), asked(1), answered(1, content=""), call[0], interrupted, *call)
    ((found,),) = [turn.calls for turn in from_events(log).turns]
    assert found.observation == "a.py"


def test_history_rewritten_by_places_is_the_whole_conversation_afterwards() -> None:
    changed = events.HistoryRewritten(
        step=2, reason="condensed", replaced={1: {"role": "user", "content": "short"}, 2: {}}
    )
    log = own_log(started(), asked(1), answered(1, content="long"), changed)
    rewritten = from_events(log).items[-1]
    assert isinstance(rewritten, Rewritten)
    assert rewritten.messages == (
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "short"},
    )


def test_what_has_no_place_in_a_trajectory_is_counted() -> None:
    lost = events.SandboxLost(message="gone")
    (note,) = from_events(own_log(started(), lost, lost)).notes
    assert (note.kind, note.field) == ("lost", "sandbox_lost")
    assert note.detail.startswith("2 of the log's events")


@pytest.mark.parametrize("attempt", [None, 3])
def test_a_run_that_has_not_begun_is_a_trajectory_without_steps(attempt: int | None) -> None:
    log = [] if attempt is None else own_log(started())
    found = from_events(log, attempt=attempt)
    assert (found.items, found.partial, found.steps_recorded) == ((), True, False)
    assert found.notes[0].kind == "missing"
