"""Logs that a lab wrote: taken over record by record, with what that lab calls their parts."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import NamedTuple

from lab.engine.events import AttemptStarted, TrajectoryImported
from lab.engine.events import Event as LogEvent
from lab.engine.formats.reading import count, mapping, text
from lab.engine.formats.trajectory import HarnessUsed, ModelUsed, RecordedLog, Trajectory
from lab.engine.redact import Redactor
from lab.models import Event, ImportedTrajectory, Run
from lab.services import log
from lab.services.log import ThinEvents


class Chunk(NamedTuple):
    """Records of one attempt that follow each other, ready to be appended."""

    attempt: int
    began: dt.datetime
    ready: ThinEvents
    events: list[LogEvent]


def thin_chunks(recorded: RecordedLog, redactor: Redactor) -> list[Chunk]:
    """The log in the order in which it was written; long texts are stored.

    Raises:
        OSError: the data folder is full or cannot be written.
    """
    chunks = []
    for attempt, records in itertools.groupby(recorded.records, key=lambda record: record.attempt):
        stamped = [(record.at, redactor.event(record.event)) for record in records]
        ready = log.thin_events(run_id=0, attempt=attempt, events=stamped)
        chunks.append(Chunk(attempt, stamped[0][0], ready, [event for _, event in stamped]))
    return chunks


def run_of(recorded: RecordedLog) -> Run | None:
    """The run of this lab that the log was written from, None where there is none.

    One that was imported before is known by what it was read from; one of the lab's own by all its numbers,
    kinds and times, which no other run shares.
    """
    read_from = [record.event for record in recorded.records if isinstance(record.event, TrajectoryImported)]
    if read_from:
        known = ImportedTrajectory.objects.filter(identity=read_from[-1].sha256).select_related("run")
        found = known.filter(run__last_seq__gte=len(recorded.records)).first()
        return found.run if found is not None else None
    written = [(record.seq, record.event.kind, _milliseconds(record.at)) for record in recorded.records]
    for run in Run.objects.filter(last_seq=len(written)):
        rows = Event.objects.filter(run=run).order_by("seq").values_list("seq", "kind", "at")
        if written == [(seq, kind, _milliseconds(at)) for seq, kind, at in rows]:
            return run
    return None


def _milliseconds(at: dt.datetime) -> int:
    """As precise as a log is written."""
    return int(at.timestamp() * 1000)


def named(recorded: RecordedLog) -> Trajectory:
    """What the log's run is a run of, without its steps."""
    facts = recorded.facts
    task, harness, model = (mapping(facts.get(name)) for name in ("task", "harness", "model"))
    started = next(
        (record.event for record in recorded.records if isinstance(record.event, AttemptStarted)), None
    )
    config = mapping(started.harness.get("config")) if started is not None else {}
    asked = started.model if started is not None else {}
    price = mapping(asked.get("price"))
    return Trajectory(
        origin=recorded.origin,
        harness=HarnessUsed(
            name=text(harness.get("name")),
            version=str(harness.get("version") or ""),
            family=text(harness.get("family")),
            config=config,
            complete=bool(config),
        ),
        model=ModelUsed(
            name=text(model.get("name")),
            provider=text(price.get("provider")) or text(asked.get("provider")),
            base_url=text(asked.get("base_url")),
            sampling=mapping(asked.get("sampling")),
        ),
        instance_id=text(task.get("name")),
        statement=text(task.get("statement")),
        seed=count(facts.get("seed")),
        limits=dict(started.limits) if started is not None else {},
        steps_recorded=bool(recorded.records),
    )
