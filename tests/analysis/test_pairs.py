"""Pairs of arms: the right test for the number of runs, on the tasks that both tried."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from lab.analysis import paired, pairs
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
    assert found.detectable == near(2.801585 * math.sqrt(52 / 500 / 500))
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
    assert found.detectable == near(0.129546)
    clustered = found.clustered
    assert not isinstance(clustered, Unknown)
    assert (clustered.error, clustered.p, clustered.clusters) == (near(0.044194), near(0.047421), 5)
    assert clustered.interval == Interval(near(0.002297), near(0.247703))  # type: ignore[arg-type]
    assert [one.task for one in found.first_only] == ["t07", "t15"]
    assert found.first_only[0].first_runs == (29, 30, 31, 32)


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
