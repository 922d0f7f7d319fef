"""What arms cost: every dollar in one bucket, and cost per resolved issue.

Unknown is not 0: a sum with unknown parts is "at least", and a run without any known cost is in no average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from lab.analysis import costs, counting
from lab.analysis.cost_plane import CostDifference as CostDifference
from lab.analysis.cost_plane import Curve as Curve
from lab.analysis.cost_plane import CurveStep as CurveStep
from lab.analysis.cost_plane import Place as Place
from lab.analysis.cost_plane import cost_difference as cost_difference
from lab.analysis.cost_plane import curve as curve
from lab.analysis.cost_plane import curves as curves
from lab.analysis.cost_plane import plane as plane
from lab.analysis.costs import AtLeast, Ratio
from lab.analysis.counting import Switches, Trial
from lab.analysis.estimates import Estimate, Interval, Unknown, is_rounding
from lab.analysis.observations import Observation
from lab.analysis.run_costs import (
    NOTHING_MOVES,
    basis_of,
    dollars_of,
    has_cost,
    lower_bound,
    mean_cost,
    priced,
    task_pairs,
)
from lab.analysis.shares import Groups, ratio_shares

BucketName = Literal[
    "resolved",
    "failed",
    "invalid",
    "not_graded",
    "cancelled",
    "open",
    "retried",
    "left_out",
    "judge",
    "whole",
]
FAILURES_SHOWN = 10
NO_PRICED_SUCCESS = Unknown("no resolved run has a known cost")


class Bucket(NamedTuple):
    """A part of the spend: US dollars that are known (None: nothing is), requests without a known cost, runs.

    With `unknown` requests or `unrecorded` runs, of which no request is recorded, the dollars are "at least".
    `retried` is what attempts before the newest one cost, of whatever run; the others are the newest
    attempts'. `left_out` are runs that the switches leave out, with all their attempts. `judge` is what
    models were paid for reading the arm's runs, of whatever outcome.
    """

    name: BucketName
    dollars: float | None
    unknown: int
    runs: int
    unrecorded: int = 0

    @property
    def at_least(self) -> bool:
        return self.dollars is not None and (self.unknown > 0 or self.unrecorded > 0)


class Judged(NamedTuple):
    """Paid to judges for an arm's runs: dollars (None: none is known), calls of unknown cost, runs read."""

    dollars: float | None
    unknown: int
    runs: int


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
    `output` includes `reasoning`. The parts sum to `input_total` where a server told them of all requests.
    """

    input_uncached: int | None
    cache_read: int | None
    cache_write: int | None
    output: int | None
    reasoning: int | None
    unknown: int
    input_total: int | None


class PerResolved(NamedTuple):
    """Cost per resolved issue over `runs` runs of `tasks` tasks.

    `interval` is the one to show: log-delta where at least ten tasks were resolved, else Fieller's (`method`
    says which), from `AtLeast.bound` up where none was. `at_least`: requests without a known cost make it a
    lower bound. `left_out` runs have no known cost at all and are on neither side.
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
    once. Mean costs are of a run, averaged over tasks as rates are; where no run was graded, `mean` is of
    those that ended. `failures_share` is the failed runs' part of what the resolved and failed cost, its
    interval that of a ratio over tasks.
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
    failures_share: Estimate | Unknown
    dearest_failures: list[Failure]


def of_arms(
    arms: Sequence[str],
    runs: Iterable[Observation],
    switches: Switches = counting.AS_USUAL,
    judged: Mapping[str, Judged] = MappingProxyType({}),
) -> list[ArmSpend]:
    """What each arm cost, in the order of `arms`, also of one without a run. `judged`: by arm."""
    found = counting.by_arm(runs)
    return [of_arm(arm, found.get(arm, []), switches, judged.get(arm)) for arm in arms]


def of_arm(
    arm: str,
    runs: Sequence[Observation],
    switches: Switches = counting.AS_USUAL,
    judged: Judged | None = None,
) -> ArmSpend:
    """What the runs of one arm cost, and what a resolved issue does."""
    let_in = counting.considered(runs, switches)
    counted = counting.trials(runs, switches)
    none_counts = counting.why_none_counts(let_in, counted)
    buckets = _buckets(runs, let_in)
    if judged is not None:
        paid = Bucket("judge", judged.dollars, judged.unknown, judged.runs)
        buckets = [paid if bucket.name == "judge" else bucket for bucket in buckets]
    return ArmSpend(
        arm=arm,
        buckets=buckets,
        whole=_whole(buckets, len(runs)),
        bases=_bases(let_in),
        coverage=_coverage(let_in),
        tokens=_tokens(let_in),
        by_attempt=_per_resolved(counted, none_counts, by_issue=False),
        by_issue=_per_resolved(counted, none_counts, by_issue=True),
        mean=mean_cost(counting.ungraded(let_in) if none_counts else counted),
        mean_resolved=none_counts or mean_cost([trial for trial in counted if trial.resolved]),
        mean_failed=none_counts or mean_cost([trial for trial in counted if not trial.resolved]),
        failures_share=none_counts or _failures_share(counted),
        dearest_failures=dearest_failures(counted),
    )


def _bases(runs: Iterable[Observation]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.cost is not None and math.isfinite(run.cost):
            found.setdefault(run.cost_basis, []).append(run.cost)
    return {basis: math.fsum(found[basis]) for basis in sorted(found)}


# ---- buckets -----------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A run's share of a bucket: dollars, None where nothing is known, and requests without a known cost."""

    dollars: float | None
    unknown: int
    unrecorded: bool = False


_ORDER: tuple[BucketName, ...] = (
    *("resolved", "failed", "invalid", "not_graded", "cancelled", "open", "retried", "left_out", "judge"),
)


def _buckets(runs: Sequence[Observation], let_in: Sequence[Observation]) -> list[Bucket]:
    parts: dict[BucketName, list[_Part]] = {name: [] for name in _ORDER}
    kept = {run.run for run in let_in}
    for run in runs:
        if run.run not in kept:
            parts["left_out"].append(_Part(dollars_of(run), run.cost_unknown, nothing_recorded(run)))
            continue
        outcome = counting.outcome_of(run)
        parts["failed" if outcome == "unresolved" else outcome].append(_newest(run))
        if was_retried(run):
            parts["retried"].append(_Part(run.cost_earlier, run.cost_earlier_unknown))
    return [_bucket(name, parts[name]) for name in _ORDER]


def was_retried(run: Observation) -> bool:
    """Whether attempts before the newest one asked a model for anything that is paid for or unknown."""
    return bool(run.cost_earlier) or run.cost_earlier_unknown > 0


def nothing_recorded(run: Observation) -> bool:
    """Whether neither a cost nor a request of it is recorded."""
    return run.unrecorded and not has_cost(run)


def _newest(run: Observation) -> _Part:
    whole = dollars_of(run)
    unknown = run.cost_unknown - run.cost_earlier_unknown
    if whole is None:
        return _Part(None, unknown, nothing_recorded(run))
    dollars = whole - (run.cost_earlier or 0.0)
    # All that is known may be what the attempts before cost.
    known = not unknown or dollars > 0 or not was_retried(run)
    return _Part(dollars if known else None, unknown)


def _bucket(name: BucketName, parts: Sequence[_Part]) -> Bucket:
    known = [part.dollars for part in parts if part.dollars is not None]
    dollars = math.fsum(known) if known or not parts else None
    unrecorded = sum(part.unrecorded for part in parts)
    return Bucket(name, dollars, sum(part.unknown for part in parts), len(parts), unrecorded)


def _whole(buckets: Sequence[Bucket], runs: int) -> Bucket:
    known = [bucket.dollars for bucket in buckets if bucket.dollars is not None and bucket.runs]
    unknown = sum(bucket.unknown for bucket in buckets)
    unrecorded = sum(bucket.unrecorded for bucket in buckets)
    return Bucket("whole", math.fsum(known) if known or not runs else None, unknown, runs, unrecorded)


def _coverage(runs: Sequence[Observation]) -> Coverage:
    requests = sum(run.requests for run in runs)
    return Coverage(
        requests,
        requests - sum(run.usage_unknown for run in runs),
        requests - sum(run.cost_unknown for run in runs),
    )


def _tokens(runs: Sequence[Observation]) -> Tokens:
    return Tokens(
        input_uncached=_sum(runs, lambda run: run.input_uncached),
        cache_read=_sum(runs, lambda run: run.cache_read),
        cache_write=_sum(runs, lambda run: run.cache_write),
        output=_sum(runs, lambda run: run.output_total),
        reasoning=_sum(runs, lambda run: run.reasoning),
        unknown=sum(run.usage_unknown for run in runs),
        input_total=_sum(runs, lambda run: run.input_total),
    )


def _sum(runs: Iterable[Observation], part: Callable[[Observation], int | None]) -> int | None:
    known = [tokens for tokens in map(part, runs) if tokens is not None]
    return sum(known) if known else None


# ---- averages and ratios -----------------------------------------------------------------------------------


def _per_resolved(counted: Sequence[Trial], none_counts: Unknown | None, *, by_issue: bool) -> PerResolved:
    if none_counts:
        return PerResolved(none_counts, none_counts, "", at_least=False, runs=0, tasks=0, left_out=0)
    known = priced(counted)
    cost, interval, method = _ratio(counted, known, by_issue=by_issue)
    return PerResolved(
        cost=cost,
        interval=interval,
        method=method,
        at_least=any(trial.run.cost_unknown for trial in known),
        runs=len(known),
        tasks=len(counting.by_task(known)),
        left_out=len(counted) - len(known),
    )


def _ratio(
    counted: Sequence[Trial], known: Sequence[Trial], *, by_issue: bool
) -> tuple[Ratio | AtLeast | Unknown, Interval | Unknown, str]:
    basis = basis_of(known)
    if isinstance(basis, Unknown):
        return basis, basis, ""
    pairs = task_pairs(known, by_issue=by_issue)
    found = costs.cost_per_resolved(pairs)
    if isinstance(found, Unknown):
        return found, found, ""
    if isinstance(found, AtLeast):
        if any(trial.resolved for trial in counted):
            return NO_PRICED_SUCCESS, NO_PRICED_SUCCESS, ""
        if not by_issue:
            found = lower_bound(known)
        return found, Interval(found.bound, None), "lower bound, none resolved"
    if all(str(pair.cluster).startswith(counting.ALONE) for pair in pairs):
        found = found._replace(clustered=Unknown(counting.NO_REPOSITORY))
    if is_rounding(found.error, found.value):
        return found, Unknown(NOTHING_MOVES), ""
    if found.shows_error:
        return found, found.interval, "log-delta"
    return found, found.fieller, "Fieller"


def _failures_share(counted: Sequence[Trial]) -> Estimate | Unknown:
    """The failed runs' part of what all runs that count cost."""
    known = priced(counted)
    basis = basis_of(known)
    if isinstance(basis, Unknown):
        return basis
    paid = [dollars_of(trial.run) or 0.0 for trial in known]
    if not any(paid):
        return Unknown("nothing was paid")
    failed = [0.0 if trial.resolved else dollars for trial, dollars in zip(known, paid, strict=True)]
    groups = Groups([trial.run.task for trial in known])
    return ratio_shares(["failures"], [failed], paid, groups, "dollars")[0].estimate


def dearest_failures(counted: Iterable[Trial], *, at_most: int = FAILURES_SHOWN) -> list[Failure]:
    """The runs that cost most and resolved nothing, the dearest first; free ones are none."""
    failed = [trial.run for trial in priced(counted) if not trial.resolved]
    failures = [
        Failure(run.run, run.task, dollars_of(run) or 0.0, run.cost_unknown, run.exit_reason)
        for run in failed
    ]
    paid = sorted((one for one in failures if one.dollars > 0), key=lambda one: (-one.dollars, one.run))
    return paid[:at_most]
