"""SWE-bench Pro: one category and a rationale a run, written by a model that read it.

Such a reading names no step, so that it has no error event: the category is kept beside (`extras`), the
rationale is the label's note. It is a judgement, never a person's label.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from lab.engine.labels.formats.base import GuidelineNamed, LabelFound, LabelProblem, LabelRead, RunNamed
from lab.engine.labels.label import Label

NAME = "swe-bench-pro"
TITLE = "SWE-bench Pro: category and rationale of a model judge (.csv)"
GUIDELINE = GuidelineNamed(name="SWE-bench Pro failure category", taxonomy="swe-bench-pro")
_COLUMNS = ("instance_id", "category", "rationale")
_LONGEST_NOTE = 10_000


def recognises(header: list[str]) -> bool:
    return set(_COLUMNS) <= set(header)


def read(text: str) -> Iterator[LabelFound]:
    """A judgement for each row."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    for number, row in enumerate(rows, start=2):
        place = f"row {number}"
        instance = (row.get("instance_id") or "").strip()
        category, rationale = (row.get("category") or "").strip(), row.get("rationale") or ""
        if not instance or not category:
            yield LabelProblem(place, "instance_id or category is missing")
            continue
        more = {"rationale": rationale} if len(rationale) > _LONGEST_NOTE else {}
        rest = {name: value for name, value in row.items() if name and name not in _COLUMNS}
        yield LabelRead(
            place=place,
            run=RunNamed(tasks=tuple(dict.fromkeys((instance, instance.removeprefix("instance_"))))),
            guideline=GUIDELINE,
            kind="judgement",
            label=Label(note=rationale[:_LONGEST_NOTE]),
            extras={"instance_id": instance, "native_category": category, **more, **rest},
        )
