"""Tables of numbers: what a page shows of each, what a CSV file holds, and why a number is missing."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import NamedTuple

Value = str | int | float | None

# What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Plots draw at most so many series in one frame; their colours and shapes begin anew after that.
SERIES = 6


class Column(NamedTuple):
    """A column: what stands above it, and the names of what it is in a CSV file (several for an interval).

    `mark` is that of an arm that the column is about, 0 without one.
    """

    title: str
    names: tuple[str, ...]
    hint: str = ""
    numeric: bool = True
    swatch: str = ""
    mark: int = 0


class Cell(NamedTuple):
    """One number: as it is read, as a file holds it, and where the runs behind it are.

    `why` is the reason why there is none; `text` then says what is missing.
    """

    text: str
    values: tuple[Value, ...] = ()
    url: str = ""
    why: str = ""
    strong: bool = False
    hint: str = ""


class Row(NamedTuple):
    """What a row is about, and its cells. `series` is the mark of an arm in plots, from 1; 0 without one.

    `letter` is what lights and pairs call the arm; `second` says more of what the row is about.
    """

    name: str
    cells: tuple[Cell, ...]
    series: int = 0
    url: str = ""
    second: str = ""
    letter: str = ""

    @property
    def shape(self) -> int:
        return (self.series - 1) % SERIES + 1 if self.series else 0


class Table(NamedTuple):
    """`key` is its file's name; `head` what the first column holds."""

    key: str
    title: str
    head: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def reasons(self) -> list[str]:
        """Why numbers are missing, each reason once, as they are numbered below the table."""
        return list(dict.fromkeys(cell.why for row in self.rows for cell in row.cells if cell.why))

    @property
    def numbered(self) -> list[tuple[Row, list[tuple[Column, Cell, int]]]]:
        """Rows with their cells, each with the number of its reason below the table (0 without one)."""
        numbers = {why: number for number, why in enumerate(self.reasons, start=1)}
        return [
            (
                row,
                [
                    (column, cell, numbers.get(cell.why, 0))
                    for column, cell in zip(self.columns, row.cells, strict=True)
                ],
            )
            for row in self.rows
        ]


def missing(why: object, width: int = 1, *, text: str = "not estimable", url: str = "") -> Cell:
    """A cell in place of a number that does not exist."""
    return Cell(text, (None,) * width, url=url, why=str(why))


def csv_text(table: Table, about: Mapping[str, str]) -> str:
    """The table as a CSV file (RFC 4180) whose first columns say of which selection it is.

    Unknown is an empty field; the reason stands in the last column, so that no number is mistaken for 0.
    """
    out = StringIO()
    writer = csv.writer(out)
    names = [name for column in table.columns for name in column.names]
    writer.writerow([table.head, *names, "not_estimable_because", *about])
    for row in table.rows:
        values: list[Value] = []
        for column, cell in zip(table.columns, row.cells, strict=True):
            values += _fitted(cell, len(column.names))
        reasons = "; ".join(dict.fromkeys(cell.why for cell in row.cells if cell.why))
        name = f"{row.name} {row.second}".strip()
        writer.writerow([_plain(one) for one in [name, *values, reasons, *about.values()]])
    return out.getvalue()


def _fitted(cell: Cell, width: int) -> list[Value]:
    values: Sequence[Value] = cell.values or (None if cell.why else cell.text,)
    return [*values, *([None] * (width - len(values)))][:width]


def _plain(value: Value) -> Value:
    """A name that begins like a formula is text in a spreadsheet too."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def chunks(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows in groups that one plot can tell apart."""
    found = list(rows)
    return [found[start : start + SERIES] for start in range(0, len(found), SERIES)]
