"""The oracle of the kill matrix sees each kind of wrong: an oracle that is always content proves nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.oracle import problems
from tests.e2e.stories import Story

Event = dict[str, Any]


def event(kind: str, **fields: Any) -> Event:
    return {"kind": kind, "attempt": 1, **fields}


def asked(step: int, request: int = 1, *, again: bool = False) -> Event:
    return event("model_call_started", step=step, request=request, again=again)


def answered(step: int, request: int = 1, *, calls: int = 1) -> Event:
    message = {"role": "assistant", "content": f"step {step}"}
    reply = {"tool_calls": [{}] * calls}
    return event(
        "model_call_finished",
        step=step,
        request=request,
        reply=reply,
        message=message,
        cost={"amount": "0.01"},
    )


def call(kind: str, step: int, *, again: bool = False) -> Event:
    added = {"message": {"role": "tool", "content": f"result {step}"}} if kind == "finished" else {}
    return event(f"tool_call_{kind}", step=step, index=1, call_id=f"call-{step}", again=again, **added)


def good_events() -> list[Event]:
    """Two steps; a worker died during the command of the first, another during the call of the second."""
    return [
        event("attempt_started"),
        event("sandbox_started"),
        asked(1),
        answered(1),
        call("started", 1),
        call("interrupted", 1),
        event("attempt_continued", continuation=1),
        call("started", 1, again=True),
        call("finished", 1),
        asked(2),
        event("model_call_interrupted", step=2, request=1, cost={"amount": None}),
        event("attempt_continued", continuation=2),
        asked(2, 2, again=True),
        answered(2, 2, calls=0),
        event("patch_captured", patch="+ a line"),
        event("verification_started"),
        event("verification_finished", outcome="resolved"),
        event("attempt_ended", error=""),
        event("run_ended", exit_reason="agent", verdict="resolved"),
    ]


def story(events: list[Event] | None = None, **changes: Any) -> Story:
    """A good story, or one of these events; `changes` are fields of it."""
    numbered = [{**one, "seq": seq} for seq, one in enumerate(good_events() if events is None else events, 1)]
    ends = [one for one in numbered if "cost" in one]
    facts = {"cost": "0.02", "cost_unknown": 1}
    fields: dict[str, Any] = {
        "run": 7,
        "status": "ended",
        "exit_reason": "agent",
        "last_seq": len(numbered),
        "events": numbered,
        "calls": [{"seq": one["seq"]} for one in ends],
        "cost_of_calls": "0.02",
        "facts": facts,
        "folded": dict(facts),
        "attempts": [{"n": 1, "lease_until": None, "ended_at": "now"}],
        "inputs": [(one["seq"], True) for one in numbered if one["kind"] == "model_call_started"],
        "drafts": 0,
        "unseen": 0,
        "appends": [{"token": token, "last": token} for token in (1, 3, 5)],
    }
    return Story(**{**fields, **changes})


def test_a_run_that_was_continued_twice_has_no_problem() -> None:
    assert problems(story(), story()) == []


def without(number: int) -> Callable[[list[Event]], list[Event]]:
    return lambda events: events[:number] + events[number + 1 :]


def twice(number: int) -> Callable[[list[Event]], list[Event]]:
    return lambda events: events[: number + 1] + events[number:]


def changed(number: int, **fields: Any) -> Callable[[list[Event]], list[Event]]:
    return lambda events: [*events[:number], {**events[number], **fields}, *events[number + 1 :]]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        pytest.param(without(18), "does not end with its only run_ended", id="no end"),
        pytest.param(twice(18), "does not end with its only run_ended", id="two ends"),
        pytest.param(changed(18, exit_reason="max_turns"), "its exit reason is", id="another reason"),
        pytest.param(twice(0), "attempt 1 has 2 attempt_started", id="started twice"),
        pytest.param(without(17), "attempt 1 has 0 attempt_ended", id="attempt without end"),
        pytest.param(changed(14, attempt=2), "events of two attempts stand between", id="two attempts mixed"),
        pytest.param(without(10), "has no end before the next", id="a call without end"),
        pytest.param(twice(13), "ends what had not started", id="an end without start"),
        pytest.param(changed(13, request=1), "ends another than", id="the end of another try"),
        pytest.param(changed(13, step=3), "the finished model calls are of steps [1, 3]", id="a lost step"),
        pytest.param(twice(8), "have more than one result", id="a command twice"),
        pytest.param(without(8), "the results are of calls []", id="a result lost"),
        pytest.param(twice(14), "2 patch_captured", id="two patches"),
        pytest.param(changed(12, again=False), "again is False, not True", id="asked again, unmarked"),
        pytest.param(changed(9, again=True), "again is True, not False", id="marked without need"),
        pytest.param(changed(11, continuation=1), "continuation 1 is the 2th", id="continuations miscounted"),
        pytest.param(changed(13, cost={"amount": "0.02"}), "cost 0.02, its log 0.03", id="another cost"),
        pytest.param(changed(10, cost={"amount": "0"}), "are counted as unknown of 0", id="unknown as 0"),
    ],
)
def test_what_is_wrong_in_a_log_is_said(harm: Callable[[list[Event]], list[Event]], said: str) -> None:
    assert said in "\n".join(problems(story(harm(copy.deepcopy(good_events())))))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "running"}, "its status is running"),
        ({"last_seq": 3}, "last_seq is 3 of 19 events"),
        ({"events": []}, "does not end"),
        ({"appends": [{"token": token} for token in (1, 3, 1)]}, "a former lease wrote"),
        ({"calls": []}, "its calls are not those of its log"),
        ({"cost_of_calls": "0.04"}, "its calls cost 0.04"),
        ({"facts": {"cost": "0.02", "cost_unknown": 1, "steps": 2}}, "its roll-up is not"),
        ({"inputs": [(3, False), (10, True), (13, True)]}, "the inputs of the model calls [3]"),
        ({"inputs": []}, "0 inputs of 3 calls"),
        ({"drafts": 1}, "a draft is left"),
        ({"unseen": 1}, "are unseen"),
        ({"attempts": [{"n": 1, "lease_until": "soon", "ended_at": "now"}]}, "is open, or its lease is"),
    ],
)
def test_what_is_wrong_beside_the_log_is_said(change: dict[str, Any], said: str) -> None:
    found = "\n".join(problems(story(**{"folded": {"cost": "0.02", "cost_unknown": 1}, **change})))
    assert said in found


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (changed(18, verdict="unresolved"), "it ended agent, unresolved"),
        (changed(14, patch="+ another"), "its patch is another"),
        (
            changed(8, message={"role": "tool", "content": "else"}),
            "its conversation is another from message 1",
        ),
    ],
)
def test_a_run_that_did_something_else_is_told_from_one_that_was_not_harmed(
    harm: Callable[[list[Event]], list[Event]], said: str
) -> None:
    other = story(harm(good_events()))
    assert problems(other) == []
    assert said in "\n".join(problems(other, story()))
