"""Agreement on labels: fields, pairs, steps, the gate. The coefficients themselves: test_agreement.py."""

from __future__ import annotations

import pytest

from lab.analysis.agreement import Alpha, Kappa, Steps
from lab.analysis.estimates import Unknown
from lab.analysis.label_agreement import Confusion, Field, Reading, differ, fields, gate, pairs, root_steps


def labelled(rater: str, words: str, **more: object) -> list[Reading]:
    """A reading of each item, whose owner is the letter at its place; a blank is no label."""
    return [Reading(item, rater, owner=word) for item, word in enumerate(words) if word != " "]


FIRST, SECOND, THIRD = "WWWMMMRRTTWW", "WWMMMWRRTRWM", "WWWMMMRRTTWM"


def test_two_people_get_a_kappa_with_its_interval_and_raw_agreement() -> None:
    owner = fields([*labelled("a", FIRST), *labelled("b", SECOND)])["owner"]
    assert isinstance(owner.kappa, Kappa)
    assert owner.kappa.kappa == pytest.approx(0.538462, abs=1e-6)
    assert (owner.raw, owner.n) == (pytest.approx(0.666667, abs=1e-6), 12)


def test_three_people_with_gaps_get_an_alpha() -> None:
    gaps = "".join(" " if place in (1, 4, 7) else word for place, word in enumerate(THIRD))
    owner = fields([*labelled("a", FIRST), *labelled("b", SECOND[:-1]), *labelled("c", gaps)])["owner"]
    assert isinstance(owner.kappa, Unknown)
    assert isinstance(owner.alpha, Alpha)
    assert owner.coefficient == pytest.approx(0.663957, abs=1e-6)


def test_the_confusion_names_rows_of_the_first_and_the_items_behind_each_number() -> None:
    confusion = fields([*labelled("a", "WWM"), *labelled("b", "WMM")])["owner"].confusion
    assert confusion is not None
    assert confusion.labels == ("M", "W")
    assert [[cell.number for cell in row] for row in confusion.cells] == [[1, 0], [1, 1]]
    assert confusion.cells[1][0].items == (1,)
    assert confusion.worst == ("M", "W", 1)


def test_what_nobody_shares_is_not_estimable() -> None:
    alone = fields(labelled("a", FIRST))["owner"]
    assert isinstance(alone.coefficient, Unknown)
    assert alone.n == 0
    assert gate(alone).level == "unknown"


@pytest.mark.parametrize(
    ("value", "level"),
    [(0.669, "below"), (0.67, "caution"), (0.799, "caution"), (0.80, "firm"), (-0.2, "below")],
)
def test_the_gate_opens_at_067_and_080(value: float, level: str) -> None:
    confusion = Confusion((), ())
    field = Field("owner", Unknown("x"), Alpha(value, 10, 3), 0.9, 10, confusion)
    assert gate(field).level == level


def test_below_the_gate_the_two_that_are_confused_are_named() -> None:
    owner = fields([*labelled("a", "WWWWMMTT"), *labelled("b", "WMMMMMTT")])["owner"]
    assert "most often confused: M and W (3 times)" in gate(owner).words


def test_steps_are_compared_within_one_attempt() -> None:
    one = [Reading(item, "a", attempt=1, step=step) for item, step in enumerate((3, 5, 8, 12))]
    other = [
        Reading(0, "b", attempt=1, step=3),
        Reading(1, "b", attempt=1, step=8),
        Reading(2, "b", attempt=2, step=8),
        Reading(3, "b"),
    ]
    found = root_steps([*one, *other])
    assert isinstance(found.steps, Steps)
    assert (found.steps.n, found.steps.within[0], found.steps.within[3]) == (2, 0.5, 1.0)
    assert found.elsewhere == 2


def test_each_two_people_with_runs_in_common_are_a_pair() -> None:
    readings = [*labelled("a", "WWWM"), *labelled("b", "WWMM"), *labelled("c", "W")]
    found = pairs([*readings, Reading(99, "d", owner="W")])
    assert [(pair.one, pair.other, pair.common) for pair in found] == [
        ("a", "b", 4),
        ("a", "c", 1),
        ("b", "c", 1),
    ]


def test_labels_differ_by_field_and_step_or_because_somebody_was_unsure() -> None:
    one = Reading(1, "a", owner="agent", sure="sure", category="other", attempt=1, step=3)
    assert differ([one, one._replace(rater="b")]) == []
    assert differ([one, one._replace(step=4, owner="grader")]) == ["owner", "step"]
    assert differ([one, one._replace(sure="unsure")]) == ["unsure"]
