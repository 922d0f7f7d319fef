"""Two arms on the same tasks: who is better, by how much, and whether chance would do as well.

A pair is a task that both arms tried. With one attempt a task the pairs that differ decide (McNemar, exact,
with Tango's interval); with several, the differences of the tasks' means (Student's t).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from lab.analysis import quantiles
from lab.analysis.estimates import Interval, Unknown, is_rounding
from lab.analysis.rates import LEVEL, clustered_error, standard_error, student_interval, wilson_limits

if TYPE_CHECKING:
    import numpy as np

NO_PAIR = "no task was tried by both"
NEVER_DIFFER = "they never differ"


class Discordance(NamedTuple):
    """One attempt a task: how many tasks both resolve, only the first, only the second, neither."""

    both: int
    first_only: int
    second_only: int
    neither: int

    @property
    def n(self) -> int:
        return sum(self)

    @property
    def difference(self) -> float:
        """The first's rate minus the second's. Raises: ZeroDivisionError without a task."""
        return (self.first_only - self.second_only) / self.n


class Tested(NamedTuple):
    """A test of "no difference": its p value, two-sided, and which test it was."""

    p: float
    method: str
    statistic: float | None = None


def mcnemar(table: Discordance) -> Tested | Unknown:
    """The exact test on the pairs that differ. Arms that never differ give p = 1, not 0."""
    if table.n == 0:
        return Unknown(NO_PAIR)
    differing = table.first_only + table.second_only
    if differing == 0:
        return Tested(1.0, "exact McNemar")
    return Tested(quantiles.half_p(table.first_only, differing), "exact McNemar")


def mid_p(table: Discordance) -> Tested | Unknown:
    """McNemar with half the probability of what was seen: less conservative than the exact test."""
    exact = mcnemar(table)
    if isinstance(exact, Unknown):
        return exact
    differing = table.first_only + table.second_only
    if differing == 0:
        return Tested(1.0, "mid-p McNemar")
    seen = quantiles.half_probability(table.first_only, differing)
    return Tested(min(1.0, exact.p - seen), "mid-p McNemar")


def tango(table: Discordance, *, level: float = LEVEL) -> Interval | Unknown:
    """Tango's score interval of the difference: holds for few tasks, and where arms never differ."""
    if table.n == 0:
        return Unknown(NO_PAIR)
    z = quantiles.normal((1 + level) / 2)
    b, c, n = table.first_only, table.second_only, table.n

    def score(delta: float) -> float:
        """How far the table lies from a difference of `delta`, in standard errors."""
        half = -b - c + (2 * n - b + c) * delta
        root = half * half + 8 * n * c * delta * (1 - delta)
        second = (math.sqrt(max(0.0, root)) - half) / (4 * n)
        squared = n * (2 * second + delta * (1 - delta))
        distance = b - c - n * delta
        if squared <= 0:
            return 0.0 if distance == 0 else math.copysign(math.inf, distance)
        return distance / math.sqrt(squared)

    low = _crossing(lambda delta: score(delta) - z, -1.0, table.difference)
    high = _crossing(lambda delta: score(delta) + z, table.difference, 1.0)
    return Interval(low, high)


_CLOSE = 1e-12


def _crossing(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function passes 0 between the two, or the edge it has not passed there."""
    edge = 1e-12
    below, above = low + edge, high - edge
    at_low, at_high = function(below), function(above)
    if at_low <= 0:
        return low
    if at_high >= 0:
        return high
    while above - below > _CLOSE:
        middle = (below + above) / 2
        below, above = (middle, above) if function(middle) > 0 else (below, middle)
    return (below + above) / 2


def newcombe(table: Discordance, *, level: float = LEVEL) -> Interval | Unknown:
    """Newcombe's square-and-add interval of the difference, from Wilson's of both rates."""
    if table.n == 0:
        return Unknown(NO_PAIR)
    n = table.n
    first, second = table.both + table.first_only, table.both + table.second_only
    low1, high1 = wilson_limits(first, n, level=level)
    low2, high2 = wilson_limits(second, n, level=level)
    phi = _correlation(table)
    p1, p2 = first / n, second / n
    down = _square_and_add(p1 - low1, high2 - p2, phi)
    up = _square_and_add(high1 - p1, p2 - low2, phi)
    return Interval(p1 - p2 - down, p1 - p2 + up)


def _square_and_add(left: float, right: float, phi: float) -> float:
    return math.sqrt(max(0.0, left**2 - 2 * phi * left * right + right**2))


def _correlation(table: Discordance) -> float:
    """The correlation of the two outcomes, corrected for continuity as Newcombe does where it is positive."""
    a, b, c, d = table
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    if margins == 0:
        return 0.0
    product = a * d - b * c
    if product > 0:
        return max(product - table.n / 2, 0) / math.sqrt(margins)
    return product / math.sqrt(margins)


def chance_first_is_better(table: Discordance) -> float | Unknown:
    """P(the first's true rate is higher) under a flat Dirichlet prior over the four outcomes."""
    if table.n == 0:
        return Unknown(NO_PAIR)
    return quantiles.beta_above(0.5, table.first_only + 1, table.second_only + 1)


class MeanDifference(NamedTuple):
    """Several attempts a task: the mean of the tasks' differences, with Student's t over tasks.

    `correlation` is that of the two arms' task means; NaN never: an `Unknown` where one of them is constant.
    """

    difference: float
    error: float
    interval: Interval
    p: float
    statistic: float
    n: int
    unpaired_error: float
    correlation: float | Unknown


def mean_difference(
    first: Sequence[float], second: Sequence[float], *, level: float = LEVEL
) -> MeanDifference | Unknown:
    """The paired difference of task means (shares, so its interval is within -1 and 1), in the same order.

    Raises:
        ValueError: another number of tasks in the two.
    """
    differences = _differences(first, second)
    n = len(differences)
    if n < 2:
        return Unknown(NO_PAIR if n == 0 else "one task says nothing about others")
    error = standard_error(differences)
    if is_rounding(error):
        why = NEVER_DIFFER if differences[0] == 0 else "they differ by the same on every task"
        return Unknown(why)
    mean = math.fsum(differences) / n
    unpaired = math.hypot(standard_error(first), standard_error(second))
    return MeanDifference(
        mean,
        error,
        _of_rates(*student_interval(mean, error, n, level=level)),
        quantiles.student_p(mean / error, n - 1),
        mean / error,
        n,
        unpaired,
        _pearson(first, second),
    )


_DIGITS = 12


def _differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Task by task, equal ones equal: 1 - 2/3 and 2/3 - 1/3 are not, to the last digit."""
    return [round(a - b, _DIGITS) for a, b in zip(first, second, strict=True)]


def _of_rates(low: float, high: float) -> Interval:
    """Two rates are at most 1 apart whatever a symmetric interval says."""
    return Interval(max(-1.0, low), min(1.0, high))


def _pearson(first: Sequence[float], second: Sequence[float]) -> float | Unknown:
    if len(set(first)) < 2 or len(set(second)) < 2:
        return Unknown("one of them came out the same on every task")
    return statistics.correlation(first, second)


class ClusteredDifference(NamedTuple):
    """The same difference with a standard error over repositories: a sensitivity line."""

    error: float
    interval: Interval
    p: float
    clusters: int


def clustered_difference(
    first: Sequence[float], second: Sequence[float], clusters: Sequence[Hashable], *, level: float = LEVEL
) -> ClusteredDifference | Unknown:
    """Raises: ValueError for other numbers of tasks."""
    differences = _differences(first, second)
    found = clustered_error(differences, clusters)
    if isinstance(found, Unknown):
        return found
    if is_rounding(found.error):
        return Unknown("the repositories' differences are all the same")
    mean = math.fsum(differences) / len(differences)
    p = quantiles.student_p(mean / found.error, found.clusters - 1)
    low, high = student_interval(mean, found.error, found.clusters, level=level)
    return ClusteredDifference(found.error, _of_rates(low, high), p, found.clusters)


_MOST_EXACT = 20
_RESAMPLES = 9_999
_SEED = 20260101


def permutation(first: Sequence[float], second: Sequence[float]) -> Tested | Unknown:
    """Signs of the differences flipped in every way (99,999 ways, with many tasks): no normality needed."""
    # A second to load, and only this needs it.
    from scipy import stats

    differences = _differences(first, second)
    if not differences:
        return Unknown(NO_PAIR)
    if not any(differences):
        return Unknown(NEVER_DIFFER)
    moved = [one for one in differences if one != 0]
    # As many as there are ways are all the ways.
    resamples = 2**_MOST_EXACT if len(moved) <= _MOST_EXACT else 99_999
    found = stats.permutation_test(
        (moved,), _mean_of, permutation_type="samples", n_resamples=resamples, rng=_SEED, vectorized=True
    )
    return Tested(float(found.pvalue), "sign-flip permutation")


def _mean_of(values: np.ndarray, axis: int = -1) -> np.ndarray:
    mean: np.ndarray = values.mean(axis=axis)
    return mean


def wilcoxon(first: Sequence[float], second: Sequence[float]) -> Tested | Unknown:
    """Wilcoxon's signed ranks: how large the differences are counts by its order alone."""
    # A second to load, and only this needs it.
    from scipy import stats

    differences = _differences(first, second)
    if not differences:
        return Unknown(NO_PAIR)
    if not any(differences):
        return Unknown(NEVER_DIFFER)
    found = stats.wilcoxon(differences)
    return Tested(float(found.pvalue), "Wilcoxon signed ranks", float(found.statistic))


class Resampled(NamedTuple):
    """The difference's interval and standard error from samples drawn again; digits move with the library."""

    interval: Interval
    error: float
    method: str


def bootstrap(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    *,
    level: float = LEVEL,
) -> Resampled | Unknown:
    """The difference with tasks drawn again (BCa), or whole repositories where `clusters` names them.

    Raises:
        ValueError: other numbers of tasks.
    """
    differences = _differences(first, second)
    if len(differences) < 2:
        return Unknown(NO_PAIR if not differences else "one task says nothing about others")
    if len(set(differences)) == 1:
        return Unknown(NEVER_DIFFER if differences[0] == 0 else "they differ by the same on every task")
    if clusters is None:
        ones = [1.0] * len(differences)
        return _drawn_again(differences, ones, "BCa", "bootstrap over tasks, BCa", level)
    sums: dict[Hashable, list[float]] = {}
    for difference, cluster in zip(differences, clusters, strict=True):
        sums.setdefault(cluster, []).append(difference)
    if len(sums) < 2:
        return Unknown("all tasks are of one repository")
    totals = [math.fsum(found) for found in sums.values()]
    sizes = [float(len(found)) for found in sums.values()]
    return _drawn_again(totals, sizes, "percentile", "bootstrap over repositories, percentile", level)


def _drawn_again(
    totals: Sequence[float],
    sizes: Sequence[float],
    kind: Literal["BCa", "percentile"],
    method: str,
    level: float,
) -> Resampled | Unknown:
    """The ratio of both sums, their pairs drawn again."""
    # A second to load, and only this needs it.
    import numpy as np
    from scipy import stats

    def ratio(total: np.ndarray, size: np.ndarray, axis: int = -1) -> np.ndarray:
        found: np.ndarray = total.sum(axis=axis) / size.sum(axis=axis)
        return found

    drawn = stats.bootstrap(
        (np.array(totals), np.array(sizes)),
        ratio,
        paired=True,
        n_resamples=_RESAMPLES,
        confidence_level=level,
        method=kind,
        rng=np.random.default_rng(_SEED),
    )
    low, high = float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)
    if not math.isfinite(low + high) or is_rounding(high - low):
        return Unknown("the resamples are all alike")
    return Resampled(Interval(low, high), float(drawn.standard_error), method)


Correction = Literal["holm", "benjamini-hochberg"]


def corrected(p_values: Sequence[float | Unknown], method: Correction = "holm") -> list[float | Unknown]:
    """p values of all pairs shown, for having been looked at together.

    Holm for claims, Benjamini and Hochberg for exploring. What has no p value is no test and counts as none.
    """
    known = [(p, place) for place, p in enumerate(p_values) if not isinstance(p, Unknown)]
    known.sort()
    count = len(known)
    found: list[float | Unknown] = list(p_values)
    if method == "holm":
        highest = 0.0
        for rank, (p, place) in enumerate(known):
            highest = max(highest, min(1.0, (count - rank) * p))
            found[place] = highest
    else:
        lowest = 1.0
        for rank, (p, place) in reversed(list(enumerate(known))):
            lowest = min(lowest, count / (rank + 1) * p)
            found[place] = lowest
    return found
