"""Steps of several runs as they are opened side by side: the events of just those steps, with excerpts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from django.db.models import Q

from lab.models import Event
from lab.render.fold import LogEvent, StepView, step_of
from lab.services.trajectories import log_event

# Of what was printed so much is held against what others printed; it is more than is shown at first.
_PRINTED_CHARACTERS = 40_000


def views_of(steps: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int], StepView]:
    """The steps by run and number; each is asked for as run, attempt and number. One query a run.

    What a log does not hold is not in the answer.
    """
    wanted: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for run, attempt, number in steps:
        wanted[run][attempt].add(number)
    views = {}
    for run, attempts in wanted.items():
        for events in _events_of(run, attempts).values():
            view = step_of(events)
            views[run, view.number] = view
    return views


def _events_of(run: int, attempts: dict[int, set[int]]) -> dict[tuple[int, int], list[LogEvent]]:
    """The events of the steps of one run, by attempt and number of the step."""
    asked = Q()
    for attempt, numbers in attempts.items():
        asked |= Q(attempt=attempt, step__in=sorted(numbers))
    rows = Event.objects.filter(asked, run_id=run).order_by("seq")
    found: dict[tuple[int, int], list[LogEvent]] = defaultdict(list)
    for row in rows.values_list("seq", "attempt", "step", "kind", "at", "payload"):
        event = log_event(*row, printed=_PRINTED_CHARACTERS)
        found[event.attempt, event.step or 0].append(event)
    return found
