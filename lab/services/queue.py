"""The database as the queue: claiming runs under a lease, giving them back, settling abandoned ones."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from lab.engine.errors import ExitOrigin, ExitReason
from lab.engine.events import (
    AttemptEnded,
    ControlAsked,
    ModelCallInterrupted,
    RunEnded,
    ToolCallInterrupted,
)
from lab.models import Attempt, Control, Event, Run, RunFacts
from lab.services import log
from lab.services.messages import ring_workers
from lab.services.transitions import transition

MAX_ATTEMPTS = 3
# Of several workers that look at once, the losers look again: each has lost to somebody who got a run.
_CLAIM_TRIES = 10


class Claim(NamedTuple):
    """What a worker child holds: it may write as long as `lease_token` is the attempt's newest."""

    run: Run
    attempt: Attempt
    lease_token: int


class Renewal(NamedTuple):
    """What the lease thread learns each second. `held` is False when somebody else owns the attempt."""

    held: bool
    controls: tuple[Control, ...]


def claim_next(*, worker: str) -> Claim | None:
    """Take the next run that may start now, with a new lease; None when there is none.

    A second message for the same run finds nothing to claim. Runs whose worker died are settled first.
    """
    settle_abandoned()
    for _ in range(_CLAIM_TRIES):
        with transaction.atomic():
            run = Run.objects.claimable(slots=settings.LAB_RUN_SLOTS).first()
            if run is None:
                return None
            claim = _claim(run, worker)
        if claim is not None:
            return claim
    return None


def renew(*, claim: Claim, seconds: float | None = None) -> Renewal:
    """Make the lease last longer and look what people asked for in the meantime."""
    until = timezone.now() + dt.timedelta(seconds=settings.LAB_LEASE_SECONDS if seconds is None else seconds)
    held = bool(_held(claim).update(lease_until=until))
    return Renewal(held, _unseen_controls(claim) if held else ())


def look(*, claim: Claim) -> Renewal:
    """As `renew`, reading only: a commit twice a second for each run would wake every watcher."""
    held: bool = _held(claim).exists()
    return Renewal(held, _unseen_controls(claim) if held else ())


def controls_seen(*, controls: tuple[Control, ...]) -> None:
    """Note that a worker has heard what was asked."""
    Control.objects.filter(pk__in=[control.pk for control in controls], seen_at=None).update(
        seen_at=timezone.now()
    )


def release(*, claim: Claim) -> None:
    """Let the lease end now: the worker stops, whoever looks next settles the attempt."""
    _held(claim).update(lease_until=timezone.now() - dt.timedelta(seconds=1))


def settle(*, claim: Claim, retryable: bool, reason: ExitReason, verdict: str | None) -> bool:
    """After an attempt has ended: queue the run for another attempt, or end it. True when it is queued again.

    An infrastructure error is tried again, three attempts at most; a person's cancel is never.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update().get(pk=claim.run.pk)
        newest = run.attempts.order_by("-n").first()
        if newest is None or newest.lease_token != claim.lease_token or run.status == Run.Status.ENDED:
            return False
        again = _settle(run, newest, retryable=retryable, reason=reason, verdict=verdict)
        ring_workers()
    return again


def settle_abandoned(*, now: dt.datetime | None = None) -> list[int]:
    """End the open attempt of every run whose lease ran out, then queue or end the run; returns the runs.

    What was in flight is recorded as interrupted, its outcome and cost unknown. The next attempt starts from
    the snapshot.
    """
    settled = []
    for run_id in Run.objects.abandoned(now=now or timezone.now()).values_list("pk", flat=True):
        if _settle_one(run_id, now or timezone.now()):
            settled.append(run_id)
    return settled


def expire_leases_of(*, is_dead: Callable[[str], bool]) -> int:
    """Let the leases of workers that are known to be dead end now; returns how many."""
    count = 0
    now = timezone.now()
    for attempt in Attempt.objects.filter(ended_at=None, lease_until__gte=now):
        if is_dead(attempt.worker):
            count += Attempt.objects.filter(
                pk=attempt.pk, lease_token=attempt.lease_token, ended_at=None
            ).update(lease_until=now - dt.timedelta(seconds=1))
    return count


def live_labels() -> frozenset[str]:
    """The labels of sandboxes that somebody still holds a lease for."""
    attempts = Attempt.objects.filter(ended_at=None, lease_until__gte=timezone.now())
    return frozenset(sandbox_label(run_id, n) for run_id, n in attempts.values_list("run_id", "n"))


def sandbox_label(run_id: int, attempt: int) -> str:
    """The name by which the sandbox of an attempt is found again."""
    return f"run-{run_id}-attempt-{attempt}"


def startable_runs() -> int:
    """How many queued runs could start now, for ringing again after a lost message."""
    free = settings.LAB_RUN_SLOTS - Run.objects.holding_slots().count()
    return min(max(free, 0), Run.objects.claimable(slots=settings.LAB_RUN_SLOTS).count())


def _unseen_controls(claim: Claim) -> tuple[Control, ...]:
    return tuple(Control.objects.filter(run=claim.run, seen_at=None).select_related("asked_by"))


def _held(claim: Claim) -> QuerySet[Attempt]:
    return Attempt.objects.filter(pk=claim.attempt.pk, lease_token=claim.lease_token, ended_at=None)


def _claim(run: Run, worker: str) -> Claim | None:
    if not transition(run_id=run.pk, to=Run.Status.PREPARING, only_from=Run.Status.QUEUED):
        return None
    last = run.attempts.order_by("-n").first()
    token = (last.lease_token if last else 0) + 1
    attempt = Attempt.objects.create(
        run=run,
        n=(last.n if last else 0) + 1,
        lease_token=token,
        lease_until=timezone.now() + dt.timedelta(seconds=settings.LAB_LEASE_SECONDS),
        worker=worker,
    )
    run.refresh_from_db()
    return Claim(run, attempt, token)


def _settle_one(run_id: int, now: dt.datetime) -> bool:
    with transaction.atomic():
        run = Run.objects.abandoned(now=now).select_for_update().filter(pk=run_id).first()
        if run is None:
            return False
        attempt = run.attempts.order_by("-n").first()
        if attempt is None:
            return transition(run_id=run.pk, to=Run.Status.QUEUED)
        if attempt.ended_at is None:
            _end_abandoned(run, attempt)
            _settle(run, attempt, retryable=True, reason=ExitReason.INFRASTRUCTURE_ERROR, verdict=None)
        else:
            ended = Event.objects.filter(run=run, attempt=attempt.n, kind="attempt_ended").last()
            retryable = bool(ended and ended.payload["retryable"])
            facts = RunFacts.objects.filter(pk=run.pk).first()
            verdict = (facts.verdict if facts else "") or None
            _settle(
                run, attempt, retryable=retryable, reason=ExitReason(attempt.exit_reason), verdict=verdict
            )
        ring_workers()
    return True


def _end_abandoned(run: Run, attempt: Attempt) -> None:
    """Close the attempt under a new lease token, which shuts its former worker out."""
    attempt.lease_token += 1
    Attempt.objects.filter(pk=attempt.pk).update(lease_token=attempt.lease_token)
    cancelled = run.cancel_asked
    facts = RunFacts.objects.filter(pk=run.pk).first()
    reason = ExitReason.CANCELLED if cancelled else ExitReason.INFRASTRUCTURE_ERROR
    events: list[Any] = [*_interrupted(run, attempt)]
    events.append(
        AttemptEnded(
            exit_reason=reason.value,
            error=f"the worker {attempt.worker} died or stopped; what it had in flight is lost",
            retryable=not cancelled,
            steps=facts.steps if facts else 0,
            wall_seconds=(timezone.now() - attempt.started_at).total_seconds(),
        )
    )
    log.append(run_id=run.pk, attempt=attempt.n, lease_token=attempt.lease_token, events=events)


def _interrupted(run: Run, attempt: Attempt) -> list[Any]:
    """Events for the model call and the command that were in flight; whether they took effect is unknown."""
    reason = "the worker died or stopped; the outcome is unknown"
    last = (
        Event.objects.filter(run=run, attempt=attempt.n, kind__startswith="model_call_")
        .order_by("-seq")
        .first()
    )
    found: list[Any] = []
    if last is not None and last.kind == "model_call_started":
        found.append(
            ModelCallInterrupted(step=last.payload["step"], request=last.payload["request"], reason=reason)
        )
    tool = (
        Event.objects.filter(run=run, attempt=attempt.n, kind__startswith="tool_call_")
        .order_by("-seq")
        .first()
    )
    if tool is not None and tool.kind == "tool_call_started":
        payload = tool.payload
        found.append(
            ToolCallInterrupted(
                step=payload["step"], index=payload["index"], call_id=payload["call_id"], reason=reason
            )
        )
    return found


def _settle(run: Run, attempt: Attempt, *, retryable: bool, reason: ExitReason, verdict: str | None) -> bool:
    if run.cancel_asked and reason.origin is ExitOrigin.INFRASTRUCTURE:
        reason = ExitReason.CANCELLED
    again = retryable and reason.origin is ExitOrigin.INFRASTRUCTURE and attempt.n < MAX_ATTEMPTS
    if again and transition(run_id=run.pk, to=Run.Status.QUEUED):
        return True
    unseen = Control.objects.filter(run=run, seen_at=None, kind=Control.Kind.CANCEL).select_related(
        "asked_by"
    )
    events: list[Any] = [
        ControlAsked(control=control.kind, person=control.asked_by.get_username()) for control in unseen
    ]
    controls_seen(controls=tuple(unseen))
    events.append(RunEnded(exit_reason=reason.value, verdict=verdict))
    log.append(run_id=run.pk, attempt=attempt.n, lease_token=None, events=events)
    return False
