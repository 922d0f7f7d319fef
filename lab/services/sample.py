"""The sample lab: recorded runs, played into the log as demo runs, and taken out again without a trace.

Each run is one transaction, so a load that is killed or asked for twice goes on where it is, run by run. What
the runs look like on pages comes from the same fold over the same events as for any other run.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from lab.engine.errors import LabError
from lab.engine.events import AttemptStarted, Event
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject
from lab.models import Arm, Attempt, Blob, Experiment, Role, Run, RunFacts, Task
from lab.services import blobs, endpoints, harnesses, log, replays, runs, sample_log, stored_bodies, tasks
from lab.services.access import for_role
from lab.services.payloads import thin
from lab.services.sample_log import RecordedRun, SampleLogError, StoredLog, StoredRun
from lab.services.transitions import transition

NAME = "Sample lab"
# There is at most one: its key is unique, so of two loads at once one finds the other's.
KEY = "sample-lab"
WORKER = "sample lab"
# As if it had been run on four slots and had ended a little while ago.
SLOTS = 4
ENDED_BEFORE = dt.timedelta(minutes=3)
_BETWEEN_RUNS = 0.4


class SampleBusyError(LabError):
    """Runs of the sample are going on, and it cannot be removed under them."""


class SampleState(NamedTuple):
    """How much of the sample is there. `experiment` None: nothing of it."""

    experiment: Experiment | None
    loaded: int
    total: int

    @property
    def complete(self) -> bool:
        return self.loaded >= self.total


class Removed(NamedTuple):
    runs: int
    bodies: int


OnProgress = Callable[[SampleState], None]


def state() -> SampleState:
    """How much of the sample lab is loaded.

    Raises:
        SampleLogError: the stored log is gone or damaged.
    """
    experiment = loaded_experiment()
    # A run that somebody repeated is another experiment's.
    loaded = experiment.runs.count() if experiment else 0
    return SampleState(experiment, loaded, sample_log.count_runs())


def state_if_known() -> SampleState | None:
    """As `state`; None where the stored log cannot be read, which is no reason to show nothing else."""
    try:
        return state()
    except SampleLogError:
        return None


def loaded_experiment() -> Experiment | None:
    """The sample's experiment, whole or half loaded."""
    return Experiment.objects.filter(idempotency_key=KEY).first()


@for_role(Role.OPERATOR)
def load(*, by: User, seconds: float | None = None) -> SampleState:
    """Load the sample lab, or go on loading it; after `seconds` it stops between two runs,
    not before one more is there.

    Raises:
        AccessDeniedError: `by` is no operator.
        SampleLogError: the stored log is gone or damaged.
        OSError: the data folder is full or cannot be written.
    """
    return play(launched_by=by, seconds=seconds)


@for_role(Role.OPERATOR)
def remove(*, by: User) -> Removed:
    """Remove the sample lab: runs, events, and the stored bodies that no other run refers to.

    Raises:
        AccessDeniedError: `by` is no operator.
        SampleBusyError: somebody repeated one of its runs, and that is going on.
    """
    return clear()


def play(
    *,
    launched_by: User | None = None,
    seconds: float | None = None,
    on_progress: OnProgress | None = None,
) -> SampleState:
    """As `load`, for whoever has the machine's own shell."""
    stored = sample_log.read()
    player = _Player(stored, launched_by)
    until = None if seconds is None else time.monotonic() + seconds
    for index in range(len(stored.runs)):
        if not player.play(index):
            continue
        if on_progress is not None:
            on_progress(state())
        # Not before a run was played: each call gets further, however slow the machine is.
        if until is not None and time.monotonic() >= until:
            break
    return state()


def clear() -> Removed:
    """As `remove`, for whoever has the machine's own shell."""
    began = time.time()
    bodies = set(_bodies_of(sample_log.read().runs))
    count = 0
    with transaction.atomic():
        experiment = Experiment.objects.select_for_update().filter(idempotency_key=KEY).first()
        if experiment is not None:
            found = Run.objects.filter(experiment=experiment)
            if going_on := found.exclude(status=Run.Status.ENDED).first():
                raise SampleBusyError(f"run {going_on.pk} of the sample lab is going on; cancel it first")
            bodies |= {
                sha256 for sha256, _ in stored_bodies.all_uses(runs=found.values_list("pk", flat=True))
            }
            count = found.count()
            replays.retire_those_of(arms=Arm.objects.filter(experiment=experiment))
            found.delete()
            Arm.objects.filter(experiment=experiment).delete()
            experiment.delete()
    return Removed(count, stored_bodies.remove_unused(candidates=bodies, since=began))


class _Player:
    """Plays stored runs into one experiment; what they share is looked up once."""

    def __init__(self, stored: StoredLog, launched_by: User | None) -> None:
        self._stored = stored
        self._starts = _starts(stored.runs)
        self._versions = {version.harness.name: version for version in harnesses.sync_presets()}
        self._models = {model.name: model for model in endpoints.sync_scripted()}
        task_set = tasks.sync_practice()
        self._tasks = {task.slug: task for task in task_set.tasks.select_related("task_set")}
        with transaction.atomic():
            values = {"name": NAME, "kind": Experiment.Kind.DEMO, "task_set": task_set}
            self._experiment, made = Experiment.objects.get_or_create(
                idempotency_key=KEY, defaults={**values, "launched_by": launched_by}
            )
            if made:
                self._set_out()

    def _set_out(self) -> None:
        """Arms, and times as if the experiment had ended a little while ago. It never waits for a worker."""
        length = max(start + run.seconds for start, run in zip(self._starts, self._stored.runs, strict=True))
        ended = timezone.now() - ENDED_BEFORE
        began = ended - dt.timedelta(seconds=length)
        Experiment.objects.filter(pk=self._experiment.pk).update(
            created_at=began, ended_at=ended, state=Experiment.State.ENDED
        )
        first_of_arm = {(run.cell.harness, run.cell.model): run for run in reversed(self._stored.runs)}
        letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        for harness, model in dict.fromkeys((run.cell.harness, run.cell.model) for run in self._stored.runs):
            limits = _limits_of(first_of_arm[harness, model])
            Arm.objects.create(
                experiment=self._experiment,
                harness_version=self._versions[harness],
                model=self._models[model],
                limits=limits.model_dump(mode="json"),
                limits_digest=limits.digest,
                letter=next(letters),
            )

    def play(self, index: int) -> bool:
        """Put one run into the log unless it is there; True when it was this call that did it."""
        stored = self._stored.runs[index]
        before = timezone.now()
        with transaction.atomic():
            # One at a time, and none after a removal: a second click waits here and finds the run there.
            experiment = Experiment.objects.select_for_update().filter(pk=self._experiment.pk).first()
            if experiment is None:
                return False
            arm = experiment.arms.select_related("harness_version__harness", "model__endpoint").get(
                harness_version=self._versions[stored.cell.harness], model=self._models[stored.cell.model]
            )
            task = self._tasks[stored.cell.task]
            if experiment.runs.filter(arm=arm, task=task, seed=stored.cell.seed).exists():
                return False
            began = experiment.created_at + dt.timedelta(seconds=self._starts[index])
            run = _claimed_run(arm, task, seed=stored.cell.seed, position=index, began=began)
            recorded = stored.read()
            for data in recorded.blobs.values():
                blobs.put(data=data)
            log.append(run_id=run.pk, attempt=1, lease_token=None, events=_shifted(recorded, run, began))
        used = {sha256 for sha256, _ in stored_bodies.all_uses(runs=[run.pk])}
        own = Blob.objects.filter(sha256__in=used, created_at__gte=before)
        stored_bodies.make_old(bodies=own.values_list("sha256", flat=True))
        return True


def _claimed_run(arm: Arm, task: Task, *, seed: int, position: int, began: dt.datetime) -> Run:
    """A run and its attempt as a worker has them at the beginning; the events do the rest."""
    experiment = arm.experiment
    run = Run.objects.create(experiment=experiment, arm=arm, task=task, seed=seed, position=position)
    Run.objects.filter(pk=run.pk).update(created_at=experiment.created_at)
    RunFacts.objects.create(run=run)
    attempt = Attempt.objects.create(run=run, n=1, lease_token=1, worker=WORKER)
    Attempt.objects.filter(pk=attempt.pk).update(started_at=began)
    transition(run_id=run.pk, to=Run.Status.PREPARING, at=began)
    return run


def _shifted(recorded: RecordedRun, run: Run, began: dt.datetime) -> list[tuple[dt.datetime, Event]]:
    """The recorded events, the first one at `began`, with the names and versions that only this lab knows."""
    first = recorded.records[0].at
    facts = runs.facts_of(run)
    return [(began + (record.at - first), _named(record.event, facts)) for record in recorded.records]


def _named(event: Event, facts: Mapping[str, JSONObject]) -> Event:
    if not isinstance(event, AttemptStarted):
        return event
    changed = {name: {**getattr(event, name), **known} for name, known in facts.items()}
    return event.model_copy(update=changed)


def _limits_of(run: StoredRun) -> Limits:
    started = run.read().records[0].event
    if not isinstance(started, AttemptStarted):
        raise SampleLogError(f"the stored log of {run.cell} does not begin with its attempt")
    return Limits.model_validate({name: value for name, value in started.limits.items() if name != "digest"})


def _starts(runs: Sequence[StoredRun]) -> list[float]:
    """When each run would have begun, in seconds, if a few slots had taken them in turn."""
    free = [0.0] * SLOTS
    starts = []
    for run in runs:
        slot = free.index(min(free))
        starts.append(free[slot])
        free[slot] += run.seconds + _BETWEEN_RUNS
    return starts


def _bodies_of(runs: Iterable[StoredRun]) -> Iterator[str]:
    """Every body that the loaded runs refer to: known also after a load or a removal that was killed."""
    found: set[str] = set()

    def keep(data: bytes) -> str:
        found.add(hashlib.sha256(data).hexdigest())
        return ""

    for run in runs:
        yield from run.bodies
        for record in run.read().records:
            thin(record.event.model_dump(mode="json"), keep=keep)
    yield from found
