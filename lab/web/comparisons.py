"""Runs side by side, and the pages on which one chooses them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import NoReverseMatch, include, path, reverse
from django.views.decorators.http import require_safe

from lab.engine.limits import as_typed
from lab.models import Experiment, Role, Run
from lab.services import (
    compared_arms,
    comparison_asks,
    comparison_choices,
    comparisons,
    overview,
    side_by_side,
)
from lab.services.comparison_asks import Asked
from lab.services.comparison_choices import Choosing
from lab.services.side_by_side import SideBySide
from lab.web import comparison_rows, comparison_tabs
from lab.web.http import for_role, holds

TABS = {
    "steps": "Steps",
    "patches": "Patches",
    "tests": "Tests",
    "files": "Files",
    "cost": "Cost and time",
    "setup": "Set-up",
}


# What an address of this page may hold beside the runs; some are of one tab alone.
_HEEDED = {"runs", "choose", "first", *comparison_asks.CHOICES, *comparison_asks.PLACES}
_HEEDED |= {"against", "of", "lay", "all"}
_MOST_UNHEEDED = 5


class Tab(NamedTuple):
    """One way to look at the runs: its name, its words, where it is."""

    name: str
    words: str
    address: str


@require_safe
@for_role(Role.VIEWER)
def comparison(request: HttpRequest) -> HttpResponse:
    """`?runs=12,15` side by side; with fewer than two, or with `choose`, the runs one may add."""
    given = request.GET.getlist("runs")
    runs = comparison_choices.wanted(given, choose="choose" in request.GET)
    if isinstance(runs, Choosing):
        context = {"place": "compare", "choosing": runs}
        return render(request, "comparisons/choose.html", context, status=400 if runs.errors else 200)
    if len(given) > 1:
        # What a form sent becomes the address that one passes on.
        return _to_runs([run.pk for run in runs])
    asked = comparison_asks.asked([run.pk for run in runs], request.GET.dict())
    side = side_by_side.read(runs, asked, bodies=asked.view == "steps")
    unheeded = [as_typed(name) for name in request.GET if name not in _HEEDED]
    context = _frame(runs, side) | _view(request, runs, side) | {"unheeded": unheeded[:_MOST_UNHEEDED]}
    return render(request, "comparisons/detail.html", context)


def _frame(runs: Sequence[Run], side: SideBySide) -> dict[str, Any]:
    """What stands around every view: lights, heads, tabs, links to the same in another way."""
    asked = side.asked
    query = ",".join(map(str, asked.runs))
    return {
        "place": "compare",
        "side": side,
        "query": query,
        "tasks": list({run.task_id: run for run in runs}.values()),
        "signals": comparisons.signals(runs),
        "view": asked.view,
        "tabs": [Tab(name, words, asked.address(view=name)) for name, words in TABS.items()],
        "heads": [(column, asked.without(column.run.pk)) for column in side.columns],
        "tests_address": asked.address(view="tests"),
        "setup": asked.address(view="setup", at=None, open=None),
        "may_add": len(runs) < comparisons.MOST_RUNS,
        "pairs": _pairs(side),
        "export": _export(asked),
        "now": dt.datetime.now(dt.UTC),
    }


def _pairs(side: SideBySide) -> list[tuple[str, str]]:
    """Where only two have room: each two of the runs in words, and the address that puts them first."""
    if len(side.columns) < 3:
        return []
    letters = {column.run.pk: column.letter for column in side.columns}
    return [
        (f"{letters[first]} and {letters[second]}", side.asked.address(first=(first, second)))
        for first, second in combinations(side.asked.runs, 2)
    ]


def _export(asked: Asked) -> str:
    try:
        return reverse("comparison_export") + asked.address(at=None, open=None)
    except NoReverseMatch:
        return ""


def _view(request: HttpRequest, runs: Sequence[Run], side: SideBySide) -> dict[str, Any]:
    """What the chosen view shows."""
    asked = side.asked
    if asked.view == "setup":
        return {"template": "comparisons/_setup.html", "comparison": comparisons.compare(runs)}
    ordered = [column.run for column in side.columns]
    if asked.view != "steps":
        template, context = comparison_tabs.context_of(asked.view, ordered, request)
        return {"template": template} | context
    outlines = [column.outline for column in side.columns]
    letters = [column.letter for column in side.columns]
    context = comparison_tabs.summary_of(
        ordered,
        outlines,
        side.layout.last_common_step(),
        letters,
        may_see_gold=holds(request, Role.OPERATOR),
    )
    frame = comparison_rows.frame_of(side)
    context |= {
        "template": "comparisons/_steps.html",
        "minimap": comparison_rows.map_html(side, frame),
        "dense": len(side.layout.rows) > comparison_rows.ROWS_WITH_ICONS,
        "to_divergence": asked.address(at=None, open=None),
        "to_fold": asked.address(fold="none" if asked.fold == "equal" else "equal"),
        "to_scroll": asked.address(scroll="apart" if asked.scroll == "together" else "together"),
        "to_align": asked.address(by="number" if asked.by == "action" else "action", at=None),
        "rows_address": reverse("comparison_rows") + asked.address(),
        "row_address": reverse("comparison_row") + asked.address(at=None, open=None),
    }
    if asked.scroll == "apart":
        return context | {"panes": comparison_rows.panes(side, frame)}
    return context | {"rows": comparison_rows.window_html(side, frame, side.window)}


@require_safe
@for_role(Role.VIEWER)
def compare_arms(request: HttpRequest, pk: int) -> HttpResponse:
    """The runs of two or more arms of an experiment that can be held against each other."""
    experiment = get_object_or_404(Experiment, pk=pk)
    chosen = set(request.GET.getlist("arm"))
    arms = [arm for arm, _ in overview.arms_of(pk) if arm.letter in chosen]
    matches = compared_arms.matches(arms)
    if len(matches) == 1:
        return _to_runs([run.pk for run in matches[0].runs][: comparisons.MOST_RUNS])
    choosing = None if matches else comparison_choices.of_arms(arms)
    if choosing is not None:
        return render(request, "comparisons/choose.html", {"place": "compare", "choosing": choosing})
    context = {"place": "compare", "experiment": experiment, "arms": arms, "matches": matches}
    context["lights"] = compared_arms.lights_of_arms(arms)
    context["sandboxes"] = compared_arms.sandboxes_of_arms(arms)
    return render(request, "comparisons/arms.html", context)


def _to_runs(numbers: list[int]) -> HttpResponseRedirect:
    return redirect(f"{reverse('comparison')}?runs={','.join(str(number) for number in numbers)}")


urlpatterns = [
    path("compare/", comparison, name="comparison"),
    path("", include(comparison_rows)),
    path("experiments/<int:pk>/compare/", compare_arms, name="compare_arms"),
]
