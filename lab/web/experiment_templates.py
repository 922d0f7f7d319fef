"""What a new experiment can begin as: common questions, and the evaluations of a published model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from django.http import QueryDict

from lab.models import HarnessVersion, Model, TaskSet
from lab.services import tasks
from lab.web.experiment_fields import ExperimentForm, empty, own_limits


class Template(NamedTuple):
    key: str
    title: str
    says: str


class Evaluation(NamedTuple):
    """One of FrogNano's evaluations as its report and configurations state it."""

    key: str
    task_set: str
    task_count: int
    tokens_per_turn: int


class Begun(NamedTuple):
    """A form that a template filled in, and what to know about it."""

    data: QueryDict
    notes: list[str]


_SEEDS = "3"
_STEPS, _CONTEXT, _SECONDS = 150, 131_072, 10_800
_HARNESS = "leaf-compatible"
EVALUATIONS = (
    Evaluation("swe-bench-verified", "SWE-bench Verified", 500, 8_192),
    Evaluation("swe-bench-pro", "SWE-bench Pro", 731, 32_000),
    Evaluation("terminal-bench-2", "Terminal-Bench 2", 89, 32_000),
    Evaluation("patcheval", "PatchEval", 230, 8_192),
)
QUESTIONS = (
    Template("harnesses", "One model on several harnesses", "what the harness does to a model's rate"),
    Template("models", "Several models on one harness", "which model resolves more, and at what cost"),
)


def templates() -> list[Template]:
    """All of them, in the order of the page."""
    known = {_plain(one.name) for one in tasks.newest_sets()}
    return [
        *QUESTIONS,
        *(
            Template(
                one.key,
                f"FrogNano: {one.task_set}",
                f"{one.task_count} tasks, three seeds" + ("" if _of(one, known) else "; not in this lab yet"),
            )
            for one in EVALUATIONS
        ),
    ]


def begun(key: str) -> Begun:
    """The form that a template begins; an unknown key begins an empty one."""
    evaluation = next((one for one in EVALUATIONS if one.key == key), None)
    if evaluation is not None:
        return _evaluation(evaluation)
    data = empty(tasks.current_task_set())
    offered = ExperimentForm(data)
    versions, models = offered.versions, offered.models
    if not versions or not models:
        return Begun(data, [])
    if key == "harnesses":
        _tick(data, [one for one in versions if one.harness.preset] or versions, models[:1])
        data["seeds"] = _SEEDS
    elif key == "models":
        _tick(data, versions[:1], models)
        data["seeds"] = _SEEDS
    return Begun(data, [])


def _evaluation(asked: Evaluation) -> Begun:
    task_set = next((one for one in tasks.newest_sets() if _of(asked, {_plain(one.name)})), None)
    data = empty(task_set)
    offered = ExperimentForm(data)
    version = next((one for one in offered.versions if one.harness.name == _HARNESS), None)
    models = [model for model in offered.models if not model.scripted]
    if version is not None:
        _tick(data, [version], models if len(models) == 1 else [])
    data["name"] = f"{asked.task_set}, as FrogNano"
    data["seeds"] = _SEEDS
    wanted = {
        "max_steps": _STEPS,
        "max_context_tokens": _CONTEXT,
        "max_tokens_per_turn": asked.tokens_per_turn,
        "max_total_time_sec": _SECONDS,
    }
    notes = [*_missing_set(asked, task_set), *_tighter(data, version, wanted)]
    if len(models) != 1:
        notes.append(f"Tick the model to evaluate in the column of {version or _HARNESS}.")
    notes.append(
        "The report samples with temperature 0.6, top_p 0.95 and top_k 20: these are settings of the model, "
        "and are set on its page."
    )
    return Begun(data, notes)


def _missing_set(asked: Evaluation, task_set: TaskSet | None) -> list[str]:
    if task_set is not None:
        count = task_set.tasks.count()
        if count == asked.task_count:
            return []
        return [f"{task_set} has {count} tasks; the report's evaluation has {asked.task_count}."]
    return [
        f"The task set {asked.task_set} ({asked.task_count} tasks) is not in this lab. Put it into a folder "
        f"with a set.toml of the name “{asked.key}” and a folder for each task, as README describes, and "
        "read it with `manage.py check_tasks FOLDER`; then open this template again."
    ]


def _tighter(data: QueryDict, version: HarnessVersion | None, wanted: dict[str, int]) -> list[str]:
    """Fill the limits in; where the harness's own are tighter they stay, and are named."""
    own = own_limits(version) if version is not None else {}
    notes = []
    for name, value in wanted.items():
        allowed = own.get(name)
        if allowed is not None and allowed < value:
            notes.append(
                f"The report allows {value:,} for {name}, and {version} {allowed:,.0f}: a limit is never "
                "widened. For the same, clone the harness with the larger limit and tick the clone."
            )
        else:
            data[f"limit_{name}"] = str(value)
    return notes


def _tick(data: QueryDict, versions: Sequence[HarnessVersion], models: Sequence[Model]) -> None:
    data.setlist("pair", [f"{version.pk}:{model.pk}" for version in versions for model in models])


def _of(asked: Evaluation, names: set[str]) -> bool:
    """Whether one of the plain names is the evaluation's: with or without what versions add to it."""
    wanted = _plain(asked.task_set)
    return any(name == wanted or name == f"{wanted}verified" for name in names)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
