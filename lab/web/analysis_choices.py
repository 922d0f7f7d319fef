"""What one may choose for an analysis: experiments, arms, tasks, seeds, switches."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import NamedTuple

from lab.models import Experiment, TaskSet
from lab.services import analysis
from lab.services.analysis import Observed, Selection
from lab.services.analysis_selections import ORIGINS

# Experiments that are offered, newest first, beside those that are chosen.
MOST_EXPERIMENTS = 60


class Choice(NamedTuple):
    """One line of a list of choices."""

    value: str
    word: str
    chosen: bool
    note: str = ""


class Group(NamedTuple):
    """A field of the form with its choices."""

    name: str
    label: str
    hint: str
    choices: list[Choice]


class Choices(NamedTuple):
    """The whole form. `pair` has two fields of the same choices."""

    groups: list[Group]
    switches: list[Group]
    pair: list[Group]


def choices(selection: Selection) -> Choices:
    """What is offered for a selection: arms, tasks and seeds are those of its experiments.

    Raises:
        FieldErrors: the selection names what there is none of.
    """
    whole = analysis.observed(
        dataclasses.replace(selection, arms=(), repositories=(), seeds=(), tasks=(), pair=None)
    )
    groups = [
        _experiments(whole.selection),
        _arms(whole, selection),
        _task_sets(whole, selection),
        _repositories(whole, selection),
        _seeds(whole, selection),
        _tasks(whole, selection),
        _origins(selection),
    ]
    return Choices([one for one in groups if one.choices], _switches(selection), _pair(whole, selection))


def _experiments(selection: Selection) -> Group:
    chosen = set(selection.experiments)
    newest = Experiment.objects.order_by("-pk").values_list("pk", flat=True)[:MOST_EXPERIMENTS]
    rows = Experiment.objects.filter(pk__in=chosen | set(newest)).order_by("-pk")
    found = [
        Choice(
            str(one.pk), one.name or str(one), one.pk in chosen, one.kind if one.kind != "launched" else ""
        )
        for one in rows.only("pk", "name", "kind")
    ]
    return Group(
        "experiment", "Experiments", "Arms with the same harness, model and limits are one arm.", found
    )


def _arms(whole: Observed, selection: Selection) -> Group:
    counts = Counter(run.arm for run in whole.observations)
    found = [
        Choice(arm.key, f"{arm.letter} {arm.name}", arm.key in selection.arms, f"{counts[arm.key]:,} runs")
        for arm in whole.all_arms
    ]
    return Group("arm", "Arms", "None chosen: all of them.", found)


def _task_sets(whole: Observed, selection: Selection) -> Group:
    rows = TaskSet.objects.filter(experiments__in=whole.selection.experiments).distinct().order_by("pk")
    found = [Choice(str(one.pk), str(one), one.pk in selection.task_sets) for one in rows]
    return Group("task_set", "Task sets", "None chosen: all of them.", found if len(found) > 1 else [])


def _repositories(whole: Observed, selection: Selection) -> Group:
    counts = Counter(task.repository for task in whole.tasks.values() if task.repository)
    found = [
        Choice(name, name, name in selection.repositories, f"{number:,} tasks")
        for name, number in sorted(counts.items())
    ]
    return Group("repository", "Repositories", "None chosen: all of them.", found if len(found) > 1 else [])


def _seeds(whole: Observed, selection: Selection) -> Group:
    seeds = sorted({run.seed for run in whole.observations})
    found = [Choice(str(seed), str(seed), seed in selection.seeds) for seed in seeds]
    return Group("seed", "Seeds", "None chosen: all of them.", found if len(found) > 1 else [])


def _tasks(whole: Observed, selection: Selection) -> Group:
    """Those that a link chose: a list of all would be long, and so they can be let go."""
    names = {name: task.slug for task in whole.tasks.values() for name in (task.slug, task.key)}
    found = [Choice(task, names.get(task, task), True) for task in selection.tasks]
    return Group("task", "Tasks", "None chosen: all of them.", found)


def _origins(selection: Selection) -> Group:
    words = {"launched": "launched here", "imported": "imported", "demo": "sample runs"}
    found = [Choice(one, words[one], one in selection.origins) for one in ORIGINS]
    return Group("origin", "Where runs come from", "None chosen: wherever they come from.", found)


# Each switch with its title and what its values are called.
_SWITCHES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("invalid", "Invalid runs", {"out": "left out", "failures": "count as failures"}),
    ("flagged", "Flagged runs", {"in": "in", "out": "out"}),
    ("stepped_in", "Runs that people stepped into", {"out": "left out", "in": "in"}),
    ("costs", "Costs", {"priced": "by the lab’s prices", "reported": "as providers reported them"}),
)


def _switches(selection: Selection) -> list[Group]:
    return [
        Group(
            name,
            title,
            "",
            [Choice(value, word, getattr(selection, name) == value) for value, word in words.items()],
        )
        for name, title, words in _SWITCHES
    ]


def _pair(whole: Observed, selection: Selection) -> list[Group]:
    chosen = selection.pair or ("", "")
    return [
        Group("pair", label, "", [Choice(arm.key, arm.name, arm.key == key) for arm in whole.all_arms])
        for label, key in zip(("First", "Second"), chosen, strict=True)
    ]
