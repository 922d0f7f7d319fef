"""The database as the queue: claiming runs. Leases and settling are reached through here too."""

from __future__ import annotations

import datetime as dt

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from lab.models import Attempt, Run
from lab.services import budgets, preflights
from lab.services.leases import (
    Cancelled,
    Claim,
    Renewal,
    anything_goes_on,
    clock,
    controls_seen,
    expire_leases_of,
    held_though_cancelled,
    is_run_label,
    live_labels,
    look,
    may_ask,
    note_hand_over,
    release,
    renew,
    sandbox_label,
)
from lab.services.locks import one_at_a_time
from lab.services.settling import (
    MAX_CONTINUATIONS,
    hand_back,
    settle,
    settle_abandoned,
    take_away,
)
from lab.services.transitions import transition

__all__ = [
    "MAX_CONTINUATIONS",
    "Cancelled",
    "Claim",
    "Renewal",
    "anything_goes_on",
    "claim_next",
    "clock",
    "controls_seen",
    "expire_leases_of",
    "hand_back",
    "held_though_cancelled",
    "is_run_label",
    "live_labels",
    "look",
    "may_ask",
    "note_hand_over",
    "release",
    "renew",
    "sandbox_label",
    "settle",
    "settle_abandoned",
    "startable_runs",
    "take_away",
]

# Of several workers that look at once, the losers look again: each has lost to somebody who got a run.
_CLAIM_TRIES = 10


def claim_next(*, worker: str) -> Claim | None:
    """Take the next run that may start or go on now, with a new lease; None when there is none.

    An attempt that is open is continued, otherwise the next one begins. A second message for the same run
    finds nothing to claim. Runs whose worker died are settled first.
    """
    settle_abandoned()
    for _ in range(_CLAIM_TRIES):
        with transaction.atomic():
            # Who counts free slots must see what the last one has claimed.
            one_at_a_time("claim")
            run = Run.objects.claimable(slots=settings.LAB_RUN_SLOTS).first()
            if run is None:
                return None
            claim = _claim(run, worker)
        if claim is not None:
            return claim
    return None


def startable_runs() -> int:
    """How many queued runs could start now, for ringing again after a lost message."""
    if not Run.objects.filter(status=Run.Status.QUEUED).exists():
        return 0
    free = settings.LAB_RUN_SLOTS - Run.objects.holding_slots().count()
    return Run.objects.claimable(slots=settings.LAB_RUN_SLOTS).order_by()[:free].count() if free > 0 else 0


def _claim(run: Run, worker: str) -> Claim | None:
    if not transition(run_id=run.pk, to=Run.Status.PREPARING, only_from=Run.Status.QUEUED):
        return None
    last = run.attempts.order_by("-n").first()
    token = (last.lease_token if last else 0) + 1
    until = timezone.now() + dt.timedelta(seconds=settings.LAB_LEASE_SECONDS)
    continues = last is not None and last.ended_at is None
    orderly = last is not None and continues and last.handed_over
    if last is not None and continues:
        attempt = last
        attempt.lease_token, attempt.lease_until, attempt.worker = token, until, worker
        attempt.doubted_at, attempt.handed_over = None, False
        attempt.save(update_fields=["lease_token", "lease_until", "worker", "doubted_at", "handed_over"])
    else:
        attempt = Attempt.objects.create(
            run=run, n=(last.n if last else 0) + 1, lease_token=token, lease_until=until, worker=worker
        )
    budgets.start_clock(experiment_id=run.experiment_id)
    if last is None:
        Run.objects.filter(pk=run.pk).update(preflight=preflights.newest_number(run.arm.model_id))
    run.refresh_from_db()
    return Claim(run, attempt, token, continues, orderly)
