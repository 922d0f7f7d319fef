"""The analysis of a selection of runs, the form that changes it, and the runs behind a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.views.decorators.http import require_safe

from lab.analysis import conduct, harness_effect
from lab.analysis.per_task import BANDS
from lab.engine.errors import InvalidValueError
from lab.engine.limits import as_typed
from lab.models import Role, Run
from lab.services import analysis
from lab.services.analysis import Observed, Selection
from lab.services.errors import FieldErrors
from lab.web import analysis_downloads, analysis_failures, analysis_head, analysis_sections
from lab.web.analysis_choices import choices
from lab.web.http import for_role, signed_in

PAGE = 100
NOTHING_YET = "Here would be rates, costs and behaviour, compared: no run has ended yet."
NOTHING_SELECTED = "No run is in this selection."


@require_safe
@for_role(Role.VIEWER)
def analysis_page(request: HttpRequest) -> HttpResponse:
    """All sections of the selection that the address says; without one, of the newest experiment."""
    try:
        selection = Selection.from_query(request.GET)
        observed = analysis.observed(selection)
    except FieldErrors as error:
        return _refused(request, list(error.errors.values()))
    if not observed.observations:
        return _empty(request, selection)
    band = request.GET.get("band", "")
    query = observed.selection.query()
    context = {
        "place": "analysis",
        "head": analysis_head.head(observed),
        "sections": analysis_sections.sections(
            observed, signed_in(request), band=band if band in BANDS else ""
        ),
        "query": query,
        "kept": [(name, value) for name, value in parse_qsl(query) if name != "pair"],
    }
    return render(request, "analysis/detail.html", context)


def _empty(request: HttpRequest, selection: Selection) -> HttpResponse:
    context: dict[str, Any] = {"place": "analysis", "text": NOTHING_YET, "verb": "Launch runs", "url": "/"}
    if selection.asks_for_runs:
        address = f"{reverse('analysis_choose')}?{selection.query()}"
        context |= {"text": NOTHING_SELECTED, "verb": "Change the selection…", "url": address}
    return render(request, "analysis/empty.html", context)


def _refused(request: HttpRequest, errors: Sequence[str]) -> HttpResponse:
    context = {
        "place": "analysis",
        "errors": errors,
        "text": "This address says no selection that can be shown.",
        "verb": "Choose runs…",
        "url": reverse("analysis_choose"),
    }
    return render(request, "analysis/empty.html", context, status=400)


@require_safe
@for_role(Role.VIEWER)
def analysis_choose(request: HttpRequest) -> HttpResponse:
    """The form that changes the selection; it leads to the analysis, and works without script."""
    errors: list[str] = []
    try:
        selection = Selection.from_query(request.GET)
        offered = choices(selection)
    except FieldErrors as error:
        errors = list(error.errors.values())
        offered = choices(Selection())
    context = {"place": "analysis", "errors": errors, **offered._asdict()}
    return render(request, "analysis/choose.html", context, status=400 if errors else 200)


@require_safe
@for_role(Role.VIEWER)
def analysis_runs(request: HttpRequest) -> HttpResponse:
    """The runs behind a number, by the selection and what of it the number counts."""
    try:
        observed = analysis.observed(Selection.from_query(request.GET))
        numbers = runs_at(observed, request.GET)
    except FieldErrors as error:
        return _refused(request, list(error.errors.values()))
    except (InvalidValueError, ValueError) as error:
        return _refused(request, [str(error)])
    pages = Paginator(numbers, PAGE)
    page: Any = pages.get_page(request.GET.get("page"))
    found = Run.objects.filter(pk__in=list(page.object_list)).for_rows().in_bulk()
    page.object_list = [found[number] for number in page.object_list if number in found]
    kept = request.GET.copy()
    kept.pop("page", None)
    context = {
        "place": "analysis",
        "words": _words(observed, request.GET),
        "counted": len(numbers),
        "page": page,
        "back": f"{reverse('analysis')}?{observed.selection.query()}",
        "kept": kept.urlencode(),
    }
    return render(request, "analysis/runs.html", context)


def runs_at(observed: Observed, asked: Mapping[str, str]) -> list[int]:
    """The runs behind the number that a query asks for, ascending.

    Raises:
        InvalidValueError, ValueError: an outcome or a figure that there is none of.
    """
    switches = observed.selection.switches
    if figure := asked.get("figure", ""):
        numbers = [
            run
            for arm in observed.arms
            for run in conduct.runs_behind(observed.observations, switches, arm.key, figure)
        ]
    elif effect := asked.get("effect", ""):
        numbers = harness_effect.runs_behind(observed.observations, switches, effect)
    else:
        numbers = analysis.runs_behind(
            observed, outcome=asked.get("outcome", ""), exit_reason=asked.get("exit_reason", "")
        )
    return sorted(numbers)


def _words(observed: Observed, asked: Mapping[str, str]) -> str:
    """Of what the runs are: "resolved; leaf v4 × cedar; task dst-schedule"."""
    selection = observed.selection
    parts = []
    if figure := asked.get("figure", ""):
        parts.append(as_typed(figure.replace(":", ": ").replace("_", " ")))
    elif "effect" in asked:
        parts.append("of two arms on the tasks they share")
    else:
        outcome = asked.get("outcome", "")
        parts.append(analysis.BEHIND.get(outcome, "") or "of the selection")
    if selection.arms:
        parts.append(", ".join(arm.name for arm in observed.arms))
    if selection.tasks:
        parts.append(f"task {', '.join(task.slug for task in observed.tasks.values())}")
    if selection.seeds:
        parts.append(f"seed {', '.join(map(str, selection.seeds))}")
    return "; ".join(part for part in parts if part)


urlpatterns = [
    path("analysis/", analysis_page, name="analysis"),
    path("analysis/choose/", analysis_choose, name="analysis_choose"),
    path("analysis/runs/", analysis_runs, name="analysis_runs"),
    path("analysis/labelled/", analysis_failures.labelled_runs, name="labelled_runs"),
    path("analysis/all.zip", analysis_downloads.all_tables, name="analysis_all"),
    path("analysis/<str:table>.csv", analysis_downloads.one_table, name="analysis_download"),
]
