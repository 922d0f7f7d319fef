"""What arms cost: every dollar in one bucket, cost per resolved issue, and who is on the frontier.

Unknown is not 0: a sum with unknown parts is "at least", and a run without any known cost is in no average.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from lab.analysis.costs import AtLeast, Ratio
from lab.analysis.estimates import Estimate, Interval, Unknown

BucketName = Literal[
    "resolved", "failed", "invalid", "cancelled", "open", "retried", "left_out", "judge", "whole"
]


class Bucket(NamedTuple):
    """A part of the spend: US dollars that are known (None: nothing is), requests without a known cost, runs.

    With `unknown` requests the dollars are "at least". `retried` is what attempts before the newest one cost,
    of whatever run; the others are the newest attempts'. `left_out` are runs that the switches leave out.
    """

    name: BucketName
    dollars: float | None
    unknown: int
    runs: int

    @property
    def at_least(self) -> bool:
        return self.dollars is not None and self.unknown > 0


class Coverage(NamedTuple):
    """Of how many requests the usage was reported, and of how many the cost is known."""

    requests: int
    with_usage: int
    with_cost: int

    @property
    def share(self) -> float | None:
        """None without a request."""
        return self.with_usage / self.requests if self.requests else None


class Tokens(NamedTuple):
    """Tokens in their parts over all attempts; None where nothing of a part is known.

    `unknown` requests without reported usage make them "at least".
    `input_uncached + cache_read + cache_write` is the input, `output` includes `reasoning`.
    """

    input_uncached: int | None
    cache_read: int | None
    cache_write: int | None
    output: int | None
    reasoning: int | None
    unknown: int


class PerResolved(NamedTuple):
    """Cost per resolved issue over `runs` runs of `tasks` tasks. `cost` None's place is an `Unknown`.

    `interval` is the one to show: log-delta where at least ten were resolved, else Fieller's (`method` says
    which). `at_least`: requests without a known cost make it a lower bound. `left_out` runs have no known
    cost at all and are on neither side.
    """

    cost: Ratio | AtLeast | Unknown
    interval: Interval | Unknown
    method: str
    at_least: bool
    runs: int
    tasks: int
    left_out: int


class Failure(NamedTuple):
    """A run that was paid for and resolved nothing."""

    run: int
    task: str
    dollars: float
    unknown: int
    exit_reason: str


class ArmSpend(NamedTuple):
    """What an arm cost. `buckets` sum to `whole`.

    `bases`: what a cost rests on (`reported`, `table`, `card`, …) -> dollars known; with more than one there
    is no ratio and no average. `by_attempt` divides by resolved runs, `by_issue` by tasks resolved at least
    once. Mean costs are of runs, with Student's t. `failures_share` is the failed runs' part of what the
    resolved and failed cost.
    """

    arm: str
    buckets: list[Bucket]
    whole: Bucket
    bases: dict[str, float]
    coverage: Coverage
    tokens: Tokens
    by_attempt: PerResolved
    by_issue: PerResolved
    mean: Estimate | Unknown
    mean_resolved: Estimate | Unknown
    mean_failed: Estimate | Unknown
    failures_share: float | Unknown
    dearest_failures: list[Failure]


class Place(NamedTuple):
    """An arm on the plane of cost (mean dollars a run) and rate.

    `basis` "" where costs are unknown or of several bases: such an arm has no `cost` and is on no line.
    `on_line`: nobody of the same basis beats it on both sides. `possibly`: the share of resamples of tasks in
    which that is so. `lower_bound` is of the cost per resolved issue, where none is resolved.
    """

    arm: str
    cost: Estimate | Unknown
    rate: Estimate | Unknown
    basis: str
    at_least: bool
    on_line: bool
    possibly: float | Unknown
    lower_bound: AtLeast | None


class CurveStep(NamedTuple):
    """For at most so many dollars a run: the share of tasks resolved, with its interval at this point."""

    dollars: float
    share: float
    interval: Interval | Unknown


class Curve(NamedTuple):
    """Resolved within a budget. `left_out` runs have no known cost."""

    arm: str
    steps: list[CurveStep]
    tasks: int
    runs: int
    left_out: int
