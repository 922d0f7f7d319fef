"""The database as the queue: claiming runs under a lease, giving them back, settling abandoned ones."""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from lab.engine.errors import ExitOrigin, ExitReason
from lab.engine.events import (
    AttemptEnded,
    ControlAsked,
    ModelCallInterrupted,
    ModelCallStarted,
    PatchCaptured,
    RunEnded,
    ToolCallInterrupted,
    ToolCallStarted,
    VerificationFinished,
)
from lab.models import Attempt, Control, Event, Run, RunFacts
from lab.services import log
from lab.services.messages import ring_workers
from lab.services.transitions import transition

# Attempts that an orderly stop of the lab ended do not count, but there is an end of them too.
MAX_ATTEMPTS = 3
MAX_ATTEMPTS_WITH_STOPS = 30
# Of several workers that look at once, the losers look again: each has lost to somebody who got a run.
_CLAIM_TRIES = 10

_RUN_LABEL = re.compile(r"run-\d+-attempt-\d+")
_log = logging.getLogger(__name__)


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


def release(*, claim: Claim, handed_over: bool = False) -> None:
    """Let the lease end now: the worker stops, whoever looks next settles the attempt.

    `handed_over`: the lab was stopped in an orderly way, and the attempt does not count.
    """
    if handed_over:
        note_hand_over(claim=claim)
    _held(claim).update(lease_until=timezone.now() - dt.timedelta(seconds=1))


def note_hand_over(*, claim: Claim) -> None:
    """Note that an orderly stop ends the attempt, before whatever else the stop has no time for."""
    _held(claim).filter(ended_at=None).update(handed_over=True)


def settle(*, claim: Claim, retryable: bool, reason: ExitReason, verdict: str | None) -> bool:
    """After an attempt has ended: queue the run for another attempt, or end it. True when it is queued again.

    An infrastructure error is tried again, three attempts at most beside those that a stop of the lab ended;
    a person's cancel is never.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update().get(pk=claim.run.pk)
        newest = run.attempts.order_by("-n").first()
        settled = run.status in (Run.Status.QUEUED, Run.Status.ENDED)
        if settled or newest is None or newest.lease_token != claim.lease_token:
            return False
        again = _settle(run, newest, retryable=retryable, reason=reason, verdict=verdict)
        ring_workers()
    return again


def settle_abandoned(*, now: dt.datetime | None = None) -> list[int]:
    """End the open attempt of every run whose lease ran out, then queue or end the run; returns the runs.

    What was in flight is recorded as interrupted, its outcome and cost unknown. The next attempt starts from
    the snapshot. An attempt that was graded already keeps its exit reason and its verdict.
    """
    settled = []
    at = now or timezone.now()
    for run_id in Run.objects.abandoned(now=at).order_by("pk").values_list("pk", flat=True):
        try:
            done = _settle_one(run_id, at)
        except DatabaseError:
            raise
        except Exception as error:
            # Whatever is wrong with this run's log, the run ends and the others do not wait for it.
            _log.exception("run %s cannot be settled from its log", run_id)
            done = _end_unread(run_id, at, error)
        if done:
            settled.append(run_id)
    return settled


def expire_leases_of(*, is_dead: Callable[[str], bool]) -> int:
    """Let the leases of workers that are known to be dead end now; returns how many."""
    count = 0
    now = timezone.now()
    for attempt in Attempt.objects.filter(lease_until__gte=now):
        if is_dead(attempt.worker):
            count += Attempt.objects.filter(pk=attempt.pk, lease_token=attempt.lease_token).update(
                lease_until=now - dt.timedelta(seconds=1)
            )
    return count


def live_labels() -> frozenset[str]:
    """The labels of sandboxes that somebody still holds a lease for."""
    attempts = Attempt.objects.filter(ended_at=None, lease_until__gte=timezone.now())
    return frozenset(sandbox_label(run_id, n) for run_id, n in attempts.values_list("run_id", "n"))


def sandbox_label(run_id: int, attempt: int) -> str:
    """The name by which the sandbox of an attempt is found again."""
    return f"run-{run_id}-attempt-{attempt}"


def is_run_label(label: str) -> bool:
    """Whether a sandbox of this name belongs to an attempt of a run."""
    return _RUN_LABEL.fullmatch(label) is not None


def startable_runs() -> int:
    """How many queued runs could start now, for ringing again after a lost message."""
    free = settings.LAB_RUN_SLOTS - Run.objects.holding_slots().count()
    return Run.objects.claimable(slots=settings.LAB_RUN_SLOTS)[:free].count() if free > 0 else 0


def _unseen_controls(claim: Claim) -> tuple[Control, ...]:
    return tuple(Control.objects.filter(run=claim.run, seen_at=None).select_related("asked_by"))


def _held(claim: Claim) -> QuerySet[Attempt]:
    """The claimed attempt while its lease is this claim's: until it is settled, a little after its end."""
    return Attempt.objects.filter(
        pk=claim.attempt.pk, lease_token=claim.lease_token, lease_until__isnull=False
    )


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
            reason, verdict = _end_abandoned(run, attempt)
            _settle(run, attempt, retryable=True, reason=reason, verdict=verdict)
        else:
            ended = _last(run, attempt, "attempt_ended")
            reason = ExitReason(attempt.exit_reason)
            facts = RunFacts.objects.filter(pk=run.pk).first()
            verdict = (facts.verdict if facts else "") or None
            _settle(run, attempt, retryable=ended.retryable, reason=reason, verdict=verdict)
        ring_workers()
    return True


def _end_unread(run_id: int, now: dt.datetime, error: Exception) -> bool:
    """End a run whose log does not tell how."""
    with transaction.atomic():
        run = Run.objects.abandoned(now=now).select_for_update().filter(pk=run_id).first()
        attempt = run.attempts.order_by("-n").first() if run is not None else None
        if run is None or attempt is None:
            return False
        if attempt.ended_at is None:
            ended = AttemptEnded(
                exit_reason=ExitReason.INTERNAL_ERROR.value,
                error=f"the worker {attempt.worker} died or stopped, and the log cannot be read: {error}",
                retryable=False,
                steps=0,
                wall_seconds=(timezone.now() - attempt.started_at).total_seconds(),
            )
            token = attempt.lease_token + 1
            Attempt.objects.filter(pk=attempt.pk).update(lease_token=token)
            log.append(run_id=run.pk, attempt=attempt.n, lease_token=token, events=[ended])
        _settle(run, attempt, retryable=False, reason=ExitReason.INTERNAL_ERROR, verdict=None)
        ring_workers()
    return True


def _end_abandoned(run: Run, attempt: Attempt) -> tuple[ExitReason, str | None]:
    """Close the attempt under a new lease token, which shuts its former worker out.

    Returns exit reason and verdict: infrastructure and none, unless it was graded before its worker died.
    """
    attempt.lease_token += 1
    Attempt.objects.filter(pk=attempt.pk).update(lease_token=attempt.lease_token)
    facts = RunFacts.objects.filter(pk=run.pk).first()
    reason, verdict = _graded(run, attempt) or (ExitReason.INFRASTRUCTURE_ERROR, None)
    if run.cancel_asked:
        reason, verdict = ExitReason.CANCELLED, None
    ended = AttemptEnded(
        exit_reason=reason.value,
        error=_why_abandoned(attempt),
        retryable=reason.origin is ExitOrigin.INFRASTRUCTURE,
        steps=facts.steps if facts else 0,
        wall_seconds=(timezone.now() - attempt.started_at).total_seconds(),
    )
    events = [*_interrupted(run, attempt), ended]
    log.append(run_id=run.pk, attempt=attempt.n, lease_token=attempt.lease_token, events=events)
    return reason, verdict


def _why_abandoned(attempt: Attempt) -> str:
    if attempt.handed_over:
        return (
            "the lab was stopped; what was in flight is lost, and the attempt does not count as one of three"
        )
    return f"the worker {attempt.worker} died or stopped; what it had in flight is lost"


def _graded(run: Run, attempt: Attempt) -> tuple[ExitReason, str] | None:
    grading = _last(run, attempt, "verification_finished")
    captured = _last(run, attempt, "patch_captured")
    if not isinstance(grading, VerificationFinished) or not isinstance(captured, PatchCaptured):
        return None
    return ExitReason(captured.exit_reason), grading.outcome


def _interrupted(run: Run, attempt: Attempt) -> list[Any]:
    """Events for the model call and the command that were in flight; whether they took effect is unknown."""
    reason = "the worker died or stopped; the outcome is unknown"
    found: list[Any] = []
    call = _last(run, attempt, "model_call_")
    if isinstance(call, ModelCallStarted):
        found.append(ModelCallInterrupted(step=call.step, request=call.request, reason=reason))
    tool = _last(run, attempt, "tool_call_")
    if isinstance(tool, ToolCallStarted):
        found.append(
            ToolCallInterrupted(step=tool.step, index=tool.index, call_id=tool.call_id, reason=reason)
        )
    return found


def _last(run: Run, attempt: Attempt, kind: str) -> Any:
    """The attempt's last event whose kind begins with `kind`, every text whole; None without one."""
    rows = Event.objects.filter(run=run, attempt=attempt.n, kind__startswith=kind)
    row = rows.order_by("-seq").first()
    return None if row is None else log.read_row(row).event


def _may_have_another(run: Run, attempt: Attempt) -> bool:
    counted = attempt.n - run.attempts.filter(handed_over=True).count()
    return counted < MAX_ATTEMPTS and attempt.n < MAX_ATTEMPTS_WITH_STOPS


def _settle(run: Run, attempt: Attempt, *, retryable: bool, reason: ExitReason, verdict: str | None) -> bool:
    # The lease has done its work: it must not protect a later attempt.
    Attempt.objects.filter(pk=attempt.pk).update(lease_until=None)
    if run.cancel_asked and reason.origin is ExitOrigin.INFRASTRUCTURE:
        reason = ExitReason.CANCELLED
    again = retryable and reason.origin is ExitOrigin.INFRASTRUCTURE and _may_have_another(run, attempt)
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
