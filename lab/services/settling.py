"""What becomes of an attempt that has ended or lost its worker: it goes on, another follows, the run ends."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any

from django.db import DatabaseError, transaction
from django.utils import timezone

from lab.engine.errors import ExitOrigin, ExitReason
from lab.engine.events import (
    AttemptEnded,
    ControlAsked,
    ModelCallInterrupted,
    ModelCallStarted,
    PatchCaptured,
    Paused,
    Resumed,
    RunEnded,
    ToolCallInterrupted,
    ToolCallStarted,
    VerificationFinished,
)
from lab.models import Attempt, Control, Event, Run, RunFacts
from lab.services import log
from lab.services.leases import Claim, controls_seen, end_now, held_by
from lab.services.messages import ring_workers
from lab.services.transitions import transition

# In a row and without a new committed step; an orderly stop is none of them.
MAX_CONTINUATIONS = 3
# A holder that could not reach the database for longer than its lease, or slept with the whole machine, says
# within this time that it is still there.
DOUBT_SECONDS = 3.0
_COMMITTED = ("model_call_finished", "patch_captured", "verification_finished")

_log = logging.getLogger(__name__)


def settle(*, claim: Claim, retryable: bool, reason: ExitReason, verdict: str | None) -> bool:
    """After an attempt has ended: queue the run for another attempt, or end it. True when it is queued again.

    An infrastructure error is tried again, as often as the experiment says; a person's cancel is never.
    """
    with transaction.atomic():
        run = Run.objects.locked().get(pk=claim.run.pk)
        newest = run.attempts.order_by("-n").first()
        settled = run.status in (Run.Status.QUEUED, Run.Status.ENDED)
        if settled or newest is None or newest.lease_token != claim.lease_token:
            return False
        return _settle(run, newest, retryable=retryable, reason=reason, verdict=verdict)


def hand_back(*, claim: Claim) -> bool:
    """The worker stops in an orderly way: its run is queued at once, and another child continues the attempt.

    That is when the lab stops, and when the run's experiment is paused: then nobody claims it before that
    goes on. A paused run stays paused, without a worker. What is in flight by now is recorded as interrupted.
    False when the attempt is somebody else's by now.
    """
    with transaction.atomic():
        run = Run.objects.locked().get(pk=claim.run.pk)
        attempt = held_by(claim).first()
        if attempt is None:
            return False
        attempt.handed_over = True
        _settle_unheld(run, attempt)
    return True


def take_away(*, attempt_id: int, lease_token: int) -> bool:
    """End the lease of a worker that does not answer, and settle the run. False when it lost it before."""
    if not end_now(Attempt.objects.filter(pk=attempt_id, lease_token=lease_token)):
        return False
    run_id = Attempt.objects.values_list("run_id", flat=True).get(pk=attempt_id)
    return _settle_safely(run_id, timezone.now())


def settle_abandoned(*, now: dt.datetime | None = None) -> list[int]:
    """Take back every run whose lease ran out; returns the runs.

    What was in flight is recorded as interrupted, its outcome and cost unknown. The attempt stays open and is
    continued by whoever claims the run next; a paused run waits for its resume without a worker. The attempt
    ends where it was graded already (it keeps exit reason and verdict), where somebody cancelled it, and
    after three continuations that got no step further. A lease that ran out is doubted for some seconds.
    """
    at = now or timezone.now()
    runs = Run.objects.abandoned(now=at).order_by("pk").values_list("pk", flat=True)
    return [run_id for run_id in runs if _settle_safely(run_id, at)]


def _settle_safely(run_id: int, at: dt.datetime) -> bool:
    try:
        return _settle_one(run_id, at)
    except (DatabaseError, OSError):
        raise
    except Exception as error:
        # Whatever is wrong with this run's log, the run ends and the others do not wait for it.
        _log.exception("run %s cannot be settled from its log", run_id)
        return _end_unread(run_id, at, error)


def _settle_one(run_id: int, at: dt.datetime) -> bool:
    with transaction.atomic():
        run = Run.objects.abandoned(now=at).locked().filter(pk=run_id).first()
        if run is None:
            return False
        attempt = run.attempts.order_by("-n").first()
        if attempt is None:
            ring_workers()
            return transition(run_id=run.pk, to=Run.Status.QUEUED)
        if _is_doubtful(attempt, at):
            return False
        _settle_unheld(run, attempt)
    return True


def _is_doubtful(attempt: Attempt, at: dt.datetime) -> bool:
    """Whether somebody may hold it still."""
    if attempt.lease_until is None:
        return False
    if attempt.lease_until >= at:
        return True
    if attempt.doubted_at is None:
        Attempt.objects.filter(pk=attempt.pk).update(doubted_at=at)
        return True
    return attempt.doubted_at > at - dt.timedelta(seconds=DOUBT_SECONDS)


def _settle_unheld(run: Run, attempt: Attempt) -> None:
    """Settle a run whose worker is gone, under a new lease token, which shuts that worker out."""
    if attempt.ended_at is not None:
        ended = _last(run, attempt, "attempt_ended")
        facts = RunFacts.objects.filter(pk=run.pk).first()
        _settle(
            run,
            attempt,
            retryable=ended.retryable,
            reason=ExitReason(attempt.exit_reason),
            verdict=(facts.verdict if facts else "") or None,
        )
        return
    attempt.lease_token += 1
    attempt.lease_until, attempt.doubted_at = None, None
    _count_loss(run, attempt)
    attempt.save(
        update_fields=[
            "lease_token",
            "lease_until",
            "doubted_at",
            "handed_over",
            "workers_lost",
            "lost_after",
        ]
    )
    reason, verdict = _graded(run, attempt) or (ExitReason.INFRASTRUCTURE_ERROR, None)
    if run.cancel_asked:
        reason, verdict = ExitReason.CANCELLED, None
    broken = reason.origin is ExitOrigin.INFRASTRUCTURE
    if broken and attempt.workers_lost <= MAX_CONTINUATIONS:
        _leave_open(run, attempt)
    else:
        _end_open(run, attempt, reason)
        _settle(run, attempt, retryable=True, reason=reason, verdict=verdict)


def _count_loss(run: Run, attempt: Attempt) -> None:
    """Count the workers that died with the attempt where it stands; a paused one kills nobody."""
    committed = Event.objects.filter(run=run, attempt=attempt.n, kind__in=_COMMITTED).order_by("-seq")
    after = committed.values_list("seq", flat=True).first() or 0
    if after > attempt.lost_after:
        attempt.workers_lost, attempt.lost_after = 0, after
    if not attempt.handed_over and run.status != Run.Status.PAUSED:
        attempt.workers_lost += 1


def _leave_open(run: Run, attempt: Attempt) -> None:
    """The next claim continues the attempt; nobody claims a paused run."""
    paused = run.status == Run.Status.PAUSED
    events = _interrupted(run, attempt)
    if run.status != Run.Status.VERIFYING:
        for control in _unseen(run, Control.Kind.PAUSE, Control.Kind.RESUME):
            paused = control.kind == Control.Kind.PAUSE
            effect = Paused if paused else Resumed
            events += [_asked(control), effect(person=control.asked_by.get_username(), ask=control.pk)]
        if paused and (resume := _heard_resume(run)):
            paused = False
            events.append(Resumed(person=resume.asked_by.get_username(), ask=resume.pk))
    _append(run, attempt, events)
    if not paused:
        transition(run_id=run.pk, to=Run.Status.QUEUED)
        ring_workers()


def _end_open(run: Run, attempt: Attempt, reason: ExitReason) -> None:
    facts = RunFacts.objects.filter(pk=run.pk).first()
    ended = AttemptEnded(
        exit_reason=reason.value,
        error=_why_ended(attempt),
        retryable=reason.origin is ExitOrigin.INFRASTRUCTURE,
        steps=facts.steps if facts else 0,
        wall_seconds=(timezone.now() - attempt.started_at).total_seconds(),
    )
    asked = [_asked(control) for control in _unseen(run, *Control.Kind.values)]
    _append(run, attempt, [*_interrupted(run, attempt), *asked, ended])


def _why_ended(attempt: Attempt) -> str:
    if attempt.handed_over:
        return "the lab was stopped, or the experiment was paused"
    gone = f"the worker {attempt.worker} died or stopped; what it had in flight is lost"
    if attempt.workers_lost <= MAX_CONTINUATIONS:
        return gone
    return f"{gone}. {attempt.workers_lost} workers died with this attempt before it got a step further"


def _append(run: Run, attempt: Attempt, events: list[Any]) -> None:
    if events:
        log.append(run_id=run.pk, attempt=attempt.n, lease_token=attempt.lease_token, events=events)


def _unseen(run: Run, *kinds: str) -> list[Control]:
    """What was asked and no worker has heard; it counts as seen, the caller writes it down."""
    found = Control.objects.filter(run=run, seen_at=None, kind__in=kinds).select_related("asked_by")
    controls = tuple(found.order_by("pk"))
    if not controls:
        return []
    controls_seen(controls=controls)
    # A worker that died in between has written it down and not yet said that it was seen.
    told = Event.objects.filter(run=run, kind="control_asked")
    written = set(told.values_list("payload__ask", flat=True))
    return [control for control in controls if control.pk not in written]


def _heard_resume(run: Run) -> Control | None:
    """The resume of a paused run that its worker heard and did not live to do: nobody claims a paused run."""
    kinds = (Control.Kind.PAUSE, Control.Kind.RESUME)
    newest = Control.objects.filter(run=run, kind__in=kinds).select_related("asked_by").order_by("pk").last()
    return newest if newest is not None and newest.kind == Control.Kind.RESUME else None


def _asked(control: Control) -> ControlAsked:
    person = control.asked_by.get_username()
    return ControlAsked(control=control.kind, person=person, value=control.value, ask=control.pk)


def _end_unread(run_id: int, now: dt.datetime, error: Exception) -> bool:
    """End a run whose log does not tell how."""
    with transaction.atomic():
        run = Run.objects.abandoned(now=now).locked().filter(pk=run_id).first()
        attempt = run.attempts.order_by("-n").first() if run is not None else None
        if run is None or attempt is None:
            return False
        if attempt.ended_at is None:
            attempt.lease_token += 1
            attempt.save(update_fields=["lease_token"])
            ended = AttemptEnded(
                exit_reason=ExitReason.INTERNAL_ERROR.value,
                error=f"the worker {attempt.worker} died or stopped, and the log cannot be read: {error}",
                retryable=False,
                steps=0,
                wall_seconds=(timezone.now() - attempt.started_at).total_seconds(),
            )
            _append(run, attempt, [ended])
        _settle(run, attempt, retryable=False, reason=ExitReason.INTERNAL_ERROR, verdict=None)
    return True


def _graded(run: Run, attempt: Attempt) -> tuple[ExitReason, str] | None:
    """Exit reason and verdict of an attempt that was graded before its worker died."""
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


def _settle(run: Run, attempt: Attempt, *, retryable: bool, reason: ExitReason, verdict: str | None) -> bool:
    """Queue the run for another attempt (True), or end it."""
    # The lease has done its work: it must not protect a later attempt.
    Attempt.objects.filter(pk=attempt.pk).update(lease_until=None, doubted_at=None)
    ring_workers()
    if run.cancel_asked and reason.origin is ExitOrigin.INFRASTRUCTURE:
        reason = ExitReason.CANCELLED
    worth_another = retryable and reason.origin is ExitOrigin.INFRASTRUCTURE
    again = worth_another and attempt.n < run.experiment.max_attempts
    if again and transition(run_id=run.pk, to=Run.Status.QUEUED):
        return True
    events: list[Any] = [_asked(control) for control in _unseen(run, *Control.Kind.values)]
    events.append(RunEnded(exit_reason=reason.value, verdict=verdict))
    log.append(run_id=run.pk, attempt=attempt.n, lease_token=None, events=events)
    return False
