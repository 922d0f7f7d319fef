"""What a resolved task costs: a ratio of sums, with intervals that allow for both of its sides.

Costs are US dollars a task over all its attempts, `resolved` how many of the attempts (or tasks) were.
Never a mean of ratios: expensive failures belong to the price of a success.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lab.analysis import quantiles
from lab.analysis.estimates import Interval, Unknown
from lab.analysis.rates import standard_error

if TYPE_CHECKING:
    import numpy as np

LEVEL = 0.95
# So many resolved, on so many tasks, before a symmetric interval is shown; below, BCa's or Fieller's.
ENOUGH_RESOLVED = 10
RESAMPLES = 9_999
SEED = 20260101


class Pair(NamedTuple):
    """What one task cost and how much of it was resolved (0 or 1; a share with several attempts)."""

    cost: float
    resolved: float
    cluster: Hashable = None


class Ratio(NamedTuple):
    """Cost per resolved task. `fieller.high` None: no finite upper limit. `clustered` over repositories.

    `resolved_tasks` of the `n` tasks were resolved at least once.
    """

    value: float
    error: float
    interval: Interval
    fieller: Interval
    clustered: float | Unknown
    spend: float
    resolved: float
    n: int
    resolved_tasks: int

    @property
    def shows_error(self) -> bool:
        """Whether "±" may be shown: with few resolved the interval is far from symmetric.

        Tasks are the sample: many runs of few tasks are few.
        """
        return min(self.resolved, self.resolved_tasks) >= ENOUGH_RESOLVED


class AtLeast(NamedTuple):
    """Nothing was resolved: it costs more than `bound`, unless the rate is above `rate_at_most`."""

    bound: float
    rate_at_most: float
    n: int


def cost_per_resolved(pairs: Sequence[Pair], *, level: float = LEVEL) -> Ratio | AtLeast | Unknown:
    """The whole spend over all that was resolved; a lower bound where nothing was."""
    n = len(pairs)
    if n == 0:
        return Unknown("there is no task")
    spend = math.fsum(one.cost for one in pairs)
    resolved = math.fsum(one.resolved for one in pairs)
    if resolved == 0:
        return bound(spend / n, n, level=level)
    value = spend / resolved
    if n < 2:
        return Unknown("one task says nothing about others")
    residuals = [one.cost - value * one.resolved for one in pairs]
    mean = resolved / n
    error = math.sqrt(math.fsum(e * e for e in residuals) / (n * (n - 1))) / mean
    z = quantiles.normal((1 + level) / 2)
    # On the scale of logarithms: a price is never below nothing.
    factor = math.exp(z * error / value) if value > 0 else 1.0
    interval = Interval(value / factor, value * factor)
    return Ratio(
        value,
        error,
        interval,
        fieller(pairs, level=level),
        _clustered(pairs, residuals),
        spend,
        resolved,
        n,
        sum(one.resolved > 0 for one in pairs),
    )


def bound(mean_cost: float, n: int, *, level: float = LEVEL) -> AtLeast:
    """With nothing resolved in `n` tasks the rate is at most 1 - (1 - level)^(1/n)."""
    rate = 1 - (1 - level) ** (1 / n)
    return AtLeast(mean_cost / rate, rate, n)


def fieller(pairs: Sequence[Pair], *, level: float = LEVEL) -> Interval:
    """Fieller's interval of the ratio of means: without an upper limit where the rate may be nothing.

    Raises:
        ValueError: fewer than two tasks, or nothing resolved.
    """
    n = len(pairs)
    resolved = [one.resolved for one in pairs]
    if n < 2 or not any(resolved):
        raise ValueError("Fieller's interval needs two tasks and one that was resolved")
    costs = [one.cost for one in pairs]
    mean_cost, mean_resolved = math.fsum(costs) / n, math.fsum(resolved) / n
    t = quantiles.student((1 + level) / 2, n - 1)
    var_cost, var_resolved = standard_error(costs) ** 2, standard_error(resolved) ** 2
    both = statistics.covariance(costs, resolved) / n
    g = t * t * var_resolved / mean_resolved**2
    value = mean_cost / mean_resolved
    middle = value - g * both / var_resolved if var_resolved else value
    inner = var_cost - 2 * value * both + value * value * var_resolved
    if var_resolved:
        inner -= g * (var_cost - both * both / var_resolved)
    reach = t / mean_resolved * math.sqrt(max(0.0, inner))
    if g < 1:
        # A price is never below nothing, whatever the formula says.
        return Interval(max(0.0, (middle - reach) / (1 - g)), (middle + reach) / (1 - g))
    return Interval(_lower_root(mean_cost, mean_resolved, var_cost, both, var_resolved, t), None)


def _lower_root(
    mean_cost: float, mean_resolved: float, var_cost: float, both: float, var_resolved: float, t: float
) -> float:
    """The lower limit where there is no upper one: the root next below the ratio, 0 if none is.

    What the quadratic leaves out lies between its roots, and the ratio itself never does.
    """
    a = mean_resolved**2 - t * t * var_resolved
    b = mean_cost * mean_resolved - t * t * both
    c = mean_cost**2 - t * t * var_cost
    inner = b * b - a * c
    if inner < 0 or a == 0:
        return 0.0
    value = mean_cost / mean_resolved
    roots = ((b - math.sqrt(inner)) / a, (b + math.sqrt(inner)) / a)
    return max((root for root in roots if 0 < root <= value), default=0.0)


def fieller_g(pairs: Sequence[Pair], *, level: float = LEVEL) -> float:
    """Fieller's g: at 1 or more there is no finite upper limit. Raises: ValueError as `fieller`."""
    n = len(pairs)
    resolved = [one.resolved for one in pairs]
    if n < 2 or not any(resolved):
        raise ValueError("Fieller's g needs two tasks and one that was resolved")
    t = quantiles.student((1 + level) / 2, n - 1)
    mean = math.fsum(resolved) / n
    return (t * standard_error(resolved) / mean) ** 2


def _clustered(pairs: Sequence[Pair], residuals: Sequence[float]) -> float | Unknown:
    """The error with what tasks of a repository share; with few repositories it is itself a poor estimate."""
    sums: dict[Hashable, float] = {}
    for one, residual in zip(pairs, residuals, strict=True):
        sums[one.cluster] = sums.get(one.cluster, 0.0) + residual
    groups = len(sums)
    if groups < 2:
        return Unknown("all tasks are of one repository")
    n = len(pairs)
    mean = math.fsum(one.resolved for one in pairs) / n
    return math.sqrt(math.fsum(one * one for one in sums.values())) / n / mean


def bootstrap_ratio(pairs: Sequence[Pair], *, level: float = LEVEL) -> Interval | Unknown:
    """The bias-corrected and accelerated interval over tasks; its digits move with the library's version."""
    # A second to load, and only this needs it.
    import numpy as np
    from scipy import stats

    costs = np.array([one.cost for one in pairs])
    resolved = np.array([one.resolved for one in pairs])
    if len(pairs) < 2 or not resolved.any():
        return Unknown("it needs two tasks and one that was resolved")
    if len({(one.cost, one.resolved) for one in pairs}) == 1:
        return Unknown("the resamples are all alike")

    def ratio(cost: np.ndarray, solved: np.ndarray, axis: int = -1) -> np.ndarray:
        total = solved.sum(axis=axis)
        # A resample with nothing resolved is infinitely dear.
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(total > 0, cost.sum(axis=axis) / total, np.inf)

    found = stats.bootstrap(
        (costs, resolved),
        ratio,
        paired=True,
        n_resamples=RESAMPLES,
        confidence_level=level,
        method="BCa",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    if not math.isfinite(found.low):
        return Unknown("the resamples are all alike")
    return Interval(float(found.low), float(found.high) if math.isfinite(found.high) else None)


class Point(NamedTuple):
    """An arm on the plane of cost and rate."""

    name: str
    cost: float
    rate: float


def frontier(points: Sequence[Point]) -> list[Point]:
    """Those that nobody beats on both sides, cheapest first; of equal cost the better one alone."""
    best: list[Point] = []
    for point in sorted(points, key=lambda one: (one.cost, -one.rate)):
        if not best or point.rate > best[-1].rate:
            best.append(point)
    return best
