"""Tables of numbers as HTML: rows that keys walk, numbers that lead to their runs, reasons below.

Written here and not as a template: an analysis has thousands of cells.
"""

from __future__ import annotations

from html import escape

from django.utils.safestring import SafeString

from lab.render.icons import SPRITE
from lab.render.tables import Cell, Column, Row, Table
from lab.render.text import safe, visible_html


def table_html(table: Table, plot: str = "") -> SafeString:
    """The table in a box that scrolls sideways; `plot`, as safe HTML, stands beside the first column."""
    joined = " joined" if plot else ""
    title = visible_html(table.title)
    body = "".join(
        _row(row, cells, _plot_cell(plot, len(table.rows)) if plot and place == 0 else "")
        for place, (row, cells) in enumerate(table.numbered)
    )
    return safe(
        f'<div class="wide" role="region" aria-label="{title}" tabindex="0">'
        f'<table class="numbers{joined}" id="table-{escape(table.key)}">'
        f'<caption class="visually-hidden">{title}</caption>'
        f"<thead><tr>{_heads(table, bool(plot))}</tr></thead><tbody>{body}</tbody></table></div>"
        f"{_below(table)}"
    )


def _heads(table: Table, with_plot: bool) -> str:
    first = f'<th scope="col">{visible_html(table.head)}</th>'
    plot = '<th class="plot-head" aria-hidden="true"></th>' if with_plot else ""
    return first + plot + "".join(_head(column) for column in table.columns)


def _head(column: Column) -> str:
    number = ' class="number"' if column.numeric else ""
    hint = f' title="{escape(column.hint)}"' if column.hint else ""
    swatch = (
        f'<span class="swatch" data-part="{escape(column.swatch)}" aria-hidden="true"></span>'
        if column.swatch
        else ""
    )
    return f'<th scope="col"{number}{hint}>{swatch}{mark(column.mark)}{visible_html(column.title)}</th>'


def _plot_cell(plot: str, rows: int) -> str:
    return f'<td class="plot-cell" rowspan="{rows}">{plot}</td>'


def _row(row: Row, cells: list[tuple[Column, Cell, int]], plot: str) -> str:
    name = visible_html(row.name)
    linked = f'<a href="{escape(row.url)}">{name}</a>' if row.url else name
    second = f' <span class="second">{visible_html(row.second)}</span>' if row.second else ""
    shown = "".join(_cell(column, cell, number) for column, cell, number in cells)
    letter = f'<span class="letter">{escape(row.letter)}</span> ' if row.letter else ""
    whole = visible_html(f"{row.name} {row.second}".strip())
    head = f'<th scope="row" title="{whole}">{mark(row.shape)}{letter}{linked}{second}</th>'
    return f'<tr data-row tabindex="-1">{head}{plot}{shown}</tr>'


def mark(shape: int) -> str:
    """The mark of an arm as plots draw it, "" without one."""
    if not shape:
        return ""
    return (
        f'<svg class="series" data-series="{shape}" aria-hidden="true">'
        f'<use href="{SPRITE}#series-{shape}"/></svg>'
    )


def _cell(column: Column, cell: Cell, number: int) -> str:
    of = ' class="number"' if column.numeric else ""
    hint = f' title="{escape(cell.hint)}"' if cell.hint else ""
    return f"<td{of}{hint}>{_content(cell, number)}</td>"


def _content(cell: Cell, number: int) -> str:
    text = visible_html(cell.text)
    if cell.why:
        word = f'<span class="unknown">{text}</span>' if text else ""
        sign = f"<sup>{number}</sup>"
        return word + (f'<a href="{escape(cell.url)}">{sign}</a>' if cell.url else sign)
    if cell.url:
        strong = ' class="strong"' if cell.strong else ""
        return f'<a href="{escape(cell.url)}"{strong}>{text}</a>'
    return f"<b>{text}</b>" if cell.strong else text


def _below(table: Table) -> str:
    reasons = "".join(f"<li>Not estimable, because {visible_html(why)}.</li>" for why in table.reasons)
    listed = f'<ol class="reasons" aria-label="Why numbers are missing">{reasons}</ol>' if reasons else ""
    notes = "".join(f'<p class="label table-note">{visible_html(note)}</p>' for note in table.notes)
    return listed + notes
