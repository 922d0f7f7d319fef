"""The lab's labels as a table: a row each, its error events as JSON in one cell, its root cause spelt out.

It brings no guideline: those are in the JSON lines.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from lab.engine.formats.base import parsed
from lab.engine.formats.reading import mapping
from lab.engine.labels.formats.base import LabelFound, LabelProblem, LabelRead
from lab.engine.labels.formats.lab_jsonl import label_line, label_of
from lab.engine.llm.base import JSONObject

NAME = "lab-csv"
TITLE = "The lab's own as a table: CSV"
_RUN = ("task", "experiment", "arm", "seed", "imported")
_GUIDELINE = ("name", "version", "definition", "taxonomy")
_LABEL = ("owner", "phase", "sure", "note", "verified_by_replay")
_PLAIN = ("id", "kind", "started_at", "submitted_at", "lead_seconds", "replaces")
_ROOT = ("root_step", "root_attempt", "root_category", "root_agent")
_JSON = ("root_cause", "events", "alternatives", "parents", "known", "extras")
_COLUMNS = (
    "id",
    "kind",
    *(f"run_{name}" for name in _RUN),
    *(f"guideline_{name}" for name in _GUIDELINE),
    "annotator",
    "annotator_kind",
    *_LABEL,
    *_ROOT,
    *_PLAIN[2:],
    *_JSON,
)
_NUMBERS = frozenset({"run_seed", "guideline_version", "lead_seconds", "sure"})
# What a spreadsheet would compute gets a sign before it, and so does what begins with that sign.
_SIGN = "'"
_SIGNED = ("=", "+", "-", "@", "\t", "\r", "\n", _SIGN)


def recognises(header: list[str]) -> bool:
    return {"annotator", "run_task", "guideline_name", "events"} <= set(header)


def write(labels: Iterable[LabelRead]) -> Iterator[str]:
    """The table in pieces, its header first."""
    yield _line(_COLUMNS)
    for label in labels:
        row = _row(label)
        yield _line(_cell(row.get(name)) for name in _COLUMNS)


def _line(cells: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def _row(label: LabelRead) -> JSONObject:
    whole = label_line(label)
    said = whole["label"]
    row: JSONObject = {name: whole[name] for name in _PLAIN}
    row |= {f"run_{name}": whole["run"][name] for name in _RUN}
    row |= {f"guideline_{name}": whole["guideline"][name] for name in _GUIDELINE}
    row |= {"annotator": whole["annotator"]["name"], "annotator_kind": whole["annotator"]["kind"]}
    row |= {name: said[name] for name in _LABEL}
    root = label.label.root
    if root is not None:
        row |= {"root_step": root.step, "root_attempt": root.attempt, "root_agent": root.agent}
        row["root_category"] = root.category or root.native_category
    for name in _JSON:
        value = said[name] if name in said else whole[name]
        row[name] = json.dumps(value, ensure_ascii=False)
    return row


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    return _SIGN + value if value.startswith(_SIGNED) else value


def read(text: str) -> Iterator[LabelFound]:
    """A label for each row; one that cannot be read is a problem with the column's name."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    for number, row in enumerate(rows, start=2):
        place = f"row {number}"
        try:
            yield label_of(place, _whole({name: _plain(row.get(name) or "") for name in _COLUMNS}))
        except ValidationError as error:
            first = error.errors()[0]
            yield LabelProblem(place, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        except (ValueError, RecursionError) as error:
            yield LabelProblem(place, str(error))


def _plain(cell: str) -> str:
    return cell[1:] if cell.startswith(_SIGN) and cell[1:].startswith(_SIGNED) else cell


def _whole(row: dict[str, str]) -> JSONObject:
    """The row as the line of JSON that says the same."""
    values: JSONObject = dict(row)
    for name in _NUMBERS:
        values[name] = _json(name, row[name]) if row[name] else None
    for name in _JSON:
        values[name] = _json(name, row[name]) if row[name] else None
    said = {name: values[name] or None for name in ("owner", "phase")}
    said |= {"sure": values["sure"], "note": row["note"]}
    said |= {"verified_by_replay": row["verified_by_replay"] or "not tried"}
    said |= {"root_cause": values["root_cause"]}
    said |= {name: values[name] or [] for name in ("events", "alternatives")}
    return {
        **{name: values[name] for name in _PLAIN},
        "run": {name: values[f"run_{name}"] for name in _RUN},
        "guideline": {name: values[f"guideline_{name}"] for name in _GUIDELINE},
        "annotator": {"name": row["annotator"], "kind": row["annotator_kind"]},
        "label": said,
        "parents": values["parents"] or [],
        "known": mapping(values["known"]),
        "extras": mapping(values["extras"]),
    }


def _json(name: str, cell: str) -> Any:
    try:
        return parsed(cell)
    except ValueError:
        raise ValueError(f"{name}: {cell[:40]!r} is not JSON") from None
