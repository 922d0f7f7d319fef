"""Recorded verdicts that stand apart from their trajectories: put beside the runs that they are of."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from lab.engine.events import Event
from lab.engine.formats.to_events import Timed, grading_events
from lab.engine.formats.trajectory import FoundGrading, Grading, HarnessUsed, ModelUsed, Trajectory
from lab.models import Attempt, Import, ImportedGrading, ImportedTrajectory, Run, Verification
from lab.services import interchange, log
from lab.services.import_reports import ReportWriter
from lab.services.import_storing import Stored, Storing
from lab.services.imported_arms import Cleaner

_NO_HARNESS = "harness not recorded"


@dataclass(frozen=True)
class Candidate:
    """A run that a verdict may be of: as its trajectory names it."""

    run: int
    file: str
    model: str
    seeds: frozenset[int]
    partial: bool


class Gradings:
    """Looks for the runs of recorded verdicts among those of one import, then among earlier ones."""

    def __init__(self, imported: Import, storing: Storing, cleaner: Cleaner, report: ReportWriter) -> None:
        self._import, self._storing, self._clean, self._report = imported, storing, cleaner, report
        self._by_instance: dict[str, list[Candidate]] = {}
        # Whose verdicts were put beside it, in order, with the file of the last one.
        self._touched: dict[int, tuple[str, str]] = {}
        self._before = first_number(imported)

    def note(self, trajectory: Trajectory, stored: Stored) -> None:
        """A trajectory of this import, new or known: a verdict may be of its run."""
        seeds = {stored.run.seed, trajectory.seed, stored.seed_recorded} - {None}
        self._by_instance.setdefault(trajectory.instance_id, []).append(
            Candidate(
                run=stored.run.pk,
                file=trajectory.origin.file,
                model=trajectory.model.name,
                seeds=frozenset(seed for seed in seeds if seed is not None),
                partial=trajectory.partial,
            )
        )

    def put(self, found: FoundGrading) -> None:
        """Put a verdict beside the runs it is of; where there is none, it becomes a run without steps.

        Raises:
            LeaseLostError: somebody else reads the import, or it was ended.
            OSError, DatabaseError: nothing was added.
        """
        identity = interchange.identity_of(found.origin.sha256, f"{found.origin.place}\n{found.instance_id}")
        runs = [one for one in self._by_instance.get(found.instance_id, ()) if _is_of(found, one)]
        known = None if runs else ImportedGrading.objects.filter(identity=identity).first()
        if known is not None:
            if self._is_alone(known):
                self._alone(found, identity)
            else:
                self._count(known.run_id, known, found)
            return
        if not runs:
            earlier = self._earlier(found)
            if len(earlier) > 1:
                why = f"{len(earlier)} runs of earlier imports could be meant; it is a run of its own"
                self._report.unattached(found.origin.file, found.origin.place, why)
            runs = earlier if len(earlier) == 1 else []
        if not runs:
            self._alone(found, identity)
        for run in runs:
            self._beside(run, found, identity)

    def finish(self) -> None:
        """Name the runs whose recorded verdicts contradict each other: the newest counts, all are kept."""
        for run, (file, place) in self._touched.items():
            outcomes = list(
                Verification.objects.filter(run=run).order_by("n").values_list("outcome", flat=True)
            )
            if len(set(outcomes)) > 1:
                before = next(one for one in reversed(outcomes) if one != outcomes[-1])
                self._report.contradiction(run=run, file=file, place=place, before=before, now=outcomes[-1])

    def _earlier(self, found: FoundGrading) -> list[Candidate]:
        """Runs with steps of earlier imports with this instance."""
        if not found.instance_id:
            return []
        rows = ImportedTrajectory.objects.filter(run__task__slug=self._clean.text(found.instance_id))
        rows = rows.exclude(run__facts__calls=0).exclude(made_by=self._import)
        rows = rows.select_related("run__arm__model").order_by("pk")
        candidates = [
            Candidate(
                run=row.run_id,
                file=row.file,
                model=row.run.arm.model.model_id,
                seeds=frozenset({row.run.seed, row.seed_recorded or row.run.seed}),
                partial=row.partial,
            )
            for row in rows
        ]
        return [one for one in candidates if _is_of(found, one)]

    def _beside(self, candidate: Candidate, found: FoundGrading, identity: str) -> None:
        if found.grading is None:
            # A patch that the run has recorded itself.
            self._report.report.gradings.known += 1
            return
        if candidate.partial:
            why = f"the file of run {candidate.run} is still being written; import it again afterwards"
            self._report.unattached(found.origin.file, found.origin.place, why)
            return
        known = ImportedGrading.objects.filter(run=candidate.run, identity=identity).first()
        if known is None and _is_said_with_tests(candidate.run, found.grading):
            self._report.report.gradings.known += 1
            return
        row = known or self._put(candidate.run, found.grading, identity)
        self._count(candidate.run, row, found)

    def _put(self, run: int, grading: Grading, identity: str) -> ImportedGrading:
        events = self._events(grading, log.last_time(run_id=run))
        attempt: int = Attempt.objects.filter(run=run).aggregate(n=Max("n"))["n"] or 1
        ready = log.thin_events(run_id=run, attempt=attempt, events=events)
        with transaction.atomic():
            self._storing.guard()
            row, new = ImportedGrading.objects.get_or_create(run_id=run, identity=identity)
            if new:
                log.append_thin(
                    run_id=run,
                    attempt=attempt,
                    lease_token=None,
                    ready=ready,
                    events=[event for _, event in events],
                )
        return row

    def _events(self, grading: Grading, last: dt.datetime) -> list[tuple[dt.datetime, Event]]:
        now = [max(last, grading.at or timezone.now())]

        def timed(at: dt.datetime | None, event: Event) -> Timed:
            now[0] = max(now[0], at or now[0])
            return now[0], self._clean.redactor.event(event)

        return list(grading_events(grading, at=timed))

    def _count(self, run: int, row: ImportedGrading, found: FoundGrading) -> None:
        """What this import put there counts as such, also when its reader was killed right after."""
        gradings = self._report.report.gradings
        if row.pk <= self._before:
            gradings.known += 1
            return
        gradings.attached += 1
        self._touched[run] = (found.origin.file, found.origin.place)

    def _is_alone(self, row: ImportedGrading) -> bool:
        """Whether the verdict became a run without steps, by this import."""
        mine = ImportedTrajectory.objects.filter(run=row.run_id, made_by=self._import)
        return mine.exclude(run__facts__calls__gt=0).exists()

    def _alone(self, found: FoundGrading, identity: str) -> None:
        trajectory = Trajectory(
            origin=found.origin,
            harness=HarnessUsed(name=found.harness or _NO_HARNESS),
            model=ModelUsed(name=found.model),
            instance_id=found.instance_id,
            seed=found.seed,
            patch=found.patch,
            gradings=() if found.grading is None else (found.grading,),
            steps_recorded=False,
        )
        stored = self._storing.put(
            trajectory,
            identity=hashlib.sha256(f"verdict\n{identity}".encode()).hexdigest(),
            also=lambda run: _note(run, identity),
        )
        gradings = self._report.report.gradings
        if stored.new:
            gradings.verdict_only += 1
            self._report.notes(
                stored.notes,
                format_name=found.origin.format,
                run=stored.run.pk,
                file=found.origin.file,
            )
        else:
            gradings.known += 1


def first_number(imported: Import) -> int:
    """The newest recorded verdict of the lab when the import was read first."""
    marked = imported.options.get("gradings_before")
    if marked is not None:
        return int(marked)
    newest: int = ImportedGrading.objects.aggregate(newest=Max("pk"))["newest"] or 0
    return newest


def _note(run: Run, identity: str) -> None:
    ImportedGrading.objects.create(run=run, identity=identity)


def _is_said_with_tests(run: int, grading: Grading) -> bool:
    """Whether the newest verdict by this rule is the same, and says more: the shorter one would hide it."""
    if grading.tests or grading.rewards or grading.log or grading.kept:
        return False
    newest = Verification.objects.filter(run=run, rule=grading.rule).order_by("-n").first()
    return newest is not None and newest.outcome == grading.outcome and newest.tests.exists()


def _is_of(found: FoundGrading, candidate: Candidate) -> bool:
    if found.trajectory and _last_parts(found.trajectory) != _last_parts(candidate.file):
        return False
    if found.seed is not None and found.seed not in candidate.seeds:
        return False
    return not found.model or not candidate.model or _same_model(found.model, candidate.model)


def _last_parts(path: str) -> list[str]:
    """File and folder: what stands before them is where they lay once, and where they were given from."""
    return path.replace("\\", "/").split("/")[-2:]


def _same_model(left: str, right: str) -> bool:
    """Whether two names are one model's, of which one may begin with its provider."""
    return left == right or left.endswith(f"/{right}") or right.endswith(f"/{left}")
