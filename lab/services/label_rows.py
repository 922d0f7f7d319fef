"""A label as rows, and rows as a label."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.utils import timezone

from lab.engine.labels.label import ErrorEvent as LabelEvent
from lab.engine.labels.label import Evidence, Label, Owner, Phase, RootCause, Severity, StepRef
from lab.models import Annotation, ErrorEvent


@transaction.atomic
def write(annotation: Annotation, label: Label) -> None:
    """Make a row what `label` says, and submitted; its columns beside (`known`, times, `extras`) stay as set.

    For a new row or a draft only: what was submitted is not written again.

    Raises:
        ValueError: it was submitted before.
    """
    if annotation.state == Annotation.State.SUBMITTED and annotation.pk is not None:
        raise ValueError(f"annotation {annotation.pk} was submitted and is not changed any more")
    annotation.state = Annotation.State.SUBMITTED
    annotation.submitted_at = annotation.submitted_at or timezone.now()
    annotation.owner = label.owner or ""
    annotation.phase = label.phase or ""
    annotation.sure = label.sure
    annotation.note = label.note
    annotation.root_event = label.root_cause.event if label.root_cause else None
    annotation.root_reason = label.root_cause.reason if label.root_cause else ""
    annotation.alternatives = [step.model_dump(mode="json") for step in label.alternatives]
    annotation.verified_by_replay = label.verified_by_replay
    annotation.draft, annotation.earlier, annotation.later = {}, [], []
    annotation.save()
    ErrorEvent.objects.bulk_create(_row(annotation, event) for event in label.events)


def _row(annotation: Annotation, event: LabelEvent) -> ErrorEvent:
    columns = event.model_dump(mode="json")
    columns["severity"] = event.severity or ""
    return ErrorEvent(annotation=annotation, **columns)


def read(annotation: Annotation) -> Label:
    """The label of a row: of a draft what it holds so far. Prefetch `events` to read many."""
    if annotation.state != Annotation.State.SUBMITTED:
        return Label.model_validate(annotation.draft)
    events = tuple(_event(row) for row in annotation.events.all())
    root = annotation.root_event
    return Label(
        owner=Owner(annotation.owner) if annotation.owner else None,
        phase=Phase(annotation.phase) if annotation.phase else None,
        events=events,
        root_cause=RootCause(event=root, reason=annotation.root_reason) if root is not None else None,
        alternatives=tuple(StepRef.model_validate(step) for step in annotation.alternatives),
        sure=annotation.sure,
        note=annotation.note,
        verified_by_replay=_verified(annotation.verified_by_replay),
        next_key=max((event.key for event in events), default=0) + 1,
    )


def _verified(word: str) -> Any:
    return word or "not tried"


def _event(row: ErrorEvent) -> LabelEvent:
    return LabelEvent(
        key=row.key,
        attempt=row.attempt,
        step=row.step,
        seq=row.seq,
        category=row.category,
        native_category=row.native_category,
        severity=Severity(row.severity) if row.severity else None,
        recovered=row.recovered,
        caused_by=row.caused_by,
        ideal_action=row.ideal_action,
        note=row.note,
        category_reason=row.category_reason,
        agent=row.agent,
        evidence=tuple(Evidence.model_validate(one) for one in row.evidence),
    )


def current(annotations: Iterable[Annotation]) -> list[Annotation]:
    """Those that count: submitted, and not replaced by the same person's later reading (among these)."""
    found = [one for one in annotations if one.state == Annotation.State.SUBMITTED]
    replaced = {one.replaces_id for one in found}
    return [one for one in found if one.pk not in replaced]
