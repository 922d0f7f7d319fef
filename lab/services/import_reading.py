"""Reads one import to its end: what was given, whose it is, each trajectory, each verdict, and the report.

Reading again from the beginning is how a reading that was killed goes on: what is in the lab already is
found, nothing is added twice, and the report comes out the same.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from django.db import DatabaseError, DataError, IntegrityError
from django.utils import timezone

from lab.engine.errors import LabError, LeaseLostError
from lab.engine.formats.base import Document, Format, FormatError
from lab.engine.formats.catalogue import FORMATS
from lab.engine.formats.detection import probe, recognise
from lab.engine.formats.trajectory import Found, FoundGrading, Problem, RecordedLog, Trajectory
from lab.engine.stop import StopSignal
from lab.models import Experiment, Import, Task
from lab.services import import_logs, import_sources, interchange, space
from lab.services.import_gradings import Gradings, first_number
from lab.services.import_holding import Holding, ReadingStoppedError
from lab.services.import_reports import ReportWriter
from lab.services.import_storing import Storing
from lab.services.imported_arms import Cleaner
from lab.services.known_secrets import redactor
from lab.services.messages import ring_for_imports
from lab.services.processes import is_dead

# How often the figures of a reading that goes on are stored.
TELL_SECONDS = 1.0

# Told of the import's row as it is stored, while it is read.
OnProgress = Callable[[Import], None]

_log = logging.getLogger(__name__)


@dataclass
class Group:
    """Documents that are read together, all of one format."""

    format: Format
    documents: list[Document]
    # Whether it holds verdicts apart from trajectories, and whether any has a status for each test.
    gradings: bool = False
    tests: bool = False


def advance(*, worker: str, stop: StopSignal | None = None) -> Import | None:
    """Read the import that has waited longest to its end; None when none waits."""
    taken = interchange.claim_next(worker=worker)
    if taken is None:
        return None
    read = conduct(imported=taken, stop=stop)
    ring_for_imports()
    return read


def conduct(
    *,
    imported: Import,
    stop: StopSignal | None = None,
    on_progress: OnProgress = lambda row: None,
    formats: Sequence[Format] | None = None,
) -> Import:
    """Read an import that this process holds to its end; returns the row. What stops it is its `error`."""
    with Holding(imported, stop or StopSignal()) as holding:
        Reading(imported, holding, on_progress, FORMATS if formats is None else formats).read()
    return Import.objects.select_related("asked_by", "experiment").get(pk=imported.pk)


def recognised(document: Document, formats: Sequence[Format]) -> tuple[Format, str] | Problem | None:
    """Of which format the document is, and with which others it is read; None: of none."""
    try:
        looked = probe(document)
        form = recognise(formats, looked)
        return None if form is None else (form, form.grouping(document, looked))
    except OSError as error:
        return Problem(file=document.path, place="", message=import_sources.cannot_be_read(error))
    except Exception as error:
        _log.exception("%s cannot be looked at", document.path)
        return Problem(file=document.path, place="", message=mistake_words(error))


class Reading:
    """One reading of one import from its beginning."""

    def __init__(
        self,
        imported: Import,
        holding: Holding,
        on_progress: OnProgress,
        formats: Sequence[Format],
        *,
        follows: bool = False,
    ) -> None:
        self._import, self._holding = imported, holding
        self._hears, self._formats = on_progress, formats
        cleaner = Cleaner(redactor())
        self.report = ReportWriter()
        self._storing = Storing(imported, cleaner, follows=follows)
        self._gradings = Gradings(imported, self._storing, cleaner, self.report)
        self._clean = cleaner
        self._identities = Identities()
        self._done = 0
        self._total: int | None = None
        self._told_at = 0.0

    def read(self) -> None:
        """All of it, and the end; never raises."""
        try:
            self._mark()
            self._read_all()
        except LeaseLostError as error:
            _log.warning("%s: %s", self._import, error)
        except ReadingStoppedError:
            self._stopped()
        except DatabaseError as error:
            if space.is_full(error):
                self._end(Import.State.FAILED, error=self._full(error))
            else:
                # Left to the tick: it takes back what nobody keeps.
                _log.warning("%s cannot be read on (%s)", self._import, error)
        except OSError as error:
            self._end(Import.State.FAILED, error=self._full(error))
        except Exception as error:
            _log.exception("%s broke off", self._import)
            text = f"the lab made a mistake ({type(error).__name__}); its log says more"
            self._end(Import.State.FAILED, error=text)

    def _mark(self) -> None:
        """What was there before the first reading, for telling what is new when it is read again."""
        options = {**self._import.options, "gradings_before": first_number(self._import)}
        interchange.held_by(self._import).update(options=options)
        self._import.options = options

    def _read_all(self) -> None:
        gathered = import_sources.gather(self._import, on_unpack=self._unpacking)
        self.report.report.files = len(gathered.documents)
        for problem in gathered.problems:
            self.report.problem(problem)
        self._total = len(gathered.documents)
        groups = self._groups(gathered)
        if not gathered.documents and not gathered.problems:
            self.report.problem(Problem(file=self._given(), place="", message="holds no file"))
        self.read_groups(groups)
        self._end(Import.State.ENDED)

    def read_groups(self, groups: Sequence[Group]) -> None:
        """Everything that these documents hold, and their verdicts last: they look for the runs they are of.

        Raises:
            LeaseLostError, ReadingStoppedError: nobody holds the import any more, or it is to stop.
            OSError, DatabaseError: the disk is full, or the database is away.
        """
        for group in groups:
            self._read_group(group)
        # The newest verdict is what counts: the one that says most comes last.
        for group in sorted((one for one in groups if one.gradings), key=lambda one: one.tests):
            self._read_gradings(group)
        self._gradings.finish()

    def _given(self) -> str:
        return ", ".join(str(source["name"]) for source in self._import.sources)[:300] or "what was given"

    # Whose the documents are.

    def _groups(self, gathered: import_sources.Gathered) -> list[Group]:
        """What is read together, in the order of the first document of each."""
        found: dict[tuple[str, str], Group] = {}
        for document in gathered.documents:
            self._tell(at=document.path, done=self._done)
            self._holding.check()
            named = document.path in gathered.given
            recognised = self._recognised(document, named=named)
            if recognised is None:
                self._done += 1
                continue
            form, key = recognised
            group = found.setdefault((form.name, key), Group(form, []))
            group.documents.append(document)
        return list(found.values())

    def _recognised(self, document: Document, *, named: bool) -> tuple[Format, str] | None:
        found = recognised(document, self._formats)
        if isinstance(found, Problem):
            self.report.problem(found)
            return None
        if found is not None:
            self.report.file(found[0].name, found[0].title)
            return found
        why = import_sources.why_unreadable(document)
        if named or (why and document.size()):
            message = why or (
                f"is of no format the lab knows; it knows {', '.join(one.name for one in self._formats)}"
            )
            self.report.problem(Problem(file=document.path, place="", message=message))
        self.report.unrecognised(document.path)
        return None

    # What they hold.

    def _read_group(self, group: Group) -> None:
        for found in self._found(group):
            if isinstance(found, (Trajectory, RecordedLog)):
                self._take(group, found)
            elif isinstance(found, FoundGrading):
                group.gradings = True
                group.tests |= found.grading is not None and bool(found.grading.tests)
            else:
                self.report.problem(found, group.format.name)
        self._done += len(group.documents)
        self._tell(at=group.documents[-1].path, done=self._done)

    def _read_gradings(self, group: Group) -> None:
        for found in self._found(group, problems=False):
            if isinstance(found, FoundGrading):
                self.report.of_format(group.format.name).gradings += 1
                origin, put = found.origin, functools.partial(self._gradings.put, found)
                gradings = self.report.report.gradings
                before = gradings.verdict_only
                self._guarded(group, origin.file, origin.place, put)
                self.report.of_format(group.format.name).verdict_only += gradings.verdict_only - before
            self._tell(at=group.documents[-1].path, done=self._done)

    def _found(self, group: Group, *, problems: bool = True) -> Iterator[Found]:
        """What the reader finds, one by one; a reader that fails costs the rest of its own documents."""
        first = group.documents[0].path
        try:
            for found in group.format.read(group.documents):
                self._holding.check()
                yield found
        except (LeaseLostError, ReadingStoppedError, DatabaseError):
            raise
        except FormatError as error:
            if problems:
                self.report.problem(Problem(file=first, place="", message=str(error)), group.format.name)
        except OSError as error:
            if space.is_full(error):
                raise
            if problems:
                message = import_sources.cannot_be_read(error)
                self.report.problem(Problem(file=first, place="", message=message), group.format.name)
        except Exception as error:
            if problems:
                self._mistake(first, error, group.format.name)

    def _take(self, group: Group, found: Trajectory | RecordedLog) -> None:
        origin = found.origin

        def put() -> None:
            if isinstance(found, RecordedLog):
                stored, trajectory = self._storing.put_log(found), import_logs.named(found)
            else:
                identity = self._identities.of(found, group.documents)
                stored, trajectory = self._storing.put(found, identity=identity), found
            self._gradings.note(trajectory, stored)
            count = self.report.of_format(group.format.name)
            if not stored.new:
                count.known += 1
                self.report.known(experiment=stored.run.experiment_id, run=stored.run.pk, file=origin.file)
                return
            count.imported += 1
            self.report.report.imported += 1
            self.report.report.partial += trajectory.partial
            self.report.notes(
                stored.notes, format_name=group.format.name, run=stored.run.pk, file=origin.file
            )
            if stored.other_run is not None and stored.seed_recorded is not None:
                self.report.renumbered(
                    run=stored.run.pk,
                    file=origin.file,
                    recorded=stored.seed_recorded,
                    given=stored.run.seed,
                    other_run=stored.other_run,
                )

        self._guarded(group, origin.file, origin.place, put)
        self._tell(at=origin.file, done=self._done)

    def _guarded(self, group: Group, file: str, place: str, act: Callable[[], None]) -> None:
        """Do it; what is wrong with this one trajectory or verdict is a problem, and the next one is read."""
        try:
            act()
        except (LeaseLostError, ReadingStoppedError):
            raise
        except LabError as error:
            self.report.problem(Problem(file=file, place=place, message=str(error)), group.format.name)
        except OSError:
            raise
        except DatabaseError as error:
            if not is_of_the_data(error):
                raise
            self._mistake(file, error, group.format.name, place)
        except Exception as error:
            self._mistake(file, error, group.format.name, place)

    def _mistake(self, file: str, error: Exception, format_name: str = "", place: str = "") -> None:
        _log.exception("%s: %s %s", self._import, file, place)
        self.report.problem(Problem(file=file, place=place, message=mistake_words(error)), format_name)

    # What people see of it.

    def _unpacking(self, name: str, done: int, total: int) -> None:
        self._holding.check()
        share = f" ({100 * done // total} %)" if total else ""
        self._tell(at=f"unpacking {name}{share}", done=0)

    def _tell(self, *, at: str, done: int) -> None:
        now = time.monotonic()
        if now - self._told_at < TELL_SECONDS:
            return
        self._told_at = now
        found = {**self.report.counts(), "reading": self._clean.text(at, 300)}
        if not interchange.held_by(self._import).update(done=done, total=self._total, found=found):
            raise LeaseLostError("it was ended")
        self._import.done, self._import.total, self._import.found = done, self._total, found
        self._hears(self._import)

    def _end(self, state: str, *, error: str = "") -> None:
        values = {"state": state, "error": error, "ended_at": timezone.now(), "lease_until": None}
        values |= {"found": self.report.counts(), "report": self.report.to_json()}
        experiment = self._storing.experiment
        try:
            held = interchange.held_by(self._import)
            if not held.update(done=self._done, total=self._total, **values):
                return
            if experiment is not None:
                end_experiment(experiment.pk)
            interchange.stand_still(self._import)
        except DatabaseError as failed:
            _log.warning("the end of %s cannot be stored (%s); the tick takes it up", self._import, failed)
            return
        if state != Import.State.FAILED:
            interchange.remove_files(self._import)

    def _stopped(self) -> None:
        if self._holding.cancelled:
            self._end(Import.State.CANCELLED)
        else:
            # Whoever comes next goes on at once.
            interchange.held_by(self._import).update(
                state=Import.State.QUEUED, lease_until=None, lease_token=self._import.lease_token + 1
            )

    def _full(self, error: Exception) -> str:
        stored = self.report.report.imported
        kept = f" {stored} runs were imported whole, the others not at all." if stored else ""
        return f"{interchange.cannot_be_written(error)}{kept} Then read this import again."


class Identities:
    """What tells a trajectory from all others: the hash of what it was read from.

    A file that holds several and hashes none of them by itself tells them by their place.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], str] = {}

    def of(self, trajectory: Trajectory, documents: Sequence[Document]) -> str:
        origin = trajectory.origin
        first = self._places.setdefault((origin.file, origin.sha256), origin.place)
        if first == origin.place or not self._is_whole_file(origin.sha256, documents):
            return origin.sha256
        return interchange.identity_of(origin.sha256, origin.place)

    def _is_whole_file(self, sha256: str, documents: Sequence[Document]) -> bool:
        return any(document.sha256() == sha256 for document in documents)


def end_experiment(experiment_id: int) -> None:
    """Tell an import's experiment whose tasks its runs are of."""
    sets = list(
        Task.objects.filter(runs__experiment=experiment_id)
        .order_by()
        .values_list("task_set", flat=True)
        .distinct()[:2]
    )
    only = sets[0] if len(sets) == 1 else None
    Experiment.objects.filter(pk=experiment_id).update(task_set=only, ended_at=timezone.now())
    # All of it was known, by another import that was read at the same time.
    Experiment.objects.filter(pk=experiment_id, runs=None, kind=Experiment.Kind.IMPORTED).delete()


def mistake_words(error: Exception) -> str:
    """What people are told of a trajectory at which the lab itself failed."""
    return f"could not be taken over: the lab made a mistake ({type(error).__name__}); its log says more"


def is_of_the_data(error: DatabaseError) -> bool:
    """Whether the database refused these very values, and takes others."""
    return isinstance(error, (DataError, IntegrityError))


def import_now(
    *,
    paths: Sequence[Path],
    worker: str,
    name: str = "",
    stop: StopSignal | None = None,
    on_progress: OnProgress = lambda row: None,
    formats: Sequence[Format] | None = None,
) -> Import:
    """Read these files and folders here and now; they stay where they are.

    An import of the same paths that was broken off is read to its end instead of another one.

    Raises:
        LabError: another process reads the same paths just now.
    """
    imported = taken_for_command(paths=paths, worker=worker, name=name, follows=False)
    return conduct(imported=imported, stop=stop, on_progress=on_progress, formats=formats)


def taken_for_command(*, paths: Sequence[Path], worker: str, name: str, follows: bool) -> Import:
    """An import of these paths, held by this process.

    Raises:
        LabError: another process reads the same paths just now.
    """
    absolute = [path.absolute() for path in paths]
    row = interchange.unfinished_of(paths=absolute, follows=follows)
    if row is None:
        return interchange.made_for_command(name=name, paths=absolute, follows=follows, worker=worker)
    if row.state == Import.State.READING:
        alive = row.lease_until is not None and row.lease_until > timezone.now()
        if alive and not is_dead(row.options.get("worker", "")):
            raise LabError(f"{row} of the same paths is being read already; wait for its end")
    taken = interchange.take(row, worker=worker, command=True)
    if taken is None:
        raise LabError(f"{row} of the same paths was just taken by another process; wait for its end")
    return taken
