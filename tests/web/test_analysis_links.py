"""Every number of an analysis leads to exactly the runs that it counts, whatever became of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from django.http import QueryDict
from django.test import Client

from lab.analysis import counting
from lab.analysis.observations import Observation
from lab.analysis.run_costs import dollars_of
from lab.render.tables import Cell, Column, Row, Table
from lab.services import analysis
from lab.services.analysis import Observed, Selection
from lab.web import analysis_head, analysis_sections
from lab.web.analysis import runs_at
from tests import builders
from tests.web import analysed

pytestmark = pytest.mark.django_db

_SWITCHES = (
    "",
    "invalid=failures",
    "flagged=out",
    "stepped_in=in",
    "invalid=failures&flagged=out&stepped_in=in",
)
# Of runs in which something happened; the cell counts how often it did.
_OF_CALLS = re.compile(r"of [\d,]+ (calls|steps|replies|seconds)")
_OF_RUNS = re.compile(r"^([\d,]+) of ([\d,]+) runs")


class Linked(NamedTuple):
    """A cell that leads to runs."""

    table: Table
    row: Row
    column: Column
    cell: Cell


def seen(query: str = "") -> Observed:
    return analysis.observed(Selection.from_query(QueryDict(query)))


def behind(address: str) -> list[int]:
    """The runs that the page at an address lists."""
    query = QueryDict(address.partition("?")[2])
    return runs_at(analysis.observed(Selection.from_query(query)), query)


def linked(observed: Observed) -> Iterator[Linked]:
    for table in analysis_sections.tables(observed, builders.person()):
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                if cell.url.startswith("/analysis/runs/"):
                    yield Linked(table, row, column, cell)


def value(row: Row, table: Table, name: str) -> object:
    """What a file says in the column of this name."""
    for column, cell in zip(table.columns, row.cells, strict=True):
        if name in column.names:
            return cell.values[column.names.index(name)]
    raise LookupError(name)


def arm_of(observed: Observed, row: Row) -> str:
    return next(arm.key for arm in observed.arms if arm.name == row.name)


def priced(observed: Observed, arm: str, *, resolved: bool | None = None) -> list[Observation]:
    """The runs of an arm that count and of which some cost is known."""
    trials = counting.trials(observed.observations, observed.selection.switches)
    return [
        trial.run
        for trial in trials
        if trial.run.arm == arm
        and dollars_of(trial.run) is not None
        and (resolved is None or trial.resolved is resolved)
    ]


def on_shared_tasks(observed: Observed) -> int:
    """The runs of both arms that count, on tasks that both tried."""
    trials = counting.trials(observed.observations, observed.selection.switches)
    first, second = (
        {trial.run.task for trial in trials if trial.run.arm == arm.key} for arm in observed.arms
    )
    return sum(trial.run.task in first & second for trial in trials)


def number_of(observed: Observed, one: Linked) -> object:
    """How many runs a cell counts. Raises: LookupError for a cell whose count the test does not know."""
    table, row, (first, *_), cell = one.table, one.row, one.column.names, one.cell
    if table.key == "spend":
        return cell.values[2]
    if table.key == "cost-per-resolved" or first == "mean_cost":
        resolved = {"mean_resolved": True, "mean_failed": False}.get(first)
        return len(priced(observed, arm_of(observed, row), resolved=resolved))
    if table.key == "tokens":
        let_in = counting.considered(observed.observations, observed.selection.switches)
        return sum(run.arm == arm_of(observed, row) for run in let_in)
    if "effect=" in cell.url:
        return on_shared_tasks(observed)
    if table.key == "tasks":
        return cell.values[1]
    if first == "resolve_rate":
        return value(row, table, "runs")
    if found := _OF_RUNS.match(cell.hint):
        rate = table.key.startswith("resolve-rate")
        return int(found[2 if rate else 1].replace(",", ""))
    if first.endswith(("_graded", "_resolved", "_unresolved")) or f"{first}_n" in one.column.names:
        return cell.values[-1]
    if isinstance(cell.values[0], int):
        return cell.values[0]
    raise LookupError(f"{table.key}: {one.column.title}: {cell.text}")


@pytest.mark.parametrize("query", _SWITCHES)
def test_each_number_counts_as_many_runs_as_its_link_lists(query: str) -> None:
    analysed.make_mixed()
    observed = seen(query)
    wrong, tables = [], set()
    for one in linked(observed):
        runs = behind(one.cell.url)
        tables.add(one.table.key)
        if _OF_CALLS.search(one.cell.hint):
            assert runs, one.cell.url
            continue
        number = number_of(observed, one)
        if number != len(runs):
            wrong.append(f"{one.table.key}: {one.column.title} {one.cell.text!r}: {number}, not {len(runs)}")
    assert wrong == []
    assert {
        "resolve-rate",
        "resolve-rate-seeds",
        "spend",
        "cost-per-resolved",
        "cost-rate",
        "tasks",
    } <= tables
    assert {"exit-reasons", "failed-tests", "tool-mix", "habits", "steps", "tokens"} <= tables


@pytest.mark.parametrize("query", _SWITCHES)
def test_the_counts_above_an_analysis_are_those_of_their_lists(query: str) -> None:
    analysed.make_mixed()
    parts = analysis_head.head(seen(query)).parts
    assert [part.words.split()[0] for part in parts] == [str(len(behind(part.url))) for part in parts]
    assert len(parts) == 6


def test_each_part_of_the_spend_lists_its_runs() -> None:
    made = analysed.make_mixed()
    listed = {
        one.column.title: len(behind(one.cell.url))
        for one in linked(seen())
        if one.table.key == "spend" and one.row.name == seen().arms[0].name
    }
    sizes = {"retried": 2, "left out": 2, "cancelled": 3, "invalid": 4, "open": 2, "whole": 80}
    assert {word: listed[word] for word in sizes} == sizes
    assert listed["resolved"] + listed["failed"] == 80 - 2 - 3 - 4 - 2
    assert len(made.of("A")) == 80


@pytest.mark.parametrize("query", ["", "invalid=failures"])
def test_a_point_of_a_plot_leads_to_the_runs_that_its_rate_counts(query: str) -> None:
    analysed.make_mixed()
    observed = seen(query)
    trials = counting.trials(observed.observations, observed.selection.switches)
    counted = {arm.name: sum(trial.run.arm == arm.key for trial in trials) for arm in observed.arms}
    plots = {
        plot.key: plot
        for section in analysis_sections.sections(observed, builders.person())
        for panel in section.panels
        for plot in panel.plots
    }
    for trace in plots["resolve-rate"].data:
        assert len(behind(trace["customdata"][0])) == counted[trace["name"]]
    for trace in plots["cost-rate"].data:
        if "customdata" in trace:
            assert len(behind(trace["customdata"][0])) == counted[trace["name"]]
    bars = {trace["name"]: trace for trace in plots["spend"].data}
    assert len(behind(bars["cancelled"]["customdata"][0])) == 3


def test_every_link_of_the_page_answers_with_runs(viewer: Client) -> None:
    analysed.make_mixed()
    text = viewer.get("/analysis/").content.decode()
    links = analysed.links_of(text)
    assert len(links) > 60
    empty = [link for link in links if not analysed.listed(viewer.get(link).content.decode())]
    assert empty == []
    for name in ("/analysis/?", "/analysis/choose/", "/compare/", "/experiments/"):
        for link in analysed.links_of(text, name)[:12]:
            assert viewer.get(link).status_code in (200, 302), link


def test_each_kind_of_task_of_a_pair_lists_the_runs_of_both_arms(viewer: Client) -> None:
    made = analysed.make()
    page = viewer.get(f"/analysis/?experiment={made.experiment.pk}&seed=1").content.decode()
    first, second = ([count > 0 for count in counts] for counts in analysed.SUCCESSES.values())
    names = {
        (True, True): "both",
        (True, False): "first_only",
        (False, True): "second_only",
        (False, False): "neither",
    }
    for outcomes, name in names.items():
        places = [place for place in range(20) if (first[place], second[place]) == outcomes]
        links = [link for link in analysed.links_of(page) if f"outcome={name}" in link]
        assert bool(links) == bool(places)
        expected = {made.runs[letter, place, 1] for letter in ("A", "B") for place in places}
        for link in links:
            assert set(behind(link)) == expected
