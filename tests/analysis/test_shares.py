"""Shares of runs and of calls: worked by hand, against rates and statsmodels, and at their edges."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.regression.linear_model import WLS  # type: ignore[import-untyped]

from lab.analysis import rates, shares
from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.rates import TaskResult
from lab.analysis.shares import Groups, Share, ratio_shares, run_shares
from tests.analysis.test_rates import A, near


def one_share(flags: list[bool], tasks: list[str]) -> Share:
    return run_shares(["it"], [flags], Groups(tasks))[0]


def one_ratio(parts: list[float], wholes: list[float], tasks: list[str]) -> Share:
    return ratio_shares(["it"], [parts], wholes, Groups(tasks), "calls")[0]


def estimated(share: Share) -> Estimate:
    assert isinstance(share.estimate, Estimate)
    return share.estimate


def test_four_runs_a_task_give_the_error_of_task_means() -> None:
    flags = [place < found for found in A for place in range(4)]
    tasks = [f"t{task}" for task in range(20) for _ in range(4)]
    share = one_share(flags, tasks)
    assert (share.part, share.of, share.unit) == (40, 80, "runs")
    found = estimated(share)
    assert (found.value, found.n, found.error) == (0.5, 20, near(0.094242))
    assert found.method == shares.T_OVER_TASKS


def test_one_run_a_task_gives_wilson() -> None:
    share = one_share([place < 59 for place in range(150)], [f"t{place}" for place in range(150)])
    assert estimated(share).method == "Wilson"
    assert estimated(share).interval == Interval(near(0.318760), near(0.473234))  # type: ignore[arg-type]


def test_a_share_is_the_mean_over_tasks_where_one_has_more_runs() -> None:
    share = one_share([True, True, True, False], ["a", "a", "a", "b"])
    assert (share.part, share.of, estimated(share).value) == (3, 4, 0.5)


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=40))
def test_a_share_of_runs_is_what_a_resolve_rate_of_them_would_be(found: list[tuple[int, bool]]) -> None:
    share = one_share([flag for _, flag in found], [str(task) for task, _ in found])
    by_task = [[flag for task, flag in found if task == one] for one in sorted({task for task, _ in found})]
    expected = rates.average([TaskResult(sum(flags), len(flags)) for flags in by_task])
    assert isinstance(expected, Estimate)
    assert estimated(share).value == pytest.approx(expected.value)
    assert estimated(share).method == expected.method
    if isinstance(expected.interval, Unknown):
        assert estimated(share).interval == expected.interval
    else:
        assert estimated(share).interval == pytest.approx(expected.interval)


def test_a_ratio_of_sums_by_hand() -> None:
    # R = 6/25; residuals -0.4, 0.6, -0.2; squares 0.56, times 3/2; its root over 25; t(2) = 4.302653.
    share = one_ratio([2, 3, 1], [10, 10, 5], ["a", "b", "c"])
    assert (share.part, share.of, share.unit) == (6, 25, "calls")
    assert (estimated(share).value, estimated(share).error) == (0.24, near(0.036661))
    assert estimated(share).interval == Interval(near(0.082262), near(0.397738))  # type: ignore[arg-type]
    assert estimated(share).method == shares.RATIO


def test_runs_of_one_task_are_one_part_of_a_ratio() -> None:
    apart = one_ratio([2, 3, 1], [10, 10, 5], ["a", "b", "c"])
    together = one_ratio([1, 1, 3, 0, 1], [4, 6, 7, 3, 5], ["a", "a", "b", "b", "c"])
    assert estimated(together) == estimated(apart)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 9), st.integers(1, 9)), min_size=2, max_size=30))
def test_the_error_of_a_ratio_agrees_with_a_weighted_regression(found: list[tuple[int, int, int]]) -> None:
    tasks = [task for task, _, _ in found]
    parts, wholes = [min(a, b) for _, a, b in found], [b for _, _, b in found]
    share = one_ratio(list(parts), list(wholes), [str(task) for task in tasks])
    groups = len(set(tasks))
    if groups < 2 or estimated(share).method != shares.RATIO:
        return
    fitted = WLS([a / b for a, b in zip(parts, wholes, strict=True)], [1.0] * len(found), weights=wholes).fit(
        cov_type="cluster", cov_kwds={"groups": tasks, "use_correction": False}
    )
    assert estimated(share).value == pytest.approx(float(fitted.params[0]))
    expected = float(fitted.bse[0]) * math.sqrt(groups / (groups - 1))
    assert estimated(share).error == pytest.approx(expected, abs=1e-9)


def test_nothing_in_any_task_is_bounded_as_if_each_task_were_one_try() -> None:
    tasks = [f"t{place // 3}" for place in range(60)]
    never = one_share([False] * 60, tasks)
    assert estimated(never).interval == Interval(0.0, near(0.161125))  # type: ignore[arg-type]
    assert estimated(never).method == shares.AT_THE_EDGE
    always = one_share([True] * 60, tasks)
    assert estimated(always).interval == Interval(near(0.838875), 1.0)  # type: ignore[arg-type]
    no_call = one_ratio([0] * 60, [50] * 60, tasks)
    assert estimated(no_call).interval == Interval(0.0, near(0.161125))  # type: ignore[arg-type]


def test_a_task_with_most_of_the_calls_leaves_little_to_say_of_others() -> None:
    share = one_ratio([0, 0, 0], [1000, 1, 1], ["a", "b", "c"])
    interval = estimated(share).interval
    assert isinstance(interval, Interval)
    assert interval.high == pytest.approx(rates.wilson_limits(0, 1)[1])


def test_what_cannot_be_estimated_says_why() -> None:
    assert one_share([], []).estimate == Unknown(shares.NO_SUCH_RUN)
    assert str(one_ratio([0], [0], ["a"]).estimate) == ("not estimable, because there are no calls to count")
    assert estimated(one_ratio([1, 2], [4, 4], ["a", "a"])).interval == Unknown(rates.ONE_TASK)
    assert estimated(one_share([True, False], ["a", "a"])).interval == Unknown(rates.ONE_TASK)
    alike = one_share([True, False, True, False], ["a", "a", "b", "b"])
    assert estimated(alike).interval == Unknown(shares.ALL_THE_SAME)
    assert run_shares([], [], Groups(["a"])) == ()


def test_parts_of_a_whole_are_out_of_their_sum() -> None:
    found = ratio_shares(["a", "b"], [[1, 2], [3, 4]], None, Groups(["x", "y"]), "calls")
    assert [(share.part, share.of) for share in found] == [(3, 10), (7, 10)]
