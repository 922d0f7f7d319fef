"""Where an attempt stands after its records: times, what is in flight, what is still to be done."""

from __future__ import annotations

import datetime as dt

import pytest

from lab.engine.errors import ExitReason
from lab.engine.events import (
    AttemptContinued,
    AttemptStarted,
    ControlAsked,
    Event,
    LimitChanged,
    MessageSent,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallInterrupted,
    ModelCallStarted,
    PatchCaptured,
    Paused,
    Record,
    Resumed,
    SandboxStarted,
    ToolCallFinished,
    ToolCallInterrupted,
    ToolCallStarted,
    WorkspaceChanged,
)
from lab.engine.limits import Limits
from lab.engine.llm.base import Cost, Reply, ToolCall
from lab.engine.resume import Standing, limits_after, where_it_stands

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
STARTED = AttemptStarted(
    task={}, harness={}, model={}, limits={}, seed=1, messages=[], parameters={}, lab_version="0"
)
SANDBOX = SandboxStarted(
    sandbox="process", isolation="none", identifier="x", workspace="/w", network=True, seconds=0.1
)
VERIFYING = SANDBOX.model_copy(update={"purpose": "verification"})
MESSAGE = {"role": "user", "content": "x"}


def ask(step: int, request: int = 1) -> ModelCallStarted:
    return ModelCallStarted(step=step, request=request, body_sha256="0" * 64, message_count=1)


def answer(step: int, calls: int = 0) -> ModelCallFinished:
    wanted = tuple(ToolCall(id=f"c{place}", name="Bash", arguments="{}") for place in range(calls))
    return ModelCallFinished(
        step=step, request=1, reply=Reply(tool_calls=wanted), message=MESSAGE, cost=Cost(), context_tokens=1
    )


def begin(step: int, index: int) -> ToolCallStarted:
    return ToolCallStarted(
        step=step, index=index, call_id="c", tool="Bash", executor="bash", arguments={}, raw_arguments="{}"
    )


def end(step: int, index: int) -> ToolCallFinished:
    return ToolCallFinished(step=step, index=index, call_id="c", observation="", message=MESSAGE, seconds=0.1)


def wished(control: str, number: int) -> ControlAsked:
    return ControlAsked(control=control, person="Ada", ask=number)


def after(*told: tuple[float, Event]) -> Standing:
    """The standing after events at these seconds."""
    return where_it_stands(
        Record(seq=seq, attempt=1, at=BEGIN + dt.timedelta(seconds=seconds), event=event)
        for seq, (seconds, event) in enumerate(told, 1)
    )


def now(*events: Event) -> Standing:
    return after(*((float(at), event) for at, event in enumerate(events)))


def test_an_attempt_without_records_has_not_begun() -> None:
    assert where_it_stands([]) == Standing()


class TestTimes:
    def test_wall_time_is_from_the_first_request_to_the_last_event(self) -> None:
        standing = after((0, STARTED), (1, SANDBOX), (3, ask(1)), (8, answer(1, 1)), (9, begin(1, 1)))
        assert (standing.agent_seconds, standing.seconds) == (6, 9)

    def test_the_time_after_the_patch_is_no_wall_time(self) -> None:
        patch = PatchCaptured(exit_reason="agent", patch="")
        standing = after((0, STARTED), (1, ask(1)), (2, answer(1)), (4, patch), (90, VERIFYING))
        assert standing.agent_seconds == 3

    def test_a_pause_does_not_count_and_a_wait_for_a_retry_does(self) -> None:
        failed = ModelCallFailed(step=1, request=1, error="server", message="503", retry_in=9, seconds=1)
        standing = after(
            (0, STARTED),
            (0, ask(1)),
            (1, failed),
            (10, ask(1, 2)),
            (11, answer(1)),
            (12, Paused(person="Ada")),
            (100, Resumed(person="Ada")),
            (101, ask(2)),
        )
        assert standing.agent_seconds == 13
        assert standing.seconds == 101

    def test_what_a_service_writes_about_a_dead_attempt_is_no_time_of_it(self) -> None:
        died = ModelCallInterrupted(step=2, request=1, reason="the worker died")
        standing = after(
            (0, STARTED),
            (0, ask(1)),
            (5, answer(1)),
            (5, ask(2)),
            (60, died),
            (70, wished("pause", 1)),
            (70, Paused(person="Ada", ask=1)),
            (600, Resumed(person="Ada", ask=2)),
            (900, AttemptContinued(continuation=1)),
            (903, SANDBOX),
            (905, ask(2, 2)),
            (907, answer(2)),
        )
        assert standing.agent_seconds == 7
        assert standing.seconds == 12

    def test_what_the_worker_itself_broke_off_took_its_time(self) -> None:
        broken = ToolCallInterrupted(step=1, index=1, call_id="c", reason="max_time", seconds=30)
        standing = after((0, STARTED), (0, ask(1)), (1, answer(1, 1)), (1, begin(1, 1)), (31, broken))
        assert standing.agent_seconds == 31
        assert standing.ended is ExitReason.MAX_TIME


class TestPlace:
    def test_a_request_in_flight_is_told_with_the_event_that_ends_it(self) -> None:
        standing = now(STARTED, ask(1), answer(1), ask(2), failed(2), ask(2, 2))
        assert (standing.step, standing.requests, standing.reply) == (2, 2, None)
        (event,) = standing.interrupted("the worker died")
        assert isinstance(event, ModelCallInterrupted)
        assert (event.step, event.request, event.cost.amount, event.seconds) == (2, 2, None, None)
        assert not standing.asks_again
        assert now(STARTED, ask(1), event).asks_again

    def test_of_a_reply_the_calls_that_are_done_and_the_one_in_flight_are_known(self) -> None:
        standing = now(STARTED, ask(1), answer(1, 3), begin(1, 1), end(1, 1), begin(1, 2))
        assert standing.finished_calls == {1}
        (event,) = standing.interrupted("the worker died")
        assert isinstance(event, ToolCallInterrupted)
        assert (event.step, event.index) == (1, 2)
        standing = now(STARTED, ask(1), answer(1, 3), begin(1, 1), end(1, 1), begin(1, 2), event)
        assert (standing.interrupted_call, standing.in_flight, standing.ended) == (2, None, None)
        assert standing.interrupted("again") == []

    def test_what_a_call_changed_before_it_ran_again_is_forgotten(self) -> None:
        first, half, whole = (
            WorkspaceChanged(step=1, index=index, call_id="c", changes=[], archive=archive * 64)
            for index, archive in ((1, "a"), (2, "b"), (2, "c"))
        )
        broken_off = ToolCallInterrupted(step=1, index=2, call_id="c", reason="infrastructure_error")
        told = [STARTED, ask(1), answer(1, 2), begin(1, 1), end(1, 1), first, begin(1, 2), broken_off, half]
        assert now(*told).changes == [first]
        told += [begin(1, 2).model_copy(update={"again": True}), end(1, 2), whole]
        assert now(*told).changes == [first, whole]

    def test_a_message_after_the_last_answer_is_still_to_be_answered(self) -> None:
        sent = MessageSent(person="Ada", message=MESSAGE, ask=1)
        assert now(STARTED, ask(1), answer(1)).reply is not None
        assert now(STARTED, ask(1), answer(1), sent).reply is None

    def test_a_new_step_forgets_the_calls_of_the_one_before(self) -> None:
        standing = now(STARTED, ask(1), answer(1, 1), begin(1, 1), end(1, 1), ask(2))
        assert (standing.reply, standing.finished_calls, standing.interrupted_call) == (None, set(), 0)

    @pytest.mark.parametrize(
        ("reason", "ended"),
        [
            ("cancelled", ExitReason.CANCELLED),
            ("max_cost", ExitReason.MAX_COST),
            ("infrastructure_error", None),
            ("the worker died", None),
        ],
    )
    def test_a_limit_that_broke_something_off_ended_the_agent_and_a_death_did_not(
        self, reason: str, ended: ExitReason | None
    ) -> None:
        broken = ModelCallInterrupted(step=1, request=1, reason=reason)
        assert now(STARTED, ask(1), broken).ended is ended


def failed(step: int) -> ModelCallFailed:
    return ModelCallFailed(step=step, request=1, error="server", message="503", retry_in=1, seconds=1)


class TestWishes:
    def test_what_had_no_effect_yet_is_left_in_order(self) -> None:
        standing = now(wished("limit", 1), wished("message", 2), wished("pause", 3), wished("message", 4))
        assert [left.number for left in standing.asks] == [1, 2, 3, 4]
        assert standing.heard == {1, 2, 3, 4}

    def test_an_effect_settles_its_own_wish_alone(self) -> None:
        sent = MessageSent(person="Ada", message=MESSAGE, ask=2)
        standing = now(wished("message", 1), wished("message", 2), wished("limit", 3), sent)
        assert [left.number for left in standing.asks] == [1, 3]

    def test_a_resume_that_came_before_its_pause_took_effect_is_still_to_be_done(self) -> None:
        standing = now(wished("pause", 1), wished("resume", 2), Paused(person="Ada", ask=1))
        assert [(left.control, left.number) for left in standing.asks] == [("resume", 2)]
        assert standing.is_paused

    def test_a_second_pause_is_over_with_the_first(self) -> None:
        standing = now(
            wished("pause", 1),
            wished("pause", 2),
            Paused(person="Ada", ask=1),
            wished("resume", 3),
            Resumed(person="Ada", ask=3),
        )
        assert (standing.asks, standing.is_paused) == ([], False)

    def test_a_cancel_is_known_and_is_no_wish_of_steering(self) -> None:
        standing = now(STARTED, wished("cancel", 1), wished("attempt", 2))
        assert (standing.is_cancelled, standing.asks) == (True, [])


def test_limits_are_those_after_all_changes() -> None:
    def changed(limit: str, value: object) -> LimitChanged:
        return LimitChanged(limit=limit, before=None, after=value, person="Ada")

    limits = limits_after(
        Limits(), [changed("max_steps", 7), changed("max_cost_usd", "2.50"), changed("max_steps", None)]
    )
    assert (limits.max_steps, str(limits.max_cost_usd)) == (None, "2.50")
