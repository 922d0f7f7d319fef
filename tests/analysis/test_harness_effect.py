"""Slopes: which arms they join, what differs between two of them, and what is confounded with it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.analysis import harness_effect, paired
from lab.analysis.counting import Switches
from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.harness_effect import ArmParts, Slope, parts_of, slopes
from lab.analysis.observations import Observation
from tests.analysis.observed import ALL_IN, observations, run, switches
from tests.analysis.test_rates import A, B, near

LEAF, OTHER, SHORT, TEACHER = (
    ArmParts("1.1.aa", "1", "1", "aa"),
    ArmParts("2.1.aa", "2", "1", "aa"),
    ArmParts("2.1.bb", "2", "1", "bb"),
    ArmParts("1.2.aa", "1", "2", "aa"),
)


def attempts(arm: ArmParts, successes: tuple[int, ...], of: int, start: int) -> list[Observation]:
    """So many successes of so many runs on each task."""
    return [
        run(
            start + task * of + seed,
            arm=arm.key,
            task=f"t{task:02}",
            seed=seed,
            verdict="resolved" if seed < found else "unresolved",
        )
        for task, found in enumerate(successes)
        for seed in range(of)
    ]


def only(found: list[Slope]) -> Slope:
    assert len(found) == 1
    return found[0]


def test_four_runs_a_task_are_compared_by_their_means() -> None:
    runs = attempts(LEAF, A, 4, 1) + attempts(OTHER, B, 4, 101)
    slope = only(slopes(runs, ALL_IN, [LEAF, OTHER]))
    assert (slope.fixed, slope.name) == ("model", "1")
    rates = [point.rate for point in slope.points]
    assert [(rate.value, rate.n) for rate in rates if isinstance(rate, Estimate)] == [(0.5, 20), (0.375, 20)]
    assert [point.attempts for point in slope.points] == [80, 80]
    (contrast,) = slope.contrasts
    assert (contrast.shared, contrast.first_alone, contrast.second_alone) == (20, 0, 0)
    assert (contrast.difference, contrast.p) == (near(0.125), near(0.014089))
    assert contrast.interval == Interval(near(0.028218), near(0.221782))  # type: ignore[arg-type]
    assert (contrast.method, contrast.confounded) == (harness_effect.PAIRED_T, ())


def test_one_run_a_task_is_compared_by_the_tasks_that_differ() -> None:
    ours = (1,) * 40 + (1,) * 9 + (0,) * 2 + (0,) * 49
    theirs = (1,) * 40 + (0,) * 9 + (1,) * 2 + (0,) * 49
    runs = attempts(LEAF, ours, 1, 1) + attempts(TEACHER, theirs, 1, 101)
    slope = only(slopes(runs, ALL_IN, [LEAF, TEACHER]))
    assert (slope.fixed, slope.name) == ("harness", "1")
    (contrast,) = slope.contrasts
    assert (contrast.difference, contrast.p) == (near(0.07), near(0.065430))
    assert contrast.interval == Interval(near(0.005956), near(0.145889))  # type: ignore[arg-type]
    assert contrast.method == harness_effect.EXACT


def test_the_difference_is_over_the_tasks_that_both_tried() -> None:
    runs = attempts(LEAF, (1, 0, 1, 1), 1, 1) + attempts(OTHER, (0, 0), 1, 101)
    slope = only(slopes(runs, ALL_IN, [LEAF, OTHER]))
    (contrast,) = slope.contrasts
    assert (contrast.shared, contrast.first_alone, contrast.second_alone) == (2, 2, 0)
    assert contrast.difference == 0.5
    assert "own tasks" in " ".join(slope.caution)
    key = f"contrast:{LEAF.key},{OTHER.key}"
    assert harness_effect.runs_behind(runs, ALL_IN, key) == [1, 2, 101, 102]
    assert harness_effect.runs_behind(runs, ALL_IN, f"arm:{LEAF.key}") == [1, 2, 3, 4]


def test_what_else_differs_is_said() -> None:
    runs = attempts(LEAF, (1, 0), 2, 1) + attempts(SHORT, (1, 1), 1, 101)
    slope = only(slopes(runs, ALL_IN, [LEAF, SHORT]))
    (contrast,) = slope.contrasts
    assert contrast.confounded == (
        harness_effect.OTHER_LIMITS,
        "On 2 of 2 shared tasks they have different numbers of runs.",
    )
    assert slope.caution[0] == harness_effect.MEANING["model"]
    assert "Not all of these arms run under the same limits." in slope.caution


def test_arms_that_differ_in_limits_alone_are_no_slope_and_no_contrast() -> None:
    assert slopes([], ALL_IN, [OTHER, SHORT]) == []
    slope = only(slopes([], ALL_IN, [LEAF, OTHER, SHORT]))
    assert [(one.first, one.second) for one in slope.contrasts] == [(LEAF, OTHER), (LEAF, SHORT)]
    assert harness_effect.FIRST_ONLY not in slope.caution


def test_p_values_of_contrasts_are_corrected_for_all_that_are_shown() -> None:
    runs = attempts(LEAF, A, 4, 1) + attempts(OTHER, B, 4, 101) + attempts(TEACHER, B[::-1], 4, 201)
    found = slopes(runs, ALL_IN, [LEAF, OTHER, TEACHER, ArmParts("3.1.aa", "3", "1", "aa")])
    contrasts = [one for slope in found for one in slope.contrasts]
    assert (len(contrasts), harness_effect.tests_among(found)) == (4, 2)
    p, q = (one.p for one in contrasts if not isinstance(one.p, Unknown))
    assert not isinstance(p, Unknown)
    assert not isinstance(q, Unknown)
    assert p < q
    corrected = [one.p_holm for one in contrasts if not isinstance(one.p_holm, Unknown)]
    assert corrected == [near(2 * p), near(max(2 * p, q))]


def test_many_arms_are_each_compared_with_the_first_alone() -> None:
    arms = [ArmParts(f"{number}.1.aa", str(number), "1", "aa") for number in range(1, 9)]
    few, many = (only(slopes([], ALL_IN, arms[:number])) for number in (6, 7))
    assert (len(few.contrasts), len(many.contrasts)) == (15, 6)
    assert {one.first for one in many.contrasts} == {arms[0]}
    assert harness_effect.FIRST_ONLY in many.caution


def test_limits_that_nobody_recorded_are_not_said_to_be_the_same_or_others() -> None:
    first, second = ArmParts("1.1.", "1", "1", ""), ArmParts("2.1.", "2", "1", "")
    for arms in ([first, second], [first, OTHER]):
        slope = only(slopes([], ALL_IN, arms))
        assert slope.contrasts[0].confounded == (harness_effect.UNKNOWN_LIMITS,)
        assert harness_effect.UNKNOWN_LIMITS in slope.caution
        assert "Not all of these arms run under the same limits." not in slope.caution


def test_an_arm_whose_model_nobody_recorded_is_on_no_slope() -> None:
    nameless = [ArmParts("1.9.", "1", "", ""), ArmParts("2.9.", "2", "", "")]
    assert slopes([], ALL_IN, nameless) == []
    assert only(slopes([], ALL_IN, [LEAF, OTHER, *nameless])).points[0].arm == LEAF


def test_both_directions_come_models_first() -> None:
    found = slopes([], ALL_IN, [TEACHER, OTHER, LEAF])
    assert [(slope.fixed, slope.name) for slope in found] == [("model", "1"), ("harness", "1")]
    assert [point.arm for point in found[0].points] == [OTHER, LEAF]
    assert [point.arm for point in found[1].points] == [TEACHER, LEAF]


def test_arms_without_a_common_task_have_no_difference() -> None:
    (contrast,) = only(slopes([], ALL_IN, [LEAF, OTHER])).contrasts
    nothing = Unknown(paired.NO_PAIR)
    assert (contrast.difference, contrast.interval, contrast.p) == (nothing, nothing, nothing)


def test_arms_that_never_differ_have_a_difference_of_nothing_and_no_interval() -> None:
    runs = attempts(LEAF, (1, 2), 2, 1) + attempts(OTHER, (1, 2), 2, 101)
    (contrast,) = only(slopes(runs, ALL_IN, [LEAF, OTHER])).contrasts
    assert (contrast.difference, contrast.interval) == (0, Unknown(paired.NEVER_DIFFER))
    assert contrast.p == 1.0


def test_the_key_of_an_arm_says_what_it_is_made_of() -> None:
    assert parts_of("12.3.0a1b") == ArmParts("12.3.0a1b", "12", "3", "0a1b")
    with pytest.raises(ValueError, match="'12.3' is no arm"):
        parts_of("12.3")
    with pytest.raises(ValueError, match="'pair:1' is no figure of slopes"):
        harness_effect.runs_behind([], ALL_IN, "pair:1")


@given(observations(), switches, st.randoms())
def test_the_order_of_runs_changes_nothing(
    runs: list[Observation], turned: Switches, chance: random.Random
) -> None:
    arms = [LEAF, OTHER, ArmParts("1.2.bb", "1", "2", "bb")]
    found = slopes(runs, turned, arms)
    mixed = list(runs)
    chance.shuffle(mixed)
    assert slopes(mixed, turned, arms) == found
    for slope in found:
        for point in slope.points:
            behind = harness_effect.runs_behind(runs, turned, f"arm:{point.arm.key}")
            assert len(behind) == point.attempts
