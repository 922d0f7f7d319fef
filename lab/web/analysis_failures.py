"""The panels on why runs failed as people labelled them, and the runs behind each number."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from lab.analysis import failures
from lab.analysis.estimates import Unknown
from lab.analysis.failures import ArmFailures
from lab.analysis.shares import Share
from lab.models import Role, Run
from lab.render import figures
from lab.render.numbers import plural
from lab.render.tables import Cell, Column, Table, missing
from lab.services import analysis, failure_breakdown
from lab.services.analysis import Selection
from lab.services.errors import FieldErrors
from lab.services.failure_breakdown import Breakdown
from lab.web import charts_conduct
from lab.web.analysis_parts import Panel, Shown, count_cell, limits, with_limits
from lab.web.http import for_role, signed_in

TITLES = {
    "owner": ("Whose fault", "labelled failed runs by owner"),
    "category": ("Category of the root cause", "labelled failed runs by category"),
    "phase": ("Phase of the root cause", "what the agent was at"),
    "place": ("Where in the run the root cause is", "its step relative to the run's length"),
}
NOBODY = "no failed run of this selection is labelled"


def panels(shown: Shown, person: User) -> tuple[Panel, ...]:
    """One panel a field; one that says how to begin where nothing is labelled."""
    found = failure_breakdown.of(person, shown.observed)
    arms = failures.breakdown(found.labelled, found.failed)
    notes = _notes(found)
    if not found.labelled:
        title = "Why, as people labelled them"
        subtitle = "fill a queue with failed runs on the page Annotate"
        return (Panel("labelled-owner", title, subtitle, why=NOBODY, notes=notes),)
    return tuple(_panel(shown, field, arms, found, notes) for field in failures.FIELDS)


def _notes(found: Breakdown) -> tuple[str, ...]:
    notes = []
    if found.labelled:
        all_failed = sum(found.failed.values())
        notes.append(f"{len(found.labelled):,} of {plural(all_failed, 'failed run')} labelled by people")
    if found.unsettled:
        notes.append(f"{plural(found.unsettled, 'run')} whose labels differ and nobody settled")
    if found.hidden:
        notes.append(f"labels of {plural(found.hidden, 'run')} are hidden until you have submitted yours")
    return tuple(notes)


def _panel(
    shown: Shown, field: str, arms: list[ArmFailures], found: Breakdown, notes: tuple[str, ...]
) -> Panel:
    title, subtitle = TITLES[field]
    key = f"labelled-{field}"
    keys = [share.key for share in arms[0].fields[field]]
    words = {one: _word(one, found) for one in keys}
    columns = [_column(word, field, one) for one, word in words.items()]
    columns += [Column("labelled", ("labelled",)), Column("failed", ("failed",))]
    rows = []
    for one in arms:
        cells = [_cell(shown, one.arm, share) for share in one.fields[field]]
        cells += [
            count_cell(one.labelled, ""),
            count_cell(one.failed, shown.behind(one.arm, figure="tests:failures")),
        ]
        rows.append(shown.row(one.arm, cells))
    plot = charts_conduct.parts(
        shown, key, title, subtitle, [(one.arm, one.fields[field]) for one in arms], words
    )
    return Panel(
        key,
        title,
        subtitle,
        plots=(plot,) if plot else (),
        table=Table(key, title, "arm", tuple(columns), tuple(rows)),
        notes=notes,
        folded=False,
    )


def _word(key: str, found: Breakdown) -> str:
    value = key.partition(":")[2]
    return found.words.get(value, value.replace("_", " "))


def _column(word: str, field: str, key: str) -> Column:
    name = f"{field}_{key.partition(':')[2]}".replace(" ", "_").replace("-", "_")
    return Column(word, (*with_limits(name), f"{name}_count", f"{name}_of"))


def _cell(shown: Shown, arm: str, share: Share) -> Cell:
    if isinstance(share.estimate, Unknown):
        return missing(share.estimate.why, 5)
    low, high = limits(share.estimate.interval)
    between = f"{100 * low:.1f}–{100 * high:.1f}" if low is not None and high is not None else "no interval"
    address = (
        f"{reverse('labelled_runs')}?{shown.selection.query()}&{urlencode({'of': arm, 'label': share.key})}"
    )
    return Cell(
        f"{figures.percent(share.estimate.value)} ({between})",
        (share.estimate.value, low, high, share.part, share.of),
        address if share.part else "",
        hint=f"{share.part:g} of {share.of:g} labelled runs",
    )


@require_safe
@for_role(Role.VIEWER)
def labelled_runs(request: HttpRequest) -> HttpResponse:
    """The runs behind a number: `of` an arm, whose label is as `label` says, such as `owner:agent`."""
    person = signed_in(request)
    key, arm = request.GET.get("label", ""), request.GET.get("of", "")
    context: dict[str, Any] = {"place": "analysis", "key": key, "rows": [], "error": ""}
    try:
        observed = analysis.observed(Selection.from_query(request.GET))
    except FieldErrors as wrong:
        context["error"] = " ".join(wrong.errors.values())
        return render(request, "analysis/labelled.html", context, status=400)
    found = failure_breakdown.of(person, observed)
    behind = {one.run for one in found.labelled if failures.is_behind(one, key) and arm in ("", one.arm)}
    runs = Run.objects.filter(pk__in=behind).select_related("task", "facts").order_by("pk")
    query = observed.selection.query()
    context |= {
        "rows": [(run, found.annotations[run.pk]) for run in runs],
        "words": f"{TITLES.get(key.partition(':')[0], ('',))[0]}: {_word(key, found)}",
        "arm": next((one.name for one in observed.arms if one.key == arm), ""),
        "back": f"{reverse('analysis')}?{query}#failures" if query else f"{reverse('analysis')}#failures",
    }
    return render(request, "analysis/labelled.html", context)
