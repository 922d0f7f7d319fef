"""Agreement, to six digits of figures that were worked out apart, and its edges."""

from __future__ import annotations

from collections.abc import Hashable

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import cohens_kappa  # type: ignore[import-untyped]

from lab.analysis import agreement
from lab.analysis.agreement import Kappa
from lab.analysis.estimates import Interval, Unknown
from tests.analysis.test_rates import near

FIRST, SECOND, THIRD = "WWWMMMRRTTWW", "WWMMMWRRTRWM", "WWWMMMRRTTWM"


def kappa(*arguments: object, **options: object) -> Kappa:
    found = agreement.cohen(*arguments, **options)  # type: ignore[arg-type]
    assert isinstance(found, Kappa)
    return found


def test_two_raters() -> None:
    found = kappa(FIRST, SECOND)
    assert (found.raw, found.kappa, found.error, found.n) == (
        near(0.666667),
        near(0.538462),
        near(0.189465),
        12,
    )
    assert found.interval == Interval(near(0.167118), near(0.909805))  # type: ignore[arg-type]
    theirs = cohens_kappa(agreement.confusion(FIRST, SECOND, "MRTW"))
    assert (found.kappa, found.error) == (near(float(theirs.kappa)), near(float(theirs.std_kappa)))


def test_three_raters_and_gaps() -> None:
    whole = {
        name: dict(enumerate(labels)) for name, labels in zip("abc", (FIRST, SECOND, THIRD), strict=True)
    }
    found = agreement.alpha(whole)
    assert not isinstance(found, Unknown)
    assert (found.alpha, found.n, found.raters) == (near(0.699571), 12, 3)
    for place in (1, 4, 7):
        del whole["c"][place]
    del whole["b"][11]
    gaps = agreement.alpha(whole)
    assert not isinstance(gaps, Unknown)
    assert gaps.alpha == near(0.663957)


def test_three_raters_by_fleiss() -> None:
    assert agreement.fleiss(list(zip(FIRST, SECOND, THIRD, strict=True))) == near(0.690987)
    assert agreement.fleiss([]) == Unknown(agreement.NO_ITEM)
    assert agreement.fleiss(["WW", "WW"]) == Unknown(agreement.ONE_LABEL)
    with pytest.raises(ValueError, match="the same number of labels"):
        agreement.fleiss(["WW", "WWM"])


@pytest.mark.parametrize(("table", "expected"), [([[85, 5], [5, 5]], 0.444444), ([[45, 5], [5, 45]], 0.8)])
def test_the_same_raw_agreement_is_not_the_same_kappa(table: list[list[int]], expected: float) -> None:
    pairs = [(row, column) for row in (0, 1) for column in (0, 1) for _ in range(table[row][column])]
    found = kappa([one for one, _ in pairs], [other for _, other in pairs])
    assert (found.raw, found.kappa) == (near(0.9), near(expected))


def test_labels_with_an_order() -> None:
    first, second = [0, 1, 2, 2, 1, 0, 2, 1], [0, 1, 1, 2, 2, 0, 2, 0]
    assert kappa(first, second).kappa == near(0.441860)
    assert kappa(first, second, weights="linear").kappa == near(0.586207)
    assert kappa(first, second, weights="quadratic").kappa == near(0.727273)


def test_steps() -> None:
    first, second = [3, 5, 8, 12, 20, 7, 4, 9, 15, 2], [3, 6, 8, 10, 28, 7, 4, 14, 15, 1]
    found = agreement.steps(first, second)
    assert not isinstance(found, Unknown)
    assert found.within == {0: 0.5, 1: 0.7, 3: 0.8, 5: 0.9}
    assert found.median == 0.5
    between = agreement.alpha({"a": dict(enumerate(first)), "b": dict(enumerate(second))}, "interval")
    assert not isinstance(between, Unknown)
    assert between.alpha == near(0.894930)


def test_what_cannot_be_estimated_says_why() -> None:
    assert agreement.cohen([], []) == Unknown(agreement.NO_ITEM)
    assert agreement.cohen("WW", "WW") == Unknown(agreement.ONE_LABEL)
    assert agreement.alpha({"a": {1: "W"}}) == Unknown(agreement.NO_ITEM)
    assert agreement.alpha({"a": {1: "W"}, "b": {1: "W"}}) == Unknown(agreement.ONE_LABEL)
    assert agreement.steps([], []) == Unknown(agreement.NO_ITEM)
    with pytest.raises(ValueError, match="among the labels"):
        agreement.confusion("W", "X", "WM")
    with pytest.raises(ValueError, match="are numbers"):
        agreement.alpha({"a": {1: "W", 2: "M"}, "b": {1: "W", 2: "W"}}, "ordinal")


@given(
    st.lists(st.lists(st.sampled_from([None, 1, 2, 3, 5]), min_size=3, max_size=3), min_size=2, max_size=12),
    st.sampled_from(["nominal", "ordinal", "interval"]),
)
def test_alpha_is_that_of_the_author_s_package(
    items: list[list[int | None]], measure: agreement.Measure
) -> None:
    ratings: dict[Hashable, dict[Hashable, float | str]] = {
        rater: {place: label for place, labels in enumerate(items) if (label := labels[rater])}
        for rater in range(3)
    }
    found = agreement.alpha(ratings, measure)
    table = np.array([[np.nan if one is None else one for one in labels] for labels in items], dtype=float).T
    if isinstance(found, agreement.Alpha):
        assert found.alpha == pytest.approx(krippendorff.alpha(table, level_of_measurement=measure), abs=1e-9)
    else:
        counts = [np.sum(~np.isnan(column)) for column in table.T]
        several = [column[~np.isnan(column)] for column, n in zip(table.T, counts, strict=True) if n > 1]
        assert not several or len(set(np.concatenate(several))) == 1
