from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone
from pytest_django.fixtures import Settings

from lab.engine.errors import ExitReason, LeaseLostError
from lab.engine.events import ControlAsked, Paused, Resumed
from lab.models import Attempt, Control, Endpoint, Event, Experiment, Model, Run, RunFacts
from lab.services import controls, endpoints, log, queue
from lab.services.queue import Claim
from tests.services import events as ev
from tests.services.builders import launched, person
from tests.services.work import thousands_of_steps


def claim() -> Claim:
    found = queue.claim_next(worker="w")
    assert found is not None
    return found


def append(held: Claim, *events: Any) -> None:
    log.append(run_id=held.run.pk, attempt=held.attempt.n, lease_token=held.lease_token, events=events)


def expire(held: Claim) -> None:
    """The lease has run out, and the doubt about it is over."""
    past = timezone.now() - dt.timedelta(minutes=1)
    Attempt.objects.filter(pk=held.attempt.pk).update(lease_until=past, doubted_at=past)


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
        assert thousands_of_steps(lambda: queue.claim_next(worker="w")) < 2000
        assert thousands_of_steps(queue.startable_runs) < 2000
        assert (queue.claim_next(worker="w"), queue.startable_runs()) == (None, 0)

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
        controls.ask(run=run, by=alice, control="cancel")
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

    def test_what_was_in_flight_is_interrupted_with_unknown_cost_and_the_attempt_goes_on(
        self, alice: User
    ) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_started(), ev.sandbox_started(), ev.call_started(1))
        expire(held)
        second = claim()
        assert (second.run, second.attempt.pk, second.continues) == (held.run, held.attempt.pk, True)
        assert second.run.last_seq == 4
        assert not second.orderly
        assert second.lease_token > held.lease_token + 1
        assert kinds(held.run.pk)[-1] == "model_call_interrupted"
        rolled = RunFacts.objects.get()
        assert (rolled.cost, rolled.cost_unknown) == (None, 1)
        with pytest.raises(LeaseLostError):
            append(held, ev.call_finished(1))

    def test_the_first_lease_continues_nothing(self, alice: User) -> None:
        launched(alice)
        assert not claim().continues

    def test_a_command_in_flight_is_interrupted(self, alice: User) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_started(), ev.call_started(1), ev.call_finished(1), ev.tool_started(1))
        expire(held)
        queue.settle_abandoned()
        assert kinds(held.run.pk)[-1] == "tool_call_interrupted"

    def test_a_call_whose_id_is_endless_is_interrupted_like_any_other(self, alice: User) -> None:
        launched(alice)
        held = claim()
        call_id = "call_" + "x" * 10_000
        append(held, ev.attempt_started(), ev.tool_started(1).model_copy(update={"call_id": call_id}))
        expire(held)
        assert queue.settle_abandoned() == [held.run.pk]
        interrupted = log.read_records(run_id=held.run.pk)[-1].event
        assert (interrupted.kind, interrupted.call_id) == ("tool_call_interrupted", call_id)

    def test_a_run_that_was_begun_goes_on_before_a_new_one_begins(self, alice: User) -> None:
        launched(alice, runs_wanted=3)
        claim()
        second = claim()
        expire(second)
        assert claim().run == second.run

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
        again = claim()
        assert (again.attempt.n, again.continues, RunFacts.objects.get().verdict) == (1, True, "")

    def test_three_continuations_without_a_step_end_the_attempt_and_the_next_begins(
        self, alice: User
    ) -> None:
        launched(alice)
        continued = []
        for _ in range(4):
            held = claim()
            continued.append((held.attempt.n, held.continues))
            expire(held)
        assert continued == [(1, False), (1, True), (1, True), (1, True)]
        held = claim()
        assert (held.attempt.n, held.continues) == (2, False)
        ended = Event.objects.get(kind="attempt_ended").payload
        assert (ended["exit_reason"], ended["retryable"]) == ("infrastructure_error", True)
        assert "4 workers died with this attempt before it got a step further" in ended["error"]

    def test_a_committed_step_gives_an_attempt_its_continuations_back(self, alice: User) -> None:
        launched(alice)
        for step in range(1, 8):
            held = claim()
            assert held.attempt.n == 1
            append(held, ev.call_started(step), ev.call_finished(step))
            expire(held)
        for _ in range(3):
            held = claim()
            append(held, ev.call_started(8))
            expire(held)
            assert held.attempt.n == 1
        assert claim().attempt.n == 2

    def test_a_run_whose_workers_keep_dying_ends_after_three_attempts(self, alice: User) -> None:
        launched(alice)
        for _ in range(12):
            expire(claim())
        assert queue.claim_next(worker="w") is None
        run = Run.objects.get()
        assert (run.status, run.exit_reason) == (Run.Status.ENDED, "infrastructure_error")
        assert kinds(run.pk) == ["attempt_ended"] * 3 + ["run_ended"]

    def test_a_run_that_was_cancelled_meanwhile_ends_with_what_is_recorded(self, alice: User) -> None:
        run = launched(alice).runs.get()
        held = claim()
        append(held, *ev.whole_run()[:11])
        assert kinds(run.pk)[-1] == "patch_captured"
        controls.ask(run=run, by=alice, control="cancel")
        expire(held)
        assert queue.claim_next(worker="w") is None
        run.refresh_from_db()
        assert (run.status, run.exit_reason) == (Run.Status.ENDED, "cancelled")
        assert kinds(run.pk)[-3:] == ["control_asked", "attempt_ended", "run_ended"]
        assert RunFacts.objects.get().changed_files != []

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
        assert queue.live_labels() == {queue.sandbox_label(alive.run.pk, 1, alive.lease_token)}

    def test_the_sandbox_of_a_former_holder_is_told_from_that_of_the_next(self, alice: User) -> None:
        launched(alice)
        held = claim()
        former = queue.sandbox_label(held.run.pk, 1, held.lease_token)
        assert queue.live_labels() == {former}
        expire(held)
        held = claim()
        now = queue.sandbox_label(held.run.pk, 1, held.lease_token)
        assert (queue.live_labels(), queue.is_run_label(former)) == ({now}, True)


class TestDoubt:
    def test_a_lease_that_ran_out_is_doubted_before_it_is_taken(self, alice: User) -> None:
        launched(alice)
        held = claim()
        now = timezone.now() + dt.timedelta(hours=1)
        assert queue.settle_abandoned(now=now) == []
        assert queue.settle_abandoned(now=now + dt.timedelta(seconds=1)) == []
        assert queue.live_labels() == {queue.sandbox_label(held.run.pk, 1, held.lease_token)}
        assert queue.settle_abandoned(now=now + dt.timedelta(seconds=5)) == [held.run.pk]

    def test_a_holder_that_is_back_in_time_keeps_its_lease(self, alice: User) -> None:
        launched(alice)
        held = claim()
        now = timezone.now() + dt.timedelta(hours=1)
        queue.settle_abandoned(now=now)
        assert queue.renew(claim=held, seconds=3700).held
        assert queue.settle_abandoned(now=now + dt.timedelta(seconds=5)) == []
        append(held, ev.attempt_started())


class TestOrderlyStops:
    def test_a_run_that_is_handed_back_is_queued_at_once_and_goes_on(self, alice: User) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_started(), ev.call_started(1))
        assert queue.hand_back(claim=held)
        assert Run.objects.get().status == Run.Status.QUEUED
        assert kinds(held.run.pk)[-1] == "model_call_interrupted"
        again = claim()
        assert (again.attempt.n, again.continues, again.orderly) == (1, True, True)

    def test_an_orderly_stop_is_no_sign_that_the_attempt_kills_workers(self, alice: User) -> None:
        launched(alice)
        for _ in range(20):
            queue.hand_back(claim=claim())
        for _ in range(3):
            expire(claim())
        held = claim()
        assert (held.attempt.n, held.continues, held.orderly) == (1, True, False)

    def test_a_stop_that_was_killed_before_its_end_was_orderly_all_the_same(self, alice: User) -> None:
        launched(alice)
        held = claim()
        queue.note_hand_over(claim=held)
        expire(held)
        assert claim().orderly

    def test_a_hand_over_of_a_lost_lease_changes_nothing(self, alice: User) -> None:
        launched(alice)
        held = claim()
        expire(held)
        second = claim()
        queue.note_hand_over(claim=held)
        assert not queue.hand_back(claim=held)
        assert not Attempt.objects.filter(handed_over=True).exists()
        assert queue.look(claim=second).held


class TestPaused:
    def test_a_paused_run_whose_worker_is_gone_waits_without_one_until_it_is_resumed(
        self, alice: User
    ) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_started(), ev.sandbox_started(), Paused(person="alice", ask=1))
        for _ in range(2):
            expire(held)
            queue.settle_abandoned()
        assert (Run.objects.get().status, queue.claim_next(worker="w")) == (Run.Status.PAUSED, None)
        resumed = Resumed(person="alice", ask=2)
        log.append(run_id=held.run.pk, attempt=1, lease_token=None, events=[resumed])
        assert Run.objects.get().status == Run.Status.QUEUED
        assert claim().continues

    def test_a_run_that_is_resumed_by_its_worker_runs_on(self, alice: User) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_started(), ev.sandbox_started(), Paused(person="alice", ask=1))
        append(held, Resumed(person="alice", ask=2))
        assert Run.objects.get().status == Run.Status.RUNNING

    def test_a_paused_run_holds_a_slot_only_while_a_worker_waits_with_it(
        self, alice: User, settings: Settings
    ) -> None:
        settings.LAB_RUN_SLOTS = 1
        launched(alice, runs_wanted=2)
        held = claim()
        append(held, ev.attempt_started(), Paused(person="alice", ask=1))
        assert queue.claim_next(worker="w") is None
        queue.hand_back(claim=held)
        assert claim().run != held.run

    def test_a_resume_that_its_worker_did_not_live_to_hear_takes_effect(self, alice: User) -> None:
        run = launched(alice).runs.get()
        held = claim()
        append(held, ev.attempt_started(), Paused(person="alice", ask=1))
        asked = Control.objects.create(run=run, kind=Control.Kind.RESUME, asked_by=alice)
        expire(held)
        queue.settle_abandoned()
        assert Run.objects.get().status == Run.Status.QUEUED
        told, done = (record.event for record in log.read_records(run_id=run.pk)[-2:])
        assert (told.kind, told.ask, done.kind, done.ask) == (
            "control_asked",
            asked.pk,
            "resumed",
            asked.pk,
        )

    @pytest.mark.parametrize("is_noted", [False, True], ids=["and to note", "and noted"])
    def test_a_resume_that_its_worker_heard_and_did_not_live_to_do_takes_effect_and_is_told_once(
        self, alice: User, is_noted: bool
    ) -> None:
        run = launched(alice).runs.get()
        held = claim()
        append(held, ev.attempt_started(), Paused(person="alice", ask=1))
        asked = Control.objects.create(run=run, kind=Control.Kind.RESUME, asked_by=alice)
        append(held, ControlAsked(control="resume", person="alice", ask=asked.pk))
        if is_noted:
            queue.controls_seen(controls=(asked,))
        expire(held)
        queue.settle_abandoned()
        assert Run.objects.get().status == Run.Status.QUEUED
        assert kinds(run.pk)[1:] == ["paused", "control_asked", "resumed"]

    def test_a_pause_that_took_effect_before_its_worker_noted_it_is_told_once(self, alice: User) -> None:
        run = launched(alice).runs.get()
        held = claim()
        asked = Control.objects.create(run=run, kind=Control.Kind.PAUSE, asked_by=alice)
        told = ControlAsked(control="pause", person="alice", ask=asked.pk)
        append(held, ev.attempt_started(), told, Paused(person="alice", ask=asked.pk))
        queue.hand_back(claim=held)
        assert Run.objects.get().status == Run.Status.PAUSED
        assert kinds(run.pk) == ["attempt_started", "control_asked", "paused"]

    def test_a_pause_that_its_worker_did_not_live_to_hear_takes_effect(self, alice: User) -> None:
        run = launched(alice).runs.get()
        held = claim()
        append(held, ev.attempt_started(), ev.sandbox_started())
        Control.objects.create(run=run, kind=Control.Kind.PAUSE, asked_by=alice)
        queue.hand_back(claim=held)
        assert (Run.objects.get().status, kinds(run.pk)[-1]) == (Run.Status.PAUSED, "paused")

    def test_a_worker_that_dies_while_its_run_is_paused_was_not_killed_by_it(self, alice: User) -> None:
        launched(alice)
        held = claim()
        append(held, ev.attempt_started(), ev.sandbox_started(), Paused(person="alice", ask=1))
        expire(held)
        queue.settle_abandoned()
        assert Attempt.objects.get().workers_lost == 0


class TestCancelledAndHeld:
    def test_a_cancel_that_no_worker_has_heard_is_told_from_one_that_is_being_obeyed(
        self, alice: User
    ) -> None:
        deaf_run, other = launched(alice, runs_wanted=2).runs.order_by("position")
        deaf, hearing = claim(), claim()
        assert queue.held_though_cancelled() == []
        for run in (deaf_run, other):
            controls.ask(run=run, by=alice, control="cancel")
        queue.controls_seen(controls=queue.look(claim=hearing).controls)
        found = {one.run_id: one.heard for one in queue.held_though_cancelled()}
        assert found == {deaf.run.pk: False, hearing.run.pk: True}

    def test_a_run_that_is_taken_from_a_deaf_worker_ends_as_cancelled(self, alice: User) -> None:
        run = launched(alice).runs.get()
        held = claim()
        append(held, ev.attempt_started(), ev.sandbox_started(), ev.call_started(1))
        controls.ask(run=run, by=alice, control="cancel")
        assert queue.take_away(attempt_id=held.attempt.pk, lease_token=held.lease_token)
        assert not queue.take_away(attempt_id=held.attempt.pk, lease_token=held.lease_token)
        assert Run.objects.get().exit_reason == "cancelled"
        assert kinds(run.pk)[3:] == ["model_call_interrupted", "control_asked", "attempt_ended", "run_ended"]
        with pytest.raises(LeaseLostError):
            append(held, ev.call_finished(1))

    def test_a_cancel_that_its_worker_wrote_down_before_it_died_is_told_once(self, alice: User) -> None:
        run = launched(alice).runs.get()
        held = claim()
        controls.ask(run=run, by=alice, control="cancel")
        asked = Control.objects.get()
        append(held, ev.attempt_started(), ControlAsked(control="cancel", person="alice", ask=asked.pk))
        expire(held)
        queue.settle_abandoned()
        assert kinds(run.pk) == ["attempt_started", "control_asked", "attempt_ended", "run_ended"]
