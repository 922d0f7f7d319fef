"""The smallest difference that a number of tasks shows, by the power of the very tests that are made."""

from __future__ import annotations

import math
import time

import pytest
from statsmodels.stats.power import TTestPower  # type: ignore[import-untyped]

from lab.analysis import power
from lab.analysis.estimates import Unknown
from lab.analysis.paired import Discordance, Tested, mcnemar


@pytest.mark.parametrize("n", [2, 3, 4, 6, 10, 20, 47, 150, 500])
def test_for_task_means_it_is_that_of_the_t_test(n: int) -> None:
    effect = TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8, alternative="two-sided")
    # The effect is in standard deviations of one task.
    assert power.detectable_paired_t(0.01, n) == pytest.approx(0.01 * effect * math.sqrt(n), rel=2e-6)


def test_six_tasks_take_a_quarter_more_than_the_normal_approximation_says() -> None:
    error = 0.295 / power.reach()
    assert power.detectable_from_error(error) == pytest.approx(0.295)
    assert power.detectable_paired_t(error, 6) == pytest.approx(0.370, abs=5e-4)


@pytest.mark.parametrize(("error", "n"), [(0.1, 0), (0.1, 1), (0.1, 2), (0.4, 8)])
def test_too_few_task_means_show_no_difference_that_there_can_be(error: float, n: int) -> None:
    assert isinstance(power.detectable_paired_t(error, n), Unknown)


def brute_force(n: int, first_only: float, second_only: float) -> float:
    """The probability that the exact test finds that the first is better, over every table."""
    same = 1 - first_only - second_only
    found = 0.0
    for more in range(n + 1):
        for fewer in range(min(more, n - more + 1)):
            tested = mcnemar(Discordance(n - more - fewer, more, fewer, 0))
            assert isinstance(tested, Tested)
            if tested.p <= 0.05:
                ways = math.comb(n, more) * math.comb(n - more, fewer)
                rest = max(0.0, same) ** (n - more - fewer)
                found += ways * first_only**more * max(0.0, second_only) ** fewer * rest
    return found


@pytest.mark.parametrize(
    ("n", "share"), [(6, 1.0), (8, 0.95), (8, 1.0), (20, 0.5), (40, 0.25), (60, 0.2), (60, 1.0)]
)
def test_for_one_run_a_task_it_is_what_every_table_together_says(n: int, share: float) -> None:
    found = power.detectable_mcnemar(n, share)
    assert isinstance(found, float)
    assert 0 < found <= share
    assert brute_force(n, (share + found) / 2, (share - found) / 2) == pytest.approx(0.8, abs=2e-5)
    less = found - 0.01
    assert brute_force(n, (share + less) / 2, (share - less) / 2) < 0.8


@pytest.mark.parametrize("n", [1, 2, 5])
def test_with_fewer_than_six_tasks_nothing_is_significant(n: int) -> None:
    tasks = "1 task" if n == 1 else f"{n} tasks"
    assert power.detectable_mcnemar(n, 1.0) == Unknown(
        f"with {tasks} no result of the exact test is significant"
    )


@pytest.mark.parametrize(("n", "share"), [(8, 0.2), (20, 0.2), (500, 0.01), (30, 0.0)])
def test_where_few_tasks_differ_not_even_all_of_them_one_way_are_enough(n: int, share: float) -> None:
    assert brute_force(n, share, 0.0) < 0.8 if n < 100 else True
    found = power.detectable_mcnemar(n, share)
    assert isinstance(found, Unknown)
    assert found.why.startswith("even if all tasks that differ differ one way, the exact test finds it with")


def test_the_chance_that_is_left_is_said() -> None:
    found = power.detectable_mcnemar(20, 0.2)
    assert isinstance(found, Unknown)
    assert found.why.endswith(f"a power of {100 * brute_force(20, 0.2, 0.0):.0f} %")


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_with_many_tasks_it_comes_to_the_normal_approximation_which_then_takes_over(share: float) -> None:
    near, approximate = power.detectable_mcnemar(power.MOST_EXACT, share), power.detectable(1000, share)
    assert near == pytest.approx(approximate, rel=0.04)
    assert power.detectable_mcnemar(power.MOST_EXACT + 1, share) == power.detectable(1001, share)
    assert power.mcnemar_method(power.MOST_EXACT) == power.EXACT
    assert power.mcnemar_method(power.MOST_EXACT + 1) == power.APPROXIMATE
    assert isinstance(power.detectable_mcnemar(5000, 0.001), Unknown)


def test_how_many_tasks_a_difference_takes_by_the_exact_test() -> None:
    needed = power.tasks_needed_mcnemar(0.1, 0.2)
    assert isinstance(needed, int)
    enough, fewer = power.detectable_mcnemar(needed, 0.2), power.detectable_mcnemar(needed - 2, 0.2)
    assert isinstance(enough, float)
    assert isinstance(fewer, float)
    assert enough <= 0.1 < fewer
    # By the normal approximation, and of a share that holds no such difference.
    assert power.tasks_needed_mcnemar(0.03, 0.2) == 1745
    assert isinstance(power.tasks_needed_mcnemar(0.1, 0.05), Unknown)
    assert power.tasks_needed_mcnemar(0.5, 1.0) == 35


@pytest.mark.parametrize(("difference", "spread"), [(0.1, 0.2), (0.1, 0.05), (0.5, 0.2), (0.9, 0.1)])
def test_how_many_tasks_a_difference_of_means_takes(difference: float, spread: float) -> None:
    n = power.tasks_needed_paired_t(difference, spread)
    effect = difference / math.sqrt(spread)
    assert n == math.ceil(TTestPower().solve_power(effect, alpha=0.05, power=0.8) - 1e-4)


def test_a_page_can_afford_it() -> None:
    power.detectable_mcnemar(100, 0.3)
    start = time.process_time()
    for place in range(20):
        power.detectable_mcnemar(800, 0.2 + place / 1000)
    # Some milliseconds each on a machine that does nothing else.
    assert time.process_time() - start < 1.0


def test_a_share_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is no share"):
        power.detectable_mcnemar(20, 1.5)
