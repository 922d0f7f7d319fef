"""When several write at once: on SQLite one waits for the other, on PostgreSQL they overlap."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction
from pytest_django.fixtures import Settings

from lab.engine.errors import ExitReason, LeaseLostError
from lab.models import Attempt, Event, Experiment, Model, Run
from lab.services import controls, endpoints, log, queue
from tests.services import events as ev
from tests.services.builders import launched, person


@pytest.fixture
def alice(transactional_db: None) -> User:
    return person()


class Threads:
    """Functions on threads with connections of their own, and what they gave or raised."""

    def __init__(self) -> None:
        self.gave: list[object] = []
        self._threads: list[threading.Thread] = []

    def start(self, *functions: Callable[[], object]) -> None:
        for function in functions:
            thread = threading.Thread(target=self._run, args=(function,))
            self._threads.append(thread)
            thread.start()

    def _run(self, function: Callable[[], object]) -> None:
        try:
            self.gave.append(function())
        except Exception as error:
            self.gave.append(error)
        finally:
            connections.close_all()

    def end(self) -> None:
        for thread in self._threads:
            thread.join(150)


@pytest.fixture
def threads() -> Iterator[Threads]:
    started = Threads()
    yield started
    started.end()


def test_many_who_claim_at_once_take_no_more_than_there_are_slots(
    alice: User, settings: Settings, threads: Threads
) -> None:
    settings.LAB_RUN_SLOTS = 3
    launched(alice, seeds=12)
    start = threading.Barrier(8)

    def claim() -> object:
        start.wait()
        return queue.claim_next(worker="w")

    threads.start(*[claim] * 8)
    threads.end()
    assert [error for error in threads.gave if isinstance(error, Exception)] == []
    assert sum(claim is not None for claim in threads.gave) == 3
    assert Run.objects.holding_slots().count() == 3


def test_an_endpoint_is_not_asked_by_more_than_it_allows_however_many_claim_at_once(
    alice: User, threads: Threads
) -> None:
    model: Model = endpoints.sync_scripted()[0]
    model.endpoint.concurrency_limit = 2
    model.endpoint.save()
    launched(alice, models=[model], seeds=12)
    start = threading.Barrier(6)

    def claim() -> object:
        start.wait()
        return queue.claim_next(worker="w")

    threads.start(*[claim] * 6)
    threads.end()
    assert sum(claim is not None for claim in threads.gave) == 2


@pytest.mark.parametrize("knows", [True, False], ids=["knows the end of the log", "does not"])
def test_a_writer_whose_lease_is_taken_while_it_waits_writes_nothing(
    alice: User, threads: Threads, knows: bool
) -> None:
    launched(alice)
    claim = queue.claim_next(worker="w")
    assert claim is not None
    waits = threading.Event()

    def write() -> object:
        waits.set()
        return log.append(
            run_id=claim.run.pk,
            attempt=1,
            lease_token=claim.lease_token,
            events=[ev.attempt_started()],
            after_seq=0 if knows else None,
        )

    with transaction.atomic():
        Run.objects.locked().get(pk=claim.run.pk)
        threads.start(write)
        waits.wait(60)
        # Long enough for the writer to get where it waits.
        threading.Event().wait(0.5)
        Attempt.objects.filter(run=claim.run).update(lease_token=claim.lease_token + 1)
    threads.end()
    assert isinstance(threads.gave[0], LeaseLostError)
    assert not Event.objects.exists()


def test_a_draft_of_a_writer_whose_lease_is_taken_meanwhile_is_not_stored(
    alice: User, threads: Threads
) -> None:
    launched(alice)
    claim = queue.claim_next(worker="w")
    assert claim is not None
    draft = {"after_seq": 0, "step": 1, "content": "late", "reasoning": "", "calls": "", "characters": 4}

    def write() -> object:
        log.store_draft(run_id=claim.run.pk, attempt=1, lease_token=claim.lease_token, **draft)
        return "stored"

    with transaction.atomic():
        Attempt.objects.filter(run=claim.run).update(lease_token=claim.lease_token + 1)
        threads.start(write)
        threading.Event().wait(0.5)
    threads.end()
    assert isinstance(threads.gave[0], LeaseLostError)


def test_an_experiment_ends_though_its_last_two_runs_end_at_once(alice: User, threads: Threads) -> None:
    experiment = launched(alice, seeds=2)
    claims = [queue.claim_next(worker=f"w{n}") for n in range(2)]
    start = threading.Barrier(2)

    def end(claim: queue.Claim) -> Callable[[], object]:
        def settle() -> object:
            start.wait()
            return queue.settle(
                claim=claim, retryable=False, reason=ExitReason.INFRASTRUCTURE_ERROR, verdict=None
            )

        return settle

    threads.start(*[end(claim) for claim in claims if claim is not None])
    threads.end()
    assert threads.gave == [False, False]
    experiment.refresh_from_db()
    assert experiment.state == Experiment.State.ENDED


def test_an_experiment_does_not_end_while_somebody_reopens_one_of_its_runs(
    alice: User, threads: Threads
) -> None:
    launched(alice, seeds=2)
    broken, last = (queue.claim_next(worker=f"w{n}") for n in range(2))
    assert broken is not None
    assert last is not None
    reason = ExitReason.INFRASTRUCTURE_ERROR
    queue.settle(claim=broken, retryable=False, reason=reason, verdict=None)
    with transaction.atomic():
        controls.ask(run=broken.run, by=alice, control="attempt")
        threads.start(lambda: queue.settle(claim=last, retryable=False, reason=reason, verdict=None))
        # Long enough for the other to get where it waits.
        threading.Event().wait(0.5)
    threads.end()
    assert threads.gave == [False]
    assert Experiment.objects.get().state == Experiment.State.ACTIVE
    assert queue.claim_next(worker="w") is not None


def test_one_form_sent_many_times_at_once_launches_once(alice: User, threads: Threads) -> None:
    launched(alice, key="warm")
    start = threading.Barrier(6)

    def launch() -> object:
        start.wait()
        return launched(alice, key="again").pk

    threads.start(*[launch] * 6)
    threads.end()
    assert len(set(threads.gave)) == 1
    assert all(isinstance(number, int) for number in threads.gave)
