"""The rows of runs side by side as markup, and the addresses that send a part of them."""

from __future__ import annotations

import html
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.views.decorators.http import require_safe

from lab.engine.errors import InvalidValueError
from lab.models import Role
from lab.render import side_by_side as markup
from lab.render.side_by_side import Calls, Frame
from lab.render.side_by_side_map import ROWS_WITH_ICONS, minimap_html
from lab.services import comparison_asks, comparisons, side_by_side
from lab.services.comparison_asks import Place
from lab.services.side_by_side import SideBySide
from lab.services.side_by_side_rows import Layout, Row, Stretch, Window, rows_of
from lab.web.http import for_role

__all__ = ["ROWS_WITH_ICONS", "band_at", "frame_of", "map_html", "pane_html", "panes", "window_html"]

PANE_STEPS = 60
_PANE_ABOVE = 4


def frame_of(side: SideBySide) -> Frame:
    """What all rows of this page share."""
    return Frame(
        runs=side.runs,
        letters=[column.letter for column in side.columns],
        recorded=[column.recorded for column in side.columns],
        ended=[column.ended for column in side.columns],
        query=side.asked.address(at=None, open=None),
        reached=[
            max((row.index for row in side.layout.rows if row.steps[place] is not None), default=-1)
            for place in range(len(side.columns))
        ],
        calls=Calls(side.layout.rows),
    )


def window_html(
    side: SideBySide, frame: Frame, window: Window, *, before: bool = True, after: bool = True
) -> str:
    """The units of a window with the bands among them; `before`, `after`: with a link to what lies there."""
    rows = [row for unit in window.units for row in rows_of(unit)]
    parts: list[str] = []
    if before and window.before and rows:
        parts.append(_edge(side, frame, "before", window.before, rows[0].name))
    for unit in window.units:
        parts += _bands(side, frame, rows_of(unit)[0].index)
        if isinstance(unit, Stretch):
            parts.append(markup.stretch_html(unit.rows, side_by_side.stretch_words(unit), frame))
        else:
            parts.append(_row(side, frame, unit))
    if after and window.after and rows:
        parts.append(_edge(side, frame, "after", window.after, rows[-1].name))
    return markup.items_html(parts)


def map_html(side: SideBySide, frame: Frame) -> str:
    """The whole of the runs in small."""
    rows = [row for unit in side.window.units for row in rows_of(unit)]
    shown = range(rows[0].index, rows[-1].index + 1) if rows else range(0)
    begins = {parting.row for parting in side.layout.partings}
    return minimap_html(side.layout.rows, frame, partings=begins, shown=shown)


def _row(side: SideBySide, frame: Frame, row: Row) -> str:
    return markup.row_html(row, frame, body=side.bodies.get(row.name), opened=row.name in side.opened)


def _bands(side: SideBySide, frame: Frame, index: int) -> list[str]:
    band = band_at(side.layout, frame, index)
    return [band] if band else []


def band_at(layout: Layout, frame: Frame, index: int, *, with_key: bool = True) -> str:
    """The band of all runs that part in this row, "" where none does. The first one tells who never parts."""
    here = [one for one in layout.partings if one.row == index]
    if not here:
        return ""
    is_first = here[0] is layout.first_parting()
    parted = {one.column for one in layout.partings} | {here[0].base}
    return markup.band_html(
        here[0],
        layout.rows,
        frame,
        first=is_first and with_key,
        also=here[1:],
        staying=[column for column in layout.compared if column not in parted] if is_first else [],
    )


def _edge(side: SideBySide, frame: Frame, which: str, rows: int, place: Place) -> str:
    address = f"{reverse('comparison_rows')}{side.asked.address()}&{which}={place}"
    return markup.edge_html(which, rows, place, frame, address)


# ---- each run in a pane of its own -------------------------------------------------------------------------


def panes(side: SideBySide, frame: Frame) -> list[tuple[int, str, str]]:
    """For each column its run, its letter, and the items of its pane around the row where the page opens."""
    return [
        (
            side.runs[column],
            side.columns[column].letter,
            pane_html(side, frame, column, _first_shown(side, column)),
        )
        for column in range(len(side.columns))
    ]


def _first_shown(side: SideBySide, column: int) -> int:
    """The place of the step with which a pane begins."""
    steps = [row.index for row in side.layout.rows if row.steps[column] is not None]
    at = next((place for place, index in enumerate(steps) if index >= side.focus), len(steps) - 1)
    return max(0, at - _PANE_ABOVE)


def pane_html(
    side: SideBySide,
    frame: Frame,
    column: int,
    start: int,
    *,
    before: bool = True,
    after: bool = True,
    end: int | None = None,
) -> str:
    """The steps of one column from a place on, without gaps, and links to what lies before and after them."""
    rows = [row for row in side.layout.rows if row.steps[column] is not None]
    start = min(start, len(rows))
    end = start + PANE_STEPS if end is None else end
    shown = rows[start:end]
    run = side.runs[column]
    begins = {parting.row for parting in side.layout.partings if column in (parting.base, parting.column)}
    parts: list[str] = []
    if before and start > 0 and shown:
        parts.append(_pane_edge(side, frame, run, "before", start, _number(shown[0], column)))
    last = rows[start - 1].index if start else -1
    for row in shown:
        parts += [markup.pane_band_html(run, begin) for begin in sorted(begins) if last < begin <= row.index][
            :1
        ]
        parts.append(markup.pane_row_html(row, column, frame))
        last = row.index
    if end >= len(rows):
        # It parts by what the other one did after its own end.
        parts += [markup.pane_band_html(run, begin) for begin in sorted(begins) if begin > last][:1]
    if after and len(rows) > end and shown:
        parts.append(_pane_edge(side, frame, run, "after", len(rows) - end, _number(shown[-1], column)))
    return markup.items_html(parts)


def _number(row: Row, column: int) -> int:
    step = row.steps[column]
    return step.number if step is not None else 0


def _pane_edge(side: SideBySide, frame: Frame, run: int, which: str, rows: int, step: int) -> str:
    place = Place(run, step)
    address = f"{reverse('comparison_rows')}{side.asked.address()}&column={run}&{which}={place}"
    return markup.edge_html(which, rows, place, frame, address, of=run)


# ---- parts of a page ---------------------------------------------------------------------------------------


class _Gone(Exception):
    """What was asked for is not there; the text says so where it would have stood."""


@require_safe
@for_role(Role.VIEWER)
def comparison_rows(request: HttpRequest) -> HttpResponse:
    """Rows as list items: those of the page, or those `before`, `after` or `within` the stretch of a step.

    With `column`, a run: those of its pane.
    """
    try:
        side = _side(request)
        which = next((name for name in ("before", "after", "within") if name in request.GET), "")
        if side.asked.scroll == "apart" and "column" in request.GET:
            return HttpResponse(_pane_part(request, side, which))
        if not which:
            return HttpResponse(window_html(side, frame_of(side), side.window))
        row = _asked_row(request, side, which)
    except (InvalidValueError, _Gone) as error:
        return _not_there(error, "li")
    frame = frame_of(side)
    if which == "within":
        return HttpResponse(window_html(side, frame, side_by_side.rows_within(side, row)))
    if which == "before":
        return HttpResponse(window_html(side, frame, side_by_side.rows_before(side, row), after=False))
    return HttpResponse(window_html(side, frame, side_by_side.rows_after(side, row), before=False))


@require_safe
@for_role(Role.VIEWER)
def comparison_row(request: HttpRequest) -> HttpResponse:
    """What opens below the row that holds the step `row`: all columns, or the one of the run `column`."""
    try:
        side = _side(request)
        row = _asked_row(request, side, "row")
        columns, steps = side.columns, row
        if "column" in request.GET:
            column = _asked_column(request, side)
            columns = [side.columns[column]]
            steps = row.only(column)
    except (InvalidValueError, _Gone) as error:
        return _not_there(error, "p")
    return HttpResponse(side_by_side.bodies_of(columns, [steps])[steps.name])


def _side(request: HttpRequest) -> SideBySide:
    numbers = comparisons.asked_numbers(request.GET.getlist("runs"))
    runs = comparisons.find_runs(numbers)
    if len(runs) < 2:
        raise _Gone("Two to six runs stand side by side; this address names fewer.")
    return side_by_side.read(runs, comparison_asks.asked(numbers, request.GET.dict()), bodies=False)


def _asked_row(request: HttpRequest, side: SideBySide, name: str) -> Row:
    place = comparison_asks.place(name, request.GET.get(name, ""), side.asked.runs)
    row = side.row(place)
    if row is None:
        raise side_by_side.no_such_step(name, place, side.columns)
    return row


def _asked_column(request: HttpRequest, side: SideBySide) -> int:
    text = request.GET["column"]
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) in side.runs):
        raise InvalidValueError("column", text[:40], "is no run that is shown here")
    return side.runs.index(int(text))


def _pane_part(request: HttpRequest, side: SideBySide, which: str) -> str:
    column = _asked_column(request, side)
    frame = frame_of(side)
    if which not in ("before", "after"):
        return pane_html(side, frame, column, _first_shown(side, column))
    step = comparison_asks.place(which, request.GET[which], [side.runs[column]]).step
    if which == "after":
        return pane_html(side, frame, column, step, before=False)
    return pane_html(side, frame, column, max(0, step - 1 - PANE_STEPS), after=False, end=max(0, step - 1))


def _not_there(error: Exception, element: str) -> HttpResponse:
    """Why there is nothing, in the place of what was asked for."""
    words = html.escape(str(error))
    return HttpResponse(f'<{element} class="gone">{words}</{element}>', status=HTTPStatus.BAD_REQUEST)


urlpatterns = [
    path("compare/rows", comparison_rows, name="comparison_rows"),
    path("compare/row", comparison_row, name="comparison_row"),
]
