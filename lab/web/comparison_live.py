"""What a page of runs side by side fetches while they go on: the same rows as they are now, heads, the map.

The page says which rows it holds and which stretches it has folded, so that what is read stays as it is:
nothing is folded or left out that was shown.
"""

from __future__ import annotations

from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.http import require_safe

from lab.engine.errors import InvalidValueError
from lab.models import Role
from lab.render.side_by_side import Frame
from lab.services import comparison_asks, comparison_choices, side_by_side
from lab.services.comparison_choices import Choosing
from lab.services.side_by_side import SideBySide
from lab.services.side_by_side_rows import cut, unit_of, units_of
from lab.web import comparison_rows, comparison_tabs
from lab.web.http import for_role, holds

_MOST_FOLDED = 400


@require_safe
@for_role(Role.VIEWER)
def comparison_news(request: HttpRequest) -> HttpResponse:
    """Heads, map and rows of the page's query as they are now.

    `from` and `to` are the first and the last row the page holds (`to` missing: up to the end), `folded` the
    stretches it has folded, each as its first row and how many it has: 12.3:5. `pane` is the same for each
    run in a pane of its own, as run, first and last step: 12:3:60. With `summary` what stands beside it.
    """
    runs = comparison_choices.wanted(request.GET.getlist("runs"))
    if isinstance(runs, Choosing):
        return HttpResponse(status=HTTPStatus.BAD_REQUEST)
    numbers = [run.pk for run in runs]
    side = side_by_side.read(runs, comparison_asks.asked(numbers, request.GET.dict()), bodies=False)
    frame = comparison_rows.frame_of(side)
    context = {
        "side": side,
        "heads": [(column, side.asked.without(column.run.pk)) for column in side.columns],
        "minimap": comparison_rows.map_html(side, frame),
        "tests_address": side.asked.address(view="tests"),
        "setup": side.asked.address(view="setup", at=None, open=None),
    }
    if side.asked.scroll == "apart":
        context["panes"] = _panes(side, frame, request.GET.getlist("pane"))
    else:
        context["rows"] = _rows(request, side, frame)
    if "summary" in request.GET:
        outlines = [column.outline for column in side.columns]
        shown = [column.run for column in side.columns]
        letters = [column.letter for column in side.columns]
        context |= comparison_tabs.summary_of(
            shown,
            outlines,
            side.layout.last_common_step(),
            letters,
            may_see_gold=holds(request, Role.OPERATOR),
        )
    return render(request, "comparisons/live.html", context)


def _rows(request: HttpRequest, side: SideBySide, frame: Frame) -> str:
    """The rows from `from` to `to` with links to what lies around them; only those of `folded` are folded."""
    rows = side.layout.rows
    folded: set[int] = set()
    room = len(rows)
    for text in request.GET.get("folded", "").split(",")[:_MOST_FOLDED]:
        name, _, count = text.partition(":")
        first = _index(side, name)
        if first is not None:
            # No page has folded a row twice.
            folded.update(range(first, min(first + min(_number(count), room), len(rows))))
            room -= min(_number(count), room)
    units = units_of(side.layout, fold=True, kept={row.index for row in rows} - folded)
    first, last = (_index(side, request.GET.get(name, "")) for name in ("from", "to"))
    start = 0 if first is None else unit_of(units, first)
    end = len(units) if last is None else unit_of(units, last) + 1
    return comparison_rows.window_html(side, frame, cut(units, start, end))


def _index(side: SideBySide, text: str) -> int | None:
    """The place of the row that holds a step such as "12.7", None where the text names none."""
    try:
        return side.layout.places.get(comparison_asks.place("row", text, side.asked.runs))
    except InvalidValueError:
        return None


def _panes(side: SideBySide, frame: Frame, asked: list[str]) -> list[tuple[int, str, str]]:
    """The panes of the runs that are named, each from its first step to its last, or on to the end."""
    found = []
    for text in asked[: len(side.columns)]:
        run, _, steps = text.partition(":")
        first, _, last = steps.partition(":")
        if _number(run) not in side.runs:
            continue
        column = side.runs.index(_number(run))
        end = _number(last) or len(side.columns[column].outline.steps)
        html = comparison_rows.pane_html(side, frame, column, max(0, _number(first) - 1), end=end)
        found.append((_number(run), side.columns[column].letter, html))
    return found


def _number(text: str) -> int:
    """0 where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


urlpatterns = [path("compare/live", comparison_news, name="comparison_live")]
