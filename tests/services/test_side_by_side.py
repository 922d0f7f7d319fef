"""What the page of runs side by side is made from."""

from __future__ import annotations

import pytest

from lab.models import Run
from lab.services import comparison_asks, comparisons, side_by_side, side_by_side_rows
from lab.services.comparison_asks import Asked, Place
from lab.services.outlines import outlines_of
from lab.services.side_by_side import SideBySide
from lab.services.side_by_side_rows import Stretch, Window, rows_of
from tests import builders
from tests.parted_runs import COMMON, parted, run_of

pytestmark = pytest.mark.django_db


def read(*runs: Run, everything: bool = False, **asked: str) -> SideBySide:
    numbers = [run.pk for run in runs]
    said = comparison_asks.asked(numbers, asked)
    return side_by_side.read(comparisons.find_runs(numbers), said, everything=everything)


def names(window: Window) -> list[Place]:
    return [row.name for unit in window.units for row in rows_of(unit)]


def test_a_run_beside_one_that_did_the_same_is_one_equal_stretch() -> None:
    first = run_of(COMMON)
    side = read(first, run_of(COMMON, like=first))
    assert [type(unit) for unit in side.units] == [Stretch]
    assert side.layout.partings == ()
    assert side.same_patch
    assert side_by_side.stretch_words(side.units[0]) == (
        "Bash cat src/part_0.py, Bash cat src/part_1.py, Bash cat src/part_2.py and 3 more"
    )


def test_the_page_opens_where_the_runs_part_and_what_each_did_there_is_in_it() -> None:
    first, second = parted()
    side = read(first, second)
    parting = side.layout.first_parting()
    assert parting is not None
    assert side.focus == parting.row == 6
    assert side.layout.last_common_step() == 6
    opened = [side.row(place) for place in side.opened]
    assert {column for row in opened if row is not None for column in row.acting} == {0, 1}
    assert all("left_0" in body or "right_0" in body for body in side.bodies.values())
    # The step before it stays unfolded, as what they still had in common.
    stretch, last_common = side.units[:2]
    assert isinstance(stretch, Stretch)
    assert (len(stretch.rows), last_common) == (5, side.layout.rows[5])


def test_a_window_of_long_runs_leads_to_every_row_once() -> None:
    first, second = parted(before=5, after=100)
    side = read(first, second, fold="none")
    assert len(side.window.units) == 60
    assert (side.window.before, side.window.before + 60 + side.window.after) == (0, len(side.layout.rows))
    seen, window = names(side.window), side.window
    while window.after:
        window = side_by_side.rows_after(side, side.layout.rows[len(seen) - 1])
        seen += names(window)
    assert seen == [row.name for row in side.layout.rows]
    far = read(first, second, at=f"{first.pk}.90", fold="none")
    row = far.row(Place(first.pk, 90))
    assert row is not None
    assert row.name in names(far.window)
    before = side_by_side.rows_before(far, far.layout.rows[far.window.before])
    assert names(before)[-1] == far.layout.rows[far.window.before - 1].name
    assert before.before == far.window.before - len(names(before))


def test_everything_there_is_can_be_had_at_once() -> None:
    first, second = parted(before=5, after=100)
    side = read(first, second, everything=True)
    assert names(side.window) == [row.name for row in side.layout.rows]


def test_rows_by_number_hold_equal_numbers_and_open_where_the_runs_part() -> None:
    first = run_of(COMMON)
    second = run_of(["ls", *COMMON, "make all", "make test", "make more"], like=first)
    side = read(first, second, by="number", fold="none")
    for row in side.layout.rows:
        assert len({step.number for step in row.steps if step is not None}) == 1
    assert len(side.layout.rows) == 10


def test_so_many_rows_are_kept_and_of_those_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side_rows, "_KEPT_ROWS", 20)
    first, second = parted(before=5, after=10)

    def laid(*, numbered: bool) -> side_by_side_rows.Layout:
        read_now = outlines_of([first, second])
        return side_by_side_rows.layout(
            read_now, numbered=numbered, ended=[True, True], same_files=[None, None]
        )

    aligned = laid(numbered=False)
    assert laid(numbered=False) is aligned
    numbered = laid(numbered=True)
    assert laid(numbered=True) is numbered
    assert laid(numbered=False) is not aligned


def test_the_pair_that_is_chosen_stands_first_and_letters_stay() -> None:
    first, second = parted()
    third = run_of(COMMON, like=first, seed=3)
    side = read(first, second, third, first=f"{third.pk},{second.pk}")
    assert [(column.letter, column.run) for column in side.columns] == [
        ("C", third),
        ("B", second),
        ("A", first),
    ]
    assert side.asked.address() == f"?runs={first.pk},{second.pk},{third.pk}&first={third.pk},{second.pk}"


@pytest.mark.parametrize("first", ["12,12", "12,012", "12", "12,15,18", "12,99", "12,x", ",", "12,15,"])
def test_a_pair_is_two_of_the_runs_shown(first: str) -> None:
    said = comparison_asks.asked([12, 15, 18], {"first": first})
    assert said.order == (12, 15, 18)
    (problem,) = said.problems
    assert problem.field == "first"
    assert "are not two of the runs shown; choose two of 12, 15, 18" in str(problem)


def test_an_address_says_what_was_asked_for_and_nothing_more() -> None:
    said = comparison_asks.asked([12, 15], {"by": "number", "at": "12.7", "open": "15.3", "fold": "equal"})
    assert said.address() == "?runs=12,15&by=number&at=12.7&open=15.3"
    assert said.address(at=None, open=None, view="patches") == "?runs=12,15&view=patches&by=number"
    assert comparison_asks.asked([12, 15], {}) == Asked(runs=(12, 15))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("by", "moon", "write action or number"),
        ("view", "x" * 400, "write steps, patches"),
        ("at", "12", "as in 12.1"),
        ("at", "12.0", "as in 12.1"),
        ("open", "١٢.٣", "as in 12.1"),
        ("at", "13.2", "these are 12, 15"),
        ("first", "12", "choose two of 12, 15"),
        ("first", "12,12", "choose two of 12, 15"),
    ],
)
def test_what_an_address_cannot_mean_is_named_with_the_way_out(name: str, value: str, says: str) -> None:
    said = comparison_asks.asked([12, 15], {name: value})
    assert len(said.problems) == 1
    assert str(said.problems[0]).startswith(f"{name}: ")
    assert says in str(said.problems[0])
    assert len(str(said.problems[0])) < 400
    assert said.address() == "?runs=12,15"


def test_a_step_that_a_run_does_not_have_is_told_and_the_page_opens_where_they_part() -> None:
    first, second = parted()
    side = read(first, second, at=f"{second.pk}.99")
    assert [str(problem) for problem in side.problems] == [
        f"at: '{second.pk}.99' is no step: run {second.pk} has steps 1 to 10"
    ]
    assert side.focus == 6


def test_heads_tell_what_is_known_and_name_what_is_not() -> None:
    first = builders.run()
    builders.believable(first, outcome="resolved")
    bare = builders.run()
    side = read(Run.objects.get(pk=first.pk), bare)
    known, unknown = side.columns
    assert (known.letter, known.badge.word, known.exit_reason) == ("A", "resolved", "agent")
    assert known.facts[0].endswith(" steps")
    assert any(fact.endswith(" tokens") for fact in known.facts)
    assert (unknown.badge.word, unknown.facts, unknown.ended) == ("queued", ["0 steps"], False)
    assert side.goes_on


def test_rows_are_laid_out_once_for_what_the_logs_hold_and_anew_when_one_grows() -> None:
    first = run_of(COMMON)
    second = run_of(COMMON[:4], like=first, ended=False)
    kept = read(first, second).layout
    assert read(first, second).layout is kept
    builders.append(second, *builders.bash_step(5, COMMON[4], f"what {COMMON[4]} printed\n"))
    grown = read(first, second).layout
    assert grown is not kept
    assert grown.places[Place(second.pk, 5)] == grown.places[Place(first.pk, 5)]


def test_with_one_run_that_has_steps_nothing_is_said_of_where_they_part() -> None:
    first = run_of(COMMON)
    side = read(first, builders.another_run(first, seed=3))
    assert side.layout.compared == (0,)
    assert side.layout.partings == ()
    assert not any(isinstance(unit, Stretch) for unit in side.units)
