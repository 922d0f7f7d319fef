"""The one place where a run's status changes: a filtered UPDATE that says who won."""

from __future__ import annotations

import datetime as dt

from django.db import transaction
from django.utils import timezone

from lab.models import Experiment, Run
from lab.services import budgets, doorbell

_Status = Run.Status
# to -> from where. Whoever asks from another status has lost a race, or is mistaken.
_ALLOWED: dict[str, tuple[str, ...]] = {
    _Status.QUEUED: (_Status.PREPARING, _Status.RUNNING, _Status.PAUSED, _Status.VERIFYING),
    _Status.PREPARING: (_Status.QUEUED,),
    _Status.RUNNING: (_Status.PREPARING, _Status.PAUSED),
    _Status.PAUSED: (_Status.QUEUED, _Status.PREPARING, _Status.RUNNING),
    _Status.VERIFYING: (_Status.PREPARING, _Status.RUNNING, _Status.PAUSED),
    _Status.ENDED: (
        _Status.QUEUED,
        _Status.PREPARING,
        _Status.RUNNING,
        _Status.PAUSED,
        _Status.VERIFYING,
    ),
}


def transition(
    *,
    run_id: int,
    to: str,
    only_from: str | None = None,
    at: dt.datetime | None = None,
    exit_reason: str = "",
) -> bool:
    """Move a run to another status; True when this call did it.

    `only_from` narrows the statuses it may come from. `exit_reason` belongs to `ended`. An experiment whose
    last run ends, ends too; one that was cancelled stays "cancelled".
    """
    at = at or timezone.now()
    allowed = _ALLOWED[to] if only_from is None else (only_from,)
    values: dict[str, object] = {"status": to}
    if to == _Status.ENDED:
        values |= {"ended_at": at, "exit_reason": exit_reason}
    won = Run.objects.filter(pk=run_id, status__in=allowed).update(**values)
    if won and to == _Status.PREPARING:
        Run.objects.filter(pk=run_id, started_at=None).update(started_at=at)
    if won and to == _Status.ENDED:
        _end_experiment(run_id, at)
    if won:
        doorbell.ring()
    return bool(won)


def _end_experiment(run_id: int, at: dt.datetime) -> None:
    with transaction.atomic():
        # Of the last two runs that end at once, one must see that the other has.
        experiment = Experiment.objects.select_for_update().filter(runs=run_id, ended_at=None).first()
        if experiment is None or experiment.runs.exclude(status=_Status.ENDED).exists():
            return
        if experiment.state != Experiment.State.CANCELLED:
            experiment.state = Experiment.State.ENDED
        experiment.ended_at, experiment.clock = at, budgets.stopped(experiment.clock)
        experiment.paused_because = experiment.paused_by_budget = ""
        experiment.save(update_fields=["state", "ended_at", "clock", "paused_because", "paused_by_budget"])
