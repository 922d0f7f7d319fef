"""Resolve rates: one attempt a task or several, with intervals, pass@k and where the variance comes from.

A rate is the mean over tasks of the mean over attempts (avg@k). Tasks are the sample; attempts of one task
are no new tasks.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from lab.analysis import quantiles
from lab.analysis.estimates import Estimate, Interval, Unknown, is_rounding

LEVEL = 0.95
NO_TASK = "there is no task"
ONE_TASK = "one task says nothing about others"
ALL_ALIKE = "all tasks came out the same, and an interval of no width would say too much"
STUDENT = "t over tasks"
AT_THE_EDGE = "Wilson, each task counting once"


def wilson(successes: int, n: int, *, level: float = LEVEL) -> Interval | Unknown:
    """Wilson's score interval of one rate with one attempt a task.

    Raises:
        ValueError: more successes than tries, or a negative number.
    """
    _check(successes, n)
    return Unknown(NO_TASK) if n == 0 else Interval(*wilson_limits(successes, n, level=level))


def wilson_limits(successes: int, n: int, *, level: float = LEVEL) -> tuple[float, float]:
    """The two limits of `wilson`, of at least one task."""
    z = quantiles.normal((1 + level) / 2)
    share = successes / n
    middle = share + z * z / (2 * n)
    reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = ((middle + side) / (1 + z * z / n) for side in (-reach, reach))
    # Exact at the edges, where rounding would leave them.
    return (0.0 if successes == 0 else low), (1.0 if successes == n else high)


def clopper_pearson(successes: int, n: int, *, level: float = LEVEL) -> Interval | Unknown:
    """The exact interval: never too narrow, often too wide.

    Raises:
        ValueError: as `wilson`.
    """
    _check(successes, n)
    if n == 0:
        return Unknown(NO_TASK)
    rest = (1 - level) / 2
    low = quantiles.beta(rest, successes, n - successes + 1) if successes else 0.0
    high = quantiles.beta(1 - rest, successes + 1, n - successes) if successes < n else 1.0
    return Interval(low, high)


def credible(successes: int, n: int, *, level: float = LEVEL) -> Interval:
    """The equal-tailed interval of Beta(1 + k, 1 + n - k): a flat prior, so it exists for n = 0 too.

    Raises:
        ValueError: as `wilson`.
    """
    _check(successes, n)
    rest = (1 - level) / 2
    first, second = 1 + successes, 1 + n - successes
    return Interval(quantiles.beta(rest, first, second), quantiles.beta(1 - rest, first, second))


def _check(successes: int, n: int) -> None:
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n} is no count of successes")


def pass_at_k(n: int, successes: int, k: int) -> float | Unknown:
    """The chance that at least one of `k` attempts succeeds, from `n` attempts with `successes`."""
    if k > n:
        return Unknown(f"it needs {k} attempts a task and there are {n}")
    return 1 - math.comb(n - successes, k) / math.comb(n, k)


def pass_hat_k(n: int, successes: int, k: int) -> float | Unknown:
    """The chance that all of `k` attempts succeed (pass^k)."""
    if k > n:
        return Unknown(f"it needs {k} attempts a task and there are {n}")
    return math.comb(successes, k) / math.comb(n, k)


class TaskResult(NamedTuple):
    """How often a task was resolved in how many attempts. `cluster`: its repository."""

    successes: int
    attempts: int
    cluster: Hashable = None

    @property
    def mean(self) -> float:
        return self.successes / self.attempts


def average(results: Sequence[TaskResult]) -> Estimate | Unknown:
    """avg@k with the interval that the number of attempts calls for.

    One attempt a task: Wilson. Several: the mean of the tasks' means with Student's t over tasks; where
    nothing or everything is resolved, Wilson as if each task were one attempt. Tasks without an attempt are
    no part of it.
    """
    tried = [one for one in results if one.attempts]
    if not tried:
        return Unknown(NO_TASK)
    value = math.fsum(one.mean for one in tried) / len(tried)
    if all(one.attempts == 1 for one in tried):
        interval = wilson(sum(one.successes for one in tried), len(tried))
        return Estimate(value, interval, len(tried), "Wilson")
    return mean_over_tasks([one.mean for one in tried])


def mean_over_tasks(values: Sequence[float]) -> Estimate:
    """The mean of shares, one a task, with Student's t over tasks; at 0 or 1 as `at_the_edge`.

    Raises:
        ZeroDivisionError: there is no task.
    """
    n = len(values)
    value = math.fsum(values) / n
    if n < 2:
        return Estimate(value, Unknown(ONE_TASK), n, STUDENT)
    error = standard_error(values)
    if is_rounding(error):
        edge = at_the_edge(value, n)
        if isinstance(edge, Interval):
            return Estimate(value, edge, n, AT_THE_EDGE)
        return Estimate(value, edge, n, STUDENT, error)
    low, high = student_interval(value, error, n)
    # A rate lies between 0 and 1 whatever a symmetric interval says.
    return Estimate(value, Interval(max(0.0, low), min(1.0, high)), n, STUDENT, error)


def at_the_edge(value: float, n: int) -> Interval | Unknown:
    """The interval of a share that is 0 or 1 in all of `n` tasks: Wilson as if each task were one attempt.

    That is right were attempts of a task always alike, and too wide otherwise. Between 0 and 1 tasks that
    are all the same have none.
    """
    if not is_rounding(min(value, 1 - value)):
        return Unknown(ALL_ALIKE)
    return Interval(*wilson_limits(round(value) * n, n))


def student_interval(value: float, error: float, n: int, *, level: float = LEVEL) -> tuple[float, float]:
    """Student's t around the mean of `n` values, two at least."""
    reach = quantiles.student((1 + level) / 2, n - 1) * error
    return value - reach, value + reach


def standard_error(values: Sequence[float]) -> float:
    """s / sqrt(n), of at least two values.

    Raises:
        ValueError: fewer than two.
    """
    n = len(values)
    if n < 2:
        raise ValueError("a standard error needs two values")
    mean = math.fsum(values) / n
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)


class ClusteredError(NamedTuple):
    """A standard error that allows for what tasks of a cluster share, of `clusters` clusters.

    `uncorrected` is Miller's formula, `error` that times sqrt(G / (G - 1)).
    """

    error: float
    uncorrected: float
    clusters: int

    def interval(self, value: float, *, level: float = LEVEL) -> Interval:
        """Student's t with one degree less than there are clusters."""
        reach = quantiles.student((1 + level) / 2, self.clusters - 1) * self.error
        return Interval(value - reach, value + reach)


def clustered_error(values: Sequence[float], clusters: Sequence[Hashable]) -> ClusteredError | Unknown:
    """A sensitivity line: with few clusters it is itself a poor estimate, so show their number.

    Raises:
        ValueError: another number of clusters than of values.
    """
    if len(values) != len(clusters):
        raise ValueError("each value has one cluster")
    groups = len(set(clusters))
    if groups < 2:
        return Unknown("all tasks are of one repository" if values else NO_TASK)
    mean = math.fsum(values) / len(values)
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    plain = math.sqrt(math.fsum(one**2 for one in sums.values())) / len(values)
    return ClusteredError(plain * math.sqrt(groups / (groups - 1)), plain, groups)


class Variance(NamedTuple):
    """Where a rate's variance comes from: mean squares, variances, the intraclass correlation.

    `attempts` is how many a task has: where they differ, the number that the analysis of variance reckons
    with, a little below their mean.
    """

    between_square: float
    within_square: float
    between: float
    within: float
    correlation: float
    tasks: int
    attempts: float

    def error(self, attempts: int) -> float:
        """The rate's standard error if each task had so many attempts."""
        return math.sqrt((self.between + self.within / attempts) / self.tasks)


def variance(results: Sequence[TaskResult]) -> Variance | Unknown:
    """A one-way analysis of variance of attempts in tasks; a negative part between tasks counts as 0.

    Tasks may have different numbers of attempts.
    """
    tried = [one for one in results if one.attempts]
    n, runs = len(tried), sum(one.attempts for one in tried)
    if n < 2:
        return Unknown(ONE_TASK if tried else NO_TASK)
    if runs == n:
        return Unknown("one attempt a task does not show how attempts differ")
    k = (runs - sum(one.attempts**2 for one in tried) / runs) / (n - 1)
    grand = sum(one.successes for one in tried) / runs
    between_square = math.fsum(one.attempts * (one.mean - grand) ** 2 for one in tried) / (n - 1)
    # Of m attempts with s successes the squares around their mean sum to s * (m - s) / m.
    within_square = math.fsum(one.successes * (1 - one.mean) for one in tried) / (runs - n)
    between = max(0.0, (between_square - within_square) / k)
    whole = between_square + (k - 1) * within_square
    if whole == 0:
        return Unknown("all attempts came out the same")
    correlation = (between_square - within_square) / whole
    return Variance(between_square, within_square, between, within_square, correlation, n, k)


def envelope(results: Sequence[TaskResult], k: int) -> tuple[float, float] | Unknown:
    """pass@k and pass^k as means over tasks: the rate's upper and lower edge for k attempts."""
    tried = [one for one in results if one.attempts]
    short = [one for one in tried if one.attempts < k]
    if not tried:
        return Unknown(NO_TASK)
    if short:
        return Unknown(f"{len(short)} of {len(tried)} tasks have fewer than {k} attempts")
    some = [pass_at_k(one.attempts, one.successes, k) for one in tried]
    every = [pass_hat_k(one.attempts, one.successes, k) for one in tried]
    return _average_of(some), _average_of(every)


def known(values: Sequence[float | Unknown]) -> list[float]:
    """The numbers among them."""
    return [value for value in values if not isinstance(value, Unknown)]


def _average_of(values: Sequence[float | Unknown]) -> float:
    numbers = known(values)
    return math.fsum(numbers) / len(numbers)
