"""Rates, intervals and their edges, to six digits of figures that were worked out apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd  # type: ignore[import-untyped]
import pytest
from statsmodels.formula.api import ols  # type: ignore[import-untyped]
from statsmodels.regression.linear_model import OLS  # type: ignore[import-untyped]
from statsmodels.stats.anova import anova_lm  # type: ignore[import-untyped]

from lab.analysis import rates
from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.rates import TaskResult

A = (4, 4, 3, 2, 4, 3, 0, 1, 2, 0, 0, 0, 4, 4, 4, 1, 3, 0, 0, 1)
B = (4, 3, 2, 2, 4, 1, 0, 0, 2, 0, 0, 0, 4, 2, 3, 0, 1, 0, 0, 2)


def results(successes: Sequence[int]) -> list[TaskResult]:
    """Twenty tasks in five repositories of four, four attempts each."""
    return [TaskResult(found, 4, place // 4) for place, found in enumerate(successes)]


def near(value: float) -> object:
    return pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize(
    ("n", "successes", "k", "some", "every"),
    [
        (5, 2, 1, 0.4, 0.4),
        (5, 2, 3, 0.9, 0.0),
        (4, 1, 2, 0.5, 0.0),
        (4, 3, 2, 1.0, 0.5),
        (10, 3, 5, 0.916667, 0.0),
        (4, 0, 3, 0.0, 0.0),
    ],
)
def test_pass_at_k_and_pass_hat_k(n: int, successes: int, k: int, some: float, every: float) -> None:
    assert rates.pass_at_k(n, successes, k) == near(some)
    assert rates.pass_hat_k(n, successes, k) == near(every)


def test_more_attempts_than_there_were_are_not_estimated() -> None:
    assert str(rates.pass_at_k(2, 1, 5)) == (
        "not estimable, because it needs 5 attempts a task and there are 2"
    )
    assert isinstance(rates.pass_hat_k(2, 1, 5), Unknown)
    assert isinstance(rates.envelope([TaskResult(1, 2), TaskResult(1, 4)], 4), Unknown)


@pytest.mark.parametrize(
    ("successes", "average", "two", "four", "all_four"),
    [(A, 0.5, 0.608333, 0.7, 0.3), (B, 0.375, 0.508333, 0.6, 0.15)],
)
def test_the_average_and_its_envelope(
    successes: Sequence[int], average: float, two: float, four: float, all_four: float
) -> None:
    found = rates.average(results(successes))
    assert isinstance(found, Estimate)
    assert (found.value, found.n, found.method) == (average, 20, "t over tasks")
    assert rates.envelope(results(successes), 4) == (near(four), near(all_four))
    at_two = rates.envelope(results(successes), 2)
    assert not isinstance(at_two, Unknown)
    assert at_two[0] == near(two)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (59, 150, 0.318760, 0.473234),
        (0, 20, 0.0, 0.161125),
        (20, 20, 0.838875, 1.0),
        (227, 500, 0.410876, 0.497826),
        (371, 500, 0.701906, 0.778404),
    ],
)
def test_wilson(successes: int, n: int, low: float, high: float) -> None:
    assert rates.wilson(successes, n) == Interval(near(low), near(high))  # type: ignore[arg-type]


def test_other_intervals_of_one_rate() -> None:
    assert rates.clopper_pearson(59, 150) == Interval(near(0.314653), near(0.476315))  # type: ignore[arg-type]
    upper = rates.clopper_pearson(0, 20)
    assert not isinstance(upper, Unknown)
    assert upper.high == near(0.168433)
    assert rates.credible(59, 150) == Interval(near(0.318715), near(0.473383))  # type: ignore[arg-type]
    assert rates.credible(0, 20) == Interval(near(0.001205), near(0.161098))  # type: ignore[arg-type]


def test_no_task_is_no_rate() -> None:
    assert rates.wilson(0, 0) == Unknown(rates.NO_TASK)
    assert rates.clopper_pearson(0, 0) == Unknown(rates.NO_TASK)
    assert rates.average([]) == Unknown(rates.NO_TASK)
    assert rates.average([TaskResult(0, 0)]) == Unknown(rates.NO_TASK)
    with pytest.raises(ValueError, match="3 of 2"):
        rates.wilson(3, 2)


@pytest.mark.parametrize(
    ("successes", "plain", "miller", "clustered"),
    [(A, 0.094242, 0.126244, 0.141145), (B, 0.084097, 0.096825, 0.108253)],
)
def test_standard_errors(successes: Sequence[int], plain: float, miller: float, clustered: float) -> None:
    means = [one.mean for one in results(successes)]
    clusters = [one.cluster for one in results(successes)]
    assert rates.standard_error(means) == near(plain)
    found = rates.clustered_error(means, clusters)
    assert not isinstance(found, Unknown)
    assert (found.uncorrected, found.error, found.clusters) == (near(miller), near(clustered), 5)
    fitted = OLS(means, [1.0] * 20).fit(
        cov_type="cluster", cov_kwds={"groups": clusters, "use_correction": False}
    )
    assert found.uncorrected == near(float(fitted.bse[0]))


def test_one_repository_gives_no_clustered_error() -> None:
    found = rates.clustered_error([0.0, 1.0], ["a", "a"])
    assert str(found) == "not estimable, because all tasks are of one repository"


def test_where_the_variance_comes_from() -> None:
    found = rates.variance(results(A))
    assert not isinstance(found, Unknown)
    assert (found.between_square, found.within_square) == (near(0.710526), near(0.108333))
    assert (found.between, found.correlation) == (near(0.150548), near(0.581533))
    errors = [found.error(k) for k in (1, 2, 4, 8)]
    assert errors == [near(0.113772), near(0.101172), near(0.094242), near(0.090579)]


def test_the_variance_of_tasks_with_different_numbers_of_attempts() -> None:
    tasks = [TaskResult(3, 4), TaskResult(0, 3), TaskResult(2, 2), TaskResult(1, 4), TaskResult(1, 1)]
    outcomes = [
        (float(place < one.successes), task)
        for task, one in enumerate(tasks)
        for place in range(one.attempts)
    ]
    fitted = ols("y ~ C(task)", pd.DataFrame(outcomes, columns=["y", "task"])).fit()
    squares = anova_lm(fitted)["mean_sq"]
    found = rates.variance(tasks)
    assert not isinstance(found, Unknown)
    assert (found.between_square, found.within_square) == (near(squares.iloc[0]), near(squares.iloc[1]))
    assert found.attempts == near((14 - 46 / 14) / 4)
    assert found.between == near((found.between_square - found.within_square) / found.attempts)


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        ([], "no task"),
        ([TaskResult(1, 4)], "one task"),
        ([TaskResult(1, 1), TaskResult(0, 1)], "one attempt"),
        ([TaskResult(4, 4), TaskResult(4, 4)], "came out the same"),
    ],
)
def test_a_variance_that_cannot_be_estimated_says_why(tasks: list[TaskResult], says: str) -> None:
    found = rates.variance(tasks)
    assert isinstance(found, Unknown)
    assert says in found.why


def test_one_task_and_tasks_that_are_all_alike_have_no_interval() -> None:
    one = rates.average([TaskResult(2, 4)])
    assert isinstance(one, Estimate)
    assert one.interval == Unknown(rates.ONE_TASK)
    alike = rates.average([TaskResult(2, 4), TaskResult(2, 4)])
    assert isinstance(alike, Estimate)
    assert (alike.value, alike.error) == (0.5, 0.0)
    assert isinstance(alike.interval, Unknown)


def test_an_interval_of_a_rate_stays_between_nothing_and_all() -> None:
    found = rates.average([TaskResult(4, 4), TaskResult(4, 4), TaskResult(3, 4)])
    assert isinstance(found, Estimate)
    assert isinstance(found.interval, Interval)
    assert found.interval.high == 1.0
    assert math.isfinite(found.interval.low)


@pytest.mark.parametrize("share", [1 / 3, 0.1, 0.7, 5 / 6])
def test_tasks_that_are_all_alike_have_no_interval_by_rounding(share: float) -> None:
    for n in range(2, 60):
        found = rates.mean_over_tasks([share] * n)
        assert found.interval == Unknown(rates.ALL_ALIKE)
