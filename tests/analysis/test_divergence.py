"""Where runs part for good, and what is only a detour."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.analysis.alignment import Action, align
from lab.analysis.divergence import Divergence, first_sustained
from tests.analysis import acted
from tests.analysis.acted import PICTURE, answer, edit, grep, read, shell, write

thorough = settings(deadline=None, max_examples=100)

START = [read("src/a.py"), grep("call"), acted.pytest()]
MIDDLE = [read("src/b.py"), read("src/c.py"), shell("python <<", "#probe")]
END = [acted.pytest(result="9 passed"), shell("git diff"), answer()]


def _parted(
    one: Sequence[Action],
    other: Sequence[Action],
    same_files: dict[str, bool] | None = None,
    *,
    ended: tuple[bool, bool] = (True, True),
) -> Divergence | None:
    runs = [one, other]
    return first_sustained(runs, align(runs), first=0, second=1, same_files=same_files, ended=ended)


def test_two_runs_part_where_one_searches_on_and_the_other_edits() -> None:
    assert _parted(PICTURE.one, PICTURE.other, PICTURE.same_files) == Divergence(5, "way")
    assert _parted(PICTURE.other, PICTURE.one, PICTURE.same_files) == Divergence(5, "way")


@thorough
@given(acted.runs(), st.sampled_from((None, {"src/a.py": True}, {})))
def test_a_run_does_not_part_from_itself(run: list[Action], same_files: dict[str, bool] | None) -> None:
    assert _parted(run, run, same_files) is None


@thorough
@given(acted.runs(), acted.actions(edits=False), st.data())
def test_an_inserted_step_parts_nobody(run: list[Action], step: Action, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(run)))
    longer = [*run[:place], step, *run[place:]]

    assert _parted(run, longer) is None
    assert _parted(longer, run, {"src/a.py": True, "src/b.py": False}) is None


@thorough
@given(acted.runs(), acted.runs(), st.integers(2, 5))
def test_runs_that_grow_by_the_same_steps_part_where_they_did_unless_they_come_back(
    one: list[Action], other: list[Action], count: int
) -> None:
    grown = [read(f"new/{number}.py") for number in range(count)]

    before = _parted([*one, grown[0]], [*other, grown[0]], ended=(False, False))
    after = _parted([*one, *grown], [*other, *grown], ended=(False, False))

    if before is None or before.because == "files":
        assert after == before
    else:
        assert after is None or after.row >= before.row


def test_a_command_that_failed_and_was_tried_again_parts_none_of_three_runs() -> None:
    """One of three runs of a task recovers from a failed command; the third one parts later."""
    failed = shell("make", "all", "connection reset")
    built = shell("make", "all", "built")
    fix = edit("src/a.py", "fixed")
    plain = [*START, built, *MIDDLE, fix, *END]
    recovered = [*START, failed, built, *MIDDLE, fix, *END]
    parted = [*START, built, *MIDDLE, grep("else"), edit("src/b.py", "patched"), *END]
    runs = [plain, recovered, parted]
    other_files = {"src/a.py": False, "src/b.py": False}

    alignment = align(runs)

    def parted_from(first: int, second: int, same_files: dict[str, bool]) -> Divergence | None:
        return first_sustained(
            runs, alignment, first=first, second=second, same_files=same_files, ended=(True, True)
        )

    assert {len(row) for row in alignment.rows} == {3}
    assert parted_from(0, 1, {"src/a.py": True}) is None
    found = parted_from(0, 2, other_files)
    assert found is not None
    searches = len(START) + 1 + len(MIDDLE)
    assert alignment.rows[found.row] == (None, None, searches)
    assert parted_from(1, 2, other_files) == found


def test_a_retry_right_before_the_routine_end_parts_nobody() -> None:
    retried = [*START, acted.pytest(result="no module named tox"), *END]

    assert _parted([*START, *END], retried) is None
    assert _parted([*START, *END], retried, {}) is None


def test_a_detour_that_comes_back_to_a_common_way_is_none() -> None:
    one = [*START, grep("this"), shell("tox"), *MIDDLE, *END]
    other = [*START, shell("make"), read("docs/x.md"), *MIDDLE, *END]

    assert _parted(one, other) is None


def test_a_detour_into_another_file_that_ends_the_same_is_none() -> None:
    one = [*START, edit("src/a.py", "wrong"), edit("src/a.py", "right"), *MIDDLE, *END]
    other = [*START, edit("src/a.py", "right at once"), *MIDDLE, *END]

    assert _parted(one, other, {"src/a.py": True, "src/b.py": False}) is None
    parted = _parted(one, other, {"src/a.py": False})
    assert parted == Divergence(len(START), "files", "src/a.py")


def test_the_same_patch_parts_nobody_whatever_the_way_was() -> None:
    assert _parted(PICTURE.one, PICTURE.other, {"tickwell/schedule.py": True}) is None


def test_a_script_that_is_in_no_patch_parts_nobody() -> None:
    one = [*START, write("repro.py", "print(1)"), *MIDDLE, edit("src/a.py", "fixed"), *END]
    other = [*START, *MIDDLE, edit("src/a.py", "fixed"), *END]

    assert _parted(one, other, {"src/a.py": True, "src/z.py": False}) is None
    assert _parted(one, other, None) == Divergence(len(START), "files", "repro.py")


def test_without_patches_a_file_outside_the_workspace_parts_nobody() -> None:
    one = [*START, write("/home/agent/repro.py", "print(1)"), *MIDDLE, *END]

    assert _parted(one, [*START, *MIDDLE, *END]) is None


def test_without_patches_a_file_that_is_edited_equally_later_has_come_back() -> None:
    one = [*START, edit("src/a.py", "one"), *MIDDLE, write("src/a.py", "whole"), *END]
    other = [*START, edit("src/a.py", "two"), *MIDDLE, write("src/a.py", "whole"), *END]
    later = edit("src/a.py", "other once more")

    assert _parted(one, other) is None
    parted = _parted(one, [*other[:-3], later, *END])
    assert parted == Divergence(len(START) + 1 + len(MIDDLE) + 1, "files", "src/a.py")


def test_without_patches_a_script_that_is_removed_in_the_end_parts_nobody() -> None:
    gone = Action("shell", "rm repro.py", "rm -f repro.py", "gone", edits=("repro.py",))
    one = [*START, write("repro.py", "print(1)"), *MIDDLE, gone, *END]
    other = [*START, write("repro.py", "print(2)"), *MIDDLE, gone._replace(arguments="rm repro.py"), *END]

    assert _parted(one, other) is None
    assert _parted(one, [*START, *MIDDLE, *END]) is None
    assert _parted(one, [step for step in other if step.subject != gone.subject]) is not None


def test_tests_and_an_answer_at_the_end_are_no_way_back() -> None:
    one = [*START, grep("this"), *END]
    other = [*START, read("docs/x.md"), *END]

    assert _parted(one, other) == Divergence(len(START), "way")


def test_the_same_cleaning_up_at_the_end_is_no_way_back() -> None:
    gone = Action("shell", "rm repro.py", "rm repro.py", "gone", edits=("repro.py",))
    one = [*START, grep("this"), gone, *END]
    other = [*START, read("docs/x.md"), gone, *END]

    assert _parted(one, other) == Divergence(len(START), "way")


def test_being_alike_to_the_very_end_is_a_way_back_if_more_than_routine() -> None:
    one = [*START, grep("this"), read("src/b.py"), *END]
    other = [*START, shell("make"), read("src/b.py"), *END]

    assert _parted(one, other) is None
    assert _parted(one, other, ended=(True, False)) is None
    assert _parted(one[: len(START) + 2], other[: len(START) + 2], ended=(True, False)) is not None


def test_an_equal_edit_is_a_way_back() -> None:
    fix = edit("src/a.py", "fixed")
    one = [*START, grep("this"), fix, grep("that"), *END]
    other = [*START, shell("make"), fix, shell("tox"), *END]

    parted = _parted(one, other)

    assert parted == Divergence(len(START) + 3, "way")


def test_looking_around_before_both_edit_one_file_differently_is_a_detour() -> None:
    looked = [*START, grep("def split"), read("src/b.py"), edit("src/a.py", "two"), *END]

    differently = {"src/a.py": False}

    assert _parted([*START, edit("src/a.py", "one"), *END], looked, differently) == Divergence(
        5, "files", "src/a.py"
    )


def test_looking_around_before_an_edit_of_another_file_is_where_runs_part() -> None:
    looked = [*START, grep("def split"), read("src/b.py"), edit("src/b.py", "two"), *END]

    differently = {"src/a.py": False, "src/b.py": False}

    parted = _parted([*START, edit("src/a.py", "one"), *END], looked, differently)

    assert parted == Divergence(3, "way")


def test_two_reads_in_common_are_a_way_back_only_if_files_part_the_runs_later() -> None:
    one = [*START, grep("this"), read("src/b.py"), read("src/c.py"), grep("that")]
    other = [*START, shell("make"), read("src/b.py"), read("src/c.py"), shell("tox")]

    assert _parted([*one, *END], [*other, *END]) == Divergence(len(START), "way")
    edited = [*one, edit("src/a.py", "1"), *END], [*other, edit("src/a.py", "2"), *END]
    assert _parted(*edited) == Divergence(len(START) + 4, "way")


def test_after_a_long_way_apart_one_row_alike_is_chance() -> None:
    def runs(length: int) -> tuple[list[Action], list[Action]]:
        one = [grep(f"this {number}") for number in range(length)]
        other = [shell(f"make {number}") for number in range(length)]
        return (
            [*START, *one, read("src/b.py"), grep("that"), edit("src/a.py", "1"), *END],
            [*START, *other, read("src/b.py"), shell("tox"), edit("src/a.py", "2"), *END],
        )

    assert _parted(*runs(3)) == Divergence(len(START) + 2 * 3 + 1, "way")
    assert _parted(*runs(9)) == Divergence(len(START), "way")


def test_one_run_that_goes_off_alone_is_back_with_the_next_step_in_common() -> None:
    one = [grep("this"), grep("that"), read("src/a.py"), edit("src/a.py", "1"), *END]
    other = [read("src/a.py"), edit("src/a.py", "2"), *END]

    assert _parted(one, other, {"src/a.py": True, "src/b.py": True}) is None
    assert _parted(one, other, {"src/a.py": False}) == Divergence(3, "files", "src/a.py")


def test_what_stands_among_several_calls_of_one_step_is_done_as_well() -> None:
    several = Action("read", "read src/a.py + read src/b.py", "", "both", reads=("src/a.py", "src/b.py"))
    one = [several, edit("src/a.py", "1"), *END]
    other = [read("src/a.py"), read("src/b.py"), edit("src/a.py", "2"), *END]

    assert _parted(one, other, {"src/a.py": True, "src/c.py": False}) is None
    assert _parted(one, other, {"src/a.py": False}) == Divergence(2, "files", "src/a.py")


def test_what_a_running_run_has_not_done_yet_parts_nobody() -> None:
    whole = [*START, *MIDDLE, edit("src/a.py", "fixed"), *END]

    for done in range(len(whole)):
        assert _parted(whole, whole[:done], ended=(True, False)) is None
        assert _parted(whole[:done], whole, ended=(False, True)) is None


def test_a_running_run_parts_as_soon_as_it_edits_something_else() -> None:
    whole = [*START, *MIDDLE, edit("src/a.py", "fixed"), *END]
    other = [*START, *MIDDLE, edit("src/a.py", "other")]

    assert _parted(whole, whole[: len(START)], ended=(True, False)) is None
    assert _parted(whole, other, ended=(True, False)) == Divergence(
        len(START) + len(MIDDLE), "files", "src/a.py"
    )


def test_runs_without_a_step_in_common_part_at_once() -> None:
    assert _parted([grep("this")], [shell("make")]) == Divergence(0, "way")
    assert _parted([], [shell("make")]) is None
    assert _parted([], []) is None


@pytest.mark.parametrize("columns", [(0, 1), (0, 2), (1, 2)])
def test_rows_of_the_answer_are_those_of_the_whole_alignment(columns: tuple[int, int]) -> None:
    runs = [
        [*START, grep("this"), edit("src/a.py", "1"), *END],
        [*START, shell("make"), shell("tox"), edit("src/b.py", "1"), *END],
        [*START, read("docs/x.md"), shell("ls"), edit("docs/x.md", "1"), *END],
    ]
    first, second = columns
    alignment = align(runs)

    found = first_sustained(runs, alignment, first=first, second=second, same_files=None, ended=(True, True))

    assert found is not None
    row = alignment.rows[found.row]
    assert row[first] == len(START) or row[second] == len(START)
