"""Judges against people: each model's judgements held against the labels in force of the same runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.contrib.auth.models import User

from lab.analysis import judge_scoring
from lab.analysis.judge_scoring import Reading, Scores
from lab.engine.labels.label import Label
from lab.models import Annotation, Annotator, GuidelineVersion, Role
from lab.services import label_rows
from lab.services.access import for_role
from lab.services.label_visibility import hidden_runs


class JudgeRecord(NamedTuple):
    """One model under one guideline version. `runs`: those it read and people labelled, `hidden` among those
    it read are left out because the person may still label them blind."""

    judge: Annotator
    guideline: GuidelineVersion
    scores: Scores
    runs: int
    read: int
    hidden: int


@for_role(Role.VIEWER)
def records(*, by: User) -> list[JudgeRecord]:
    """Every judge that read something, in the order they were first asked."""
    rows = Annotation.objects.filter(state=Annotation.State.SUBMITTED).exclude(replaced_by__isnull=False)
    judgements = rows.filter(kind=Annotation.Kind.JUDGEMENT, annotator__kind=Annotator.Kind.JUDGE)
    judgements = judgements.select_related("annotator", "guideline__guideline").prefetch_related("events")
    found: dict[tuple[int, int], list[Annotation]] = {}
    for row in judgements.order_by("pk"):
        found.setdefault((row.annotator_id, row.guideline_id), []).append(row)
    runs = {row.run_id for group in found.values() for row in group}
    hidden = hidden_runs(by, runs)
    people = rows.exclude(kind=Annotation.Kind.JUDGEMENT).filter(run__in=runs - hidden)
    by_guideline: dict[int, dict[int, list[Annotation]]] = {}
    for row in people.prefetch_related("events").order_by("submitted_at", "pk"):
        by_guideline.setdefault(row.guideline_id, {}).setdefault(row.run_id, []).append(row)
    return [_record(group, by_guideline, hidden) for group in found.values()]


def _record(
    group: list[Annotation], people: dict[int, dict[int, list[Annotation]]], hidden: set[int]
) -> JudgeRecord:
    first = group[0]
    seen = [row for row in group if row.run_id not in hidden]
    judged = {row.run_id: as_reading(label_rows.read(row)) for row in seen}
    labels = people.get(first.guideline_id, {})
    settled = {run: in_force(labels[run]) for run in judged if run in labels}
    return JudgeRecord(
        judge=first.annotator,
        guideline=first.guideline,
        scores=judge_scoring.score(judged, settled),
        runs=len(settled),
        read=len({row.run_id for row in group}),
        hidden=len({row.run_id for row in group} & hidden),
    )


def in_force(annotations: Iterable[Annotation]) -> Reading:
    """What people settled on: the newest adjudication, else each field on which all labels agree."""
    rows = list(annotations)
    decided = [row for row in rows if row.kind == Annotation.Kind.ADJUDICATION]
    if decided:
        return as_reading(label_rows.read(decided[-1]))
    readings = [as_reading(label_rows.read(row)) for row in rows]
    agreed = {
        name: values.pop()
        for name in Reading._fields
        if len(values := {getattr(reading, name) for reading in readings}) == 1
    }
    return Reading(**agreed)


def as_reading(label: Label) -> Reading:
    """What scoring compares of a label. Steps are compared by number, whatever their attempt."""
    root = label.root
    return Reading(
        owner=label.owner,
        phase=label.phase,
        root_category=(root.category or None) if root else None,
        sure=None if label.sure is None else ("sure" if label.sure else "unsure"),
        root_step=root.step if root else None,
    )
