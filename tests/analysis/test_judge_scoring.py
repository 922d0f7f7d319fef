"""A judge's answers against what people settled on, worked out by hand."""

from __future__ import annotations

import pytest

from lab.analysis.agreement import Kappa, Steps
from lab.analysis.estimates import Interval, Unknown
from lab.analysis.judge_scoring import Reading, score

PEOPLE = {
    1: Reading("agent", "verify", "a", "sure", 10),
    2: Reading("agent", "verify", "a", "sure", 20),
    3: Reading("agent", "design", "b", "sure", 30),
    4: Reading("grader", None, None, "unsure", None),
}
JUDGE = {
    1: Reading("agent", "verify", "a", "sure", 10),
    2: Reading("agent", "design", "b", "sure", 23),
    3: Reading("grader", "design", None, "sure", None),
    4: Reading("grader", "submit", "a", "sure", 4),
    5: Reading("agent", "submit", "a", "sure", 4),
}


def test_a_field_is_right_where_both_say_the_same_and_only_settled_runs_count() -> None:
    owner, phase, *_ = score(JUDGE, PEOPLE).fields
    assert (owner.right, owner.n, owner.silent) == (3, 4, 0)
    assert (phase.right, phase.n) == (2, 3)
    assert isinstance(owner.kappa, Kappa)
    # Observed 3/4, by chance 3/4 * 2/4 + 1/4 * 2/4 = 1/2.
    assert owner.kappa.kappa == pytest.approx(0.5)
    assert isinstance(owner.interval, Interval)
    assert owner.interval.low == pytest.approx(0.3006, abs=1e-4)


def test_no_answer_is_wrong_and_in_no_kappa() -> None:
    category = score(JUDGE, PEOPLE).fields[2]
    assert (category.right, category.n, category.silent) == (1, 3, 1)
    assert isinstance(category.kappa, Kappa)
    assert category.kappa.n == 2


def test_each_category_has_its_rates_against_all_others() -> None:
    first, second = score(JUDGE, PEOPLE).categories
    assert (first.category, first.found, first.positives, first.left, first.negatives) == ("a", 1, 2, 1, 1)
    assert (second.category, second.found, second.positives, second.left, second.negatives) == (
        *("b", 0, 1, 1),
        2,
    )
    assert (first.tpr, second.tnr) == (0.5, 0.5)


def test_steps_count_where_both_point_at_one() -> None:
    found = score(JUDGE, PEOPLE)
    assert isinstance(found.steps, Steps)
    assert found.steps.within == {0: 0.5, 1: 0.5, 3: 1.0, 5: 1.0}
    assert (found.steps.n, found.steps_silent) == (2, 1)


def test_of_nothing_nothing_is_estimable() -> None:
    found = score(JUDGE, {})
    assert all(isinstance(one.kappa, Unknown) for one in found.fields)
    assert isinstance(found.steps, Unknown)
