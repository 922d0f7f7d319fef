"""Steps of several runs are put in rows by what they do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.analysis.alignment import Action, Alignment, Sign, align, by_number, project, sign, why
from tests.analysis import acted
from tests.analysis.acted import PICTURE, answer, edit, grep, read, shell

several = st.lists(acted.runs(most=8), min_size=1, max_size=5)
# Examples by number, not by time: the machine may be busy.
thorough = settings(deadline=None, max_examples=100)


def _numbered(alignment: Alignment) -> tuple[tuple[int | None, ...], ...]:
    """Rows with steps counted from 1, as people see them."""
    return tuple(tuple(None if step is None else step + 1 for step in row) for row in alignment.rows)


def _signs(runs: Sequence[Sequence[Action]], alignment: Alignment) -> list[Sign | None]:
    """Signs of the rows where the first two runs both have a step."""
    return [
        sign(runs[0][row[0]], runs[1][row[1]])
        for row in alignment.rows
        if row[0] is not None and row[1] is not None
    ]


def test_two_runs_of_a_task_stand_in_the_rows_a_person_would_put_them_in() -> None:
    alignment = align([PICTURE.one, PICTURE.other])

    assert _numbered(alignment) == PICTURE.rows
    assert "".join(str(one) for one in _signs([PICTURE.one, PICTURE.other], alignment)) == "===≈=≠≈≈"


@thorough
@given(acted.runs())
def test_a_run_stands_beside_itself_step_by_step(run: list[Action]) -> None:
    assert align([run, run, run]).rows == tuple((step, step, step) for step in range(len(run)))


@thorough
@given(acted.runs(), acted.actions(), st.data())
def test_an_inserted_step_shifts_only_itself(run: list[Action], step: Action, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(run)))
    longer = [*run[:place], step, *run[place:]]

    alignment = align([run, longer])

    assert len(alignment.rows) == len(longer)
    assert sum(row[0] is None for row in alignment.rows) == 1
    for one, other in alignment.rows:
        assert one is None or (other is not None and run[one][:3] == longer[other][:3])


@thorough
@given(acted.runs(), acted.runs())
def test_two_runs_the_other_way_round_are_the_mirror_image(one: list[Action], other: list[Action]) -> None:
    forth, back = align([one, other]), align([other, one])

    assert {row[::-1] for row in back.rows} == set(forth.rows)
    assert [row[::-1] for row in back.rows if None not in row] == [
        row for row in forth.rows if None not in row
    ]


@thorough
@given(several, st.randoms(use_true_random=False))
def test_runs_in_another_order_have_the_same_rows(runs: list[list[Action]], random: st.DataObject) -> None:
    order = list(range(len(runs)))
    random.shuffle(order)  # type: ignore[attr-defined]

    there = {tuple(row[column] for column in order) for row in align(runs).rows}

    assert set(align([runs[column] for column in order]).rows) == there


@thorough
@given(several)
def test_every_step_has_one_row_in_order_and_shares_it_with_its_own_kind_only(
    runs: list[list[Action]],
) -> None:
    alignment = align(runs)

    for column, run in enumerate(runs):
        assert [row[column] for row in alignment.rows if row[column] is not None] == list(range(len(run)))
    for row in alignment.rows:
        kinds = {runs[column][step].kind for column, step in enumerate(row) if step is not None}
        assert len(kinds) == 1


@thorough
@given(several)
def test_two_shared_rows_have_the_first_runs_own_steps_before_the_second_ones(
    runs: list[list[Action]],
) -> None:
    pair = [runs[0], runs[-1]]

    rows = align(pair).rows

    for above, below in zip(rows, rows[1:], strict=False):
        assert not (above[0] is None and below[1] is None)


def test_a_pair_of_the_same_kind_costs_no_pair_of_the_same_action() -> None:
    one = [edit("src/a.py", "1"), edit("src/b.py", "1"), edit("src/c.py", "1"), read("src/z.py")]
    other = [read("src/z.py"), edit("src/d.py", "1"), edit("src/e.py", "1"), edit("src/f.py", "1")]

    assert (3, 0) in align([one, other]).rows


def test_a_rare_action_holds_runs_together_more_than_frequent_ones() -> None:
    often = [shell("ls")] * 20
    one = [edit("src/a.py", "1"), shell("ls"), *[read(f"docs/{n}.md") for n in range(3)], *often]
    other = [shell("ls"), edit("src/a.py", "1"), *often]

    assert (0, 1) in align([one, other]).rows


def test_the_equal_call_is_preferred_to_another_one_of_the_same_action() -> None:
    one = [read("src/a.py", "1", "1:50")]
    other = [read("src/a.py", "2", "50:99"), read("src/a.py", "1", "1:50"), read("src/a.py", "3", "99:120")]

    assert _numbered(align([one, other])) == ((None, 1), (1, 2), (None, 3))


def test_of_repeated_equal_calls_the_first_one_is_paired() -> None:
    assert align([[shell("make")], [shell("make")] * 3]).rows == ((0, 0), (None, 1), (None, 2))


def test_steps_right_after_a_shared_row_share_a_row_if_they_are_of_one_kind() -> None:
    one = [read("src/a.py"), shell("make"), read("src/z.py")]
    other = [read("src/a.py"), shell("tox"), read("src/z.py")]

    assert align([one, other]).rows == ((0, 0), (1, 1), (2, 2))


def test_three_runs_share_rows_where_any_two_did_the_same() -> None:
    first = [read("src/a.py"), edit("src/a.py", "1"), answer()]
    second = [read("src/a.py"), grep("call"), edit("src/a.py", "1"), answer()]
    third = [grep("call"), edit("src/a.py", "2"), shell("make"), answer()]

    assert align([first, second, third]).rows == (
        (0, 0, None),
        (None, 1, 0),
        (1, 2, 1),
        (None, None, 2),
        (2, 3, 3),
    )


@pytest.mark.parametrize("runs", [[], [[]], [[], []], [[], [read("src/a.py")]]])
def test_runs_without_steps_have_only_the_rows_of_others(runs: list[list[Action]]) -> None:
    assert len(align(runs).rows) == sum(map(len, runs))


def test_by_number_puts_equal_numbers_in_a_row() -> None:
    assert by_number([3, 1]).rows == ((0, 0), (1, None), (2, None))
    assert by_number([]).rows == ()


@thorough
@given(several)
def test_a_projection_keeps_the_rows_of_its_columns_and_knows_where_they_stood(
    runs: list[list[Action]],
) -> None:
    whole = align(runs)
    columns = (len(runs) - 1, 0)

    part = project(whole, columns)

    assert len(part.rows) == len(part.places)
    assert [tuple(whole.rows[place][column] for column in columns) for place in part.places] == list(
        part.rows
    )
    assert not any(set(row) == {None} for row in part.rows)
    left_out = set(range(len(whole.rows))) - set(part.places)
    assert all(whole.rows[place][column] is None for place in left_out for column in columns)


SAME = shell("make", "all", "built")


@pytest.mark.parametrize(
    ("one", "other", "expected", "words"),
    [
        (SAME, SAME, Sign.EQUAL, "same command, same output"),
        (SAME, SAME._replace(result="broken"), Sign.ALIKE, "same command, other output"),
        (SAME, SAME._replace(result=""), Sign.ALIKE, "one has not ended yet or its output is not known"),
        (SAME._replace(result=""), SAME._replace(result=""), Sign.ALIKE, "output of both not known"),
        (SAME, SAME._replace(arguments="docs"), Sign.ALIKE, "both make, other arguments, same output"),
        (edit("src/a.py", "1"), edit("src/a.py", "2", "x"), Sign.ALIKE, "both edit src/a.py, other content"),
        (
            read("src/a.py", "1", "1:9"),
            read("src/a.py", "2", "5:9"),
            Sign.ALIKE,
            "both read src/a.py, other lines",
        ),
        (
            edit("src/a.py", "1"),
            edit("src/b.py", "1"),
            Sign.OTHER,
            "both edit, other file in src: src/a.py; src/b.py",
        ),
        (
            edit("src/a.py", "1"),
            acted.write("src/a.py", "1"),
            Sign.OTHER,
            "same file src/a.py, in another way",
        ),
        (grep("one"), grep("two"), Sign.OTHER, "both search, other pattern: grep one; grep two"),
        (
            grep("one + grep two"),
            grep("two"),
            Sign.ALIKE,
            "both grep two; beside it: grep one; nothing",
        ),
        (shell("make"), shell("tox"), Sign.OTHER, "both run a command, other target: make; tox"),
        (answer("a"), answer("a"), Sign.EQUAL, "same final answer"),
        (answer("a"), answer("b"), Sign.ALIKE, "both answer, other words"),
        (shell("make"), grep("make"), None, "nothing in common: make; grep make"),
    ],
)
def test_how_two_steps_relate_is_a_sign_and_words(
    one: Action, other: Action, expected: Sign, words: str
) -> None:
    assert sign(one, other) is expected
    assert words in why(one, other)


def test_words_for_a_long_target_stay_short() -> None:
    assert len(why(shell("x" * 500), shell("y" * 500))) < 250
