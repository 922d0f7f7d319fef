"""What an attempt inherits: limits that people changed, and asks that earlier attempts did not live to do."""

from __future__ import annotations

from typing import Any, NamedTuple, cast, get_args

from lab.engine.limits import Limits
from lab.engine.resume import limits_after
from lab.engine.steering import Ask
from lab.engine.steering import Control as Steered
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
    asked: dict[int, Any] = {}
    heard, done = set(), set()
    for row in rows:
        number = row.payload.get("ask", 0)
        if row.kind in _EFFECTS:
            done.add(number)
        elif number:
            heard.add(number)
            if row.attempt < attempt and row.payload["control"] in get_args(Steered):
                asked[number] = row
    left = [log.read_row(row).event for number, row in asked.items() if number not in done]
    return AskedSoFar(frozenset(heard), tuple(_ask(event) for event in left))


def limits_before(*, run: Run, attempt: int) -> Limits:
    """The limits an attempt begins with: its arm's, with what people changed in earlier attempts."""
    changes = Event.objects.filter(run=run, attempt__lt=attempt, kind="limit_changed").order_by("seq")
    events = [log.read_row(row).event for row in changes]
    return limits_after(Limits.model_validate(run.arm.limits), events)


def _ask(event: Any) -> Ask:
    return Ask(control=cast(Steered, event.control), person=event.person, number=event.ask, value=event.value)
