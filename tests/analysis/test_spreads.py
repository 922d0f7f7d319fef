"""Quartiles and intervals of a median: by hand, by the binomial distribution, and with tasks as clusters."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.analysis import quantiles, rates, spreads
from lab.analysis.estimates import Interval, Unknown
from lab.analysis.rates import ONE_TASK
from lab.analysis.shares import Groups
from lab.analysis.spreads import Quartiles, Spread, spread


def each_its_own(values: list[float | None]) -> Spread:
    return spread("it", values, Groups(list(range(len(values)))))


@pytest.mark.parametrize(("n", "low", "high"), [(6, 1, 6), (10, 2, 9), (20, 6, 15), (100, 40, 61)])
def test_the_median_lies_between_two_of_the_sorted_values(n: int, low: int, high: int) -> None:
    # The ranks of published tables of the sign test's interval.
    found = each_its_own([float(value) for value in range(n, 0, -1)])
    assert (found.interval, found.method) == (Interval(low, high), spreads.ORDER)


@pytest.mark.parametrize("n", [6, 7, 25, 250, 1500])
def test_the_interval_is_the_shortest_that_holds_in_95_of_100(n: int) -> None:
    found = each_its_own([float(value) for value in range(1, n + 1)]).interval
    assert isinstance(found, Interval)
    rank = int(found.low)

    def missed(rank: int) -> float:
        return 2 * sum(math.comb(n, below) for below in range(rank)) / 2**n

    assert missed(rank) <= 0.05 < missed(rank + 1)


def test_five_runs_do_not_bound_their_median() -> None:
    found = each_its_own([1, 2, 3, 4, 5])
    assert found.quartiles == Quartiles(1, 2, 3, 4, 5)
    assert found.interval == Unknown(spreads.TOO_FEW)


def test_unknown_values_are_counted_and_no_part_of_it() -> None:
    found = each_its_own([None, 4, None, 2])
    assert (found.n, found.tasks, found.unknown) == (2, 2, 2)
    assert found.quartiles == Quartiles(2, 2.5, 3, 3.5, 4)
    nothing = each_its_own([None])
    assert (nothing.quartiles, nothing.unknown) == (Unknown(spreads.NO_VALUE), 1)
    assert each_its_own([]).n == 0


@given(st.lists(st.integers(0, 50), min_size=2, max_size=40))
def test_quartiles_are_those_of_the_standard_library(values: list[int]) -> None:
    found = each_its_own(list(values)).quartiles
    assert isinstance(found, Quartiles)
    assert found[1:4] == pytest.approx(statistics.quantiles(values, n=4, method="inclusive"))
    assert (found.minimum, found.maximum) == (min(values), max(values))


def test_runs_of_a_task_that_are_all_alike_say_no_more_than_one_of_them() -> None:
    tasks = [task for task in range(30) for _ in range(4)]
    found = spread("it", [float(task) for task in tasks], Groups(tasks))
    assert (found.n, found.tasks, found.method) == (120, 30, spreads.ORDER_BY_TASK)
    assert isinstance(found.interval, Interval)
    alone = each_its_own([float(task) for task in range(30)]).interval
    as_if_independent = each_its_own([float(task) for task in tasks]).interval
    assert isinstance(alone, Interval)
    assert isinstance(as_if_independent, Interval)
    assert found.interval.low <= alone.low < as_if_independent.low
    assert found.interval.high is not None
    assert alone.high is not None
    assert found.interval.high >= alone.high


def test_with_several_runs_a_task_the_reach_is_the_clustered_error_of_the_share_below() -> None:
    tasks = [place // 3 for place in range(60)]
    values = [float((place * 7) % 60 + 5 * (place // 3)) for place in range(60)]
    found = spread("it", list(values), Groups(tasks))
    median = statistics.median(values)
    below = [1.0 if value < median else 0.5 if value == median else 0.0 for value in values]
    error = rates.clustered_error(below, tasks)
    assert not isinstance(error, Unknown)
    reach = quantiles.student(0.975, 19) * error.error
    assert reach > quantiles.normal(0.975) * 0.5 / math.sqrt(60)
    rank = math.floor(60 * (0.5 - reach))
    ordered = sorted(values)
    assert found.interval == Interval(ordered[rank - 1], ordered[60 - rank])


def test_tasks_that_vary_inside_alone_do_not_make_it_narrower_than_independent_runs() -> None:
    tasks = [place // 2 for place in range(100)]
    found = spread("it", [float(place % 2 * 100 + place) for place in range(100)], Groups(tasks))
    assert isinstance(found.interval, Interval)
    ordered = sorted(float(place % 2 * 100 + place) for place in range(100))
    assert found.interval == Interval(ordered[39], ordered[60])


def test_one_task_says_nothing_of_others() -> None:
    found = spread("it", [1.0, 2.0, 3.0], Groups(["a"] * 3))
    assert (found.interval, found.n, found.tasks) == (Unknown(ONE_TASK), 3, 1)
    assert found.quartiles == Quartiles(1, 1.5, 2, 2.5, 3)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=40))
def test_the_median_lies_in_its_interval(found: list[tuple[int, int]]) -> None:
    result = spread("it", [value for _, value in found], Groups([task for task, _ in found]))
    assert isinstance(result.quartiles, Quartiles)
    if isinstance(result.interval, Interval):
        assert result.interval.high is not None
        assert result.interval.low <= result.quartiles.median <= result.interval.high
