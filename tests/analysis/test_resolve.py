"""Rates of arms: intervals by the number of runs a task, both denominators, seeds, and too little to say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given

from lab.analysis import counting, rates, resolve
from lab.analysis.counting import Switches
from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.observations import Observation
from lab.analysis.resolve import ArmRate
from tests.analysis.observed import observations, run, switches
from tests.analysis.test_rates import A, near

ARM = "1.1.aa"


def four_attempts(successes: Sequence[int], *, arm: str = ARM, first: int = 1) -> list[Observation]:
    """Twenty tasks in five repositories of four, four runs each, so many of them resolved."""
    return [
        run(
            first + 4 * task + seed,
            arm=arm,
            task=f"t{task:02}",
            repository=f"r{task // 4}",
            seed=seed + 1,
            verdict="resolved" if seed < found else "unresolved",
        )
        for task, found in enumerate(successes)
        for seed in range(4)
    ]


def one_attempt(resolved: int, n: int, *, arm: str = ARM, first: int = 1) -> list[Observation]:
    return [
        run(
            first + task,
            arm=arm,
            task=f"t{task:03}",
            repository=f"r{task % 3}",
            verdict="resolved" if task < resolved else "unresolved",
        )
        for task in range(n)
    ]


def estimate(found: object) -> Estimate:
    assert isinstance(found, Estimate)
    return found


def test_several_runs_a_task() -> None:
    found = resolve.of_arm(ARM, four_attempts(A))
    rate = estimate(found.rate.estimate)
    assert (rate.value, rate.n, rate.error, rate.method) == (0.5, 20, near(0.094242), "t over tasks")
    assert (found.rate.resolved, found.rate.runs, found.rate.tasks) == (40, 80, 20)
    assert (found.k, found.most, found.unequal) == (4, 4, "")
    assert estimate(found.pass_at_k).value == near(0.7)
    assert estimate(found.pass_hat_k).value == near(0.3)
    assert isinstance(estimate(found.pass_at_k).interval, Interval)
    assert not isinstance(found.clustered, Unknown)
    assert (found.clustered.error, found.clustered.clusters) == (near(0.141145), 5)
    assert not isinstance(found.variance, Unknown)
    assert found.variance.between == near(0.150548)


def test_one_run_a_task_has_wilsons_interval() -> None:
    found = resolve.of_arm(ARM, one_attempt(59, 150))
    interval = Interval(near(0.318760), near(0.473234))  # type: ignore[arg-type]
    assert found.rate.estimate == Estimate(near(59 / 150), interval, 150, "Wilson")  # type: ignore[arg-type]
    assert found.pass_at_k == found.pass_hat_k == Unknown("each task has one run that counts")
    assert isinstance(found.variance, Unknown)


def test_pass_at_k_says_how_many_tasks_lack_the_runs() -> None:
    runs = four_attempts(A)
    found = resolve.of_arm(ARM, [one for one in runs if one.task not in ("t01", "t02") or one.seed == 1])
    assert (found.k, found.most) == (1, 4)
    assert found.pass_at_k == Unknown("2 of 20 tasks have fewer than 4 runs that count")


def test_three_seeds_of_one_task_are_three_rows_and_their_spread_is_shown() -> None:
    runs = [run(seed, seed=seed, verdict="resolved" if seed == 2 else "unresolved") for seed in (3, 1, 2)]
    found = resolve.of_arm(ARM, runs)
    rows = [(row.seed, row.rate.resolved, row.rate.runs) for row in found.seeds]
    assert rows == [(1, 0, 1), (2, 1, 1), (3, 0, 1)]
    assert found.seeds_spread == near(0.577350)
    rate = estimate(found.rate.estimate)
    assert rate.value == near(1 / 3)
    assert str(rate.interval) == "not estimable, because one task says nothing about others"
    assert isinstance(found.variance, Unknown)


def test_a_seed_whose_runs_are_all_invalid_has_its_row_too() -> None:
    runs = [run(1), run(2, seed=2, verdict="infrastructure", exit_reason="tool_error")]
    found = resolve.of_arm(ARM, runs)
    assert [(row.seed, row.rate.runs) for row in found.seeds] == [(1, 1), (2, 0)]
    assert isinstance(found.seeds[1].rate.estimate, Unknown)
    assert str(found.seeds_spread) == "not estimable, because one seed says nothing about others"


def test_both_denominators_and_the_rate_without_flagged_runs() -> None:
    runs = one_attempt(6, 10) + [
        run(20 + number, task=f"i{number}", verdict="", exit_reason="infrastructure_error")
        for number in range(5)
    ]
    runs[0] = runs[0]._replace(flagged=True)
    found = resolve.of_arm(ARM, runs)
    shares = [
        (rate.resolved, rate.runs, estimate(rate.estimate).value)
        for rate in (found.invalid_out, found.invalid_as_failures, found.without_flagged)
    ]
    assert shares == [(6, 10, 0.6), (6, 15, 0.4), (5, 9, near(5 / 9))]
    assert found.rate == found.invalid_out
    turned = resolve.of_arm(ARM, runs, Switches(invalid_as_failures=True))
    assert turned.rate == turned.invalid_as_failures == found.invalid_as_failures
    assert turned.without_flagged.runs == 14


def test_tasks_with_different_numbers_of_runs_weigh_the_same_and_it_is_said() -> None:
    runs = [*four_attempts(A)[:8], run(99, task="t99", repository="r9", verdict="unresolved")]
    found = resolve.of_arm(ARM, runs)
    assert estimate(found.rate.estimate).value == near((1 + 1 + 0) / 3)
    assert (found.rate.resolved, found.rate.runs) == (8, 9)
    assert found.unequal == "tasks have 1 to 4 runs that count, and each task weighs the same"


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([], "there is no task"),
        ([run(1, verdict="", ended=False)], "there is no task"),
        ([run(1, stepped_in=True)], "there is no task"),
    ],
)
def test_nothing_that_counts_is_no_rate(runs: list[Observation], why: str) -> None:
    found = resolve.of_arm(ARM, runs)
    for each in (found.rate.estimate, found.clustered, found.variance, found.pass_at_k, found.seeds_spread):
        assert each == Unknown(why)


@pytest.mark.parametrize("resolved", [0, 20])
def test_nothing_or_everything_resolved_has_an_interval_all_the_same(resolved: int) -> None:
    rate = estimate(resolve.of_arm(ARM, one_attempt(resolved, 20)).rate.estimate)
    expected = (0.0, near(0.161125)) if resolved == 0 else (near(0.838875), 1.0)
    assert rate.interval == expected
    several = resolve.of_arm(ARM, four_attempts([resolved // 5] * 20))
    # Four runs of a task that are all alike count as one.
    assert estimate(several.rate.estimate).interval == expected
    assert estimate(several.rate.estimate).method == rates.AT_THE_EDGE
    assert str(several.clustered) == "not estimable, because all repositories came out the same"


def test_without_repositories_there_is_no_clustered_error() -> None:
    runs = [one._replace(repository="") for one in one_attempt(3, 9)]
    found = resolve.of_arm(ARM, runs)
    assert "nobody recorded of which repository" in str(found.clustered)
    named = resolve.of_arm(ARM, [*runs[:-1], runs[-1]._replace(repository="r")])
    assert not isinstance(named.clustered, Unknown)
    assert (named.clustered.named, named.clustered.tasks, named.clustered.clusters) == (1, 9, 9)


def test_arms_keep_their_order_and_one_without_runs_is_there() -> None:
    runs = one_attempt(1, 2, arm="b") + one_attempt(2, 2, arm="a", first=50)
    assert [(one.arm, one.rate.resolved) for one in resolve.of_arms(["c", "a", "b"], runs)] == [
        *(("c", 0), ("a", 2), ("b", 1))
    ]


@given(runs=observations(), chosen=switches)
def test_every_rate_lies_in_its_interval_between_nothing_and_all(
    runs: list[Observation], chosen: Switches
) -> None:
    for found in resolve.of_arms(sorted({one.arm for one in runs}), runs, chosen):
        _is_sound(found)


def _is_sound(found: ArmRate) -> None:
    rates = (found.rate, found.invalid_out, found.invalid_as_failures, found.without_flagged)
    for rate in (*rates, *(row.rate for row in found.seeds)):
        if isinstance(rate.estimate, Unknown):
            assert rate.runs == 0
            continue
        interval = rate.estimate.interval
        if isinstance(interval, Interval):
            assert interval.high is not None
            assert 0 <= interval.low <= rate.estimate.value + 1e-9
            assert rate.estimate.value - 1e-9 <= interval.high <= 1
    assert sum(row.rate.runs for row in found.seeds) == found.rate.runs
    assert found.invalid_as_failures.resolved == found.invalid_out.resolved


def test_repositories_that_came_out_the_same_have_no_interval_by_rounding() -> None:
    runs = [
        run(3 * place + number, task=f"t{place}{number}", repository=f"r{place}", verdict=verdict)
        for place in range(3)
        for number, verdict in enumerate(("resolved", "unresolved", "unresolved"), start=1)
    ]
    assert resolve.of_arm(ARM, runs).clustered == Unknown("all repositories came out the same")


def test_an_arm_that_nobody_graded_has_no_rate_and_no_failures() -> None:
    runs = [run(number, task=f"t{number}", verdict="") for number in (1, 2, 3)]
    ungraded = Unknown("none of its runs was graded")
    for chosen in (counting.AS_USUAL, Switches(invalid_as_failures=True)):
        found = resolve.of_arm(ARM, runs, chosen)
        assert found.rate.estimate == found.invalid_as_failures.estimate == ungraded
        assert (
            found.clustered == found.variance == found.pass_at_k == found.seeds[0].rate.estimate == ungraded
        )
        assert (found.tally.not_graded, found.tally.invalid) == (3, 0)
    beside = resolve.of_arm(ARM, [*runs, run(4, task="t4")])
    assert (beside.rate.runs, beside.invalid_as_failures.runs) == (1, 1)
