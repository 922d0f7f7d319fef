"""Cost per resolved task, to six digits of figures that were worked out apart, and its edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.analysis import costs
from lab.analysis.costs import AtLeast, Pair, Point, Ratio
from lab.analysis.estimates import Interval, Unknown
from tests.analysis.test_rates import near

DOLLARS = (0.31, 0.12, 0.45, 0.22, 0.90, 0.27, 0.61, 0.18, 0.75, 0.33, 0.29, 0.54)
R1 = [
    Pair(cost, solved, place // 3)
    for place, (cost, solved) in enumerate(zip(DOLLARS, (1, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 0), strict=True))
]
R2 = [Pair(cost, float(place in (0, 5)), place // 3) for place, cost in enumerate(DOLLARS)]


def ratio(pairs: list[Pair]) -> Ratio:
    found = costs.cost_per_resolved(pairs)
    assert isinstance(found, Ratio)
    return found


def test_the_ratio_and_its_errors() -> None:
    found = ratio(R1)
    assert (found.spend, found.resolved, found.value) == (near(4.97), 7, near(0.71))
    assert found.error == near(0.272192)
    # Divided by n rather than n - 1, as instrumental variables without a correction have it.
    assert found.error * (11 / 12) ** 0.5 == near(0.260604)
    assert found.clustered == near(0.101960)
    assert found.interval == Interval(near(0.334915), near(1.505159))  # type: ignore[arg-type]
    assert found.fieller == Interval(near(0.313025), near(2.029035))  # type: ignore[arg-type]
    assert costs.fieller_g(R1) == near(0.314567)
    assert not found.shows_error


def test_the_bootstrap_of_the_ratio() -> None:
    found = costs.bootstrap_ratio(R1)
    assert isinstance(found, Interval)
    assert found.low == pytest.approx(0.377, abs=0.015)
    assert found.high == pytest.approx(1.743889, abs=0.15)


def test_few_resolved_have_no_upper_limit() -> None:
    assert costs.fieller_g(R2) == near(2.201971)
    found = ratio(R2).fieller
    assert found.high is None
    assert 0 < found.low < ratio(R2).value


@pytest.mark.parametrize(("n", "rate", "dollars"), [(20, 0.139108, 2.516025), (50, 0.058155, 6.018391)])
def test_nothing_resolved_gives_a_lower_bound(n: int, rate: float, dollars: float) -> None:
    found = costs.cost_per_resolved([Pair(0.35, 0)] * n)
    assert found == AtLeast(near(dollars), near(rate), n)  # type: ignore[arg-type]


def test_what_cannot_be_estimated_says_why() -> None:
    assert costs.cost_per_resolved([]) == Unknown("there is no task")
    assert isinstance(costs.cost_per_resolved([Pair(1, 1)]), Unknown)
    assert isinstance(costs.bootstrap_ratio([Pair(1, 0), Pair(1, 0)]), Unknown)
    assert costs.bootstrap_ratio([Pair(0.5, 1)] * 5) == Unknown("the resamples are all alike")
    one_place = ratio([Pair(1, 1, "a"), Pair(2, 0, "a"), Pair(1, 1, "a")])
    assert isinstance(one_place.clustered, Unknown)
    with pytest.raises(ValueError, match="two tasks"):
        costs.fieller([Pair(1, 1)])


def test_all_resolved_at_one_price_is_that_price() -> None:
    found = ratio([Pair(0.5, 1, place) for place in range(12)])
    assert (found.value, found.error) == (0.5, 0.0)
    assert found.interval == Interval(0.5, 0.5)
    assert found.fieller.high == near(0.5)
    assert found.shows_error


def test_the_frontier_of_cost_and_rate() -> None:
    points = [
        Point("A", 0.05, 0.30),
        Point("B", 0.20, 0.42),
        Point("C", 0.20, 0.38),
        Point("D", 0.60, 0.42),
        Point("E", 1.10, 0.61),
        Point("F", 0.30, 0.50),
    ]
    assert [one.name for one in costs.frontier(points)] == ["A", "B", "F", "E"]
    assert costs.frontier([]) == []


@pytest.mark.parametrize(
    ("dollars", "resolved"),
    [((0, 0, 1), (1, 1, 2)), ((1, 0.1), (1, 1)), ((0.05, 2, 0.1, 0.1), (1, 1, 1, 1))],
)
def test_fiellers_limits_lie_around_the_ratio_and_not_below_nothing(
    dollars: tuple[float, ...], resolved: tuple[int, ...]
) -> None:
    pairs = [Pair(*pair, place) for place, pair in enumerate(zip(dollars, resolved, strict=True))]
    _holds_the_ratio(pairs)


def _holds_the_ratio(pairs: list[Pair]) -> None:
    found = costs.cost_per_resolved(pairs)
    if isinstance(found, Ratio):
        rounding = 1e-9 * found.value
        assert 0 <= found.fieller.low <= found.value + rounding
        assert found.fieller.high is None or found.fieller.high >= found.value - rounding


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), min_size=2, max_size=6))
def test_fiellers_limits_lie_around_any_ratio(tasks: list[tuple[int, int]]) -> None:
    _holds_the_ratio([Pair(cost / 10, resolved, place) for place, (cost, resolved) in enumerate(tasks)])


def test_few_tasks_have_no_symmetric_interval_however_many_runs_of_them_were_resolved() -> None:
    assert not ratio([Pair(1.0, 6), Pair(3.0, 5)]).shows_error
    assert not ratio([Pair(float(task), 2 * (task < 9)) for task in range(20)]).shows_error
    assert ratio([Pair(float(task), task < 10) for task in range(20)]).shows_error
