"""Rows of runs side by side as markup."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from lab.analysis.alignment import Action, Sign
from lab.render import side_by_side as markup
from lab.render.side_by_side import Calls, Frame
from lab.render.side_by_side_map import MAP_LINKS, minimap_html

FRAME = Frame((12, 15), ("A", "B"), (True, True), (True, True), "?runs=12,15&by=number", (9, 9))


@dataclass(frozen=True)
class Step:
    number: int
    kind: str = "shell"
    icon: str = "prompt"
    tool: str = "Bash"
    argument: str = "make"
    more_calls: int = 0
    result: str = "3 lines"
    exit_code: int | None = 0
    failed: bool = False
    failed_test: bool = False
    added: int | None = None
    removed: int | None = None
    pending: bool = False
    action: Action = field(default_factory=lambda: Action("shell", "make", "make", "r"))


@dataclass(frozen=True)
class Row:
    index: int
    name: tuple[int, int]
    steps: tuple[Step | None, ...]
    signs: tuple[Sign | None, ...] = (None, None)
    base: int = 0
    is_equal: bool = False


@dataclass(frozen=True)
class Parting:
    row: int
    base: int = 0
    column: int = 1
    because: str = "way"
    path: str = ""


def both(index: int, number: int, sign: Sign = Sign.EQUAL, **changed: object) -> Row:
    step = Step(number, **changed)  # type: ignore[arg-type]  # what a test changes of a step
    return Row(index, (12, number), (step, step), (None, sign), is_equal=sign is Sign.EQUAL)


def words_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_a_row_has_an_id_for_itself_and_for_each_step_and_says_on_hover_why_it_is_one() -> None:
    html = markup.row_html(both(6, 7, Sign.ALIKE), FRAME)
    for part in ('id="row-12-7"', 'id="cell-12-7"', 'id="cell-15-7"', "data-difference"):
        assert part in html
    assert re.search(r'title="same action, something differs[^"]*">≈', html)
    assert 'href="?runs=12,15&amp;by=number&amp;open=12.7#row-12-7"' in html


def test_a_step_of_one_run_alone_stands_beside_a_gap() -> None:
    row = Row(3, (15, 4), (None, Step(4)), base=1)
    html = markup.row_html(row, FRAME)
    assert '<span class="gap" data-c="0"></span>' in html
    assert "only B did this" in words_of(html)


def reading(number: int, subject: str) -> Step:
    return Step(number, action=Action("read", subject, "", "r"))


def test_what_the_other_run_does_at_another_place_is_not_said_to_be_done_by_one_alone() -> None:
    rows = [
        both(0, 1),
        Row(1, (12, 2), (reading(2, "read a.py + ls ."), None)),
        Row(2, (15, 2), (None, reading(2, "ls .")), base=1),
        Row(3, (15, 3), (None, reading(3, "read a.py")), base=1),
        Row(4, (15, 4), (None, reading(4, "read b.py + read a.py")), base=1),
        Row(5, (15, 5), (None, reading(5, "read c.py")), base=1),
        Row(6, (12, 3), (Step(3, action=Action("shell", "nothing", "")), None)),
        Row(7, (15, 6), (None, Step(6, action=Action("shell", "nothing", ""))), base=1),
    ]
    frame = FRAME._replace(calls=Calls(rows))
    assert [markup.sign_words(row, frame, 1) for row in rows[1:]] == [
        "A does this here; B in its steps 2 and 3",
        "B does this here; A in its step 2",
        "B does this here; A in its step 2",
        "B does this here; A part of it in its step 2",
        "only B did this",
        "only A did this",
        "only B did this",
    ]


@pytest.mark.parametrize(
    ("subject", "arguments", "said"),
    [
        ("edit a.py", ("x", "y"), "only A did this"),
        ("edit a.py", ("x", "x"), "A does this here; B in its step 2"),
        ("python <<", ("x", "y"), "only A did this"),
        ("pytest a.py", ("-q", "-x"), "A does this here; B in its step 2"),
    ],
)
def test_another_edit_of_a_file_and_another_script_are_not_the_same(
    subject: str, arguments: tuple[str, str], said: str
) -> None:
    one, other = (Step(2, action=Action("shell", subject, each)) for each in arguments)
    rows = [Row(0, (12, 2), (one, None)), Row(1, (15, 2), (None, other), base=1)]
    assert markup.sign_words(rows[0], FRAME._replace(calls=Calls(rows)), 1) == said


def test_of_several_places_the_nearest_is_named_and_every_run_that_has_one() -> None:
    def alone(index: int, column: int, number: int) -> Row:
        steps = tuple(reading(number, "read a.py") if place == column else None for place in range(3))
        return Row(index, (column, number), steps, (None, None, None), base=column)

    rows = [alone(0, 1, 1), alone(1, 0, 1), alone(7, 1, 9), alone(8, 0, 5), alone(9, 2, 4)]
    whole = Frame((1, 2, 3), "ABC", (True,) * 3, (True,) * 3, "?runs=1,2,3", (9, 9, 9), Calls(rows))
    assert markup.sign_words(rows[3], whole, 1) == "A does this here; B in its step 9, C in its step 4"


def test_the_same_output_is_told_in_the_same_words() -> None:
    row = Row(0, (12, 1), (Step(1, result="5 lines"), Step(1, result="4 lines")), (None, Sign.EQUAL))
    assert "4 lines" not in words_of(markup.row_html(row, FRAME))
    assert "4 lines" in markup.row_html(Row(0, (12, 1), row.steps, (None, Sign.ALIKE)), FRAME)


def test_a_run_that_goes_on_has_no_gap_where_its_next_step_will_be() -> None:
    frame = FRAME._replace(ended=(True, False), reached=(9, 2))
    assert "not there yet" in markup.row_html(Row(3, (12, 4), (Step(4), None)), frame)
    assert "not there yet" not in markup.row_html(Row(1, (12, 2), (Step(2), None)), frame)


def test_what_a_model_wrote_is_text_in_rows_bands_and_the_map() -> None:
    evil = '<img src=x onerror="alert(1)">\u202e'
    row = both(0, 1, tool=evil, argument=evil, result=evil, exit_code=None)
    parts = Parting(0, because="files", path=evil)
    html = (
        markup.row_html(row, FRAME)
        + markup.stretch_html([row], evil, FRAME)
        + markup.band_html(parts, [row], FRAME, first=True)
        + minimap_html([row], FRAME, partings={0}, shown=range(1))
    )
    assert "<img" not in html
    assert "\u202e" not in html


def test_of_several_files_the_band_names_the_one_for_which_the_parting_counts() -> None:
    step = Step(1, kind="edit", action=Action("edit", "s", "a", "", (), ("scratch.txt", "zones.py")))
    assert words_of(markup.doing(step, "zones.py")) == "edits zones.py and 1 more"


SCRIPT = "python - <<'PY' import re, unicodedata for title in ['Montréal'] print(title)"


def doing(kind: str, subject: str, *, icon: str = "prompt", argument: str = "", **more: Any) -> Step:
    return Step(1, kind=kind, icon=icon, argument=argument, action=Action(kind, subject, "", "", **more))


@pytest.mark.parametrize(
    ("step", "does"),
    [
        (
            doing("read", "grep astimezone", icon="lens", argument="grep -rn astimezone"),
            "searches astimezone",
        ),
        (doing("read", "find *.py", icon="lens"), "looks for files *.py"),
        (doing("read", "ls src", icon="file"), "lists src"),
        (doing("read", "read zones.py", icon="file", reads=("zones.py",)), "reads zones.py"),
        (doing("read", "git log", icon="file", argument="git log --oneline -3"), "runs git log"),
        (doing("edit", "edit a.py b.py", edits=("a.py", "b.py")), "edits a.py and 1 more"),
        (doing("test", "pytest tests/test_a.py", argument="cd x && pytest"), "runs pytest tests/test_a.py"),
        (doing("test", "make && pytest tests/test_a.py"), "runs pytest tests/test_a.py"),
        (doing("test", "python <<", argument=SCRIPT), "runs a Python script"),
        (doing("shell", "python <<", argument=SCRIPT), "runs a Python script"),
        (doing("shell", "python -c", argument="python -c 'import re'"), "runs a Python script"),
        (doing("shell", "python a.py"), "runs python a.py"),
        (doing("shell", "node << && ls ."), "runs a script of node"),
        (doing("shell", "make && ls . + pytest"), "runs make"),
        (doing("shell", "nothing", argument="x=1"), "runs x=1"),
        (doing("shell", "frob " + "x" * 99), "runs frob " + "x" * 44 + "…"),
        (Step(1, kind="final"), "ends with its answer"),
    ],
)
def test_the_band_says_in_a_short_clause_what_each_run_did(step: Step, does: str) -> None:
    assert words_of(markup.doing(step)) == does


def test_the_band_says_after_which_step_the_runs_part_and_why_it_counts() -> None:
    rows = [
        both(0, 5),
        Row(1, (12, 6), (doing("read", "ls .", icon="file"), None)),
        Row(2, (15, 6), (None, Step(6, argument="make")), base=1),
    ]
    assert words_of(markup.parting_words(Parting(1), rows, FRAME)) == (
        "after step 5. A lists . , B runs make ; they come back to no common way."
    )
    files = Parting(1, because="files", path="zones.py")
    assert "zones.py is different from here to the end" in words_of(markup.parting_words(files, rows, FRAME))
    ended = words_of(markup.parting_words(Parting(1), rows[:2], FRAME))
    assert "B has ended" in ended
    assert words_of(markup.parting_words(Parting(0), rows, FRAME)).startswith("at the first step.")


def test_runs_that_part_in_one_row_are_told_in_one_sentence_and_so_are_those_that_never_part() -> None:
    frame = Frame((1, 2, 3, 4), tuple("ABCD"), (True,) * 4, (True,) * 4, "?runs=1,2,3,4", (9,) * 4)
    step = Step(5)
    rows = [
        Row(0, (1, 5), (step,) * 4, (None, *[Sign.EQUAL] * 3), is_equal=True),
        Row(1, (1, 6), (Step(6), Step(6), Step(6), Step(6)), (None,) * 4),
    ]
    html = markup.band_html(
        Parting(1),
        rows,
        frame,
        first=True,
        also=[Parting(1, column=3, because="files", path="zones.py")],
        staying=[2],
    )
    assert html.count("<li") == 1
    for anchor in ('id="divergence-2"', 'id="divergence-4"'):
        assert anchor in html
    told = words_of(html)
    assert told.startswith(
        "First sustained divergence: B and D part from A here after step 5. Each of A, B and D runs"
    )
    assert "of B: they come back to no common way; of D: zones.py is different from here" in told
    assert "C goes A's way to the end." in told
    growing = Frame((1, 2, 3, 4), tuple("ABCD"), (True,) * 4, (True, True, False, True), "", (9,) * 4)
    so_far = words_of(markup.band_html(Parting(1), rows, growing, first=True, staying=[2, 3]))
    assert "C and D go A's way so far." in so_far


def test_the_map_of_long_runs_has_400_links_that_lose_no_failed_test_and_no_parting() -> None:
    rows = [both(number, number + 1, failed_test=number == 1501, kind="test") for number in range(5000)]
    html = minimap_html(rows, FRAME, partings={3333}, shown=range(60))
    assert html.count("<a ") <= MAP_LINKS
    assert html.count('class="failed-test"') == 2
    assert html.count("the runs part here") == 1
    assert html.count('class="shown"') == 60 // 13 + 1


def test_a_short_map_has_a_number_and_an_icon_for_each_step() -> None:
    html = minimap_html([both(0, 1), Row(1, (12, 2), (Step(2), None))], FRAME, partings=set(), shown=range(2))
    assert html.count("<svg") == 3
    assert 'aria-label="A step 2, shell"' in html
