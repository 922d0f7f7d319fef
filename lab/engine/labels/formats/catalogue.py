"""Tells of which format a file of labels is, by its content, and reads it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from lab.engine.labels.formats import agentrx, lab_csv, lab_jsonl, swe_bench_pro, who_and_when
from lab.engine.labels.formats.base import LabelFileError, LabelFound, LabelProblem, decoded, json_values

_OF_JSON = (lab_jsonl, agentrx, who_and_when)
_OF_ROWS = (lab_csv, swe_bench_pro)
READ = tuple((one.NAME, one.TITLE) for one in (*_OF_JSON, *_OF_ROWS))
WRITTEN = tuple((one.NAME, one.TITLE) for one in (lab_jsonl, lab_csv, agentrx, who_and_when))
# A rationale may be long; Python's own limit is 128 KiB a cell.
_LONGEST_CELL = 16 * 1024 * 1024


def read_labels(data: bytes) -> tuple[str, Iterator[LabelFound]]:
    """The format's name, and what the file holds.

    Raises:
        LabelFileError: not UTF-8, or of no format that the lab reads.
    """
    text = decoded(data)
    if text.lstrip()[:1] in ("{", "["):
        values = json_values(text)
        first = next((value for _, value in values if not isinstance(value, LabelProblem)), None)
        for of_json in _OF_JSON:
            if of_json.recognises(first):
                return of_json.NAME, of_json.read(values)
    else:
        csv.field_size_limit(_LONGEST_CELL)
        header = next(csv.reader(io.StringIO(text, newline="")), [])
        for of_rows in _OF_ROWS:
            if of_rows.recognises(header):
                return of_rows.NAME, of_rows.read(text)
    names = "; ".join(title for _, title in READ)
    raise LabelFileError(f"holds no labels that the lab reads ({names})")
