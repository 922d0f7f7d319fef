"""Puts one trajectory into the lab as a run: one transaction, whole or not at all, and once however often."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from lab import __version__
from lab.engine.errors import LabError, LeaseLostError
from lab.engine.events import AttemptStarted, Event, SourceKept, TrajectoryImported
from lab.engine.formats.to_events import Timed, to_events
from lab.engine.formats.trajectory import Note, RecordedLog, Trajectory, Turn
from lab.engine.llm.base import JSONObject
from lab.models import Attempt, Experiment, Import, ImportedTrajectory, Run
from lab.services import import_logs, interchange, log
from lab.services.import_pricing import pricer, with_believable_figures
from lab.services.imported_arms import Cleaner, Place, Rows, standing
from lab.services.transitions import transition

# A seed is a number of a row; what is larger was no count of repeats.
_LARGEST_SEED = 1_000_000
_PLACES = 200


class ChangedBeforeEndError(LabError):
    """A file that grew no longer begins with what was read of it before; nothing was added."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What became of a trajectory: a `new` run, or one that was `there`. `notes` are those of a new run."""

    run: Run
    new: bool
    grew: bool = False
    notes: tuple[Note, ...] = ()
    seed_recorded: int | None = None
    other_run: int | None = None


class Storing:
    """Puts trajectories into the experiment of one import, which this process holds."""

    def __init__(self, imported: Import, cleaner: Cleaner, *, follows: bool = False) -> None:
        self._import, self._clean, self._follows = imported, cleaner, follows
        self._rows = Rows(cleaner)
        self._experiment: Experiment | None = imported.experiment

    @property
    def experiment(self) -> Experiment | None:
        """That of the runs; None before the first new one."""
        return self._experiment

    def put(
        self, trajectory: Trajectory, *, identity: str = "", also: Callable[[Run], None] = lambda run: None
    ) -> Stored:
        """Make the trajectory a run, or find the run that it is; `also` runs in the same transaction.

        `identity` is that of its content, where its own SHA-256 does not tell it from others.

        Raises:
            LeaseLostError: somebody else reads the import, or it was ended; nothing was added.
            ChangedBeforeEndError: as it says.
            OSError, DatabaseError: nothing was added.
        """
        identity = identity or trajectory.origin.sha256
        if found := self._found(trajectory, identity):
            return found
        try:
            return self._new(trajectory, identity, also)
        except IntegrityError:
            # Another process put it, or something that it shares, in at the same moment: then it is there.
            self._rows.forget()
            return self._found(trajectory, identity) or self._new(trajectory, identity, also)

    def guard(self) -> None:
        """Within a transaction: see to it that this process still holds the import.

        Raises:
            LeaseLostError: somebody else does.
        """
        if not interchange.held_by(self._import).select_for_update().exists():
            raise LeaseLostError(f"{self._import} is read by somebody else now, or was ended")

    # What is there already.

    def _found(self, trajectory: Trajectory, identity: str) -> Stored | None:
        rows = ImportedTrajectory.objects.select_related("run__experiment", "run__task")
        row = rows.filter(identity=identity).first()
        if row is None:
            return self._continued(trajectory, identity)
        if row.partial and trajectory.partial:
            return self._grow(row, trajectory, identity)
        return self._there(row, trajectory)

    def _there(self, row: ImportedTrajectory, trajectory: Trajectory) -> Stored:
        """The run of this trajectory; a new one where this import made it before its reader was killed."""
        run, origin = row.run, trajectory.origin
        place = (self._clean.text(origin.file), self._clean.text(origin.place, _PLACES))
        if row.made_by_id != self._import.pk or (row.file, row.place) != place:
            return Stored(run=run, new=False)
        _, notes = with_believable_figures(trajectory)
        return self._as_new(run, trajectory, row.seed_recorded, notes)

    def _as_new(
        self, run: Run, trajectory: Trajectory, recorded: int | None, notes: tuple[Note, ...]
    ) -> Stored:
        other = None
        if recorded is not None and recorded != run.seed:
            same = Run.objects.filter(experiment=run.experiment_id, arm=run.arm_id, task=run.task_id)
            other = same.filter(seed=recorded).values_list("pk", flat=True).first()
        return Stored(
            run=run,
            new=True,
            notes=(*trajectory.notes, *notes, *_seed_notes(recorded, run.seed, other)),
            seed_recorded=recorded,
            other_run=other,
        )

    # A log of a lab.

    def put_log(self, recorded: RecordedLog) -> Stored:
        """Take a lab's log over as it is, or find the run that it is.

        Raises:
            LabError: the log is empty. All others as `put`.
        """
        if not recorded.records:
            raise LabError("is a run without a record, which tells nothing; leave it out")
        identity = recorded.origin.sha256
        trajectory = import_logs.named(recorded)
        if found := self._found(trajectory, identity):
            return found
        if (known := import_logs.run_of(recorded)) is not None:
            return Stored(run=known, new=False)
        chunks = import_logs.thin_chunks(recorded, self._clean.redactor)
        try:
            return self._new_log(recorded, trajectory, identity, chunks)
        except IntegrityError:
            self._rows.forget()
            if found := self._found(trajectory, identity):
                return found
            raise

    def _new_log(
        self, recorded: RecordedLog, trajectory: Trajectory, identity: str, chunks: list[import_logs.Chunk]
    ) -> Stored:
        with transaction.atomic():
            self.guard()
            experiment = self._experiment_row()
            place = self._rows.place(trajectory, experiment)
        recorded_seed, seed, other = _seed(place, experiment, trajectory.seed)
        with transaction.atomic():
            self.guard()
            run = self._run(experiment, place, seed, recorded.records[0].at)
            self._row(run, trajectory, identity, recorded_seed, facts=self._clean.json(recorded.facts))
            for chunk in chunks:
                Attempt.objects.get_or_create(
                    run=run, n=chunk.attempt, defaults={"worker": f"import {self._import.pk}"}
                )
                Attempt.objects.filter(run=run, n=chunk.attempt, ended_at=None).update(started_at=chunk.began)
                log.append_thin(
                    run_id=run.pk,
                    attempt=chunk.attempt,
                    lease_token=None,
                    ready=chunk.ready,
                    events=chunk.events,
                )
            # One that was going on when it was written stands still here.
            Run.objects.filter(pk=run.pk).exclude(status=Run.Status.ENDED).update(status=Run.Status.PAUSED)
            if other is not None:
                self._tell_other(other, run, trajectory)
        return self._as_new(run, trajectory, recorded_seed, ())

    # A run of its own.

    def _new(self, trajectory: Trajectory, identity: str, also: Callable[[Run], None]) -> Stored:
        now = timezone.now()
        trajectory, own_notes = with_believable_figures(trajectory)
        with transaction.atomic():
            self.guard()
            experiment = self._experiment_row()
            place = self._rows.place(trajectory, experiment)
        recorded, seed, other = _seed(place, experiment, trajectory.seed)
        notes = (*trajectory.notes, *own_notes, *_seed_notes(recorded, seed, other))
        noted = dataclasses.replace(trajectory, notes=notes)
        raw = list(_events(noted, place, seed, imported_at=now))
        events = self._redacted(raw)
        ready = log.thin_events(run_id=0, attempt=1, events=events)
        with transaction.atomic():
            self.guard()
            run = self._run(experiment, place, seed, events[0][0])
            mark = _mark(_grown(raw)) if trajectory.partial else ""
            self._row(run, trajectory, identity, recorded, events_sha256=mark)
            log.append_thin(
                run_id=run.pk, attempt=1, lease_token=None, ready=ready, events=[event for _, event in events]
            )
            if other is not None:
                self._tell_other(other, run, trajectory)
            if trajectory.partial and not self._follows:
                transition(run_id=run.pk, to=Run.Status.PAUSED)
            also(run)
        return Stored(run=run, new=True, notes=notes, seed_recorded=recorded, other_run=other)

    def _row(
        self, run: Run, trajectory: Trajectory, identity: str, recorded: int | None, **more: Any
    ) -> None:
        """Which trajectory of which file the run is."""
        ImportedTrajectory.objects.create(
            run=run,
            made_by=self._import,
            identity=identity,
            format=self._clean.text(trajectory.origin.format, 64),
            file=self._clean.text(trajectory.origin.file),
            place=self._clean.text(trajectory.origin.place, _PLACES),
            partial=trajectory.partial,
            seed_recorded=recorded,
            **more,
        )

    def _experiment_row(self) -> Experiment:
        if self._experiment is None:
            row = Import.objects.select_related("experiment").get(pk=self._import.pk)
            self._experiment = row.experiment or self._new_experiment(row)
        return self._experiment

    def _new_experiment(self, row: Import) -> Experiment:
        experiment = Experiment.objects.create(
            name=row.name or self._name(row),
            kind=Experiment.Kind.IMPORTED,
            state=Experiment.State.ENDED,
            launched_by=row.asked_by,
            ended_at=timezone.now(),
        )
        interchange.held_by(row).update(experiment=experiment)
        return experiment

    def _name(self, row: Import) -> str:
        names = [str(source["name"]) for source in row.sources]
        tops = list(dict.fromkeys(name.split("/", 1)[0] for name in names))
        more = f" and {len(tops) - 1} more" if len(tops) > 1 else ""
        return self._clean.text(f"{tops[0][:150]}{more}" if tops else f"import {row.pk}", 200)

    def _run(self, experiment: Experiment, place: Place, seed: int, began: dt.datetime) -> Run:
        run = Run.objects.create(
            experiment=experiment,
            arm=place.arm,
            task=place.task,
            seed=seed,
            status=Run.Status.RUNNING,
            position=experiment.runs.count(),
            started_at=began,
        )
        attempt = Attempt.objects.create(run=run, n=1, worker=f"import {self._import.pk}")
        Attempt.objects.filter(pk=attempt.pk).update(started_at=began)
        return run

    def _redacted(self, events: Sequence[Timed]) -> list[Timed]:
        return [(at, self._clean.redactor.event(event)) for at, event in events]

    def _tell_other(self, other: int, run: Run, trajectory: Trajectory) -> None:
        """Both runs that claim a seed say so."""
        file = self._clean.text(f"{trajectory.origin.file} {trajectory.origin.place}".strip())
        said = {"also_claimed_by": f"run {run.pk}", "file": file, "seed_given_to_it": run.seed}
        event = SourceKept(about="seed", kept=json.dumps(said, ensure_ascii=False, indent=1))
        log.append(run_id=other, attempt=1, lease_token=None, events=[event])

    # A file that is still being written.

    def _continued(self, trajectory: Trajectory, identity: str) -> Stored | None:
        """The run whose beginning was read from a partial file that this one, finished, has replaced.

        One that is still partial and has no name of its own is told by its place.
        """
        growing = ImportedTrajectory.objects.filter(
            partial=True, format=self._clean.text(trajectory.origin.format, 64)
        )
        if trajectory.partial:
            growing = growing.filter(file=self._clean.text(trajectory.origin.file))
        if not growing.exists():
            return None
        version, model = (
            self._rows.version_of(trajectory.harness).pk,
            self._rows.model_of(trajectory.model).pk,
        )
        task = self._rows.task_of(trajectory).pk
        rows = growing.filter(run__arm__harness_version=version, run__arm__model=model, run__task=task)
        for row in rows.select_related("run__experiment", "run__task").order_by("pk"):
            if row.seed_recorded == trajectory.seed:
                try:
                    return self._grow(row, trajectory, identity)
                except ChangedBeforeEndError:
                    continue
        return None

    def _grow(self, row: ImportedTrajectory, trajectory: Trajectory, identity: str) -> Stored:
        run = row.run
        trajectory, notes = with_believable_figures(trajectory)
        place = self._rows.place(trajectory, run.experiment)
        events = list(_events(trajectory, place, run.seed, imported_at=run.created_at))
        grown = _grown(events)
        count = int(row.events_sha256.partition(":")[0] or 0)
        if len(grown) < count and trajectory.partial:
            # An earlier state of the file.
            return self._kept(row, trajectory, notes)
        if _mark(grown[:count]) != row.events_sha256:
            raise ChangedBeforeEndError(
                "no longer begins with what was read of it before; what was read stays as it is"
            )
        added = grown[count:]
        if not trajectory.partial:
            added = [next(one for one in events if isinstance(one[1], TrajectoryImported)), *added]
        if added:
            self._append(row, trajectory, identity, added, mark=_mark(grown))
        elif self._follows:
            transition(run_id=run.pk, to=Run.Status.RUNNING, only_from=Run.Status.PAUSED)
        run.refresh_from_db()
        return dataclasses.replace(self._kept(row, trajectory, notes), grew=bool(added))

    def _kept(self, row: ImportedTrajectory, trajectory: Trajectory, notes: tuple[Note, ...]) -> Stored:
        if row.made_by_id != self._import.pk:
            return Stored(run=row.run, new=False)
        return self._as_new(row.run, trajectory, row.seed_recorded, notes)

    def _append(
        self,
        row: ImportedTrajectory,
        trajectory: Trajectory,
        identity: str,
        added: Sequence[Timed],
        *,
        mark: str,
    ) -> None:
        """
        Raises:
            LeaseLostError: another process read the file meanwhile, and goes on.
        """
        last = log.last_time(run_id=row.run_id)
        timed = any(
            isinstance(item, Turn) and (item.started_at or item.ended_at) for item in trajectory.items
        )
        now = timezone.now()
        stamped = self._redacted([(max(at if timed else now, last), event) for at, event in added])
        ready = log.thin_events(run_id=row.run_id, attempt=1, events=stamped)
        with transaction.atomic():
            self.guard()
            mine = ImportedTrajectory.objects.filter(pk=row.pk, partial=True, events_sha256=row.events_sha256)
            values: JSONObject = {
                "identity": identity,
                "events_sha256": mark,
                "file": self._clean.text(trajectory.origin.file),
            }
            if not trajectory.partial:
                values |= {"events_sha256": "", "partial": False}
                values |= {"made_by": self._import}
            if not mine.update(**values):
                raise LeaseLostError(f"{row.file} is followed by another process already")
            if self._follows or not trajectory.partial:
                transition(run_id=row.run_id, to=Run.Status.RUNNING, only_from=Run.Status.PAUSED)
            log.append_thin(
                run_id=row.run_id,
                attempt=1,
                lease_token=None,
                ready=ready,
                events=[event for _, event in stamped],
            )
        row.refresh_from_db()


def _events(trajectory: Trajectory, place: Place, seed: int, *, imported_at: dt.datetime) -> Iterator[Timed]:
    facts = standing(place, seed=seed, lab_version=__version__)
    return to_events(trajectory, facts, price=pricer(trajectory.model, imported_at), imported_at=imported_at)


def _seed(place: Place, experiment: Experiment, wanted: int | None) -> tuple[int | None, int, int | None]:
    """The seed as recorded, the one the run gets, and the run that has the recorded one already."""
    runs = Run.objects.filter(experiment=experiment, arm=place.arm, task=place.task)
    taken = dict(runs.values_list("seed", "pk"))
    recorded = wanted if wanted is not None and 0 <= wanted <= _LARGEST_SEED else None
    if recorded and recorded not in taken:
        return recorded, recorded, None
    free = next(seed for seed in range(1, len(taken) + 2) if seed not in taken)
    return recorded, free, taken.get(recorded) if recorded else None


def _seed_notes(recorded: int | None, given: int, other: int | None) -> tuple[Note, ...]:
    if recorded is None:
        return (Note(kind="guessed", field="seed", detail="not recorded: the next free one"),)
    if recorded == given:
        return ()
    why = f"run {other} has it already, with other content" if other is not None else "seeds count from 1"
    return (Note(kind="guessed", field="seed", detail=f"recorded as {recorded}, given {given}: {why}"),)


def _grown(events: Sequence[Timed]) -> list[Timed]:
    """The events that a longer state of the same file begins with."""
    return [timed for timed in events if not isinstance(timed[1], TrajectoryImported)]


def _mark(events: Sequence[Timed]) -> str:
    """How many events, and the hash of what they say: prices, times and the lab's own names change."""
    digest = hashlib.sha256()
    for _, event in events:
        digest.update(_content(event).encode("utf-8", "surrogatepass") + b"\n")
    return f"{len(events)}:{digest.hexdigest()}"[:64]


def _content(event: Event) -> str:
    if isinstance(event, AttemptStarted):
        return event.model_dump_json(include={"messages", "parameters"})
    return event.model_dump_json(exclude={"cost"})
