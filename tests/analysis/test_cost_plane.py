"""Cost against rate: the frontier with its uncertainty, differences of cost, and the budget curve."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from lab.analysis import cost_plane, costs, spending
from lab.analysis.costs import AtLeast
from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.observations import Observation
from tests.analysis.observed import run
from tests.analysis.test_rates import near

# Arms of the plane: cost and rate.
POINTS = {
    "A": (0.05, 30),
    "B": (0.20, 42),
    "C": (0.20, 38),
    "D": (0.60, 42),
    "E": (1.10, 61),
    "F": (0.30, 50),
}


def arm(name: str, cost: float, resolved: int, n: int = 100, *, basis: str = "price") -> list[Observation]:
    """One run a task, the first `resolved` of them resolved, all at one cost."""
    return [
        run(
            ord(name) * 1000 + task,
            arm=name,
            task=f"t{task:03}",
            cost=cost,
            cost_basis=basis,
            verdict="resolved" if task < resolved else "unresolved",
        )
        for task in range(n)
    ]


def all_points() -> list[Observation]:
    return [one for name, (cost, resolved) in POINTS.items() for one in arm(name, cost, resolved)]


def test_the_line_joins_those_that_nobody_beats() -> None:
    places = spending.plane(list(POINTS), all_points())
    assert [place.arm for place in places] == list(POINTS)
    assert [place.arm for place in places if place.on_line] == ["A", "B", "E", "F"]
    for place in places:
        assert isinstance(place.rate, Estimate)
        assert isinstance(place.rate.interval, Interval)


def test_how_often_an_arm_is_unbeaten_when_tasks_are_drawn_again() -> None:
    places = {place.arm: place.possibly for place in spending.plane(list(POINTS), all_points())}
    # Costs do not vary here and the cheapest stays so; D resolves what B does and is always dearer.
    assert (places["A"], places["D"]) == (1.0, 0.0)
    # C equals B only where no task is drawn of the four that B alone resolves: (1 - 0.04)^100 = 0.017.
    assert places["C"] == pytest.approx(0.017, abs=0.015)
    assert places == {place.arm: place.possibly for place in spending.plane(list(POINTS), all_points())}


def test_two_arms_that_chance_may_have_ordered_are_both_possible() -> None:
    chance = random.Random(1)
    runs = [
        run(
            number,
            arm=name,
            task=f"t{number % 40:03}",
            cost=chance.uniform(0.1, 0.5),
            verdict=chance.choice(["resolved", "unresolved"]),
        )
        for name, first in (("a", 0), ("b", 1000))
        for number in range(first, first + 40)
    ]
    shares = [place.possibly for place in spending.plane(["a", "b"], runs)]
    assert all(not isinstance(share, Unknown) and share >= cost_plane.POSSIBLE for share in shares)
    assert sum(share for share in shares if not isinstance(share, Unknown)) >= 1


def test_only_arms_of_one_basis_are_held_against_each_other() -> None:
    runs = arm("A", 0.1, 60) + arm("B", 0.2, 30, basis="reference") + arm("C", 0.3, 50)
    unpriced = [one._replace(cost=None, cost_unknown=4, cost_basis="unknown") for one in arm("D", 0, 70)]
    places = spending.plane(["A", "B", "C", "D"], runs + unpriced)
    assert [(place.basis, place.on_line) for place in places] == [
        *(("price", True), ("reference", True), ("price", False), ("", False))
    ]
    assert "no other arm" in str(places[1].possibly)
    assert str(places[3].cost) == str(places[3].possibly) == "not estimable, because no run has a known cost"
    assert isinstance(places[3].rate, Estimate)


def test_an_arm_that_resolves_nothing_lies_at_rate_0_with_a_lower_bound() -> None:
    (place,) = spending.plane(["A"], arm("A", 0.35, 0, 20))
    assert isinstance(place.rate, Estimate)
    assert place.rate.value == 0
    assert place.lower_bound == AtLeast(near(2.516025), near(0.139108), 20)  # type: ignore[arg-type]


def test_the_difference_of_costs_per_resolved_issue() -> None:
    chance = random.Random(2)
    runs: list[Observation] = []
    for task in range(200):
        for name, rate in (("a", 0.4), ("b", 0.6)):
            verdict = "resolved" if chance.random() < rate else "unresolved"
            cost = chance.uniform(0.2, 0.6)
            runs.append(run(len(runs) + 1, arm=name, task=f"t{task:03}", cost=cost, verdict=verdict))
    alone = [run(9001, arm="a", task="x", cost=100.0)]
    found = spending.cost_difference("a", "b", runs + alone)
    ratios = [
        sum(one.cost or 0 for one in mine) / sum(one.resolved for one in mine)
        for mine in ([one for one in runs if one.arm == name] for name in "ab")
    ]
    assert (found.tasks, found.difference) == (200, near(ratios[0] - ratios[1]))
    assert isinstance(found.interval, Interval)
    assert found.interval.high is not None
    assert 0 < found.interval.low < ratios[0] - ratios[1] < found.interval.high
    turned = spending.cost_difference("b", "a", runs)
    assert turned.interval == Interval(near(-found.interval.high), near(-found.interval.low))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        (arm("a", 0.1, 5, 9), "no task was tried by both at a known cost"),
        (arm("a", 0.1, 5, 9) + arm("b", 0.1, 0, 9), "resolves none of the tasks"),
        (arm("a", 0.1, 5, 9) + arm("b", 0.1, 5, 9, basis="table"), "several bases (price, table)"),
    ],
)
def test_a_difference_of_costs_that_cannot_be_had(runs: list[Observation], why: str) -> None:
    found = spending.cost_difference("a", "b", runs)
    assert why in str(found.difference)
    assert isinstance(found.interval, Unknown)


def steps(found: spending.Curve) -> Sequence[tuple[float, float]]:
    return [(step.dollars, step.share) for step in found.steps]


def test_how_many_are_resolved_within_a_budget() -> None:
    runs = [
        run(number, task=f"t{number}", cost=cost, verdict="resolved" if solved else "unresolved")
        for number, (cost, solved) in enumerate([(0.1, 1), (0.3, 1), (0.3, 1), (0.2, 0)], start=1)
    ]
    found = spending.curve("1.1.aa", runs)
    assert steps(found) == [(0.1, 0.25), (0.3, 0.75)]
    assert (found.tasks, found.runs, found.left_out) == (4, 4, 0)
    assert isinstance(found.steps[0].interval, Interval)


def test_several_runs_of_a_task_share_its_weight_on_the_curve() -> None:
    runs = [run(1, cost=0.1), run(2, cost=0.4, seed=2), run(3, task="t2", cost=0.2)]
    found = spending.curve("1.1.aa", runs)
    assert steps(found) == [(0.1, near(0.25)), (0.2, near(0.75)), (0.4, near(1.0))]
    assert isinstance(found.steps[0].interval, Interval)
    assert found.steps[2].interval == (near(0.342380), 1.0)


def test_a_curve_that_reaches_every_task_has_an_interval_there() -> None:
    runs = [
        run(2 * task + seed, task=f"t{task}", seed=seed, cost=0.5) for task in range(20) for seed in (1, 2)
    ]
    assert spending.curve("1.1.aa", runs).steps[-1].interval == (near(0.838875), 1.0)


def test_a_curve_without_known_costs_says_why() -> None:
    found = spending.curve("1.1.aa", [run(1, cost=None, cost_unknown=4, cost_basis="unknown")])
    assert (found.steps, found.left_out, found.why) == ([], 1, "no run has a known cost")
    assert spending.curves(["1.1.aa"], [])[0].why == "no run has a known cost"
    assert costs.frontier([]) == []


def test_the_plane_shows_the_rate_of_the_runs_whose_cost_it_shows() -> None:
    unpriced = [one._replace(cost=None) for one in arm("A", 1.0, 18, 18)]
    failed = [one._replace(run=one.run + 500, task=f"u{one.task}") for one in arm("A", 1.0, 0, 2)]
    others = [
        one._replace(task="u" * (number < 2) + one.task) for number, one in enumerate(arm("B", 2.0, 9, 20))
    ]
    first, second = spending.plane(["A", "B"], [*unpriced, *failed, *others])
    assert isinstance(first.rate, Estimate)
    assert (first.rate.value, first.rate.n) == (0.0, 2)
    assert (first.on_line, second.on_line) == (True, True)
    assert not first.same_tasks


def test_arms_that_share_no_task_are_not_ranked() -> None:
    hard = [one._replace(task=f"hard {one.task}") for one in arm("B", 0.5, 4, 20)]
    places = spending.plane(["A", "B"], [*arm("A", 0.1, 16, 20), *hard])
    for place in places:
        assert not place.on_line
        assert place.possibly == Unknown(cost_plane.NO_SHARED_TASK)
    same = spending.plane(["A", "B"], [*arm("A", 0.1, 16, 20), *arm("B", 0.5, 4, 20)])
    assert [place.on_line for place in same] == [True, False]
    assert all(place.same_tasks for place in same)
