"""A log gives back the trajectory it was made from, and of the lab's own runs all that a trajectory holds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
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
from lab.engine.formats.to_events import Standing, to_events
from lab.engine.formats.trajectory import (
    Call,
    FailedRequest,
    Grading,
    HarnessUsed,
    Item,
    Message,
    ModelUsed,
    Note,
    Origin,
    Rewritten,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import Cost, JSONObject, Reply, ToolCall, Usage
from lab.engine.verify.base import Outcome, TestOutcome, TestStatus

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
BEGUN = dt.datetime(2025, 6, 1, tzinfo=dt.UTC)
words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
names = st.text("abcdefgh_", min_size=1, max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**20) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(names, values, max_size=3)
counts = st.integers(0, 10**9)
dollars = st.none() | st.decimals(0, 100, places=4)


def messages(role: str) -> st.SearchStrategy[JSONObject]:
    return st.builds(lambda content: {"role": role, "content": content}, words)


usages = st.just(Usage()) | st.builds(
    lambda entered, left: Usage(
        input_total=entered, output_total=left, source="provider", raw={"n": entered}
    ),
    counts,
    counts,
)


@st.composite
def calls(draw: st.DrawFn, index: int) -> Call:
    observed = draw(st.none() | words)
    text = draw(words.filter(lambda output: output != observed))
    return Call(
        id=f"call_{index}",
        name=draw(names),
        arguments=draw(objects),
        raw_arguments=draw(words),
        malformed=draw(st.just("") | words),
        observation=observed,
        message={} if observed is None else draw(messages("tool")),
        output=None if observed is None else draw(st.sampled_from([None, text])),
        exit_code=None if observed is None else draw(st.none() | st.integers(0, 255)),
        failed=observed is not None and draw(st.booleans()),
        timed_out=observed is not None and draw(st.booleans()),
        submitted=observed is not None and draw(st.booleans()),
        seconds=None if observed is None else draw(st.none() | st.floats(0.25, 9)),
        synthesised_id=True,
        kept=draw(objects),
    )


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    native = draw(st.booleans())
    called = [draw(calls(index)) for index in range(draw(st.integers(0, 3)))]
    if native:
        called = [replace(call, synthesised_id=draw(st.booleans())) for call in called]
    message = draw(messages("assistant"))
    if native and called:
        message["tool_calls"] = [{"id": call.id} for call in called]
    return Turn(
        message=message,
        reasoning=draw(words),
        calls=tuple(called),
        finish_reason=draw(words),
        model=draw(words),
        response_id=draw(words),
        usage=draw(usages),
        cost_reported=draw(dollars),
        seconds=draw(st.none() | st.floats(0.25, 9)),
        first_token_seconds=draw(st.none() | st.floats(0, 9)),
        agent=draw(st.just("") | names),
        kept=draw(objects),
    )


failures = st.builds(
    FailedRequest,
    error=names,
    message=words,
    status=st.none() | st.integers(400, 599),
    usage=usages,
    cost_reported=dollars,
    seconds=st.none() | st.floats(0, 9),
    kept=objects,
)
rewritings = st.builds(
    Rewritten,
    reason=words,
    messages=st.lists(messages("user"), min_size=1, max_size=3).map(tuple),
    kept=objects,
)
persons = st.builds(Message, message=messages("user"), by=st.just("person"), kept=objects)
feedback = st.builds(Message, message=messages("user"), reason=st.just("") | names, kept=objects)


@st.composite
def item_lists(draw: st.DrawFn) -> tuple[Item, ...]:
    """Items in an order that a log can tell: the harness speaks only after a turn."""
    found: list[Item] = []
    for _ in range(draw(st.integers(0, 5))):
        after_turn = bool(found) and isinstance(found[-1], Turn)
        allowed = [turns(), failures, rewritings, persons] + ([feedback] if after_turn else [])
        found.append(draw(st.one_of(allowed)))
    return tuple(found)


gradings = st.builds(
    Grading,
    rule=names,
    outcome=st.sampled_from(Outcome),
    tests=st.lists(
        st.builds(
            TestOutcome,
            test_id=words,
            group=st.sampled_from(["fail_to_pass", "pass_to_pass"]),
            status=st.sampled_from(TestStatus),
        ),
        max_size=2,
    ).map(tuple),
    rewards=st.dictionaries(names, st.floats(0, 1), max_size=2),
    detail=words,
    log=words,
    seconds=st.none() | st.floats(0, 9),
    kept=objects,
)


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    patch = draw(st.none() | words)
    return Trajectory(
        origin=Origin(format=draw(names), file=draw(words), place=draw(words), sha256="0" * 64),
        harness=HarnessUsed(
            name=draw(names), version=draw(words), family=draw(names), config=draw(objects), complete=False
        ),
        model=ModelUsed(
            name=draw(names), provider=draw(words), base_url=draw(words), sampling=_without(draw(objects))
        ),
        instance_id=draw(words),
        statement=draw(words),
        task_kept=draw(objects),
        seed=draw(st.integers(1, 9)),
        opening=tuple(draw(st.lists(messages("user"), max_size=2))),
        tools=tuple(draw(st.lists(objects, max_size=2))),
        items=draw(item_lists()),
        exit_reason=draw(st.none() | st.sampled_from(ExitReason)),
        native_reason=draw(words),
        error=draw(words),
        final_message=draw(words),
        patch=patch,
        totals=draw(st.builds(Totals, cost=dollars, calls=st.none() | counts, seconds=st.none() | counts)),
        gradings=tuple(draw(st.lists(gradings, max_size=2))),
        steps_recorded=draw(st.booleans()),
        limits=draw(objects),
        notes=tuple(draw(st.lists(st.builds(Note, kind=st.just("guessed"), field=words), max_size=2))),
        kept=_without(draw(objects)),
    )


def _without(found: JSONObject) -> JSONObject:
    return {name: value for name, value in found.items() if name not in ("task", "tools", "model")}


def standing(found: Trajectory) -> Standing:
    harness, model = found.harness, found.model
    return Standing(
        task={"id": found.instance_id, "statement": found.statement},
        harness={
            "name": harness.name,
            "version": harness.version,
            "family": harness.family,
            "config": harness.config,
        },
        model={"name": model.name, "provider": model.provider, "base_url": model.base_url},
        seed=found.seed or 1,
        lab_version="1",
    )


def nothing_known(usage: Usage, model: str, at: dt.datetime | None) -> Cost:
    return Cost()


def logged(found: Trajectory, price: Callable[..., Cost] = nothing_known) -> list[Record]:
    timed = to_events(found, standing(found), price=price, imported_at=NOW)
    return [Record(seq=n, attempt=1, at=at, event=event) for n, (at, event) in enumerate(timed, 1)]


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
