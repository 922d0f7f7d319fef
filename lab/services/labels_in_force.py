"""What people settled on of a run: the adjudication, else what all labels of it say alike.

A model's judgement never counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

from django.contrib.auth.models import User

from lab.analysis.label_agreement import Reading
from lab.models import Annotation, GuidelineVersion
from lab.services import agreements
from lab.services.label_visibility import hidden_runs

NOT_SETTLED = "not settled"
_FIELDS = ("owner", "phase", "category")


class InForce(NamedTuple):
    """A run's reading that counts. A field on which labels differ is NOT_SETTLED, one nobody filled None.

    `guideline`: the version it was labelled under, of several the newest, and first those under which it was
    adjudicated. `steps_differ`: labels name different steps. `labels`: how many people labelled it.
    `annotation`: the record to read first.
    """

    run_id: int
    guideline: GuidelineVersion
    owner: str | None
    phase: str | None
    category: str | None
    attempt: int | None
    step: int | None
    steps_differ: bool
    labels: int
    adjudicated: bool
    annotation: int


def of(person: User, run_ids: Collection[int]) -> tuple[dict[int, InForce], set[int]]:
    """The readings that count, by run, and the labelled runs that are hidden from the person as yet."""
    rows = Annotation.objects.filter(
        run_id__in=run_ids,
        state=Annotation.State.SUBMITTED,
        replaced_by=None,
        kind__in=(Annotation.Kind.LABEL, Annotation.Kind.ADJUDICATION),
    )
    rows = rows.select_related("guideline__taxonomy_version__taxonomy").prefetch_related("events")
    by_run: dict[int, list[Annotation]] = defaultdict(list)
    for row in rows.order_by("submitted_at", "pk"):
        by_run[row.run_id].append(row)
    hidden = hidden_runs(person, by_run) if by_run else set()
    shown = {run: _settled(found) for run, found in by_run.items() if run not in hidden}
    return shown, hidden


def _settled(found: list[Annotation]) -> InForce:
    decided = [one for one in found if one.kind == Annotation.Kind.ADJUDICATION]
    versions = [one.guideline for one in decided or found]
    guideline = max(versions, key=lambda version: (version.guideline_id, version.n))
    same = [one for one in found if one.guideline_id == guideline.pk]
    thirds = [one for one in same if one.kind == Annotation.Kind.ADJUDICATION]
    labels = [one for one in same if one.kind == Annotation.Kind.LABEL]
    counted = thirds[-1:] or labels
    readings = [agreements.reading_of(one) for one in counted]
    values = {name: _alike(readings, name) for name in _FIELDS}
    steps = {(one.attempt, one.step) for one in readings}
    steps_differ = len(steps) > 1
    attempt, step = (None, None) if steps_differ else steps.pop()
    return InForce(
        run_id=counted[0].run_id,
        guideline=guideline,
        owner=values["owner"],
        phase=values["phase"],
        category=values["category"],
        attempt=attempt,
        step=step,
        steps_differ=steps_differ,
        labels=len(labels),
        adjudicated=bool(thirds),
        annotation=counted[-1].pk,
    )


def _alike(readings: list[Reading], name: str) -> str | None:
    values = {getattr(one, name) for one in readings}
    return values.pop() if len(values) == 1 else NOT_SETTLED
