from __future__ import annotations

import datetime as dt
import threading
import time
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.utils import timezone
from pytest_django.fixtures import Settings

from lab.engine.errors import ExitReason, LeaseLostError
from lab.engine.steering import Ask, Steering
from lab.engine.stop import StopSignal
from lab.models import Attempt, Control
from lab.services import controls, log, queue
from lab.services.queue import Claim
from lab.worker.lease import LeaseKeeper
from lab.worker.sink import DatabaseSink
from tests.services import events as ev
from tests.timing import SOON


def make(claim: Claim, *, steering: Steering | None = None) -> tuple[DatabaseSink, StopSignal, LeaseKeeper]:
    sink = DatabaseSink(
        run_id=claim.run.pk, attempt=claim.attempt.n, lease_token=claim.lease_token, after_seq=0
    )
    stop = StopSignal()
    return sink, stop, LeaseKeeper(claim, sink=sink, stop=stop, steering=steering or Steering())


def test_a_cancel_is_heard_soon_and_stands_in_the_log(claim: Claim, alice: User) -> None:
    sink, stop, keeper = make(claim)
    with sink, keeper:
        controls.ask(run=claim.run, by=alice, control="cancel")
        assert stop.wait(60)
    assert stop.reason is ExitReason.CANCELLED
    asked = log.read_records(run_id=claim.run.pk)[0].event
    assert (asked.kind, asked.person) == ("control_asked", "alice")
    seen = Control.objects.get()
    assert seen.seen_at is not None
    assert seen.seen_at - seen.asked_at < dt.timedelta(seconds=SOON)


def test_a_lease_is_renewed_before_it_runs_out(claim: Claim, settings: Settings) -> None:
    settings.LAB_LEASE_SECONDS = 15.0
    sink, stop, keeper = make(claim)
    before = timezone.now() + dt.timedelta(seconds=15)
    Attempt.objects.update(lease_until=before)
    with sink, keeper:
        until = time.monotonic() + 60
        while (after := Attempt.objects.get().lease_until) == before:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert after is not None
    # When it was renewed, the former lease had not run out.
    assert after - dt.timedelta(seconds=15) < before < after
    assert stop.reason is None


def test_a_child_that_was_frozen_past_its_lease_stops_and_writes_nothing(claim: Claim) -> None:
    sink, stop, keeper = make(claim)
    past = timezone.now() - dt.timedelta(minutes=1)
    Attempt.objects.update(lease_until=past, doubted_at=past)
    assert queue.settle_abandoned() == [claim.run.pk]
    before = log.read_records(run_id=claim.run.pk)
    with sink, keeper:
        assert stop.wait(60)
        try:
            sink.append(ev.call_started(1))
            sink.flush()
        except LeaseLostError:
            refused = True
    assert refused
    assert stop.reason is ExitReason.INFRASTRUCTURE_ERROR
    assert log.read_records(run_id=claim.run.pk) == before


def test_a_cancel_is_obeyed_and_written_once_though_the_database_is_busy(
    claim: Claim, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, stop, keeper = make(claim)
    times, busy, seen = iter(range(2)), OperationalError("database is locked"), queue.controls_seen

    def sometimes(**values: Any) -> None:
        if next(times, None) is not None:
            raise busy
        seen(**values)

    monkeypatch.setattr(queue, "controls_seen", sometimes)
    with sink, keeper:
        controls.ask(run=claim.run, by=alice, control="cancel")
        assert stop.wait(60)
        until = time.monotonic() + 60
        while Control.objects.get().seen_at is None:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert [record.event.kind for record in log.read_records(run_id=claim.run.pk)] == ["control_asked"]


def test_an_attempt_that_has_ended_keeps_its_lease_until_it_is_settled(claim: Claim) -> None:
    sink, stop, keeper = make(claim)
    with sink, keeper:
        sink.append(ev.attempt_ended())
        sink.flush()
        assert not stop.wait(1.5)
        sink.flush()
    assert queue.settle(claim=claim, retryable=False, reason=ExitReason.AGENT, verdict=None) is False
    assert log.read_records(run_id=claim.run.pk)[-1].event.kind == "run_ended"


def test_what_a_person_asks_for_is_in_the_log_before_the_attempt_hears_it(claim: Claim, alice: User) -> None:
    steering = Steering()
    sink, stop, keeper = make(claim, steering=steering)
    value = {"limit": "max_steps", "after": 7}
    asked = Control.objects.create(run=claim.run, kind="limit", value=value, asked_by=alice)
    with sink, keeper:
        steering.wait(60)
        heard = steering.pending()
        until = time.monotonic() + 60
        while Control.objects.get().seen_at is None:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert heard == [Ask("limit", "alice", asked.pk, value)]
    event = log.read_records(run_id=claim.run.pk)[0].event
    assert (event.kind, event.ask, event.value) == ("control_asked", asked.pk, value)
    assert stop.reason is None


def test_what_an_earlier_holder_wrote_down_is_not_written_again(claim: Claim, alice: User) -> None:
    steering, stop = Steering(), StopSignal()
    asked = Control.objects.create(run=claim.run, kind="pause", asked_by=alice)
    sink, _, _ = make(claim)
    keeper = LeaseKeeper(claim, sink=sink, stop=stop, steering=steering, heard=[asked.pk])
    with sink, keeper:
        until = time.monotonic() + 60
        while Control.objects.get().seen_at is None:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert (log.read_records(run_id=claim.run.pk), steering.pending()) == ([], [])


def test_a_holder_that_cannot_reach_the_database_waits_and_goes_on(
    claim: Claim, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.LAB_LEASE_SECONDS = 3.0
    away, renew, look = threading.Event(), queue.renew, queue.look

    def unless_away(ask: Any) -> Any:
        def asked(**values: Any) -> Any:
            if away.is_set():
                raise OperationalError("database is locked")
            return ask(**values)

        return asked

    monkeypatch.setattr(queue, "renew", unless_away(renew))
    monkeypatch.setattr(queue, "look", unless_away(look))
    sink, stop, keeper = make(claim)
    with sink, keeper:
        away.set()
        time.sleep(3.5)
        acting = threading.Thread(target=sink.append, args=(ev.call_started(1),))
        acting.start()
        time.sleep(0.5)
        assert acting.is_alive()
        assert stop.reason is None
        away.clear()
        acting.join(60)
        assert not acting.is_alive()
    assert [record.event.kind for record in log.read_records(run_id=claim.run.pk)] == ["model_call_started"]


def test_a_lease_thread_that_meets_something_unforeseen_looks_again(
    claim: Claim, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    mishaps, look = iter([RuntimeError("unforeseen")]), queue.look

    def sometimes(**values: Any) -> Any:
        if (error := next(mishaps, None)) is not None:
            raise error
        return look(**values)

    monkeypatch.setattr(queue, "look", sometimes)
    sink, stop, keeper = make(claim)
    with sink, keeper:
        Control.objects.create(run=claim.run, kind="cancel", asked_by=alice)
        assert stop.wait(60)
    assert stop.reason is ExitReason.CANCELLED
