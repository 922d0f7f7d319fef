"""Follows files that are still being written: their runs grow in the lab as the files do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from django.db import DatabaseError, connections

from lab.engine.errors import LeaseLostError
from lab.engine.formats.base import Document, Format
from lab.engine.formats.catalogue import FORMATS
from lab.engine.formats.trajectory import Problem
from lab.engine.stop import StopSignal
from lab.models import Import, ImportedTrajectory
from lab.services import import_sources
from lab.services.import_holding import Holding, ReadingStoppedError
from lab.services.import_reading import Group, OnProgress, Reading, recognised, taken_for_command

LOOK_SECONDS = 0.4

_log = logging.getLogger(__name__)


class _Seen(NamedTuple):
    """A document as it was looked at last: what tells another state of it, and whose it is."""

    stamp: tuple[int, int, int]
    document: Document
    whose: tuple[Format, str] | None


def follow(
    *,
    paths: Sequence[Path],
    worker: str,
    name: str = "",
    stop: StopSignal | None = None,
    on_progress: OnProgress = lambda row: None,
    formats: Sequence[Format] | None = None,
) -> Import:
    """Read these files and go on reading those that grow, until `stop`; returns the import.

    Where files were named and no folder, it ends with the last of them that is still being written. In the
    end everything is read once more, which adds nothing and makes the report.

    Raises:
        LabError: another process follows the same paths just now.
    """
    imported = taken_for_command(paths=paths, worker=worker, name=name, follows=True)
    known = FORMATS if formats is None else formats
    with Holding(imported, stop or StopSignal()) as holding:
        _Following(imported, holding, on_progress, known).go_on()
        holding.deaf = True
        Reading(_as_it_is(imported), holding, on_progress, known, follows=True).read()
    return _as_it_is(imported)


class _Following:
    def __init__(
        self, imported: Import, holding: Holding, on_progress: OnProgress, formats: Sequence[Format]
    ) -> None:
        self._import, self._holding = imported, holding
        self._hears, self._formats = on_progress, formats
        self._seen: dict[str, _Seen] = {}
        self._only_files = all(not Path(path).is_dir() for path in imported.options["paths"])

    def go_on(self) -> None:
        """Until it is to stop, or nothing that was named is still being written."""
        while True:
            try:
                self._holding.check()
                self._look()
                if self._only_files and not self._grows():
                    return
            except (LeaseLostError, ReadingStoppedError):
                return
            except (DatabaseError, OSError) as error:
                connections.close_all()
                _log.warning("%s cannot be followed yet (%s)", self._import, error)
            if self._holding.stop.wait(LOOK_SECONDS):
                return

    def _grows(self) -> bool:
        return ImportedTrajectory.objects.filter(made_by=self._import, partial=True).exists()

    def _look(self) -> None:
        changed = {seen.whose for seen in self._changes() if seen.whose is not None}
        groups = [self._group(form, key) for form, key in sorted(changed, key=lambda one: one[1])]
        if groups:
            row = _as_it_is(self._import)
            Reading(row, self._holding, self._hears, self._formats, follows=True).read_groups(groups)

    def _changes(self) -> list[_Seen]:
        """What is new, or another than it was."""
        changed = []
        gathered = import_sources.gather(self._import)
        there = {document.path for document in gathered.documents}
        for path in self._seen.keys() - there:
            del self._seen[path]
        for document in gathered.documents:
            stamp = _stamp(document)
            before = self._seen.get(document.path)
            if stamp is None or (before is not None and before.stamp == stamp):
                continue
            whose = recognised(document, self._formats)
            seen = _Seen(stamp, document, None if isinstance(whose, Problem) else whose)
            self._seen[document.path] = seen
            changed.append(seen)
        return changed

    def _group(self, form: Format, key: str) -> Group:
        return Group(form, [seen.document for seen in self._seen.values() if seen.whose == (form, key)])


def _as_it_is(imported: Import) -> Import:
    """The row as the database holds it now: its experiment is made with the first run."""
    return Import.objects.select_related("asked_by", "experiment").get(pk=imported.pk)


def _stamp(document: Document) -> tuple[int, int, int] | None:
    """Differs once the file was written or replaced; None for one that is gone."""
    try:
        stat = document.local.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
