"""Arms of one experiment side by side: their lights, and which of their runs belong beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lab.engine.llm.base import canonical_json
from lab.models import Arm, Run
from lab.services.comparisons import LIMIT_NAMES, Light, said_of_each, state_of


def lights_of_arms(arms: Sequence[Arm]) -> list[Light]:
    """The lights between the arms of one experiment, none for a single arm. They share their task set."""
    if len(arms) < 2:
        return []
    harnesses = {arm.letter: arm.harness_version.digest for arm in arms}
    digests = {arm.letter: arm.limits_digest or None for arm in arms}
    differing = _differing_limits(arms)
    limits = state_of(list(digests.values()))
    return [
        Light("harness", state_of(list(harnesses.values())), _grouped(harnesses)),
        Light("limits", "different" if differing else limits, differing or _grouped(digests)),
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


def _differing_limits(arms: Sequence[Arm]) -> str:
    parts = []
    for name, words in LIMIT_NAMES.items():
        values = {canonical_json([arm.limits[name]]) for arm in arms if name in arm.limits}
        if len(values) > 1:
            parts.append(f"{words} {said_of_each(name, [arm.limits for arm in arms])}")
    return "; ".join(parts)


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
