"""Paired comparisons, to six digits of figures that were worked out apart, and their edges."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as oracle  # type: ignore[import-untyped]
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

from lab.analysis import paired, power
from lab.analysis.estimates import Interval, Unknown
from lab.analysis.paired import Discordance, Tested
from tests.analysis.test_rates import A, B, near

FIRST, SECOND = [one / 4 for one in A], [one / 4 for one in B]
REPOSITORIES = [place // 4 for place in range(20)]
M1 = Discordance(both=170, first_only=34, second_only=18, neither=278)
M2 = Discordance(both=40, first_only=9, second_only=2, neither=49)


@pytest.mark.parametrize(
    ("table", "exact", "mid", "difference", "tango", "better"),
    [
        (M1, 0.036483, 0.027008, 0.032, (0.003864, 0.061633), 0.986496),
        (M2, 0.065430, 0.038574, 0.07, (0.005956, 0.145889), 0.980713),
    ],
)
def test_one_attempt_a_task(
    table: Discordance, exact: float, mid: float, difference: float, tango: tuple[float, float], better: float
) -> None:
    tested, half = paired.mcnemar(table), paired.mid_p(table)
    assert not isinstance(tested, Unknown)
    assert not isinstance(half, Unknown)
    assert (tested.p, half.p) == (near(exact), near(mid))
    assert table.difference == near(difference)
    assert paired.tango(table) == Interval(near(tango[0]), near(tango[1]))  # type: ignore[arg-type]
    assert paired.chance_first_is_better(table) == near(better)


def test_newcombes_interval() -> None:
    assert paired.newcombe(M1) == Interval(near(0.003612), near(0.060290))  # type: ignore[arg-type]


@given(counts=st.tuples(*[st.integers(0, 60)] * 4))
def test_the_exact_test_is_that_of_statsmodels(counts: tuple[int, int, int, int]) -> None:
    table = Discordance(*counts)
    tested = paired.mcnemar(table)
    if table.n == 0:
        assert tested == Unknown(paired.NO_PAIR)
        return
    assert not isinstance(tested, Unknown)
    both, first, second, neither = counts
    assert tested.p == near(min(1.0, float(oracle([[both, first], [second, neither]], exact=True).pvalue)))


@given(counts=st.tuples(*[st.integers(0, 60)] * 4))
def test_tangos_interval_holds_the_difference_and_turns_with_the_arms(
    counts: tuple[int, int, int, int],
) -> None:
    table = Discordance(*counts)
    found = paired.tango(table)
    if table.n == 0:
        assert isinstance(found, Unknown)
        return
    assert isinstance(found, Interval)
    assert found.high is not None
    assert -1 <= found.low <= table.difference <= found.high <= 1
    turned = paired.tango(Discordance(table.both, table.second_only, table.first_only, table.neither))
    assert isinstance(turned, Interval)
    assert turned.high is not None
    assert (turned.low, turned.high) == (
        pytest.approx(-found.high, abs=1e-6),
        pytest.approx(-found.low, abs=1e-6),
    )


def test_arms_that_never_differ_are_no_discovery() -> None:
    same = Discordance(both=10, first_only=0, second_only=0, neither=10)
    tested = paired.mcnemar(same)
    assert not isinstance(tested, Unknown)
    assert tested.p == 1.0
    found = paired.tango(same)
    assert isinstance(found, Interval)
    assert found.high is not None
    assert found.low < 0 < found.high
    assert paired.mean_difference([0.5, 1.0], [0.5, 1.0]) == Unknown(paired.NEVER_DIFFER)
    assert paired.permutation([0.5], [0.5]) == Unknown(paired.NEVER_DIFFER)


def test_several_attempts_a_task() -> None:
    found = paired.mean_difference(FIRST, SECOND)
    assert not isinstance(found, Unknown)
    assert (found.difference, found.error, found.unpaired_error) == (
        near(0.125),
        near(0.046240),
        near(0.126309),
    )
    assert (found.statistic, found.p, found.correlation) == (near(2.703274), near(0.014089), near(0.871602))
    assert found.interval == Interval(near(0.028218), near(0.221782))  # type: ignore[arg-type]


def test_over_repositories_the_same_difference_is_a_weaker_claim() -> None:
    found = paired.clustered_difference(FIRST, SECOND, REPOSITORIES)
    assert not isinstance(found, Unknown)
    assert (found.error, found.p, found.clusters) == (near(0.044194), near(0.047421), 5)
    assert found.interval == Interval(near(0.002297), near(0.247703))  # type: ignore[arg-type]


def test_no_interval_of_a_difference_of_rates_leaves_what_rates_can_differ_by() -> None:
    first, second = [1.0, 1.0, 0.5], [0.0, 0.0, 0.0]
    for one, other in ((first, second), (second, first)):
        plain = paired.mean_difference(one, other)
        over = paired.clustered_difference(one, other, ["r1", "r1", "r2"])
        for found in (plain, over):
            assert not isinstance(found, Unknown)
            low, high = found.interval
            assert high is not None
            assert -1 <= low < high <= 1
            # Cut on one side only: three tasks still say little.
            assert (high == 1 and low < 0.2) or (low == -1 and high > -0.2)


def test_signs_flipped_in_every_way() -> None:
    found = paired.permutation(FIRST, SECOND)
    assert not isinstance(found, Unknown)
    assert found.p == near(0.027344)


def test_ranks_of_the_differences() -> None:
    found = paired.wilcoxon(FIRST, SECOND)
    assert not isinstance(found, Unknown)
    assert (found.p, found.statistic) == (near(0.019694), 3.5)
    assert paired.wilcoxon([], []) == Unknown(paired.NO_PAIR)
    assert paired.wilcoxon([0.5], [0.5]) == Unknown(paired.NEVER_DIFFER)


@pytest.mark.parametrize(
    ("clusters", "low", "high", "error"),
    [(None, 0.05, 0.225, 0.045058), (REPOSITORIES, 0.05, 0.2, 0.039342)],
)
def test_tasks_or_repositories_drawn_again(
    clusters: list[int] | None, low: float, high: float, error: float
) -> None:
    found = paired.bootstrap(FIRST, SECOND, clusters)
    assert not isinstance(found, Unknown)
    # Digits move with the library's version.
    assert found.interval == pytest.approx((low, high), abs=0.015)
    assert found.error == pytest.approx(error, abs=0.015)


def test_what_cannot_be_drawn_again_says_why() -> None:
    assert paired.bootstrap([], []) == Unknown(paired.NO_PAIR)
    assert isinstance(paired.bootstrap([1.0], [0.0]), Unknown)
    assert paired.bootstrap([0.5, 1.0], [0.5, 1.0]) == Unknown(paired.NEVER_DIFFER)
    assert "by the same on every task" in str(paired.bootstrap([1.0, 0.5], [0.5, 0.0]))
    assert "one repository" in str(paired.bootstrap([1.0, 0.5], [0.5, 0.5], ["a", "a"]))
    assert "all alike" in str(paired.bootstrap([1.0, 0.5, 1.0, 0.5], [0.5, 0.5] * 2, ["a", "a", "b", "b"]))


P = [0.001, 0.011, 0.03, 0.04, 0.2]


@pytest.mark.parametrize(
    ("method", "expected", "theirs"),
    [
        ("holm", [0.005, 0.044, 0.09, 0.09, 0.2], "holm"),
        ("benjamini-hochberg", [0.005, 0.0275, 0.05, 0.05, 0.2], "fdr_bh"),
    ],
)
def test_many_pairs_looked_at_together(method: Any, expected: list[float], theirs: str) -> None:
    for order in itertools.islice(itertools.permutations(range(5)), 0, 120, 17):
        found = paired.corrected([P[place] for place in order], method)
        assert found == [near(expected[place]) for place in order]
    assert [near(one) for one in multipletests(P, method=theirs)[1]] == paired.corrected(P, method)


def test_a_pair_without_a_test_is_not_counted_as_one() -> None:
    missing = Unknown(paired.NO_PAIR)
    assert paired.corrected([0.01, missing, 0.04]) == [near(0.02), missing, near(0.04)]


def test_no_common_task_is_said() -> None:
    nothing = Discordance(0, 0, 0, 0)
    for found in (
        paired.mcnemar(nothing),
        paired.mid_p(nothing),
        paired.tango(nothing),
        paired.newcombe(nothing),
        paired.chance_first_is_better(nothing),
        paired.mean_difference([], []),
        paired.permutation([], []),
    ):
        assert found == Unknown(paired.NO_PAIR)
    assert isinstance(paired.mean_difference([1.0], [0.0]), Unknown)


def test_what_so_many_tasks_can_show() -> None:
    assert power.reach() == near(2.801585)
    assert power.detectable(500, 0.2) == near(0.056032)
    assert (power.tasks_needed(0.05, 0.2), power.tasks_needed(0.03, 0.2)) == (628, 1745)
    assert power.unpaired_detectable(500, 0.5) == near(0.088594)
    found = paired.mean_difference(FIRST, SECOND)
    assert not isinstance(found, Unknown)
    assert power.detectable_from_error(found.error) == near(0.129546)
    assert isinstance(power.detectable(0, 0.2), Unknown)


THIRDS = ([2 / 3, 1.0, 1 / 3, 2 / 3], [1 / 3, 2 / 3, 0.0, 1 / 3])


def test_one_run_of_three_better_on_every_task_is_no_proof_made_by_rounding() -> None:
    why = Unknown("they differ by the same on every task")
    assert paired.mean_difference(*THIRDS) == paired.bootstrap(*THIRDS) == why
    # Four differences that are all the same: the least p that four signs or ranks can give.
    for tested in (paired.permutation(*THIRDS), paired.wilcoxon(*THIRDS)):
        assert isinstance(tested, Tested)
        assert tested.p == near(0.125)


def test_repositories_that_differ_by_the_same_have_no_interval_by_rounding() -> None:
    first, second = [0.1, 0.2, 0.2, 0.1, 0.3, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    found = paired.clustered_difference(first, second, ["a", "a", "b", "b", "c", "c"])
    assert found == Unknown("the repositories' differences are all the same")
