"""One model on several harnesses, and the other way round: points of a slope plot and paired differences.

`slopes(observations, switches, arms) -> list[Slope]`. `runs_behind(observations, switches, key)`, a list of
run ids, for the keys arm:<arm> (its runs that count) and contrast:<first arm>,<second arm> (those of both on
the tasks they share).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from lab.analysis import paired, rates
from lab.analysis.counting import Switches, Trial, by_task, task_results, trials
from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.observations import Observation
from lab.analysis.rates import TaskResult

Fixed = Literal["model", "harness"]


class ArmParts(NamedTuple):
    """What an arm is made of; `key` is `Observation.arm`. `limits` is a digest: equal means the same,
    "" that nobody recorded them.

    A harness or model that no record names is "": two of them need not be the same, and are on no slope.
    """

    key: str
    harness: str
    model: str
    limits: str


class Point(NamedTuple):
    """An arm's resolve rate over all of its tasks. `rate.n` tasks, `attempts` graded runs."""

    arm: ArmParts
    rate: Estimate | Unknown
    attempts: int


class Contrast(NamedTuple):
    """First minus second (as in `pairs.PairResult`), on the `shared` tasks alone.

    `first_alone`, `second_alone` count the tasks that only one of them tried.
    `interval` and `p` (two-sided) by `method`; `p_holm` is corrected for all contrasts of all slopes that
    were made together. `confounded`: what else differs between the two, in sentences; empty where nothing
    else is known to.
    """

    first: ArmParts
    second: ArmParts
    shared: int
    first_alone: int
    second_alone: int
    difference: float | Unknown
    interval: Interval | Unknown
    p: float | Unknown
    p_holm: float | Unknown
    method: str
    confounded: tuple[str, ...]


class Slope(NamedTuple):
    """The arms that share a model (`fixed` "model") or a harness; `name` is that of what they share.

    Points in the order of the arms given. `contrasts` of each two of them that differ in the other part; of
    more than `MOST_IN_FULL` arms those with the first one.
    `caution` says in sentences what a difference between them is a difference of, and what else differs.
    """

    fixed: Fixed
    name: str
    points: tuple[Point, ...]
    contrasts: tuple[Contrast, ...]
    caution: tuple[str, ...]


Counted = Mapping[str, Mapping[str, TaskResult]]
MEANING: dict[Fixed, str] = {
    "model": "A harness is its prompts, tools, parsing and context rules together: "
    "a difference is of all of them at once.",
    "harness": "A model is its weights, server and sampling together: "
    "a difference is of all of them at once.",
}
OTHER_LIMITS = "They run under different limits, which may be the whole difference."
EXACT = "exact McNemar, Tango's interval"
PAIRED_T = "paired t on task means"
# In a slope of more arms each is held against the first one alone: the square of many is no table.
MOST_IN_FULL = 6
FIRST_ONLY = f"Of more than {MOST_IN_FULL} arms each is compared with the first one alone."
UNKNOWN_LIMITS = "Limits are not recorded for all of them, and other limits may be the whole difference."


def parts_of(key: str) -> ArmParts:
    """What `Observation.arm` says the arm is made of.

    Raises:
        ValueError: it is no such key.
    """
    parts = key.split(".")
    if len(parts) != 3:
        raise ValueError(f"{key!r} is no arm; one is harness version, model and limits with dots between")
    return ArmParts(key, *parts)


def slopes(runs: Iterable[Observation], switches: Switches, arms: Sequence[ArmParts]) -> list[Slope]:
    """First one a model with several harnesses, then one a harness with several models, as arms come."""
    counted = _counted(runs, switches)
    found = []
    kinds: tuple[Fixed, ...] = ("model", "harness")
    for fixed in kinds:
        groups: dict[str, list[ArmParts]] = {}
        for arm in arms:
            if not arm.harness or not arm.model:
                continue
            groups.setdefault(getattr(arm, fixed), []).append(arm)
        found += [
            _slope(fixed, name, members, counted)
            for name, members in groups.items()
            if len({_varied(fixed, arm) for arm in members}) > 1
        ]
    return _corrected(found)


def tests_among(found: Iterable[Slope]) -> int:
    """How many contrasts have a p value: the family that Holm corrects for."""
    return sum(not isinstance(one.p, Unknown) for slope in found for one in slope.contrasts)


def _corrected(found: Sequence[Slope]) -> list[Slope]:
    rest = iter(paired.corrected([one.p for slope in found for one in slope.contrasts]))
    return [
        slope._replace(contrasts=tuple(one._replace(p_holm=next(rest)) for one in slope.contrasts))
        for slope in found
    ]


def runs_behind(runs: Iterable[Observation], switches: Switches, key: str) -> list[int]:
    """The ids, ascending, of the runs that a figure of that key counts.

    Raises:
        ValueError: no figure has such a key.
    """
    family, _, names = key.partition(":")
    arms = names.split(",")
    if (family, len(arms)) not in {("arm", 1), ("contrast", 2)}:
        raise ValueError(f"{key!r} is no figure of slopes; use arm:<arm> or contrast:<arm>,<arm>")
    counted = trials(runs, switches)
    tasks = set.intersection(*({one.run.task for one in counted if one.run.arm == arm} for arm in arms))
    return sorted(one.run.run for one in counted if one.run.arm in arms and one.run.task in tasks)


def _counted(runs: Iterable[Observation], switches: Switches) -> Counted:
    """How often each arm resolved each of its tasks in how many runs that count."""
    arms: dict[str, list[Trial]] = {}
    for trial in sorted(trials(runs, switches), key=lambda trial: trial.run.run):
        arms.setdefault(trial.run.arm, []).append(trial)
    return {arm: task_results(by_task(found)) for arm, found in arms.items()}


def _varied(fixed: Fixed, arm: ArmParts) -> str:
    return arm.harness if fixed == "model" else arm.model


def _slope(fixed: Fixed, name: str, arms: Sequence[ArmParts], counted: Counted) -> Slope:
    points = tuple(_point(arm, counted.get(arm.key, {})) for arm in arms)
    firsts = arms if len(arms) <= MOST_IN_FULL else arms[:1]
    contrasts = tuple(
        _contrast(first, second, counted)
        for place, first in enumerate(firsts)
        for second in arms[place + 1 :]
        if _varied(fixed, first) != _varied(fixed, second)
    )
    return Slope(fixed, name, points, contrasts, _caution(fixed, arms, contrasts))


def _point(arm: ArmParts, results: Mapping[str, TaskResult]) -> Point:
    attempts = sum(one.attempts for one in results.values())
    return Point(arm, rates.average(list(results.values())), attempts)


def _caution(fixed: Fixed, arms: Sequence[ArmParts], contrasts: Sequence[Contrast]) -> tuple[str, ...]:
    found = [MEANING[fixed]]
    limits = {arm.limits for arm in arms}
    if len(limits - {""}) > 1:
        found.append("Not all of these arms run under the same limits.")
    if "" in limits:
        found.append(UNKNOWN_LIMITS)
    if any(one.first_alone or one.second_alone for one in contrasts):
        found.append("The points are over each arm's own tasks, the differences over the shared ones alone.")
    if len(arms) > MOST_IN_FULL:
        found.append(FIRST_ONLY)
    return tuple(found)


def _contrast(first: ArmParts, second: ArmParts, counted: Counted) -> Contrast:
    ours, theirs = counted.get(first.key, {}), counted.get(second.key, {})
    shared = sorted(ours.keys() & theirs.keys())
    one, other = [ours[task] for task in shared], [theirs[task] for task in shared]
    unequal = sum(a.attempts != b.attempts for a, b in zip(one, other, strict=True))
    confounded = _other_limits(first, second)
    if unequal:
        confounded.append(f"On {unequal} of {len(shared)} shared tasks they have different numbers of runs.")
    return Contrast(
        first,
        second,
        len(shared),
        len(ours) - len(shared),
        len(theirs) - len(shared),
        *_difference(one, other),
        tuple(confounded),
    )


def _other_limits(first: ArmParts, second: ArmParts) -> list[str]:
    if not first.limits or not second.limits:
        return [UNKNOWN_LIMITS]
    return [OTHER_LIMITS] if first.limits != second.limits else []


class _Difference(NamedTuple):
    difference: float | Unknown
    interval: Interval | Unknown
    p: float | Unknown
    # Known when all contrasts are.
    p_holm: float | Unknown
    method: str


def _difference(first: Sequence[TaskResult], second: Sequence[TaskResult]) -> _Difference:
    if all(one.attempts == 1 for one in (*first, *second)):
        table = _table(first, second)
        tested = paired.mcnemar(table)
        if isinstance(tested, Unknown):
            return _Difference(tested, tested, tested, tested, EXACT)
        return _Difference(table.difference, paired.tango(table), tested.p, tested.p, EXACT)
    ours, theirs = [one.mean for one in first], [one.mean for one in second]
    found = paired.mean_difference(ours, theirs)
    if isinstance(found, Unknown):
        never = found.why == paired.NEVER_DIFFER
        value = 0.0 if never else math.fsum(ours + [-one for one in theirs]) / len(ours)
        p = 1.0 if never else found
        return _Difference(value, found, p, p, PAIRED_T)
    return _Difference(found.difference, found.interval, found.p, found.p, PAIRED_T)


def _table(first: Sequence[TaskResult], second: Sequence[TaskResult]) -> paired.Discordance:
    pairs = [(a.successes, b.successes) for a, b in zip(first, second, strict=True)]
    return paired.Discordance(*(pairs.count(one) for one in ((1, 1), (1, 0), (0, 1), (0, 0))))
