"""Makes runs of the traces that programs sent: those of one program and day are one import's experiment."""

from __future__ import annotations

import hashlib
import json
import logging

from django.db import DatabaseError
from django.utils import timezone

from lab.engine.errors import LabError
from lab.engine.events import SourceKept
from lab.engine.formats.otel import NAME, OpenTelemetry, trajectory_of
from lab.engine.formats.otel_spans import read_span
from lab.engine.llm.base import JSONObject
from lab.engine.redact import storable
from lab.engine.stop import StopSignal
from lab.models import Import, ImportedTrajectory, Run, Trace
from lab.services import interchange, log, otlp
from lab.services.import_holding import Holding
from lab.services.import_reading import end_experiment, is_of_the_data, mistake_words
from lab.services.import_reports import FormatCount, ImportReport
from lab.services.import_storing import Storing
from lab.services.imported_arms import Cleaner
from lab.services.known_secrets import redactor

# At most so many traces in one go: a worker of the short queue has other things to do as well.
MOST_AT_ONCE = 200
NO_CALL = "none of its spans is a model call by the GenAI conventions; they are kept"

_log = logging.getLogger(__name__)


def assemble(*, worker: str, stop: StopSignal) -> int:
    """Make a run of each trace that is quiet; returns how many were looked at. None stops another."""
    looked = 0
    for trace in otlp.due()[:MOST_AT_ONCE]:
        if stop.is_set():
            break
        bodies = list(otlp.spans_of(trace))
        try:
            problem = _assemble(trace, bodies, worker, stop)
        except Exception as error:
            passes = isinstance(error, (LabError, DatabaseError, OSError))
            if passes and not (isinstance(error, DatabaseError) and is_of_the_data(error)):
                # Looked at again by the next one, which finds the run if this one was made.
                _log.warning("%s is no run yet: %s", trace, error)
                continue
            _log.exception("%s is no run", trace)
            problem = mistake_words(error)
        looked_at = Trace.objects.filter(pk=trace.pk)
        looked_at.update(seen=len(bodies), problem=problem)
        # Spans that came meanwhile keep it waiting.
        looked_at.filter(last_at=trace.last_at).update(waits=False)
        looked += 1
    return looked


def _assemble(trace: Trace, bodies: list[JSONObject], worker: str, stop: StopSignal) -> str:
    """The run of one trace; returns what was wrong with it, "" for nothing."""
    spans = [span for span in map(read_span, bodies) if span is not None]
    made = trajectory_of(spans, file="sent by OpenTelemetry")
    if made is None:
        return NO_CALL
    imported = _import_of(trace, made.harness.name)
    held = imported.lease_until is not None and imported.lease_until > timezone.now()
    taken = None if held else interchange.take(imported, worker=worker)
    if taken is None:
        raise LabError(f"{imported} is held by another worker")
    with Holding(taken, stop):
        was_there = ImportedTrajectory.objects.filter(identity=made.origin.sha256).exists()
        storing = Storing(taken, Cleaner(redactor()))
        try:
            stored = storing.put(made)
            late = bodies[trace.seen :] if trace.seen and was_there else []
            if late:
                _keep_late(stored.run, late)
        finally:
            # The next trace of the day need not wait for the lease of one that failed.
            _end(taken, storing)
    came = f"{len(late)} spans came after its run was made"
    return f"{came}; they are kept at the end of its log" if late else ""


def _import_of(trace: Trace, program: str) -> Import:
    """That of the program and the day; it takes in one trace after the other and never reads a file."""
    day, program = trace.first_at.date().isoformat(), storable(program)
    key = hashlib.sha256(f"{NAME} {program} {day}".encode()).hexdigest()
    values = {
        "name": f"{program[:120]} by OpenTelemetry, {day}",
        "asked_by": trace.sent_by,
        "state": Import.State.ENDED,
        "sources": [{"name": f"{program[:120]}, spans", "bytes": None}],
        "options": {"spans": True},
    }
    row, _ = Import.objects.get_or_create(idempotency_key=key, defaults=values)
    # Also where somebody cancelled it between two traces.
    over = Import.objects.filter(
        pk=row.pk, state__in=(Import.State.ENDED, Import.State.CANCELLED, Import.State.FAILED)
    )
    over.update(state=Import.State.RECEIVING, cancel_asked=False)
    row.refresh_from_db()
    return row


def _keep_late(run: Run, bodies: list[JSONObject]) -> None:
    kept = json.dumps({"spans": bodies}, ensure_ascii=False, indent=1)
    event = SourceKept(about="late_spans", kept=kept)
    log.append(run_id=run.pk, attempt=1, lease_token=None, events=[event])


def _end(imported: Import, storing: Storing) -> None:
    """Let go of the import, with what it came to by now."""
    experiment = storing.experiment
    count = 0 if experiment is None else experiment.runs.count()
    formats = [FormatCount(name=NAME, title=OpenTelemetry.title, imported=count)]
    report = ImportReport(imported=count, formats=formats)
    interchange.held_by(imported).update(
        state=Import.State.ENDED,
        ended_at=timezone.now(),
        lease_until=None,
        found={"imported": count},
        report=report.model_dump(mode="json"),
    )
    if experiment is not None:
        end_experiment(experiment.pk)
