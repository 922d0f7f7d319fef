from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.utils import timezone
from pytest_django.fixtures import Settings

from lab.engine.errors import ExitReason, LeaseLostError
from lab.models import Attempt, Endpoint, Event, Experiment, Model, Run, RunFacts
from lab.services import endpoints, log, queue, runs
from lab.services.queue import Claim
from tests.services import events as ev
from tests.services.builders import launched, person


def claim() -> Claim:
    found = queue.claim_next(worker="w")
    assert found is not None
    return found


def append(held: Claim, *events: Any) -> None:
    log.append(run_id=held.run.pk, attempt=held.attempt.n, lease_token=held.lease_token, events=events)


def expire(held: Claim) -> None:
    Attempt.objects.filter(pk=held.attempt.pk).update(lease_until=timezone.now() - dt.timedelta(seconds=1))


def kinds(run_id: int) -> list[str]:
    return list(Event.objects.filter(run_id=run_id).order_by("seq").values_list("kind", flat=True))


class TestClaiming:
    def test_a_claim_opens_an_attempt_under_a_lease(self, alice: User) -> None:
        run = launched(alice).runs.get()
        held = claim()
        run.refresh_from_db()
        assert (held.run, held.attempt.n, held.attempt.worker) == (run, 1, "w")
        assert (run.status, run.started_at is not None) == (Run.Status.PREPARING, True)
        assert held.attempt.lease_until is not None
        assert held.attempt.lease_until > timezone.now()

    def test_a_doubled_message_finds_nothing_more_to_claim(self, alice: User) -> None:
        launched(alice)
        claim()
        assert queue.claim_next(worker="w") is None
        assert Attempt.objects.count() == 1

    def test_arms_are_claimed_in_turn(self, alice: User) -> None:
        launched(alice, models=endpoints.sync_scripted(), runs_wanted=2)
        assert [claim().run.arm.letter for _ in range(4)] == ["A", "B", "A", "B"]

    def test_the_lab_has_no_more_runs_at_once_than_slots(self, alice: User, settings: Settings) -> None:
        settings.LAB_RUN_SLOTS = 2
        launched(alice, runs_wanted=3)
        first = claim()
        claim()
        assert queue.claim_next(worker="w") is None
        append(first, ev.attempt_ended(), ev.run_ended())
        assert queue.claim_next(worker="w") is not None

    def test_an_endpoint_gets_no_more_at_once_than_its_limit_and_others_go_on(self, alice: User) -> None:
        narrow = Endpoint.objects.create(name="narrow", scripted=True, concurrency_limit=1)
        slow = Model.objects.create(endpoint=narrow, name="slow", model_id="slow")
        launched(alice, models=[slow, endpoints.sync_scripted()[0]], runs_wanted=2)
        assert [claim().run.arm.model.name for _ in range(3)] == [
            "slow",
            "scripted/solver",
            "scripted/solver",
        ]
        assert queue.claim_next(worker="w") is None

    def test_an_experiment_gets_no_more_at_once_than_its_concurrency(self, alice: User) -> None:
        experiment = launched(alice, runs_wanted=2)
        Experiment.objects.update(concurrency=1)
        assert claim().run.experiment == experiment
        other = launched(alice)
        assert claim().run.experiment == other
        assert queue.claim_next(worker="w") is None

    def test_a_paused_experiments_runs_wait(self, alice: User) -> None:
        launched(alice)
        Experiment.objects.update(state=Experiment.State.PAUSED)
        assert queue.claim_next(worker="w") is None
        assert queue.startable_runs() == 0

    def test_eligibility_is_one_query(self, alice: User, django_assert_num_queries: Any) -> None:
        launched(alice, models=endpoints.sync_scripted(), runs_wanted=3)
        with django_assert_num_queries(1):
            assert len(Run.objects.claimable(slots=8)) == 6

    def test_a_long_queue_before_a_full_server_costs_no_count_for_each_run_of_it(self, alice: User) -> None:
        narrow = Endpoint.objects.create(name="narrow", scripted=True, concurrency_limit=1)
        model = Model.objects.create(endpoint=narrow, name="slow", model_id="slow")
        run = launched(alice, models=[model]).runs.get()
        claim()
        more = (
            Run(experiment=run.experiment, arm=run.arm, task=run.task, seed=seed) for seed in range(2, 4000)
        )
        Run.objects.bulk_create(more)
        connection.ensure_connection()
        looked = [0]

        def count() -> None:
            looked[0] += 1

        # SQLite calls this every so many of its instructions: work is counted, not time.
        connection.connection.set_progress_handler(count, 1000)
        try:
            assert queue.claim_next(worker="w") is None
            assert queue.startable_runs() == 0
        finally:
            connection.connection.set_progress_handler(None, 0)
        assert looked[0] < 2000

    @pytest.mark.django_db(transaction=True)
    def test_of_many_workers_at_once_each_gets_another_run(self) -> None:
        launched(person(), runs_wanted=4, seeds=2)
        found: list[Claim | None] = []

        def look() -> None:
            found.append(queue.claim_next(worker="w"))
            connections.close_all()

        threads = [threading.Thread(target=look) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        got = [one.run.pk for one in found if one is not None]
        assert len(got) == len(set(got)) == 8
        assert Attempt.objects.count() == 8


class TestSettling:
    def test_a_verdict_ends_the_run(self, alice: User) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_ended())
        again = queue.settle(claim=held, retryable=False, reason=ExitReason.AGENT, verdict="resolved")
        run = Run.objects.get()
        assert (again, run.status, run.exit_reason) == (False, Run.Status.ENDED, "agent")
        assert log.read_records(run_id=run.pk)[-1].event == ev.run_ended()

    def test_an_infrastructure_error_is_tried_three_times(self, alice: User) -> None:
        launched(alice)
        tokens = []
        for expected in (True, True, False):
            held = claim()
            tokens.append(held.lease_token)
            append(held, ev.attempt_ended("infrastructure_error", retryable=True))
            reason = ExitReason.INFRASTRUCTURE_ERROR
            assert queue.settle(claim=held, retryable=True, reason=reason, verdict=None) is expected
        assert tokens == sorted(set(tokens))
        assert Run.objects.get().status == Run.Status.ENDED
        assert list(Attempt.objects.values_list("n", flat=True)) == [1, 2, 3]
        assert queue.claim_next(worker="w") is None

    def test_what_would_not_get_better_is_not_tried_again(self, alice: User) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_ended("llm_query_error"))
        assert not queue.settle(claim=held, retryable=False, reason=ExitReason.LLM_QUERY_ERROR, verdict=None)
        assert Run.objects.get().exit_reason == "llm_query_error"

    def test_a_cancel_that_came_while_it_broke_is_not_forgotten(self, alice: User) -> None:
        run = launched(alice).runs.get()
        held = claim()
        runs.cancel(run=run, by=alice)
        append(held, ev.attempt_ended("infrastructure_error", retryable=True))
        reason = ExitReason.INFRASTRUCTURE_ERROR
        assert not queue.settle(claim=held, retryable=True, reason=reason, verdict=None)
        assert Run.objects.get().exit_reason == "cancelled"
        assert kinds(run.pk) == ["attempt_ended", "control_asked", "run_ended"]

    def test_settling_twice_ends_a_run_once(self, alice: User) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_ended())
        for _ in range(2):
            queue.settle(claim=held, retryable=False, reason=ExitReason.AGENT, verdict=None)
        assert kinds(held.run.pk) == ["attempt_ended", "run_ended"]

    def test_a_worker_that_was_frozen_after_its_attempt_ended_does_not_end_a_queued_run(
        self, alice: User
    ) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_ended("infrastructure_error", retryable=True))
        expire(held)
        assert queue.settle_abandoned() == [held.run.pk]
        reason = ExitReason.INFRASTRUCTURE_ERROR
        assert not queue.settle(claim=held, retryable=True, reason=reason, verdict=None)
        assert Run.objects.get().status == Run.Status.QUEUED
        assert claim().attempt.n == 2

    def test_a_lease_covers_the_time_between_the_end_of_an_attempt_and_its_settling(
        self, alice: User
    ) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_ended())
        assert queue.look(claim=held).held
        assert queue.renew(claim=held).held
        queue.release(claim=held)
        assert queue.settle_abandoned() == [held.run.pk]
        assert not queue.look(claim=held).held

    def test_the_lease_of_an_earlier_attempt_does_not_protect_a_later_one(self, alice: User) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_ended("infrastructure_error", retryable=True))
        queue.settle(claim=held, retryable=True, reason=ExitReason.INFRASTRUCTURE_ERROR, verdict=None)
        expire(claim())
        assert queue.settle_abandoned() == [held.run.pk]


class TestAbandoned:
    def test_nothing_is_taken_from_a_worker_whose_lease_holds(self, alice: User) -> None:
        launched(alice)
        claim()
        assert queue.settle_abandoned() == []

    def test_what_was_in_flight_is_interrupted_with_unknown_cost_and_the_run_goes_on(
        self, alice: User
    ) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_started(), ev.sandbox_started(), ev.call_started(1))
        expire(held)
        second = claim()
        assert (second.run, second.attempt.n) == (held.run, 2)
        assert second.lease_token > held.lease_token + 1
        assert kinds(held.run.pk)[-2:] == ["model_call_interrupted", "attempt_ended"]
        ended = log.read_records(run_id=held.run.pk)[-1].event
        assert (ended.exit_reason, ended.retryable) == ("infrastructure_error", True)
        assert "died or stopped" in ended.error
        rolled = RunFacts.objects.get()
        assert (rolled.cost, rolled.cost_unknown) == (None, 1)
        with pytest.raises(LeaseLostError):
            append(held, ev.call_finished(1))

    def test_a_command_in_flight_is_interrupted(self, alice: User) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_started(), ev.call_started(1), ev.call_finished(1), ev.tool_started(1))
        expire(held)
        queue.settle_abandoned()
        assert kinds(held.run.pk)[-2:] == ["tool_call_interrupted", "attempt_ended"]

    def test_a_call_whose_id_is_endless_is_interrupted_like_any_other(self, alice: User) -> None:
        launched(alice)
        held = claim()
        call_id = "call_" + "x" * 10_000
        append(held, ev.attempt_started(), ev.tool_started(1).model_copy(update={"call_id": call_id}))
        expire(held)
        assert queue.settle_abandoned() == [held.run.pk]
        interrupted = log.read_records(run_id=held.run.pk)[-2].event
        assert (interrupted.kind, interrupted.call_id) == ("tool_call_interrupted", call_id)

    def test_a_run_whose_log_cannot_be_read_ends_and_keeps_no_other_waiting(self, alice: User) -> None:
        launched(alice, runs_wanted=2)
        broken, other = claim(), claim()
        append(broken, ev.attempt_started(), ev.call_started(1))
        Event.objects.filter(run=broken.run, kind="model_call_started").update(payload={})
        expire(broken)
        expire(other)
        assert queue.settle_abandoned() == [broken.run.pk, other.run.pk]
        assert kinds(broken.run.pk)[-2:] == ["attempt_ended", "run_ended"]
        ended = Event.objects.get(run=broken.run, kind="attempt_ended").payload
        assert (ended["exit_reason"], ended["retryable"]) == ("internal_error", False)
        assert "cannot be read" in ended["error"]
        assert claim().run == other.run

    def test_a_verdict_that_was_reached_before_the_worker_died_is_kept(self, alice: User) -> None:
        launched(alice)
        held = claim()
        append(held, *ev.whole_run()[:-2])
        assert kinds(held.run.pk)[-1] == "verification_finished"
        expire(held)
        assert queue.settle_abandoned() == [held.run.pk]
        ended, last = (record.event for record in log.read_records(run_id=held.run.pk)[-2:])
        assert (ended.exit_reason, ended.retryable) == ("agent", False)
        assert "died or stopped" in ended.error
        assert last == ev.run_ended("agent", "resolved")

    def test_a_verification_that_broke_off_with_its_worker_is_no_verdict(self, alice: User) -> None:
        launched(alice)
        held = claim()
        append(held, *ev.whole_run()[:-3])
        assert "verification_started" in kinds(held.run.pk)
        expire(held)
        assert (claim().attempt.n, RunFacts.objects.get().verdict) == (2, "")

    def test_a_run_whose_workers_keep_dying_ends_after_three_attempts(self, alice: User) -> None:
        launched(alice)
        for _ in range(3):
            expire(claim())
        assert queue.claim_next(worker="w") is None
        run = Run.objects.get()
        assert (run.status, run.exit_reason) == (Run.Status.ENDED, "infrastructure_error")
        assert kinds(run.pk) == ["attempt_ended"] * 3 + ["run_ended"]

    def test_an_orderly_stop_of_the_lab_is_none_of_the_three_attempts(self, alice: User) -> None:
        launched(alice)
        for _ in range(4):
            queue.release(claim=claim(), handed_over=True)
        for _ in range(2):
            expire(claim())
        assert claim().attempt.n == 7
        said = [
            event.payload["error"] for event in Event.objects.filter(kind="attempt_ended").order_by("seq")
        ]
        assert ["does not count" in error for error in said] == [True] * 4 + [False] * 2
        assert Run.objects.get().status == Run.Status.PREPARING

    def test_a_run_does_not_get_attempts_for_ever_however_often_the_lab_is_stopped(self, alice: User) -> None:
        launched(alice)
        for _ in range(queue.MAX_ATTEMPTS_WITH_STOPS):
            queue.release(claim=claim(), handed_over=True)
        assert queue.claim_next(worker="w") is None
        assert Run.objects.get().exit_reason == "infrastructure_error"

    def test_a_hand_over_of_a_lost_lease_changes_nothing(self, alice: User) -> None:
        launched(alice)
        held = claim()
        expire(held)
        claim()
        queue.note_hand_over(claim=held)
        assert not Attempt.objects.filter(handed_over=True).exists()

    def test_a_run_that_was_cancelled_meanwhile_stays_cancelled(self, alice: User) -> None:
        run = launched(alice).runs.get()
        held = claim()
        append(held, ev.attempt_started())
        runs.cancel(run=run, by=alice)
        expire(held)
        assert queue.claim_next(worker="w") is None
        run.refresh_from_db()
        assert (run.status, run.exit_reason) == (Run.Status.ENDED, "cancelled")

    def test_a_worker_that_died_after_its_attempt_ended_loses_nothing_of_it(self, alice: User) -> None:
        launched(alice)
        held = claim()
        append(held, *ev.whole_run()[:-1])
        expire(held)
        queue.settle_abandoned()
        assert log.read_records(run_id=held.run.pk)[-1].event == ev.run_ended("agent", "resolved")

    def test_a_dead_workers_lease_ends_at_once_and_a_living_ones_stays(self, alice: User) -> None:
        launched(alice, runs_wanted=2)
        dead, alive = claim(), claim()
        Attempt.objects.filter(pk=dead.attempt.pk).update(worker="dead")
        assert queue.expire_leases_of(is_dead=lambda worker: worker == "dead") == 1
        assert queue.settle_abandoned() == [dead.run.pk]
        assert queue.live_labels() == {queue.sandbox_label(alive.run.pk, 1)}
