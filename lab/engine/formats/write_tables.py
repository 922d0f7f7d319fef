"""Tables for analysis: runs, steps, calls and tests, each a file of CSV or of Parquet.

All four are written while the runs are read once, so that they wait on the disk and not in memory.
"""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import importlib
import io
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any, Protocol

from lab.engine.errors import LabError
from lab.engine.formats.exported import Exported, Member, Shape
from lab.engine.formats.table_columns import TABLES, Cell, Kind, Row, Table
from lab.engine.llm.base import without_surrogates

_IN_MEMORY_BYTES = 1024 * 1024
_READ_BYTES = 256 * 1024
# Rows that a Parquet file is written in: one group is in memory.
_GROUP_ROWS = 5_000
# A spreadsheet takes a cell that begins like this for a formula, and would compute it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
# What a column of whole numbers can hold.
_LARGEST = 2**63 - 1


class ExtraMissingError(LabError):
    """What this export needs is not installed; the text names the extra."""


class Csv:
    name = "csv"
    title = "Tables as CSV"
    shape: Shape = "several"
    ending = ".csv"
    lost = (
        "no text of a conversation is there: no message, no output, no patch, only their lengths",
        "a text that a spreadsheet would take for a formula begins with a ' that was not there",
    )

    def members(self, runs: Iterable[Exported]) -> Iterator[Member]:
        return _members(runs, _CsvTable, self.ending)


class Parquet:
    name = "parquet"
    title = "Tables as Parquet"
    shape: Shape = "several"
    ending = ".parquet"
    lost = ("no text of a conversation is there: no message, no output, no patch, only their lengths",)

    def members(self, runs: Iterable[Exported]) -> Iterator[Member]:
        """
        Raises:
            ExtraMissingError: pyarrow is not installed.
        """
        require_parquet()
        return _members(runs, _ParquetTable, self.ending)


def require_parquet() -> None:
    """
    Raises:
        ExtraMissingError: pyarrow is not installed.
    """
    try:
        importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ExtraMissingError(
            "tables as Parquet need pyarrow: install trajectory-lab[parquet], or export csv"
        ) from None


class _Open(Protocol):
    """A table that is being written to a file."""

    def __init__(self, table: Table, stream: IO[bytes]) -> None: ...

    def add(self, row: Row) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        """Let go of the file; what was not written is not."""


def _members(runs: Iterable[Exported], kind: type[_Open], ending: str) -> Iterator[Member]:
    with contextlib.ExitStack() as files:
        streams = [files.enter_context(tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)) for _ in TABLES]
        tables = [kind(table, stream) for table, stream in zip(TABLES, streams, strict=True)]
        for opened in tables:
            files.callback(opened.abandon)
        for run in runs:
            for table, opened in zip(TABLES, tables, strict=True):
                for row in table.rows(run):
                    opened.add(row)
        for table, opened, stream in zip(TABLES, tables, streams, strict=True):
            opened.close()
            stream.seek(0)
            yield Member(f"{table.name}{ending}", _read(stream))


def _read(stream: IO[bytes]) -> Iterator[bytes]:
    while piece := stream.read(_READ_BYTES):
        yield piece


class _CsvTable:
    def __init__(self, table: Table, stream: IO[bytes]) -> None:
        self._text = io.StringIO(newline="")
        self._stream = stream
        # As RFC 4180 has it; also what makes the writer quote each sign that ends a line.
        self._writer = csv.writer(self._text, lineterminator="\r\n")
        self._writer.writerow(table.columns)

    def add(self, row: Row) -> None:
        self._writer.writerow([_csv_cell(cell) for cell in row])
        if self._text.tell() > _READ_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()

    def abandon(self) -> None:
        """Nothing is held but text."""

    def _flush(self) -> None:
        self._stream.write(self._text.getvalue().encode())
        self._text.seek(0)
        self._text.truncate()


def _csv_cell(cell: Cell) -> str | int | float:
    """A cell as text. Numbers stay numbers: only a text can be taken for a formula."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, dt.datetime):
        return cell.isoformat()
    if isinstance(cell, str):
        text = without_surrogates(cell).replace("\x00", "\N{SYMBOL FOR NULL}")
        return f"'{text}" if text.startswith(_FORMULA) else text
    return cell


class _ParquetTable:
    def __init__(self, table: Table, stream: IO[bytes]) -> None:
        # Only this format needs them.
        pa: Any = importlib.import_module("pyarrow")
        pq: Any = importlib.import_module("pyarrow.parquet")
        self._arrow = pa
        self._kinds = list(table.columns.values())
        self._schema = pa.schema([(name, _arrow_type(pa, kind)) for name, kind in table.columns.items()])
        self._writer = pq.ParquetWriter(stream, self._schema, compression="zstd")
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        self._rows.append([_parquet_cell(cell, kind) for cell, kind in zip(row, self._kinds, strict=True)])
        if len(self._rows) >= _GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        # It writes its end to the file, also when it was closed by nobody.
        self._writer.close()

    def _flush(self) -> None:
        if not self._rows:
            return
        columns = list(zip(*self._rows, strict=True))
        arrays = [
            self._arrow.array(list(cells), type=field.type)
            for cells, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._rows = []


def _arrow_type(arrow: Any, kind: Kind) -> Any:
    types = {
        "text": arrow.string(),
        "whole": arrow.int64(),
        "real": arrow.float64(),
        "moment": arrow.timestamp("us", tz="UTC"),
        "truth": arrow.bool_(),
    }
    return types[kind]


def _parquet_cell(cell: Cell, kind: Kind) -> Cell:
    if isinstance(cell, str):
        return without_surrogates(cell) or None
    if kind == "whole" and isinstance(cell, int) and abs(cell) > _LARGEST:
        return None
    return float(cell) if kind == "real" and isinstance(cell, int) else cell
