"""Which runs an analysis is of, read in one query, and which runs are behind a number."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db import models
from django.db.models import Exists, F, FloatField, IntegerField, OuterRef, Q, TextField
from django.db.models.functions import Cast
from pydantic_core import from_json

from lab.analysis import counting, pairs, run_costs, spending
from lab.analysis.counting import Trial
from lab.analysis.observations import Behaviour, Observation
from lab.engine.errors import InvalidValueError
from lab.models import Experiment, Flag, Run, Task, TaskSet
from lab.services.analysis_arms import ArmOf as ArmOf
from lab.services.analysis_arms import arms_of, lights_of, ran_by, sampling_of
from lab.services.analysis_costs import as_reported
from lab.services.analysis_selections import ORIGINS
from lab.services.analysis_selections import Selection as Selection
from lab.services.comparisons import Light
from lab.services.errors import FieldErrorCollector
from lab.services.tasks import RECORDED_ELSEWHERE

_DIGEST_SHOWN = 8


class TaskOf(NamedTuple):
    """A task by its key: versions of a set that hold it unchanged share it. `ids` are its rows."""

    key: str
    slug: str
    title: str
    repository: str
    ids: tuple[int, ...]


class Observed(NamedTuple):
    """What a selection holds. `selection` names its experiments, also where nothing was asked.

    `arms` are those of the selection in their order, `all_arms` those of its experiments. `tasks` are those
    of the observations. `lights` are over `arms` (none for a single one), `sampling` what differs in the
    models' sampling, "" for nothing.
    """

    selection: Selection
    arms: list[ArmOf]
    all_arms: list[ArmOf]
    tasks: dict[str, TaskOf]
    observations: list[Observation]
    lights: list[Light]
    sampling: str
    unknown_tasks: set[str]


def observed(selection: Selection) -> Observed:
    """The runs of a selection and what is known of its arms.

    Raises:
        FieldErrors: an experiment, arm, task set, task or repository that there is none of.
    """
    wrong = FieldErrorCollector()
    experiments = _experiments(selection, wrong)
    all_arms = arms_of(experiments)
    chosen = dataclasses.replace(selection, experiments=tuple(experiments))
    arms = _chosen_arms(selection, all_arms, wrong)
    tasks, unknown = _tasks(chosen, wrong)
    wrong.raise_if_any()
    by_row = {number: task for task in tasks.values() for number in task.ids}
    runs = _observations(chosen, arms, by_row)
    if selection.costs == "reported":
        runs = as_reported(runs, experiments)
    ran = ran_by((run.arm, run.task) for run in runs)
    met = {key for found in ran.values() for key in found}
    return Observed(
        selection=chosen,
        arms=arms,
        all_arms=all_arms,
        tasks={key: task for key, task in tasks.items() if key in met},
        observations=runs,
        lights=lights_of(arms, ran, unknown),
        sampling=sampling_of(arms),
        unknown_tasks=unknown & met,
    )


def lights_between(found: Observed, first: str, second: str) -> list[Light]:
    """The lights over two of the arms, by their keys."""
    ran = ran_by((run.arm, run.task) for run in found.observations)
    return lights_of([arm for arm in found.all_arms if arm.key in (first, second)], ran, found.unknown_tasks)


def sampling_between(found: Observed, first: str, second: str) -> str:
    """What differs in the sampling of two of the arms, "" for nothing."""
    return sampling_of([arm for arm in found.all_arms if arm.key in (first, second)])


def _experiments(selection: Selection, wrong: FieldErrorCollector) -> list[int]:
    if selection.experiments:
        asked = set(selection.experiments)
        known = set(Experiment.objects.filter(pk__in=asked).values_list("pk", flat=True))
        for number in sorted(asked - known):
            reason = "is no experiment of this lab; choose one of the list of experiments"
            wrong.add(InvalidValueError("experiment", number, reason))
        return sorted(known)
    if not selection.asks_for_runs:
        return _newest()
    origins = selection.origins or ("launched", "imported")
    rows = Experiment.objects.filter(kind__in=origins)
    narrowed = Q()
    if selection.task_sets:
        narrowed &= Q(task__task_set__in=selection.task_sets)
    for_arms = Q()
    for key in selection.arms:
        version, model, digest = key.split(".")
        for_arms |= Q(
            arm__harness_version=int(version), arm__model=int(model), arm__limits_digest__startswith=digest
        )
    runs = Run.objects.filter(narrowed, for_arms, experiment=OuterRef("pk"))
    return sorted(rows.filter(Exists(runs)).values_list("pk", flat=True))


def _newest() -> list[int]:
    """What is shown when nothing is asked: the newest experiment of which two runs have ended.

    The lab's own before imported ones, and those before a demo.
    """
    ended = Run.objects.filter(experiment=OuterRef("pk"), status=Run.Status.ENDED).order_by("pk")
    for kind in ORIGINS:
        rows = Experiment.objects.filter(Exists(ended.values("pk")[1:2]), kind=kind).order_by("-pk")
        found = rows.values_list("pk", flat=True).first()
        if found is not None:
            return [found]
    return []


def _chosen_arms(selection: Selection, all_arms: Sequence[ArmOf], wrong: FieldErrorCollector) -> list[ArmOf]:
    known = {arm.key for arm in all_arms}
    for key in selection.pair or ():
        if selection.arms and key in known and key not in selection.arms:
            reason = "is not among the arms of this selection; choose one of those, or all arms"
            wrong.add(InvalidValueError("pair", key, reason))
    for name, keys in (("arm", selection.arms), ("pair", selection.pair or ())):
        for key in keys:
            if key not in known:
                reason = "is no arm of the selected experiments; choose one that is listed there"
                wrong.add(InvalidValueError(name, key, reason))
    return [arm for arm in all_arms if not selection.arms or arm.key in selection.arms]


def _tasks(selection: Selection, wrong: FieldErrorCollector) -> tuple[dict[str, TaskOf], set[str]]:
    """The tasks of the selection by their keys, and those whose content nobody knows."""
    ran = Run.objects.filter(task=OuterRef("pk"), experiment__in=selection.experiments)
    rows = Task.objects.filter(Exists(ran)).order_by("task_set_id", "position", "pk")
    if selection.task_sets:
        rows = rows.filter(task_set__in=selection.task_sets)
        known = set(TaskSet.objects.filter(pk__in=selection.task_sets).values_list("pk", flat=True))
        for number in selection.task_sets:
            if number not in known:
                reason = "is no task set of this lab; choose one of the list of task sets"
                wrong.add(InvalidValueError("task_set", number, reason))
    tasks: dict[str, TaskOf] = {}
    unknown = set()
    for pk, slug, digest, title, repository, task_set in rows.values_list(
        "pk", "slug", "digest", "title", "repository", "task_set__digest"
    ):
        key = task_key(slug, digest)
        ids = tasks[key].ids if key in tasks else ()
        tasks[key] = TaskOf(key, slug, title, repository, (*ids, pk))
        if task_set == RECORDED_ELSEWHERE:
            unknown.add(key)
    return _narrowed(selection, tasks, wrong), unknown


def task_key(slug: str, digest: str) -> str:
    """What tasks with the same content share: `Observation.task`. Readable, and short enough for links."""
    return f"{slug}@{hashlib.sha256(digest.encode()).hexdigest()[:_DIGEST_SHOWN]}"


def _narrowed(
    selection: Selection, tasks: dict[str, TaskOf], wrong: FieldErrorCollector
) -> dict[str, TaskOf]:
    slugs = {name for task in tasks.values() for name in (task.key, task.slug)}
    repositories = {task.repository for task in tasks.values()}
    for name, asked, known in (
        ("task", selection.tasks, slugs),
        ("repository", selection.repositories, repositories),
    ):
        for value in asked:
            if value not in known:
                reason = f"is no {name} of the selected runs; choose one that is listed there"
                wrong.add(InvalidValueError(name, value, reason))
    return {
        key: task
        for key, task in tasks.items()
        if (not selection.tasks or key in selection.tasks or task.slug in selection.tasks)
        and (not selection.repositories or task.repository in selection.repositories)
    }


class _Length(models.Func):
    """How many entries a JSON list has."""

    function = "JSON_ARRAY_LENGTH"
    arity = 1
    output_field = IntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, function="JSONB_ARRAY_LENGTH", **context)


# In the order in which `_observation` takes them. Sums come as floats: an analysis has no use for decimals.
_COLUMNS = (
    *("pk", "experiment_id", "arm_id", "task_id", "seed", "status", "exit_reason", "facts__verdict"),
    *("facts__limits_changed", "facts__got_message", "facts__steps", "facts__calls", "facts__usage_unknown"),
    *("facts__input_uncached", "facts__cache_read", "facts__cache_write", "facts__output_total"),
    *(
        "facts__reasoning",
        "facts__input_total",
        "dollars",
        "facts__cost_unknown",
        "facts__cost_basis",
        "dollars_earlier",
    ),
    *("facts__cost_earlier_unknown", "facts__agent_seconds", "facts__peak_memory_bytes"),
    *("facts__fail_to_pass_passed", "facts__fail_to_pass_total"),
    *("facts__pass_to_pass_passed", "facts__pass_to_pass_total", "files", "behaviour"),
    *("experiment__kind", "facts__replies", "facts__format_errors"),
)


def _observations(
    selection: Selection, arms: Sequence[ArmOf], tasks: Mapping[int, TaskOf]
) -> list[Observation]:
    keys = {number: arm.key for arm in arms for number in arm.arm_ids}
    wanted = Q(experiment__in=selection.experiments)
    if selection.seeds:
        wanted &= Q(seed__in=selection.seeds)
    if selection.origins:
        wanted &= Q(experiment__kind__in=selection.origins)
    if selection.arms:
        wanted &= Q(arm__in=list(keys))
    if selection.tasks or selection.repositories or selection.task_sets:
        wanted &= Q(task__in=list(tasks))
    runs = Run.objects.filter(wanted).order_by("pk")
    marked = Flag.objects.filter(present=True, run__experiment__in=selection.experiments)
    flagged = set(marked.order_by().values_list("run_id", flat=True).distinct())
    annotated = runs.annotate(
        dollars=Cast(F("facts__cost"), FloatField()),
        dollars_earlier=Cast(F("facts__cost_earlier"), FloatField()),
        files=_Length(F("facts__changed_files")),
        behaviour=Cast(F("facts__behaviour"), TextField()),
    )
    return [_observation(row, keys, tasks, flagged) for row in annotated.values_list(*_COLUMNS)]


def _observation(
    row: Sequence[Any], keys: Mapping[int, str], tasks: Mapping[int, TaskOf], flagged: set[int]
) -> Observation:
    """One row of `_COLUMNS`. A run that has not begun has no roll-up: NULL everywhere."""
    run, experiment, arm, task, seed, status, exit_reason, verdict, limits_changed, got_message = row[:10]
    steps, requests, usage_unknown, uncached, read, write, output, reasoning, whole, cost = row[10:20]
    cost_unknown, basis, earlier, earlier_unknown, seconds, memory, *tests = row[20:30]
    files, behaviour, kind, replies, format_errors = row[30:]
    ended = status == Run.Status.ENDED
    # An imported run without changed files may be one whose patch nobody recorded.
    files_known = ended and not (kind == Experiment.Kind.IMPORTED and not files)
    unrecorded = kind == Experiment.Kind.IMPORTED and not requests
    return Observation(
        run=run,
        experiment=experiment,
        arm=keys[arm],
        task=tasks[task].key,
        repository=tasks[task].repository,
        seed=seed,
        ended=ended,
        verdict=verdict or "",
        exit_reason=exit_reason,
        flagged=run in flagged,
        stepped_in=bool(limits_changed or got_message),
        steps=None if unrecorded and not steps else steps,
        requests=requests or 0,
        usage_unknown=usage_unknown or 0,
        input_uncached=uncached,
        cache_read=read,
        cache_write=write,
        output_total=output,
        reasoning=reasoning,
        cost=_finite(cost),
        cost_unknown=cost_unknown or 0,
        cost_basis=basis or "unknown",
        cost_earlier=_finite(earlier),
        seconds=seconds,
        peak_memory_bytes=memory,
        fail_to_pass=_both(tests[0], tests[1]),
        pass_to_pass=_both(tests[2], tests[3]),
        changed_files=files if files_known else None,
        behaviour=_behaviour(behaviour),
        cost_earlier_unknown=earlier_unknown or 0,
        input_total=whole,
        replies=replies,
        format_errors=format_errors,
        unrecorded=unrecorded,
    )


def _finite(dollars: float | None) -> float | None:
    return dollars if dollars is not None and math.isfinite(dollars) else None


def _both(passed: int | None, total: int | None) -> tuple[int, int] | None:
    return None if passed is None or total is None else (passed, total)


def _behaviour(stored: str | None) -> Behaviour | None:
    """What the roll-up's JSON holds of it; None where an older release or nobody recorded it."""
    # This reader takes a third of the time of the standard library's.
    fields = from_json(stored) if stored else None
    try:
        return Behaviour(**fields) if fields else None
    except TypeError:
        # Rolled up by another release: rebuilding the roll-ups brings it up to date.
        return None


# What `runs_behind` can be asked for, each with what it holds.
BEHIND: dict[str, str] = {
    "resolved": "resolved",
    "unresolved": "graded and not resolved",
    "invalid": "ended without a verdict, through nobody's failure",
    "not_graded": "ended and never graded",
    "cancelled": "cancelled",
    "open": "not ended yet",
    "counted": "counted in the rate",
    "priced": "counted in the rate, of known cost",
    "priced_resolved": "counted as resolved, of known cost",
    "priced_failed": "counted as not resolved, of known cost",
    "all": "of the selection, also those that the switches leave out",
    "flagged": "flagged",
    "stepped_in": "runs people stepped into",
    "left_out": "left out by the switches",
    "retried": "with attempts before the newest one",
    "unpriced": "with requests of unknown cost, or of which no request is recorded",
    "both": "on tasks that both of the pair resolve",
    "first_only": "on tasks that only the first of the pair resolves",
    "second_only": "on tasks that only the second of the pair resolves",
    "neither": "on tasks that both of the pair tried and neither resolves",
}


def runs_behind(
    found: Observed,
    *,
    arm: str = "",
    outcome: str = "",
    task: str = "",
    seed: int | None = None,
    exit_reason: str = "",
) -> list[int]:
    """The runs behind a number, by their ids.

    `outcome` is a key of `BEHIND`, "" for all that the switches let in; those of a pair are of
    `selection.pair`, runs of both arms. `task` is a slug or a key. Outcomes count the runs that the switches
    let in, save `all`, `flagged`, `stepped_in` and `left_out`, which count all.

    Raises:
        InvalidValueError: an outcome that there is none of, or one of a pair without a pair.
    """
    if outcome and outcome not in BEHIND:
        raise InvalidValueError("outcome", outcome, f"is none; use one of {', '.join(BEHIND)}")
    return [
        run.run
        for run in _behind(found, outcome)
        if (not arm or run.arm == arm)
        and (not task or task in (run.task, found.tasks[run.task].slug))
        and (seed is None or run.seed == seed)
        and (not exit_reason or run.exit_reason == exit_reason)
    ]


def _priced(trial: Trial) -> bool:
    return run_costs.dollars_of(trial.run) is not None


_COUNTED: dict[str, Callable[[Trial], bool]] = {
    "counted": lambda trial: True,
    "priced": _priced,
    "priced_resolved": lambda trial: _priced(trial) and trial.resolved,
    "priced_failed": lambda trial: _priced(trial) and not trial.resolved,
}


_OF_A_PAIR: dict[str, Callable[[pairs.PairResult], list[pairs.BothTried]]] = {
    "both": lambda pair: pair.both,
    "first_only": lambda pair: pair.first_only,
    "second_only": lambda pair: pair.second_only,
    "neither": lambda pair: pair.neither,
}


def _behind(found: Observed, outcome: str) -> list[Observation]:
    switches = found.selection.switches
    let_in = counting.considered(found.observations, switches)
    if outcome in _OF_A_PAIR:
        return _of_a_pair(found, outcome)
    if outcome in _COUNTED:
        trials = counting.trials(found.observations, switches)
        return [trial.run for trial in trials if _COUNTED[outcome](trial)]
    if outcome == "left_out":
        kept = {run.run for run in let_in}
        return [run for run in found.observations if run.run not in kept]
    everywhere: dict[str, Callable[[Observation], bool]] = {
        "all": lambda run: True,
        "flagged": lambda run: run.flagged,
        "stepped_in": lambda run: run.stepped_in,
    }
    if outcome in everywhere:
        return [run for run in found.observations if everywhere[outcome](run)]
    chosen: dict[str, Callable[[Observation], bool]] = {
        "": lambda run: True,
        "retried": spending.was_retried,
        "unpriced": lambda run: run.cost_unknown > 0 or spending.nothing_recorded(run),
    }
    if outcome in chosen:
        return [run for run in let_in if chosen[outcome](run)]
    return [run for run in let_in if counting.outcome_of(run) == outcome]


def _of_a_pair(found: Observed, outcome: str) -> list[Observation]:
    if found.selection.pair is None:
        raise InvalidValueError("outcome", outcome, "is of a pair; name two arms, pair=… twice")
    first, second = found.selection.pair
    result = pairs.compare(first, second, found.observations, found.selection.switches)
    numbers = {run for one in _OF_A_PAIR[outcome](result) for run in (*one.first_runs, *one.second_runs)}
    return [run for run in found.observations if run.run in numbers]
