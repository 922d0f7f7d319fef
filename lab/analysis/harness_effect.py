"""One model on several harnesses, and the other way round: points of a slope plot and paired differences."""

from __future__ import annotations

from typing import Literal, NamedTuple

from lab.analysis.estimates import Estimate, Interval, Unknown

Fixed = Literal["model", "harness"]


class ArmParts(NamedTuple):
    """What an arm is made of; `key` is `Observation.arm`. `limits` is a digest: equal means the same."""

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
    `interval` and `p` (two-sided, not corrected for how many contrasts there are) by `method`.
    `confounded`: what else differs between the two, in sentences; empty where nothing else is known to.
    """

    first: ArmParts
    second: ArmParts
    shared: int
    first_alone: int
    second_alone: int
    difference: float | Unknown
    interval: Interval | Unknown
    p: float | Unknown
    method: str
    confounded: tuple[str, ...]


class Slope(NamedTuple):
    """The arms that share a model (`fixed` "model") or a harness; `name` is that of what they share.

    Points in the order of the arms given. `contrasts` of each two of them that differ in the other part.
    """

    fixed: Fixed
    name: str
    points: tuple[Point, ...]
    contrasts: tuple[Contrast, ...]
