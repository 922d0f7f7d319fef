"""What cannot stand side by side, at every door: the message, its way out, and that nothing else is lost."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest
from django.test import Client

from lab.models import Event, Experiment, Run
from tests import builders
from tests.parted_runs import COMMON, parted, run_of

pytestmark = pytest.mark.django_db

DOORS = {
    "page": "/compare/?runs={runs}",
    "rows": "/compare/rows?runs={runs}",
    "row": "/compare/row?runs={runs}&row={first}.1",
    "live": "/compare/live?runs={runs}",
    "file": "/compare/export?runs={runs}&save=1",
}


def text_of(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


def asked(client: Client, door: str, runs: str, first: Run) -> tuple[int, str]:
    """The status and the words with which a door answers."""
    answer = client.get(DOORS[door].format(runs=runs, first=first.pk))
    return answer.status_code, text_of(bytes(answer.getvalue()).decode())


def unknown(first: Run) -> str:
    return f"{first.pk},424242"


def no_number(first: Run) -> str:
    return f"{first.pk},twelve"


def removed(first: Run) -> str:
    second = builders.another_run(first, seed=3)
    number = second.pk
    second.delete()
    return f"{first.pk},{number}"


def one(first: Run) -> str:
    return str(first.pk)


def none(_: Run) -> str:
    return ""


def seven(first: Run) -> str:
    others = [builders.another_run(first, seed=seed) for seed in range(3, 9)]
    return ",".join(str(run.pk) for run in (first, *others))


_ABSENT = "is no run of this lab: mistyped, or removed since"
_NO_NUMBER = "'twelve' is no number of a run; write numbers as in 12,15"
_SEVEN = "are 7 runs; 6 fit side by side, so leave 1 out"
_FEWER = "Two to six runs stand side by side; this address names fewer."
_TOO_FEW = "is too few to compare; write two or more, as in 12,15"


@pytest.mark.parametrize(
    ("mistake", "door", "status", "says"),
    [
        *((unknown, door, 400, f"'424242' {_ABSENT}") for door in ("page", "rows", "row", "file")),
        *((removed, door, 400, _ABSENT) for door in ("page", "rows", "row", "file")),
        *((no_number, door, 400, _NO_NUMBER) for door in ("page", "rows", "row", "file")),
        *((seven, door, 400, _SEVEN) for door in ("rows", "row", "file")),
        # A list of runs leads to the page with all that are ticked, and there one chooses among them.
        (seven, "page", 200, "7 runs were asked for and 6 fit side by side"),
        *((few, door, 400, _FEWER) for few in (one, none) for door in ("rows", "row")),
        *((few, "file", 400, _TOO_FEW) for few in (one, none)),
        # One run, or none, is where choosing begins.
        (one, "page", 200, "Any other run, by number"),
        (none, "page", 200, "Runs, by number"),
    ],
)
def test_a_mistake_is_told_at_every_door(
    viewer: Client, mistake: Callable[[Run], str], door: str, status: int, says: str
) -> None:
    first = run_of(COMMON)
    answered, words = asked(viewer, door, mistake(first), first)
    assert (answered, says in words) == (status, True), words[:2000]


@pytest.mark.parametrize("mistake", [unknown, removed, no_number, seven, one, none])
def test_what_goes_on_is_not_fetched_for_a_mistake(viewer: Client, mistake: Callable[[Run], str]) -> None:
    first = run_of(COMMON)
    assert asked(viewer, "live", mistake(first), first)[0] == 400


@pytest.mark.parametrize("door", DOORS)
def test_runs_of_different_tasks_and_a_recorded_one_without_steps_are_no_mistake(
    viewer: Client, door: str
) -> None:
    first = run_of(COMMON)
    bare = builders.run()
    recorded = Experiment.objects.create(kind=Experiment.Kind.IMPORTED)
    Run.objects.filter(pk=bare.pk).update(experiment=recorded, status="ended")
    for runs in (f"{first.pk},{bare.pk}", f"{bare.pk},{first.pk}", f"{bare.pk},{builders.run().pk}"):
        if door == "row" and str(first.pk) not in runs.split(","):
            continue
        status, words = asked(viewer, door, runs, first)
        assert status == 200, words
        if door in {"page", "file"}:
            assert "different tasks" in words
        if door in {"page", "live", "file"}:
            assert "steps not recorded" in words


def test_a_run_that_is_removed_while_its_page_is_open_is_told_wherever_the_page_asks_for_more(
    viewer: Client,
) -> None:
    first, second = parted(before=5, after=90)
    going_on = run_of(COMMON, like=first, seed=5, ended=False)
    runs = f"{first.pk},{second.pk},{going_on.pk}"
    page = viewer.get(f"/compare/?runs={runs}&fold=none").content.decode()
    found = re.findall(r' data-(?:url|rows-url|row-url)="([^"]+)"', page)
    wanted = [html.unescape(address) for address in found]
    assert len(wanted) >= 3
    tabs = [html.unescape(address) for address in re.findall(r'href="(\?runs=[^"#]*view=[^"#]*)"', page)]
    assert len(tabs) >= 5
    gone = second.pk
    Event.objects.filter(run=second).delete()
    Run.objects.filter(pk=gone).delete()
    for address in wanted:
        answer = viewer.get(address)
        assert answer.status_code == 400
        assert f"'{gone}' {_ABSENT}" in text_of(answer.content.decode())
    for address in tabs:
        answer = viewer.get(f"/compare/{address}")
        assert answer.status_code == 400
        assert f"'{gone}' {_ABSENT}" in text_of(answer.content.decode())
        # The two that are left stay chosen.
        for run in (first, going_on):
            assert re.search(rf'name="runs" value="{run.pk}"[^>]*checked', answer.content.decode())
    saving = viewer.get(f"/compare/export?runs={runs}")
    assert saving.status_code == 302
    assert viewer.get(saving.headers["Location"]).status_code == 400
