"""What is new in a list of runs: the rows that changed, a few times a second."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Sequence

from django.db.models import Q, QuerySet
from django.template.loader import render_to_string

from lab.live import messages
from lab.live.hub import Message, Topic
from lab.models import Run
from lab.services import flags, lab, overview, tasks

ROWS_SECONDS = 0.25
# What to do next and how the lab is takes more queries, and is news for nobody four times a second.
BESIDE_SECONDS = 5.0
_ROWS_AT_ONCE = 50

_BESIDE_PARTS = ("home/_todo.html", "home/_lab.html")
_HOME_PARTS = ("home/_slots.html", "home/_finished.html", "home/_latest.html", "components/_running.html")
_EXPERIMENT_PARTS = ("experiments/_counts.html", "experiments/_arms.html", "experiments/_flags.html")

RowState = tuple[int, int, str, bool]


class ListFeed:
    """Turns changes of a list of runs into messages. Lives on the watcher's thread.

    The list of the home page is what is not ended; a run that leaves it is sent once more, as ended.
    """

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._seen: dict[int, RowState] = {}
        self._at = 0.0
        self._beside: list[str] = []
        self._beside_at = 0.0
        self.waits = True

    def changed(self) -> list[Message]:
        """Rows that differ from what was sent before; everything at the first look."""
        now = time.monotonic()
        if now - self._at < ROWS_SECONDS:
            self.waits = True
            return []
        self._at = now
        states = self._states()
        changed = [pk for pk, state in states.items() if self._seen.get(pk) != state]
        self.waits = len(changed) > _ROWS_AT_ONCE
        shown = changed[:_ROWS_AT_ONCE]
        self._seen.update((pk, states[pk]) for pk in shown)
        if self._topic.kind == "home":
            self._seen = {
                pk: state for pk, state in self._seen.items() if pk in states and state[2] != "ended"
            }
        beside = self._changed_beside(now)
        if not shown:
            return [messages.rows([], parts=beside)] if beside else []
        rows = Run.objects.filter(pk__in=shown).for_rows().order_by("position", "id")
        return [_message(self._topic, rows, beside=beside)]

    def _changed_beside(self, now: float) -> list[str]:
        """What the first page says beside its lists, as far as it differs from what was sent before."""
        if self._topic.kind != "home" or now - self._beside_at < BESIDE_SECONDS:
            return []
        self._beside_at = now
        before, self._beside = self._beside, _beside()
        return [part for part in self._beside if part not in before]

    def _states(self) -> dict[int, RowState]:
        rows = self._runs().values_list("pk", "last_seq", "status", "cancel_asked")
        return {row[0]: row for row in rows}

    def _runs(self) -> QuerySet[Run]:
        if self._topic.kind == "experiment":
            return Run.objects.filter(experiment_id=self._topic.key)
        return Run.objects.filter(~Q(status=Run.Status.ENDED) | Q(pk__in=list(self._seen)))


def rows_now(topic: Topic, *, shown: Sequence[int]) -> Message:
    """What a page that shows the runs `shown` has to know: these rows, and on the first page the newest ones.

    Ended runs come oldest first: the page puts each above those it has.
    """
    known = Run.objects.filter(pk__in=shown).for_rows()
    if topic.kind == "experiment":
        return _message(topic, known.filter(experiment_id=topic.key).order_by("position", "id"))
    rows = {run.pk: run for run in [*known, *overview.running(), *overview.finished()]}
    never = dt.datetime.min.replace(tzinfo=dt.UTC)
    newest_last = sorted(rows.values(), key=lambda run: (run.ended_at or never, run.position, run.pk))
    return _message(topic, newest_last, beside=_beside())


def _message(topic: Topic, runs: Iterable[Run], *, beside: Sequence[str] = ()) -> Message:
    html = [render_to_string("runs/_row.html", {"run": run}) for run in runs]
    return messages.rows(html, parts=[*_parts(topic), *beside])


def _beside() -> list[str]:
    context = {"todo": overview.suggestions(task_set=tasks.current_task_set()), "lab": lab.state()}
    return [render_to_string(name, context) for name in _BESIDE_PARTS]


def _parts(topic: Topic) -> list[str]:
    """What the page says of all runs of the list together."""
    if topic.kind == "experiment":
        shown = {
            "counts": overview.experiment_counts(topic.key),
            "arms": overview.arms_of(topic.key),
            "flagged": flags.flagged_runs(topic.key),
        }
        return [render_to_string(name, shown) for name in _EXPERIMENT_PARTS]
    slots = overview.slots()
    context = {"slots": slots, "running_count": slots.busy, "latest": overview.latest_experiment()}
    return [render_to_string(name, context) for name in _HOME_PARTS]
