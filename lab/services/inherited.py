"""What an attempt inherits: limits that people changed, and asks that earlier attempts did not live to do."""

from __future__ import annotations

from typing import NamedTuple

from lab.engine.events import ControlAsked
from lab.engine.limits import Limits
from lab.engine.resume import limits_after, where_it_stands
from lab.engine.steering import Ask
from lab.models import Event, Run
from lab.services import log

_EFFECTS = ("paused", "resumed", "limit_changed", "message_sent")


class AskedSoFar(NamedTuple):
    """`heard`: numbers of all that stands in the log. `left`: what earlier attempts did not live to do."""

    heard: frozenset[int]
    left: tuple[Ask, ...]


def asked_of(*, run_id: int, attempt: int) -> AskedSoFar:
    """What was asked of the run. What this attempt itself has heard and not done yet, its history says."""
    rows = Event.objects.filter(run_id=run_id, kind__in=("control_asked", *_EFFECTS)).order_by("seq")
    records = [log.read_row(row) for row in rows]
    standing = where_it_stands(records)
    earlier = {
        record.event.ask
        for record in records
        if isinstance(record.event, ControlAsked) and record.attempt < attempt
    }
    left = tuple(ask for ask in standing.asks if ask.number in earlier)
    return AskedSoFar(frozenset(standing.heard), left)


def limits_before(*, run: Run, attempt: int) -> Limits:
    """The limits an attempt begins with: its arm's, with what people changed in earlier attempts."""
    changes = Event.objects.filter(run=run, attempt__lt=attempt, kind="limit_changed").order_by("seq")
    events = [log.read_row(row).event for row in changes]
    return limits_after(Limits.model_validate(run.arm.limits), events)
