"""Beside the steps of runs side by side: patches, tests, files, cost and time, and the summary."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from django.http import HttpRequest

from lab.models import Role, Run
from lab.render.compared_charts import ChartLine, lines_svg
from lab.render.compared_tests import ShownTest, chip_html, result_html, rows_html
from lab.render.text import visible_text
from lab.services import (
    compared_costs,
    compared_files,
    compared_patches,
    compared_tests,
    comparison_asks,
    comparisons,
    side_by_side,
    side_by_side_rows,
)
from lab.services.compared_patches import LETTERS
from lab.services.comparison_asks import Asked, Place
from lab.services.outlines import Outline, outlines_of
from lab.web import charts_compared
from lab.web.comparison_patches import patches
from lab.web.comparison_tab_asks import Ask
from lab.web.http import holds

# So many rows of a part of the table of tests stand on the page before somebody asks for all, and then.
FIRST_TESTS = 100
MOST_TESTS = 2_000
MOST_FILES = 300
STEPS_LINKED = 6
# The summary's lines, and how many of them where each holds four results or more.
IN_SUMMARY = 8
IN_SUMMARY_OF_MANY = 4
SUMMARY_NAME = 30

Context = dict[str, Any]


def context_of(view: str, runs: Sequence[Run], request: HttpRequest) -> tuple[str, Context]:
    """The template of one of the views "patches", "tests", "files" and "cost", and what it shows.

    `runs`: two to six as `comparisons.find_runs` gives them, in any order. They stand in that of their
    letters, which is the address's. Everything the template needs is under "tab".
    """
    order = comparisons.asked_numbers(request.GET.getlist("runs"))
    lettered = sorted(runs, key=lambda run: order.index(run.pk) if run.pk in order else len(order))
    asked = comparison_asks.asked([run.pk for run in lettered], request.GET)
    return f"comparisons/_{view}.html", {"tab": _TABS[view](Ask(lettered, asked, request))}


# ---- tests -------------------------------------------------------------------------------------------------

_PART_WORDS = {
    "differs": "Some pass, some do not",
    "failing": "Pass in none",
    "alike": "Pass in all",
    "apart": "In one list alone",
}


class TablePart(NamedTuple):
    """A part of the table of tests: rows as HTML, how many there are, how many of them are left out."""

    key: str
    title: str
    total: int
    rows: str
    more: int
    folded: bool


def _tests(ask: Ask) -> Context:
    compared = compared_tests.compare(ask.runs)
    everything = ask.request.GET.get("all") == "tests"
    with_logs = holds(ask.request, Role.OPERATOR)
    parts = [
        _test_part(compared, part, most=MOST_TESTS if everything else FIRST_TESTS, with_logs=with_logs)
        for part in compared_tests.PARTS
        if compared.tests[part]
    ]
    return {
        "gradings": compared.gradings,
        "differ": len(compared.tests["differs"]),
        "shared": compared.shared,
        "several": len(compared.graded) > 1,
        "any": bool(compared.graded),
        "notes": compared_tests.sentences(compared, one_task=ask.one_task),
        "parts": parts,
        "all_url": "" if everything else ask.address("tests", all="tests"),
        "all_words": _all_words(parts),
        "left_out": sum(part.more for part in parts),
        "sides": len(ask.runs),
        "width": len(ask.runs) + 2,
        "steps_url": ask.address("steps"),
    }


def _all_words(parts: Sequence[TablePart]) -> str:
    """What asking for all tests shows: a page that holds more than that takes too long to come."""
    if any(part.total > MOST_TESTS for part in parts):
        return f"Show the first {MOST_TESTS:,} of each"
    return "Show all tests"


def _test_part(
    compared: compared_tests.ComparedTests, part: compared_tests.Part, *, most: int, with_logs: bool
) -> TablePart:
    found = compared.tests[part]
    title = _PART_WORDS[part]
    if part != "apart" and len(compared.graded) == 1:
        title = "Not passed" if part == "failing" else "Passed"
    rows = rows_html(compared_tests.shown(found[:most]), _absent(compared), with_logs=with_logs)
    folded = part in {"alike", "apart"}
    return TablePart(part, title, len(found), rows, max(0, len(found) - most), folded)


def _absent(compared: compared_tests.ComparedTests) -> list[str]:
    """For each side what it says of a test that it does not list."""
    words = {"graded": "not listed", "waiting": "not graded yet", "none": "not graded"}
    return [words[grading.state] for grading in compared.gradings]


# ---- files -------------------------------------------------------------------------------------------------


class FileCell(NamedTuple):
    """What a run did with a file, in words, with links to the steps."""

    touched: compared_files.Touched
    steps: list[tuple[int, str]]
    more: int


class FileLine(NamedTuple):
    """A row of the table of files. `sign` says whether the patches do the same to it, "" if nobody knows."""

    row: compared_files.FileRow
    sign: str
    cells: list[FileCell]


def _files(ask: Ask) -> Context:
    read = outlines_of(ask.runs)
    compared = compared_files.compare(ask.runs, read, compared_patches.same_files(ask.runs))
    shown = compared.rows[:MOST_FILES]
    lines = [_file_line(ask, row) for row in shown]
    return {
        "sides": compared.sides,
        "changed": [line for line in lines if line.row.changed],
        "read": [line for line in lines if not line.row.changed],
        "more": len(compared.rows) - len(shown),
        "none": _no_file(ask.runs, compared.sides),
        "unrecorded": [side.name for side, one in zip(compared.sides, read, strict=True) if not one.steps],
        "patches_url": ask.address("patches"),
        "steps_url": ask.address("steps"),
    }


def _no_file(runs: Sequence[Run], sides: Sequence[compared_files.SideFacts]) -> str:
    """What stands in the place of the files where there are none."""
    if not any(side.recorded for side in sides):
        return "Here would be the files: what these runs read and changed is not recorded."
    so_far = " so far" if _goes_on(runs) else ""
    return f"Here would be the files: no run has read or changed one{so_far}."


def _goes_on(runs: Sequence[Run]) -> bool:
    return any(run.status != Run.Status.ENDED for run in runs)


def _file_line(ask: Ask, row: compared_files.FileRow) -> FileLine:
    sign = {True: "=", False: "≠", None: ""}[row.same]
    cells = []
    for run, side in zip(ask.runs, row.sides, strict=True):
        steps = [
            (step, ask.asked.address(view="steps", open=None, at=Place(run.pk, step)))
            for step in side.steps[:STEPS_LINKED]
        ]
        cells.append(FileCell(side, steps, len(side.steps) - len(steps)))
    return FileLine(row, sign, cells)


# ---- cost and time -----------------------------------------------------------------------------------------


def _cost(ask: Ask) -> Context:
    read = outlines_of(ask.runs)
    partings = _partings(ask.runs, read)
    again = [
        f"{name} (attempt {one.attempt})" for name, one in zip(LETTERS, read, strict=False) if one.attempt > 1
    ]
    return {
        "sides": [(name, run.pk) for name, run in zip(LETTERS, ask.runs, strict=False)],
        "rows": compared_costs.totals(ask.runs, now=dt.datetime.now(dt.UTC)),
        "panels": [charts_compared.panel(growth, partings) for growth in compared_costs.growths(read)],
        "parting_words": [_parted_words(one) for one in partings],
        "again": again,
    }


def _partings(runs: Sequence[Run], read: Sequence[Outline]) -> list[charts_compared.Parted]:
    """Where each run leaves the first one that has steps, with the last step of both before that."""
    same = side_by_side.same_files(runs, read)
    ended = [run.status == Run.Status.ENDED for run in runs]
    laid = side_by_side_rows.layout(read, numbered=False, ended=ended, same_files=same)
    return [
        charts_compared.Parted(
            f"{LETTERS[parting.base]} and {LETTERS[parting.column]}",
            (_last_before(laid, parting.row, parting.base), _last_before(laid, parting.row, parting.column)),
        )
        for parting in laid.partings
    ]


def _parted_words(parted: charts_compared.Parted) -> str:
    first, second = parted.steps
    if not (first or second):
        return f"{parted.names} part at the first step"
    after = f"step {first}" if first == second else f"steps {first} and {second}"
    return f"{parted.names} part after {after}"


def _last_before(laid: side_by_side_rows.Layout, row: int, column: int) -> int:
    steps = (one.steps[column] for one in reversed(laid.rows[:row]))
    return next((step.number for step in steps if step is not None), 0)


# ---- summary -----------------------------------------------------------------------------------------------


class SummaryTest(NamedTuple):
    """A test that differs: its chip, and letter and result of each run as HTML, "" where nothing is known."""

    name: str
    full_name: str
    chip: str
    results: list[tuple[str, str]]


class SummaryFile(NamedTuple):
    """A file that a run changed, with what each run, by its letter, did with it."""

    name: str
    path: str
    sides: list[tuple[str, compared_files.Touched]]


def summary_of(
    runs: Sequence[Run],
    outlines: Sequence[Outline],
    divergence_step: int | None,
    letters: Sequence[str] = LETTERS,
    *,
    may_see_gold: bool = False,
) -> Context:
    """What comparisons/_summary.html shows, under the name "summary": tests that differ, files, context.

    `divergence_step`: the number of the first run's last step before the runs part (0: at once), None where
    they do not part. `letters`: what the runs are called, in their order. `may_see_gold`: whoever
    reads it holds the role for that.
    """
    tests = compared_tests.compare(runs, letters=letters)
    files = compared_files.compare(runs, outlines, letters=letters)
    changed = [row for row in files.rows if row.changed]
    growth = compared_costs.contexts(outlines, letters=letters)
    most = IN_SUMMARY if len(runs) < 4 else IN_SUMMARY_OF_MANY
    differing = tests.tests["differs"]
    lettered = [run for _, run in sorted(zip(letters, runs, strict=False))]
    query = Asked(runs=tuple(run.pk for run in lettered))
    has_gold = compared_patches.has_gold(task_id=lettered[0].task_id)
    return {
        "summary": {
            "tests": [_summary_test(test, letters) for test in compared_tests.shown(differing[:most])],
            "tests_differ": len(differing),
            "tests_shared": tests.shared,
            "tests_known": any(len(found) for found in tests.tests.values()),
            "tests_more": max(0, len(differing) - most),
            "graded": len(tests.graded),
            "not_graded": [one for one in tests.gradings if one.state != "graded"],
            "files": [_summary_file(row, letters) for row in changed[:most]],
            "files_recorded": any(side.recorded for side in files.sides),
            "files_unrecorded": [side.name for side in files.sides if not side.recorded],
            "goes_on": _goes_on(runs),
            "files_more": max(0, len(changed) - most),
            "chart": _chart(growth, divergence_step, runs, letters),
            "gaps": growth.gaps,
            "tests_url": query.address(view="tests"),
            "patches_url": query.address(view="patches"),
            "gold": ("offered" if may_see_gold else "hidden") if has_gold else "",
            "gold_url": f"{query.address(view='patches')}&against=gold",
            "files_url": query.address(view="files"),
            "cost_url": query.address(view="cost"),
        }
    }


def _summary_file(row: compared_files.FileRow, letters: Sequence[str]) -> SummaryFile:
    path = visible_text(row.path)
    return SummaryFile(_ending(path), path, list(zip(letters, row.sides, strict=False)))


def _summary_test(test: ShownTest, letters: Sequence[str]) -> SummaryTest:
    results = [result_html(result) if result else "" for result in test.results]
    named = list(zip(letters, results, strict=False))
    return SummaryTest(_ending(test.full_name), test.full_name, chip_html(test.chip), named)


def _ending(name: str) -> str:
    """What fits beside a chip: names of tests and files differ at their ends."""
    return name if len(name) <= SUMMARY_NAME else f"…{name[1 - SUMMARY_NAME :]}"


def _chart(
    growth: compared_costs.Growth, parted_after: int | None, runs: Sequence[Run], letters: Sequence[str]
) -> str:
    lines = []
    said = []
    for curve, name in zip(growth.curves, letters, strict=False):
        points = [None if point is None else (point.step, point.value) for point in curve.points]
        lines.append(ChartLine(name, LETTERS.index(name) + 1, points))
        if curve.known:
            said.append(f"{name} {curve.known[-1].value:,.0f} tokens at step {curve.known[-1].step}")
    return lines_svg(lines, label=f"Context by step: {'; '.join(said)}", parted_after=parted_after)


_TABS: Mapping[str, Callable[[Ask], Context]] = {
    "patches": patches,
    "tests": _tests,
    "files": _files,
    "cost": _cost,
}
TABS = tuple(_TABS)
