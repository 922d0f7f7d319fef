"""Arms of one experiment side by side: their lights, and which of their runs belong beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from django.db.models import QuerySet

from lab.engine.llm.base import JSONObject, canonical_json
from lab.models import Arm, Attempt, Run
from lab.render.sandboxes import short_hash, shown_sandbox
from lab.services.compared_runs import sandbox_facts
from lab.services.comparisons import LIMIT_NAMES, Light, said_of_each, state_of
from lab.services.run_pages import KIND_OF_SANDBOX


def lights_of_arms(arms: Sequence[Arm]) -> list[Light]:
    """The lights between the arms of one experiment, none for a single arm. They share their task set."""
    if len(arms) < 2:
        return []
    harnesses = {arm.letter: arm.harness_version.digest for arm in arms}
    digests = {arm.letter: arm.limits_digest or None for arm in arms}
    differing = _differing_limits(arms)
    limits = state_of(list(digests.values()))
    brief = ", ".join(name.removesuffix(" in a row") for name in differing)
    return [
        Light("harness", state_of(list(harnesses.values())), _grouped(harnesses)),
        Light("limits", "different", "; ".join(f"{name} {said}" for name, said in differing.items()), brief)
        if differing
        else Light("limits", limits, _grouped(digests)),
        Light("task set", "same"),
    ]


def _grouped(values: Mapping[str, str | None]) -> str:
    """ "A, C and B": letters with the same value together, nothing where all have the same."""
    groups: dict[str | None, list[str]] = {}
    for letter, value in values.items():
        groups.setdefault(value, []).append(letter)
    if len(groups) == 1:
        return ""
    return " against ".join(", ".join(letters) for letters in groups.values())


def _differing_limits(arms: Sequence[Arm]) -> dict[str, str]:
    """The limits that are not the same in all arms, by their words: what is said of each."""
    found = {}
    for name, words in LIMIT_NAMES.items():
        values = {canonical_json([arm.limits[name]]) for arm in arms if name in arm.limits}
        if len(values) > 1:
            found[words] = said_of_each(name, [arm.limits for arm in arms])
    return found


class ArmSandboxes(NamedTuple):
    """What the runs of one arm were in: "docker, isolated, no network, image debian:12 sha256:0123…"."""

    letter: str
    words: str


class Sandboxes(NamedTuple):
    """What the runs of some arms were in; `differing` "" where nothing recorded differs on the same task."""

    arms: list[ArmSandboxes]
    differing: str

    @property
    def lines(self) -> list[ArmSandboxes]:
        """A line for all arms of which the same is said: "A … H", "A, C"."""
        letters: dict[str, list[str]] = {}
        for arm in self.arms:
            letters.setdefault(arm.words, []).append(arm.letter)
        return [ArmSandboxes(_range(found), words) for words, found in letters.items()]


def _range(letters: Sequence[str]) -> str:
    """ "A … H" where so many follow each other, else each of them."""
    follow = all(
        len(before) == len(after) == 1 and ord(after) == ord(before) + 1
        for before, after in pairwise(letters)
    )
    return f"{letters[0]} … {letters[-1]}" if follow and len(letters) > 2 else ", ".join(letters)


def sandboxes_of_arms(arms: Sequence[Arm]) -> Sandboxes:
    """Which sandboxes the runs of these arms used, and what differs between the arms on the same tasks."""
    letters = {arm.pk: arm.letter for arm in arms}
    recorded = Attempt.objects.filter(run__arm__in=arms, sandbox__sandbox__isnull=False).order_by()
    found = _recorded(recorded, letters, "run__arm")
    # Where all were alike, which task was in which says nothing more, and 500 tasks take their time.
    kinds = {canonical_json(payload) for tasks in found.values() for one in tasks.values() for payload in one}
    if len(kinds) > 1:
        found = _recorded(recorded, letters, "run__arm", "run__task__slug")
    told = [ArmSandboxes(letter, _told(tasks)) for letter, tasks in found.items() if tasks]
    return Sandboxes(told, _differing_sandboxes(found) if len(told) > 1 else "")


def _recorded(
    attempts: QuerySet[Attempt], letters: Mapping[int, str], *by: str
) -> dict[str, dict[str, list[JSONObject]]]:
    """Letter -> task (or "" where `by` does not name it) -> the kinds of sandbox that were recorded."""
    found: dict[str, dict[str, list[JSONObject]]] = {letter: {} for letter in letters.values()}
    fields = [f"sandbox__{name}" for name in KIND_OF_SANDBOX]
    for row in attempts.values_list(*by, *fields).distinct():
        task = str(row[1]) if len(by) > 1 else ""
        named = zip(KIND_OF_SANDBOX, row[len(by) :], strict=True)
        # An older log lacks some of them, and a sandbox without an image says so by its kind.
        payload = {name: value for name, value in named if value is not None}
        found[letters[row[0]]].setdefault(task, []).append(payload)
    return found


def _told(tasks: Mapping[str, Sequence[JSONObject]]) -> str:
    lines: dict[str, dict[str, str]] = {}
    for payload in (one for payloads in tasks.values() for one in payloads):
        shown = shown_sandbox(payload)
        if shown is None:
            continue
        images = lines.setdefault(shown.line, {})
        if shown.image:
            images[shown.image.identifier] = f"image {shown.image.reference} {shown.image.short}"
    parts = []
    for line, images in sorted(lines.items()):
        image = next(iter(images.values()), "") if len(images) < 2 else f"{len(images)} images"
        parts.append(f"{line}, {image}" if image else line)
    return " and ".join(parts)


def _differing_sandboxes(found: Mapping[str, Mapping[str, Sequence[JSONObject]]]) -> str:
    """What is recorded differently of the same task: "memory on fix-click: 2.1 GB and 4.3 GB"."""
    tasks_of: dict[str, set[str]] = {}
    values_of: dict[str, set[str]] = {}
    for task in dict.fromkeys(task for tasks in found.values() for task in tasks):
        sides = [tasks[task] for tasks in found.values() if task in tasks]
        for name in dict.fromkeys(name for side in sides for one in side for name in sandbox_facts(one)):
            values = [
                frozenset(filter(None, (sandbox_facts(one).get(name) for one in side))) for side in sides
            ]
            if len({value for value in values if value}) > 1:
                tasks_of.setdefault(name, set()).add(task)
                values_of.setdefault(name, set()).update(*values)
    return "; ".join(_difference(name, sorted(tasks), values_of[name]) for name, tasks in tasks_of.items())


def _difference(name: str, tasks: Sequence[str], values: set[str]) -> str:
    more = f" and {len(tasks) - _TASKS_NAMED} more" if len(tasks) > _TASKS_NAMED else ""
    where = f"on {', '.join(tasks[:_TASKS_NAMED])}{more}"
    if len(values) > _VALUES_NAMED:
        return f"{name} {where}"
    shown = sorted(short_hash(value) if value.startswith("sha256:") else value for value in values)
    return f"{name} {where}: {' and '.join(shown)}"


_TASKS_NAMED = 3
_VALUES_NAMED = 3


class Match(NamedTuple):
    """One task and seed of an experiment, and its runs of the chosen arms."""

    task: str
    seed: int
    runs: list[Run]

    @property
    def query(self) -> str:
        return ",".join(str(run.pk) for run in self.runs)


def matches(arms: Sequence[Arm]) -> list[Match]:
    """What can be compared between these arms of one experiment: each task and seed that two of them ran."""
    found: dict[tuple[int, int], list[Run]] = {}
    runs = (
        Run.objects.filter(arm__in=arms)
        .for_rows()
        .order_by("task__position", "task_id", "seed", "arm__letter")
    )
    for run in runs:
        found.setdefault((run.task_id, run.seed), []).append(run)
    return [Match(runs[0].task.slug, seed, runs) for (_, seed), runs in found.items() if len(runs) > 1]
