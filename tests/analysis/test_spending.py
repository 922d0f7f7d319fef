"""What arms cost: unknown is never 0, bases are never mixed, and every dollar is in one bucket."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.analysis import spending
from lab.analysis.costs import AtLeast, Ratio
from lab.analysis.counting import Switches
from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.observations import Observation
from lab.analysis.rates import ALL_ALIKE
from lab.analysis.run_costs import NOTHING_MOVES
from lab.analysis.spending import ArmSpend, Bucket
from tests.analysis.observed import observations, run, switches
from tests.analysis.test_costs import DOLLARS
from tests.analysis.test_rates import near

ARM = "1.1.aa"
R1 = (1, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 0)


def priced(resolved: tuple[int, ...] = R1, dollars: tuple[float, ...] = DOLLARS) -> list[Observation]:
    """One run a task, three tasks a repository."""
    return [
        run(
            number,
            task=f"t{number:02}",
            repository=f"r{(number - 1) // 3}",
            cost=cost,
            verdict="resolved" if solved else "unresolved",
        )
        for number, (cost, solved) in enumerate(zip(dollars, resolved, strict=True), start=1)
    ]


def bucket(found: ArmSpend, name: str) -> Bucket:
    return next(one for one in found.buckets if one.name == name)


def test_every_dollar_is_in_one_bucket() -> None:
    runs = [
        run(1, cost=1.0),
        run(2, cost=2.0, verdict="unresolved", cost_earlier=0.5),
        run(3, cost=4.0, verdict="", exit_reason="tool_error"),
        run(4, cost=8.0, verdict="", exit_reason="cancelled"),
        run(5, cost=16.0, verdict="", ended=False),
        run(6, cost=32.0, stepped_in=True, cost_earlier=1.0),
        run(7, cost=64.0, verdict="", exit_reason="max_turns"),
    ]
    found = spending.of_arm(ARM, runs)
    assert {one.name: (one.dollars, one.runs) for one in found.buckets} == {
        "resolved": (1.0, 1),
        "failed": (1.5, 1),
        "invalid": (4.0, 1),
        "not_graded": (64.0, 1),
        "cancelled": (8.0, 1),
        "open": (16.0, 1),
        "retried": (0.5, 1),
        "left_out": (32.0, 1),
        "judge": (0.0, 0),
    }
    assert found.whole == Bucket("whole", 127.0, 0, 7)


def test_a_first_attempt_is_no_retry() -> None:
    assert bucket(spending.of_arm(ARM, [run(1, cost_earlier=0.0)]), "retried").runs == 0


def test_what_is_unknown_makes_a_sum_at_least_and_is_never_nothing() -> None:
    runs = [
        run(1, cost=1.0, cost_unknown=2),
        run(2, cost=None, cost_unknown=4, cost_basis="unknown", verdict="unresolved"),
        run(3, cost=0.5, cost_unknown=3, cost_earlier=0.5, cost_earlier_unknown=1, verdict="unparsed"),
    ]
    found = spending.of_arm(ARM, runs)
    assert (bucket(found, "resolved").dollars, bucket(found, "resolved").at_least) == (1.0, True)
    assert bucket(found, "failed") == Bucket("failed", None, 4, 1)
    assert bucket(found, "invalid") == Bucket("invalid", None, 2, 1)
    assert bucket(found, "retried") == Bucket("retried", 0.5, 1, 1)
    assert found.whole == Bucket("whole", 1.5, 9, 3)
    assert found.coverage == (12, 12, 3)


def test_a_model_without_a_price_has_no_cost_and_is_in_no_average() -> None:
    unpriced = {"cost": None, "cost_unknown": 4, "cost_basis": "unknown"}
    local = spending.of_arm(ARM, [run(1, **unpriced), run(2, task="t2", verdict="unresolved", **unpriced)])
    assert (local.whole.dollars, local.whole.unknown) == (None, 8)
    for each in (local.by_attempt.cost, local.mean, local.mean_failed, local.failures_share):
        assert each == Unknown("no run has a known cost")
    assert local.dearest_failures == []
    known = priced()
    mixed = spending.of_arm(ARM, [*known, run(50, task="t50", **unpriced)])
    alone = spending.of_arm(ARM, known)
    assert (mixed.mean, mixed.by_attempt.cost) == (alone.mean, alone.by_attempt.cost)
    assert (mixed.by_attempt.left_out, mixed.by_attempt.runs, mixed.by_attempt.at_least) == (1, 12, False)
    assert mixed.whole.at_least


def test_a_run_that_asked_nothing_cost_nothing() -> None:
    runs = [*priced(), run(50, task="t50", requests=0, cost=None, cost_basis="unknown", verdict="unresolved")]
    found = spending.of_arm(ARM, runs)
    assert not found.whole.unknown
    assert found.by_attempt.runs == 13


def test_a_run_of_which_no_request_is_recorded_has_no_known_cost() -> None:
    bare = {"requests": 0, "cost": None, "cost_basis": "unknown", "unrecorded": True}
    alone = spending.of_arm(ARM, [run(1, **bare), run(2, task="t2", verdict="unresolved", **bare)])
    assert bucket(alone, "resolved") == Bucket("resolved", None, 0, 1, 1)
    assert alone.whole == Bucket("whole", None, 0, 2, 2)
    assert alone.by_attempt.cost == alone.mean == Unknown("no run has a known cost")
    beside = spending.of_arm(ARM, [*priced(), run(50, task="t50", **bare), run(51, stepped_in=True, **bare)])
    assert (beside.by_attempt.left_out, beside.by_attempt.runs) == (1, 12)
    assert beside.whole.at_least
    assert bucket(beside, "left_out") == Bucket("left_out", None, 0, 1, 1)
    billed = spending.of_arm(ARM, [run(1, **{**bare, "cost": 2.0, "cost_basis": "reported"})])
    assert billed.whole == Bucket("whole", 2.0, 0, 1)


def test_paid_runs_that_nobody_graded_have_a_mean_cost_and_no_cost_per_resolved_issue() -> None:
    runs = [run(number, task=f"t{number}", verdict="", cost=float(number)) for number in (1, 2, 3)]
    found = spending.of_arm(ARM, runs)
    assert isinstance(found.mean, Estimate)
    assert found.mean.value == 2.0
    ungraded = Unknown("none of its runs was graded")
    for each in (found.by_attempt.cost, found.by_issue.cost, found.failures_share, found.mean_failed):
        assert each == ungraded
    (place,) = spending.plane([ARM], runs)
    assert (place.cost, place.rate, place.on_line) == (found.mean, ungraded, False)
    assert spending.curve(ARM, runs).why == ungraded.why


def test_an_arm_that_nobody_graded_takes_no_other_off_the_line() -> None:
    ungraded = [run(80 + number, arm="2.1.aa", task=f"u{number}", verdict="") for number in range(3)]
    alone = spending.plane([ARM], priced())
    both = spending.plane([ARM, "2.1.aa"], [*priced(), *ungraded])
    assert both[0] == alone[0]
    assert not both[1].on_line


def test_bases_are_never_mixed_in_one_ratio() -> None:
    runs = priced()
    runs[0] = runs[0]._replace(cost_basis="reference")
    found = spending.of_arm(ARM, runs)
    assert found.bases == {"price": near(4.66), "reference": 0.31}
    why = "not estimable, because costs rest on several bases (price, reference), which no ratio mixes"
    for each in (found.by_attempt.cost, found.by_issue.cost, found.mean, found.failures_share):
        assert str(each) == why
    one_run = spending.of_arm(ARM, [run(1, cost_basis="mixed"), run(2, task="t2", cost_basis="mixed")])
    assert "several bases" in str(one_run.mean)


def test_the_ratio_of_few_resolved_has_fiellers_interval() -> None:
    found = spending.of_arm(ARM, priced()).by_attempt
    assert isinstance(found.cost, Ratio)
    assert (found.cost.value, found.cost.error) == (near(0.71), near(0.272192))
    assert found.cost.clustered == near(0.101960)
    assert (found.method, found.runs, found.tasks) == ("Fieller", 12, 12)
    assert found.interval == Interval(near(0.313025), near(2.029035))  # type: ignore[arg-type]
    two = tuple(int(place in (0, 5)) for place in range(12))
    unbounded = spending.of_arm(ARM, priced(two)).by_attempt.interval
    assert isinstance(unbounded, Interval)
    assert unbounded.high is None


def test_nothing_resolved_is_at_least_so_much() -> None:
    found = spending.of_arm(ARM, priced((0,) * 20, (0.35,) * 20))
    assert found.by_attempt.cost == AtLeast(near(2.516025), near(0.139108), 20)  # type: ignore[arg-type]
    assert found.by_attempt.interval == Interval(near(2.516025), None)  # type: ignore[arg-type]
    assert isinstance(found.mean_resolved, Unknown)
    assert isinstance(found.failures_share, Estimate)
    assert found.failures_share.value == 1.0


def test_with_several_runs_a_task_an_issue_and_an_attempt_differ() -> None:
    runs = [
        run(
            4 * task + seed,
            task=f"t{task}",
            seed=seed,
            cost=0.25,
            verdict="resolved" if seed <= found else "unresolved",
        )
        for task, found in enumerate((4, 2, 0, 1))
        for seed in range(1, 5)
    ]
    found = spending.of_arm(ARM, runs)
    assert isinstance(found.by_attempt.cost, Ratio)
    assert isinstance(found.by_issue.cost, Ratio)
    assert (found.by_attempt.cost.value, found.by_issue.cost.value) == (near(4 / 7), near(4 / 3))
    # Tasks are the sample, whatever the number of runs.
    assert (found.by_attempt.cost.n, found.by_attempt.runs, found.by_issue.tasks) == (4, 16, 4)


def test_all_alike_says_nothing_of_chance() -> None:
    found = spending.of_arm(ARM, priced((1,) * 12, (0.5,) * 12))
    assert isinstance(found.mean, Estimate)
    assert "no width" in str(found.mean.interval)
    assert "no width" in str(found.by_attempt.interval)
    one = spending.of_arm(ARM, priced((1,), (0.5,)))
    assert str(one.by_attempt.cost) == "not estimable, because one task says nothing about others"


def test_tokens_stand_in_their_parts() -> None:
    runs = [run(1), run(2, reasoning=7, cache_write=None, usage_unknown=2), run(3, cache_write=None)]
    found = spending.of_arm(ARM, runs).tokens
    assert (found.input_uncached, found.cache_read, found.cache_write) == (300, 2700, 0)
    assert (found.output, found.reasoning, found.unknown, found.input_total) == (150, 7, 2, 3000)


def test_the_dearest_failures() -> None:
    runs = [*priced(), run(90, task="t90", cost=9.0, verdict="unparsed")]
    found = spending.of_arm(ARM, runs).dearest_failures
    assert [(one.run, one.dollars) for one in found] == [
        (5, 0.9),
        (9, 0.75),
        (12, 0.54),
        (3, 0.45),
        (11, 0.29),
    ]
    failures = spending.of_arm(ARM, runs, Switches(invalid_as_failures=True)).dearest_failures
    assert failures[0].run == 90


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_cost_that_is_no_number_is_unknown(broken: float) -> None:
    found = spending.of_arm(ARM, [*priced(), run(50, task="t50", cost=broken)])
    assert found.by_attempt.left_out == 1
    assert found.whole.dollars == near(4.97)
    assert found.bases == {"price": near(4.97)}


_costs = st.one_of(st.none(), st.floats(0, 50))


@given(runs=observations(), chosen=switches, data=st.data())
def test_the_buckets_sum_to_all_that_was_spent(
    runs: list[Observation], chosen: Switches, data: st.DataObject
) -> None:
    costed = []
    for one in runs:
        cost, unknown = data.draw(_costs), data.draw(st.integers(0, 3))
        earlier = None if cost is None else data.draw(st.sampled_from([None, 0.0, cost / 2, cost]))
        costed.append(
            one._replace(
                cost=cost,
                cost_unknown=unknown + (cost is None),
                cost_earlier=earlier,
                cost_earlier_unknown=data.draw(st.integers(0, unknown)),
            )
        )
    for arm in sorted({one.arm for one in costed}):
        mine = [one for one in costed if one.arm == arm]
        found = spending.of_arm(arm, mine, chosen)
        assert sum(one.dollars or 0 for one in found.buckets) == near(sum(one.cost or 0 for one in mine))
        assert found.whole.dollars is None or found.whole.dollars == near(sum(one.cost or 0 for one in mine))
        assert found.whole.unknown == sum(one.cost_unknown for one in mine)
        newest = [one for one in found.buckets if one.name not in ("retried", "judge")]
        assert sum(one.runs for one in newest) == len(mine) == found.whole.runs


def thirds(dollars: float) -> list[Observation]:
    """Six tasks of three runs, each resolved once at one price."""
    return [
        run(3 * task + seed, task=f"t{task}", seed=seed, cost=dollars, verdict=verdict)
        for task in range(6)
        for seed, verdict in enumerate(("resolved", "unresolved", "unresolved"), start=1)
    ]


@pytest.mark.parametrize("dollars", [0.1, 0.7, 1e-5, 123.4])
def test_costs_that_are_all_alike_have_no_interval_by_rounding(dollars: float) -> None:
    found = spending.of_arm(ARM, thirds(dollars))
    assert isinstance(found.mean, Estimate)
    assert found.mean.interval == found.by_attempt.interval == Unknown(NOTHING_MOVES)
    assert [step.interval for step in spending.curve(ARM, thirds(dollars)).steps] == [Unknown(ALL_ALIKE)]


def test_costs_of_a_hair_that_do_move_keep_their_interval() -> None:
    found = spending.of_arm(ARM, priced(dollars=tuple(one * 1e-6 for one in DOLLARS)))
    assert isinstance(found.mean, Estimate)
    assert isinstance(found.mean.interval, Interval)
    assert isinstance(found.by_attempt.interval, Interval)


def test_resolved_runs_without_a_price_are_not_said_to_be_none() -> None:
    runs = [run(number, task=f"t{number}", cost=None) for number in range(1, 6)]
    runs += [run(number, task=f"t{number}", cost=0.5, verdict="unresolved") for number in range(6, 11)]
    found = spending.of_arm(ARM, runs)
    why = Unknown("no resolved run has a known cost")
    assert found.by_attempt.cost == found.by_attempt.interval == found.by_issue.cost == why
    assert (found.by_attempt.runs, found.by_attempt.left_out) == (5, 5)
    assert spending.plane([ARM], runs)[0].lower_bound is None


def test_an_arm_has_one_lower_bound_however_many_runs_its_tasks_have() -> None:
    runs = [run(seed, seed=seed, cost=9.0, verdict="unresolved") for seed in range(1, 9)]
    runs += [run(number, task=f"t{number}", cost=0.1, verdict="unresolved") for number in range(10, 19)]
    bound = spending.of_arm(ARM, runs).by_attempt.cost
    assert isinstance(bound, AtLeast)
    assert spending.plane([ARM], runs)[0].lower_bound == bound
