"""Leases: which worker child may write about an attempt, and what people ask of it meanwhile."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable
from typing import NamedTuple

from django.conf import settings
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from lab.models import Attempt, Control, Experiment, Run

# What is looked at each second goes over the few runs that are going on, not over all attempts ever made.
_GOING_ON = (Run.Status.PREPARING, Run.Status.RUNNING, Run.Status.PAUSED, Run.Status.VERIFYING)
# Of a file that grows: no worker is at work on it.
_IMPORTED = Experiment.Kind.IMPORTED
_RUN_LABEL = re.compile(r"run-\d+-attempt-\d+(-lease-\d+)?")


class Claim(NamedTuple):
    """What a worker child holds: it may write as long as `lease_token` is the attempt's newest.

    `continues`: an earlier worker child began the attempt; `orderly`: it was stopped and did not die.
    """

    run: Run
    attempt: Attempt
    lease_token: int
    continues: bool = False
    orderly: bool = False


class Renewal(NamedTuple):
    """What the lease thread learns each second. `held` is False when somebody else owns the attempt.

    `counted`: the experiment has a budget, and each request asks before it starts. `let_go`: the experiment
    is paused, and the run's place is wanted back.
    """

    held: bool
    controls: tuple[Control, ...]
    counted: bool = False
    let_go: bool = False


class Cancelled(NamedTuple):
    """A cancelled run that a worker holds all the same. `heard`: its lease thread has read the cancel."""

    run_id: int
    attempt_id: int
    lease_token: int
    worker: str
    heard: bool


def clock() -> float:
    """Seconds that go on while the machine sleeps, as a lease does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def renew(*, claim: Claim, seconds: float | None = None) -> Renewal:
    """Make the lease last longer and look what people asked for in the meantime.

    Also a lease that has run out, as long as nobody took it.
    """
    until = timezone.now() + dt.timedelta(seconds=settings.LAB_LEASE_SECONDS if seconds is None else seconds)
    if not held_by(claim).update(lease_until=until, doubted_at=None):
        return Renewal(False, ())
    return look(claim=claim)


def look(*, claim: Claim) -> Renewal:
    """As `renew`, reading only: a commit twice a second for each run would wake every watcher."""
    found = held_by(claim).values_list(
        "run__status",
        "run__experiment__state",
        "run__experiment__paused_by_budget",
        "run__experiment__budgets",
    )
    row = found.first()
    if row is None:
        return Renewal(False, ())
    status, state, by_budget, budgets = row
    # One that a budget stops goes on to its next request, which may be never: what it has done is graded.
    waits = not by_budget or status == Run.Status.PAUSED
    return Renewal(
        held=True,
        controls=_unseen_controls(claim),
        counted=bool(budgets),
        let_go=state == Experiment.State.PAUSED and waits,
    )


def may_ask(*, claim: Claim) -> bool:
    """Whether another request of the run may start: not while its experiment is paused."""
    paused = Experiment.objects.filter(runs=claim.run.pk, state=Experiment.State.PAUSED)
    return not paused.exists()


def controls_seen(*, controls: tuple[Control, ...]) -> None:
    """Note that a worker has heard what was asked."""
    Control.objects.filter(pk__in=[control.pk for control in controls], seen_at=None).update(
        seen_at=timezone.now()
    )


def release(*, claim: Claim) -> None:
    """Let the lease end now: the attempt broke off, whoever looks next settles it."""
    end_now(held_by(claim))


def note_hand_over(*, claim: Claim) -> None:
    """Note that an orderly stop ends the lease, before whatever else the stop has no time for."""
    held_by(claim).filter(ended_at=None).update(handed_over=True)


def end_now(attempts: QuerySet[Attempt]) -> int:
    """Let these leases end without any doubt; returns how many."""
    past = timezone.now() - dt.timedelta(hours=1)
    return attempts.filter(lease_until__isnull=False).update(lease_until=past, doubted_at=past)


def anything_goes_on() -> bool:
    """Whether there is a run that a worker has or had; an idle lab need not look any further."""
    return Run.objects.filter(status__in=_GOING_ON).exclude(experiment__kind=_IMPORTED).exists()


def expire_leases_of(*, is_dead: Callable[[str], bool]) -> int:
    """Let the leases of workers that are known to be dead end now; returns how many."""
    count = 0
    for attempt in _held():
        if is_dead(attempt.worker):
            count += end_now(Attempt.objects.filter(pk=attempt.pk, lease_token=attempt.lease_token))
    return count


def held_though_cancelled() -> list[Cancelled]:
    """Runs that were cancelled and that a worker holds."""
    unheard = Control.objects.filter(run=OuterRef("run"), kind=Control.Kind.CANCEL, seen_at=None)
    attempts = _held().filter(run__cancel_asked=True).annotate(unheard=Exists(unheard))
    rows = attempts.values_list("run_id", "pk", "lease_token", "worker", "unheard")
    return [Cancelled(run, pk, token, worker, not unheard) for run, pk, token, worker, unheard in rows]


def live_labels() -> frozenset[str]:
    """The labels of sandboxes whose attempt nobody has taken from the worker that started them."""
    attempts = _held().values_list("run_id", "n", "lease_token")
    return frozenset(sandbox_label(run_id, n, token) for run_id, n, token in attempts)


def sandbox_label(run_id: int, attempt: int, lease_token: int) -> str:
    """The name by which the sandbox of an attempt is found again; one that continues it has another."""
    return f"run-{run_id}-attempt-{attempt}-lease-{lease_token}"


def is_run_label(label: str) -> bool:
    """Whether a sandbox of this name belongs to an attempt of a run."""
    return _RUN_LABEL.fullmatch(label) is not None


def held_by(claim: Claim) -> QuerySet[Attempt]:
    """The claimed attempt while its lease is this claim's: until it is settled, a little after its end."""
    return Attempt.objects.filter(
        pk=claim.attempt.pk, lease_token=claim.lease_token, lease_until__isnull=False
    )


def _held() -> QuerySet[Attempt]:
    return Attempt.objects.filter(run__status__in=_GOING_ON, lease_until__isnull=False)


def _unseen_controls(claim: Claim) -> tuple[Control, ...]:
    unseen = Control.objects.filter(run=claim.run, seen_at=None).order_by("pk")
    return tuple(unseen.select_related("asked_by"))
