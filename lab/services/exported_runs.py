"""Runs as exports are given them: from the log, redacted and masked, one in memory at a time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence

from lab.engine.events import EVENT_ADAPTER, AttemptStarted, Record
from lab.engine.formats.exported import Exported
from lab.engine.formats.from_events import from_events
from lab.engine.formats.trajectory import Trajectory
from lab.engine.key_shapes import masked
from lab.engine.llm.base import JSONObject
from lab.models import Event, ImportedTrajectory, Run
from lab.services import log
from lab.services.known_secrets import redactor
from lab.services.records import for_reader

_ROWS = 200
_RUNS = 100


class Loading:
    """Reads runs for one export. `sees_hidden`: also what hidden tests printed."""

    def __init__(self, *, sees_hidden: bool) -> None:
        self._sees_hidden = sees_hidden
        self._redactor = redactor()

    def runs(self, numbers: Sequence[int]) -> Iterator[Exported]:
        """The runs with their trajectories, in this order."""
        for run in _rows(numbers):
            yield self._exported(run)

    def logs(self, numbers: Sequence[int]) -> Iterator[tuple[JSONObject, Iterator[Record]]]:
        """What the lab calls each run's parts, and its log."""
        for run in _rows(numbers):
            yield masked(self._redactor.json(_facts(run))), self.records(run)

    def records(self, run: Run) -> Iterator[Record]:
        """The run's log up to its last record of now."""
        rows = Event.objects.filter(run=run, seq__lte=run.last_seq).order_by("seq")
        columns = rows.values_list("seq", "attempt", "at", "schema_version", "payload")
        after = 0
        # Whole pages: a reader that waits holds nothing open in the database.
        while page := list(columns.filter(seq__gt=after)[:_ROWS]):
            for seq, attempt, at, schema_version, payload in page:
                event = EVENT_ADAPTER.validate_python(self._shown(log.whole_payload(payload)))
                yield Record(seq=seq, attempt=attempt, at=at, schema_version=schema_version, event=event)
            if len(page) < _ROWS:
                return
            after = page[-1][0]

    def _shown(self, payload: JSONObject) -> JSONObject:
        # One look at all of it is nearly always enough, and costs a tenth of looking at each text.
        if not self._redactor.is_clean(json.dumps(payload, ensure_ascii=False)):
            payload = self._redactor.json(payload)
        return for_reader(payload, sees_hidden=self._sees_hidden)

    def _exported(self, run: Run) -> Exported:
        attempts: list[int] = []
        trajectory = from_events(_noting_attempts(self.records(run), attempts))
        arm, task = run.arm, run.task
        return Exported(
            run=run.pk,
            experiment=run.experiment_id,
            kind=run.experiment.kind,
            arm=arm.letter,
            harness_version=str(arm.harness_version.version),
            harness_digest=arm.harness_version.digest or "",
            provider=arm.model.price_provider,
            seed=run.seed,
            attempt=attempts[-1] if attempts else 0,
            status=run.status,
            trajectory=_with_statement(trajectory, self._text(task.statement)),
            **{name: self._text(value) for name, value in _names(run).items()},
        )

    def _text(self, text: str) -> str:
        found: str = masked(self._redactor.text(text))
        return found


def _names(run: Run) -> dict[str, str]:
    """What people have named."""
    return {
        "experiment_name": run.experiment.name,
        "task_set": str(run.task.task_set),
        "task": run.task.slug,
        "harness": run.arm.harness_version.harness.name,
        "model": run.arm.model.name,
    }


def _noting_attempts(records: Iterator[Record], attempts: list[int]) -> Iterator[Record]:
    for record in records:
        if isinstance(record.event, AttemptStarted):
            attempts.append(record.attempt)
        yield record


def _with_statement(trajectory: Trajectory, statement: str) -> Trajectory:
    """The log does not repeat what the task says."""
    return trajectory if trajectory.statement else dataclasses.replace(trajectory, statement=statement)


def _rows(numbers: Sequence[int]) -> Iterator[Run]:
    found = Run.objects.select_related(
        "experiment", "task__task_set", "arm__harness_version__harness", "arm__model"
    )
    for start in range(0, len(numbers), _RUNS):
        part = numbers[start : start + _RUNS]
        rows = {run.pk: run for run in found.filter(pk__in=part)}
        # One that was removed meanwhile is not there.
        yield from (rows[number] for number in part if number in rows)


def _facts(run: Run) -> JSONObject:
    """What the lab calls the parts of the run and its log does not say; no number of a row.

    Of a run that came from another lab: what that lab called them.
    """
    imported = ImportedTrajectory.objects.filter(run=run).first()
    if imported is not None and imported.facts:
        return {**imported.facts, "records": run.last_seq}
    arm, task = run.arm, run.task
    return {
        "experiment": run.experiment.name,
        "arm": arm.letter,
        "seed": run.seed,
        "status": run.status,
        "task": {
            "set": task.task_set.name,
            "version": task.task_set.version,
            "name": task.slug,
            "title": task.title,
            "statement": task.statement,
        },
        "harness": {
            "name": arm.harness_version.harness.name,
            "version": arm.harness_version.version,
            "family": arm.harness_version.harness.family,
        },
        "model": {"name": arm.model.name, "version": arm.model.version},
        "records": run.last_seq,
    }
