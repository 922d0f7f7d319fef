from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from lab.engine.errors import InfrastructureError, LeaseLostError
from lab.engine.events import ControlAsked
from lab.models import Attempt, Draft, Event
from lab.services import log, queue
from lab.services.queue import Claim
from lab.worker import sink as sink_module
from lab.worker.sink import DatabaseSink
from tests.locking import nobody_else_writes
from tests.services import events as ev


def make(claim: Claim) -> DatabaseSink:
    return DatabaseSink(
        run_id=claim.run.pk, attempt=claim.attempt.n, lease_token=claim.lease_token, after_seq=0
    )


@pytest.fixture
def sink(claim: Claim) -> Iterator[DatabaseSink]:
    with make(claim) as opened:
        yield opened


def eventually(is_true: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.01)


def stored() -> list[int]:
    return list(Event.objects.order_by("seq").values_list("seq", flat=True))


def write_draft(sink: DatabaseSink, text: str) -> None:
    sink.draft(step=1, content=text, reasoning="", calls="", characters=len(text))


def test_the_number_of_an_event_is_known_at_once_and_a_flush_makes_it_durable(sink: DatabaseSink) -> None:
    records = [sink.append(event) for event in ev.whole_run()]
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    sink.flush()
    run_id = Event.objects.all()[0].run_id
    assert log.read_records(run_id=run_id) == records


def test_the_first_event_of_a_quiet_run_is_stored_without_being_asked_for(sink: DatabaseSink) -> None:
    sink.append(ev.attempt_started())
    eventually(lambda: stored() == [1])


def test_leaving_the_sink_stores_what_is_left(claim: Claim) -> None:
    with make(claim) as sink:
        for _ in range(50):
            sink.append(ev.call_started(1))
    assert stored() == list(range(1, 51))


def test_events_of_several_threads_are_numbered_without_gaps(sink: DatabaseSink) -> None:
    def write() -> None:
        for _ in range(50):
            sink.append(ev.tool_started(1))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.flush()
    assert stored() == list(range(1, 201))


def test_a_draft_shows_the_newest_text_and_is_rewritten_a_few_times_a_second(sink: DatabaseSink) -> None:
    sink.append(ev.call_started(1))
    text = ""
    began = time.monotonic()
    for _ in range(300):
        text += "word "
        write_draft(sink, text)
        time.sleep(0.002)
    eventually(lambda: Draft.objects.filter(content=text).exists())
    took = time.monotonic() - began
    draft = Draft.objects.get()
    assert draft.after_seq == 1
    assert draft.version <= 2 + took / sink_module.DRAFT_SECONDS


def test_a_draft_never_overtakes_the_event_that_replaces_it(sink: DatabaseSink) -> None:
    sink.append(ev.call_started(1))
    write_draft(sink, "hel")
    sink.append(ev.call_finished(1))
    sink.flush()
    time.sleep(3 * sink_module.DRAFT_SECONDS)
    assert not Draft.objects.filter(after_seq__gte=2).exists()


def test_a_sink_whose_lease_is_lost_raises_and_writes_nothing(claim: Claim) -> None:
    with make(claim) as sink:
        sink.append(ev.attempt_started())
        sink.flush()
        Attempt.objects.update(lease_token=claim.lease_token + 1)
        sink.append(ev.call_started(1))
        with pytest.raises(LeaseLostError):
            sink.flush()
        for call in (
            lambda: sink.append(ev.call_finished(1)),
            lambda: write_draft(sink, "x"),
            lambda: sink.put_blob(b"x"),
            sink.flush,
        ):
            with pytest.raises(LeaseLostError):
                call()
    assert stored() == [1]


def test_an_abandoned_sink_forgets_what_was_not_written(claim: Claim) -> None:
    with make(claim) as sink:
        sink.append(ev.attempt_started())
        sink.flush()
        sink.abandon(LeaseLostError("the worker stops"))
        with pytest.raises(LeaseLostError, match="the worker stops"):
            sink.append(ev.call_started(1))
    assert stored() == [1]


def test_a_database_that_is_locked_for_a_while_loses_no_event(claim: Claim) -> None:
    with make(claim) as sink:
        with nobody_else_writes():
            for _ in range(20):
                sink.append(ev.call_started(1))
            time.sleep(1.5)
            assert stored() == []
        sink.flush()
        assert stored() == list(range(1, 21))


def test_a_disk_that_takes_nothing_becomes_an_infrastructure_error(
    claim: Claim, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(sink_module, "RETRY_SECONDS", 0.3)
    monkeypatch.setattr(sink_module, "LAST_WORDS_SECONDS", 0.3)
    settings.LAB_DATA_DIR = "/dev/full/nowhere"
    with make(claim) as sink:
        sink.append(ev.tool_finished(1, "x" * 10_000))
        with pytest.raises(InfrastructureError, match="cannot be stored"):
            sink.flush()
    assert stored() == []


def test_a_group_of_events_is_stored_whole_or_not_at_all(claim: Claim) -> None:
    with make(claim) as sink, nobody_else_writes():
        sink.append(ev.attempt_started())
        records = sink.append_all([ev.tool_finished(1), ev.call_started(2)])
        assert [record.seq for record in records] == [2, 3]
        sink.abandon(LeaseLostError("the worker stops"))
    assert stored() in ([], [1, 2, 3])


def test_a_stop_stores_the_event_that_ends_what_is_in_flight_and_none_after_it(claim: Claim) -> None:
    with make(claim) as sink:
        sink.append(ev.call_started(1))
        stopping = threading.Thread(target=sink.stop_at_next_event, kwargs={"within": 30.0})
        stopping.start()
        time.sleep(0.1)
        assert stopping.is_alive()
        sink.append(ev.call_finished(1))
        stopping.join(60)
        assert not stopping.is_alive()
        with pytest.raises(LeaseLostError):
            sink.append(ev.tool_started(1))
    assert stored() == [1, 2]


def test_a_stop_waits_for_nothing_where_nothing_is_in_flight(claim: Claim) -> None:
    with make(claim) as sink:
        sink.append_all([ev.call_started(1), ev.call_failed(1)])
        sink.stop_at_next_event(within=30.0)
        with pytest.raises(LeaseLostError):
            sink.append(ev.call_started(1, 2))
        sink.flush()
    assert stored() == [1, 2]


def test_a_stop_breaks_off_what_takes_too_long(claim: Claim) -> None:
    with make(claim) as sink:
        sink.append(ev.tool_started(1))
        sink.stop_at_next_event(within=0.2)
        with pytest.raises(LeaseLostError):
            sink.append(ev.tool_finished(1))
    assert stored() == [1]


def test_a_stop_that_is_taken_back_lets_everything_go_on(claim: Claim) -> None:
    with make(claim) as sink:
        sink.append_all([ev.attempt_started(), ev.call_started(1)])
        sink.begin_stop()
        stopping = threading.Thread(target=sink.wait_for_stop)
        stopping.start()
        sink.go_on()
        stopping.join(60)
        assert not stopping.is_alive()
        sink.append(ev.call_finished(1))
        sink.append(ev.call_started(2))


def test_an_attempt_that_is_graded_when_the_lab_stops_may_end(claim: Claim) -> None:
    with make(claim) as sink:
        sink.append(ev.verification_started())
        stopping = threading.Thread(target=sink.stop_at_next_event, kwargs={"within": 30.0})
        stopping.start()
        time.sleep(0.1)
        for event in (ev.sandbox_started("verification"), ev.verification_finished(), ev.attempt_ended()):
            sink.append(event)
        stopping.join(60)
        sink.flush()
    assert len(stored()) == 4


def test_nothing_is_taken_once_the_lease_may_be_somebody_elses_until_it_is_renewed(claim: Claim) -> None:
    with make(claim) as sink:
        sink.keep_until(queue.clock() - 1)
        acting = threading.Thread(target=sink.append, args=(ev.call_started(1),))
        acting.start()
        time.sleep(0.2)
        assert (acting.is_alive(), stored()) == (True, [])
        sink.keep_until(queue.clock() + 60)
        acting.join(60)
        assert not acting.is_alive()
    assert stored() == [1]


def test_a_run_that_waits_for_its_lease_stops_when_that_is_lost(claim: Claim) -> None:
    with make(claim) as sink:
        sink.keep_until(queue.clock() - 1)
        threading.Timer(0.2, sink.abandon, (LeaseLostError("it is another's"),)).start()
        with pytest.raises(LeaseLostError, match="it is another's"):
            sink.append(ev.call_started(1))


def test_where_nothing_can_be_stored_the_attempt_ends_and_its_end_is_stored_once_there_is_room(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, append = [True], log.append

    def sometimes(**values: Any) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return append(**values)

    monkeypatch.setattr(log, "append", sometimes)
    monkeypatch.setattr(sink_module, "FULL_DISK_SECONDS", 0.3)
    told = threading.Event()
    sink = DatabaseSink(
        run_id=claim.run.pk,
        attempt=1,
        lease_token=claim.lease_token,
        after_seq=0,
        on_unstorable=told.set,
    )
    with sink:
        sink.append(ev.tool_started(1))
        assert told.wait(60)
        with pytest.raises(InfrastructureError, match="No space left on device; make room") as ended:
            sink.append(ev.tool_finished(1))
        assert not ended.value.retryable
        sink.append(ev.attempt_ended("infrastructure_error"))
        full[0] = False
        sink.flush()
    assert list(Event.objects.order_by("seq").values_list("kind", flat=True)) == [
        "tool_call_started",
        "attempt_ended",
    ]


def test_changes_that_cannot_be_stored_are_an_infrastructure_error(
    claim: Claim, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(sink_module, "RETRY_SECONDS", 0.3)
    settings.LAB_DATA_DIR = "/dev/full/nowhere"
    with make(claim) as sink, pytest.raises(InfrastructureError, match="changes cannot be stored"):
        sink.put_blob(b"archive")


def test_what_is_asked_after_the_end_is_refused_and_takes_no_lease_away(sink: DatabaseSink) -> None:
    sink.append(ev.attempt_started())
    sink.append(ev.attempt_ended())
    sink.flush()
    with pytest.raises(LeaseLostError, match="the attempt has ended"):
        sink.append(ControlAsked(control="pause", person="kim", ask=1))
    sink.flush()
    assert stored() == [1, 2]
    assert sink.error is None
