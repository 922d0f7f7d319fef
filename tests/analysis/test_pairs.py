"""Pairs of arms: the right test for the number of runs, on the tasks that both tried."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.analysis import paired, pairs, power
from lab.analysis.counting import Switches
from lab.analysis.estimates import Interval, Unknown
from lab.analysis.observations import Observation
from lab.analysis.paired import Discordance
from tests.analysis.observed import observations, run, switches
from tests.analysis.test_rates import A, B, near
from tests.analysis.test_resolve import four_attempts

KINDS = ((True, True), (True, False), (False, True), (False, False))


def table(*counts: int) -> list[Observation]:
    """One run a task and arm: so many tasks that both, only a, only b, neither resolves."""
    runs: list[Observation] = []
    task = 0
    for count, kind in zip(counts, KINDS, strict=True):
        for _ in range(count):
            task += 1
            for arm, resolved in zip("ab", kind, strict=True):
                verdict = "resolved" if resolved else "unresolved"
                runs.append(run(len(runs) + 1, arm=arm, task=f"t{task:03}", verdict=verdict))
    return runs


def test_one_run_a_task() -> None:
    found = pairs.compare("a", "b", table(170, 34, 18, 278))
    assert (found.table, found.tasks) == (Discordance(170, 34, 18, 278), 500)
    assert found.method == pairs.ONE_ATTEMPT
    assert (found.difference, found.p, found.p_holm) == (near(0.032), near(0.036483), near(0.036483))
    assert found.interval == Interval(near(0.003864), near(0.061633))  # type: ignore[arg-type]
    assert found.detectable == power.detectable_mcnemar(500, 52 / 500)
    # A little more than by the normal approximation.
    assert found.detectable == pytest.approx(1.03 * 2.801585 * math.sqrt(52 / 500 / 500), rel=0.01)
    assert found.detectable_method == "power of the exact McNemar test"
    assert (len(found.first_only), len(found.second_only)) == (34, 18)
    only = found.first_only[0]
    assert (only.task, only.first_runs, only.second_runs) == ("t171", (341,), (342,))


def test_several_runs_a_task() -> None:
    runs = four_attempts(A, arm="a") + four_attempts(B, arm="b", first=101)
    found = pairs.compare("a", "b", runs)
    assert (found.method, found.table, found.tasks) == (pairs.SEVERAL, None, 20)
    assert (found.difference, found.error, found.p) == (0.125, near(0.046240), near(0.014089))
    assert found.interval == Interval(near(0.028218), near(0.221782))  # type: ignore[arg-type]
    assert (found.unpaired_error, found.correlation) == (near(0.126309), near(0.871602))
    # 0.129546 by the normal approximation: twenty tasks are few.
    assert found.detectable == pytest.approx(2.953585 * 0.046240, abs=1e-5)
    assert found.detectable_method == "power of the paired t test, by the noncentral t distribution"
    clustered = found.clustered
    assert not isinstance(clustered, Unknown)
    assert (clustered.error, clustered.p, clustered.clusters) == (near(0.044194), near(0.047421), 5)
    assert clustered.interval == Interval(near(0.002297), near(0.247703))  # type: ignore[arg-type]
    assert [one.task for one in found.first_only] == ["t07", "t15"]
    assert found.first_only[0].first_runs == (29, 30, 31, 32)


def test_two_tasks_can_show_nothing_and_no_figure_says_otherwise() -> None:
    found = pairs.compare("a", "b", table(0, 1, 0, 1))
    assert str(found.detectable) == (
        "not estimable, because with 2 tasks no result of the exact test is significant"
    )


def test_the_two_arms_that_share_most_tasks_are_the_first_of_those() -> None:
    runs = table(2, 1, 0, 1)
    runs += [one._replace(run=one.run + 100, arm="c") for one in runs if one.arm == "b"]
    runs = [one for one in runs if one.arm != "a" or one.task == "t001"]
    assert pairs.most_shared(["a", "b", "c"], runs) == ("b", "c")
    assert pairs.most_shared(["a", "b"], []) == ("a", "b")
    assert pairs.most_shared(["a"], runs) is None


def test_only_tasks_that_both_tried_are_compared_and_the_others_are_counted() -> None:
    runs = table(5, 3, 1, 4)
    alone = [run(900, arm="a", task="x1"), run(901, arm="a", task="x2"), run(902, arm="b", task="y1")]
    found = pairs.compare("a", "b", runs + alone)
    assert (found.tasks, found.first_alone, found.second_alone) == (13, 2, 1)
    assert found.difference == pairs.compare("a", "b", runs).difference
    assert not isinstance(found.first_rate, Unknown)
    assert found.first_rate.value == near(8 / 13)


def test_an_invalid_run_takes_its_task_out_unless_it_counts_as_a_failure() -> None:
    runs = table(5, 3, 1, 4)
    runs[0] = runs[0]._replace(verdict="", exit_reason="tool_error")
    assert pairs.compare("a", "b", runs).tasks == 12
    found = pairs.compare("a", "b", runs, Switches(invalid_as_failures=True))
    assert found.table == Discordance(4, 3, 2, 4)


def test_different_numbers_of_runs_are_compared_by_task_means_and_said() -> None:
    runs = [*table(5, 3, 1, 4), run(900, arm="a", task="t001", seed=2, verdict="unresolved")]
    found = pairs.compare("a", "b", runs)
    assert found.method == pairs.SEVERAL
    assert found.unequal == "on 1 of 13 tasks the two have different numbers of runs"
    assert found.difference == near((3 - 1 - 0.5) / 13)


@pytest.mark.parametrize("runs", [[], [run(1, arm="a", task="x"), run(2, arm="b", task="y")]])
def test_no_common_task_is_no_comparison(runs: list[Observation]) -> None:
    found = pairs.compare("a", "b", runs)
    assert found.tasks == 0
    for each in (found.difference, found.interval, found.p, found.p_holm, found.detectable, found.clustered):
        assert str(each) == f"not estimable, because {paired.NO_PAIR}"


def test_arms_that_never_differ_give_p_1_and_not_0() -> None:
    found = pairs.compare("a", "b", table(6, 0, 0, 4))
    assert (found.difference, found.p) == (0.0, 1.0)
    assert isinstance(found.interval, Interval)
    assert str(found.detectable) == "not estimable, because they never differ"
    runs = four_attempts(A, arm="a") + four_attempts(A, arm="b", first=101)
    several = pairs.compare("a", "b", runs)
    assert several.difference == 0.0
    assert several.p == 1.0
    assert several.interval == Unknown(paired.NEVER_DIFFER)


def test_holm_counts_the_pairs_that_have_a_p_value() -> None:
    runs = table(170, 34, 18, 278)
    third = [one._replace(run=one.run + 2000, arm="c") for one in runs if one.arm == "b"]
    found = pairs.of_pairs(pairs.all_of(["a", "b", "c", "nobody"]), runs + third)
    assert [(one.first, one.second) for one in found[:3]] == [("a", "b"), ("a", "c"), ("a", "nobody")]
    p = found[0].p
    assert not isinstance(p, Unknown)
    # b and c never differ: p = 1, which is a test; those with nobody are none.
    assert [one.p_holm for one in found if not isinstance(one.p, Unknown)] == [near(3 * p), near(3 * p), 1.0]
    assert isinstance(found[2].p_holm, Unknown)
    assert (len(found), pairs.tests_among(found)) == (6, 3)


@given(
    of=st.sampled_from([3, 5, 6, 7, 9, 10]),
    more=st.integers(1, 3),
    seconds=st.lists(st.integers(0, 9), min_size=2, max_size=12),
)
def test_arms_that_differ_by_the_same_on_every_task_have_a_difference_and_no_proof(
    of: int, more: int, seconds: list[int]
) -> None:
    seconds = [one % (of - more + 1) for one in seconds]
    runs = _runs_of("a", [one + more for one in seconds], of) + _runs_of("b", seconds, of)
    found = pairs.compare("a", "b", runs)
    why = Unknown("they differ by the same on every task")
    assert found.difference == near(more / of)
    assert (found.interval, found.p, found.error, found.detectable) == (why, why, why, why)


def _runs_of(arm: str, resolved: list[int], of: int) -> list[Observation]:
    """So many of `of` runs of each task are resolved."""
    return [
        run(
            1000 * (arm == "b") + of * task + seed,
            arm=arm,
            task=f"t{task:02}",
            seed=seed,
            verdict="resolved" if seed < found else "unresolved",
        )
        for task, found in enumerate(resolved)
        for seed in range(of)
    ]


@given(runs=observations(), chosen=switches)
def test_the_other_way_round_is_the_same_with_the_sign_turned(
    runs: list[Observation], chosen: Switches
) -> None:
    arms = sorted({one.arm for one in runs})
    for first, second in pairs.all_of(arms):
        found, turned = (
            pairs.compare(first, second, runs, chosen),
            pairs.compare(second, first, runs, chosen),
        )
        assert (found.tasks, found.first_alone) == (turned.tasks, turned.second_alone)
        assert found.first_only == [
            one._replace(first_runs=one.second_runs, second_runs=one.first_runs) for one in turned.second_only
        ]
        if isinstance(found.difference, Unknown) or isinstance(turned.difference, Unknown):
            assert found.tasks == 0
            continue
        assert found.difference == near(-turned.difference)
        if isinstance(found.interval, Interval):
            assert found.interval.high is not None
            assert found.interval.low - 1e-9 <= found.difference <= found.interval.high + 1e-9
