"""Imports trajectories that other programs recorded: reads them here and now, with or without a worker."""

from __future__ import annotations

import json
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from lab.engine.errors import ExitReason, LabError
from lab.engine.key_shapes import mask_key_shapes
from lab.engine.llm.base import JSONObject
from lab.engine.stop import StopSignal
from lab.models import Import
from lab.render.text import one_line, visible_text
from lab.services import import_following, import_reading, interchange
from lab.services.import_reports import Gradings, ImportReport
from lab.services.processes import process_identity

NOT_ALL_READ = 1
_LISTED = 20
_COUNTED = {"imported": "imported", "known": "known already", "gradings": "verdicts", "problems": "problems"}


class Command(BaseCommand):
    help = (
        "Import trajectories of other programs: files, folders, .zip, .tar.gz, .tar.zst. What they are is "
        "told from their content; the same ones again add nothing. Exits with 1 when something could not be "
        "read."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
        parser.add_argument("--name", default="", help="of the experiment (default: the first path's)")
        parser.add_argument(
            "--follow",
            action="store_true",
            help="go on reading files that are still being written, until they are finished or Ctrl-C",
        )
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        self._quiet, self._said = options["json"], ""
        stop = StopSignal()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set(ExitReason.CANCELLED))
        read = import_following.follow if options["follow"] else import_reading.import_now
        try:
            imported = read(
                paths=options["paths"],
                worker=process_identity(),
                name=options["name"],
                stop=stop,
                on_progress=self._tell,
            )
        except (LabError, OSError) as error:
            raise CommandError(str(error)) from error
        report = interchange.report_of(imported)
        if options["json"]:
            self.stdout.write(json.dumps(_as_json(imported, report), indent=2, ensure_ascii=False))
        else:
            self._report(imported, report)
        if imported.state != Import.State.ENDED or report.problem_count:
            sys.exit(NOT_ALL_READ)

    def _tell(self, row: Import) -> None:
        found = row.found
        files = f"{row.done} of {row.total} files" if row.total else str(found.get("reading", ""))
        counts = (f"{found[name]} {word}" for name, word in _COUNTED.items() if found.get(name))
        line = _plain(", ".join([files, *counts]))
        if not self._quiet and line != self._said:
            self._said = line
            self.stdout.write(line)
            self.stdout.flush()

    def _report(self, imported: Import, report: ImportReport) -> None:
        for line in _lines(imported, report):
            self.stdout.write(_plain(line))
        for problem in report.problems[:_LISTED]:
            place = f", {problem.place}" if problem.place else ""
            self.stderr.write(_plain(f"{problem.file}{place}: {problem.message}"))
        if report.problem_count > _LISTED:
            self.stderr.write(f"… and {report.problem_count - _LISTED} more; see the import's page")
        if imported.error:
            self.stderr.write(_plain(imported.error))


def _lines(imported: Import, report: ImportReport) -> Iterator[str]:
    """The report in sentences, without its problems."""
    if imported.experiment is not None:
        runs = report.imported + report.gradings.verdict_only
        yield f"Imported {runs} runs into experiment {imported.experiment.pk}."
    else:
        yield "Imported no run."
    for known in report.known_before:
        yield f"Known already: {known.trajectories}, in experiment {known.experiment}."
    for form in report.formats:
        yield f"{form.name}: {form.files} files, {form.imported} imported, {form.gradings} verdicts"
    yield from _verdicts(report.gradings)
    for note in report.notes[:_LISTED]:
        yield f"{note.kind}: {note.field} ({note.format}), {note.runs} runs: {note.detail}"
    for one in report.renumbered[:_LISTED]:
        yield f"Seed {one.recorded} was taken: run {one.run} of {one.file} has {one.given}."
    for unknown in report.unrecognised:
        files = f"{unknown.files} files {unknown.ending or 'without ending'}"
        yield f"Of no format the lab knows: {files}: {', '.join(unknown.examples)}"


def _verdicts(gradings: Gradings) -> Iterator[str]:
    if gradings.attached or gradings.known or gradings.verdict_only:
        yield (
            f"Verdicts: {gradings.attached} put beside runs, {gradings.known} known, "
            f"{gradings.verdict_only} without a trajectory, {gradings.contradicting_count} contradicting."
        )


def _plain(line: str) -> str:
    return one_line(visible_text(mask_key_shapes(line)), 400)


def _as_json(imported: Import, report: ImportReport) -> JSONObject:
    return {
        "import": imported.pk,
        "state": imported.state,
        "error": imported.error,
        "experiment": imported.experiment.pk if imported.experiment is not None else None,
        "report": report.model_dump(mode="json"),
    }
