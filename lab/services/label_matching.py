"""Which run of this lab a file's label speaks of, and how a run is named in a file."""

from __future__ import annotations

from django.db.models import Q

from lab.engine.formats.reading import count, mapping, text
from lab.engine.labels.formats.base import RunNamed
from lab.models import Experiment, ImportedTrajectory, Run


class NoRunError(Exception):
    """No run of the lab is the one that is named, or several are; the text says what to do."""


def named(run: Run) -> RunNamed:
    """How another lab finds this run: by what it was imported from, else by experiment, arm, task and seed.

    A run that came here as another lab's log keeps that lab's names.
    """
    imported = ImportedTrajectory.objects.filter(run=run).first()
    facts = imported.facts if imported is not None else {}
    task = text(mapping(facts.get("task")).get("name")) or run.task.slug
    identity = imported.identity if imported is not None and not facts else ""
    return RunNamed(
        tasks=(task,),
        identity=identity,
        experiment=text(facts.get("experiment")) or run.experiment.name,
        arm=text(facts.get("arm")) or run.arm.letter,
        seed=count(facts.get("seed")) or run.seed,
    )


def find(wanted: RunNamed, *, experiment: Experiment | None = None) -> Run:
    """The one run that is named. `experiment`: among its runs only.

    Raises:
        NoRunError: there is none, or more than one.
    """
    runs = Run.objects.select_related("task", "arm", "experiment")
    if experiment is not None:
        runs = runs.filter(experiment=experiment)
    if wanted.identity and (found := runs.filter(imported__identity=wanted.identity).first()):
        return found
    if not wanted.tasks:
        raise NoRunError("names no task")
    found_runs = runs.filter(Q(task__slug__in=wanted.tasks) | Q(imported__facts__task__name__in=wanted.tasks))
    if wanted.seed is not None:
        found_runs = found_runs.filter(Q(seed=wanted.seed) | Q(imported__facts__seed=wanted.seed))
    if wanted.arm:
        found_runs = found_runs.filter(Q(arm__letter=wanted.arm) | Q(imported__facts__arm=wanted.arm))
    if wanted.experiment and experiment is None:
        name = wanted.experiment
        found_runs = found_runs.filter(Q(experiment__name=name) | Q(imported__facts__experiment=name))
    several = list(found_runs.order_by("pk")[:4])
    if not several:
        raise NoRunError("its run is not in this lab; import the trajectory, then these labels again")
    if len(several) > 1:
        which = ", ".join(f"run {run.pk}" for run in several[:3]) + (" …" if len(several) > 3 else "")
        raise NoRunError(f"{which} could be meant; choose the experiment that the labels are about")
    if several[0].status != Run.Status.ENDED:
        raise NoRunError(f"run {several[0].pk} has not ended; import the labels when it has")
    return several[0]
