"""Labels that differ, and the third record that settles them. The labels stay as they are."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from lab.analysis import label_agreement
from lab.engine.errors import InvalidValueError
from lab.engine.labels import adjudication
from lab.models import Annotation, GuidelineVersion, Role
from lab.services import agreements, label_rows, labels
from lab.services.access import for_role
from lab.services.annotators import annotator_of
from lab.services.label_visibility import hidden_runs


class Case(NamedTuple):
    """A run that several people labelled under one guideline version.

    `differ`: the fields in which they do (see `lab.analysis.label_agreement.differ`). `settled`: the third
    record, None while there is none; `draft`: the one that the person who asks has begun.
    """

    labels: list[Annotation]
    differ: list[str]
    settled: Annotation | None
    draft: Annotation | None

    @property
    def first(self) -> Annotation:
        return self.labels[0]


@for_role(Role.VIEWER)
def cases(*, by: User) -> tuple[list[Case], int]:
    """Every run with two labels or more by people under one guideline, and how many are hidden.

    Those that wait for adjudication come first: they differ, or somebody was unsure, and nobody settled them.
    """
    rows = Annotation.objects.filter(
        kind=Annotation.Kind.LABEL,
        state=Annotation.State.SUBMITTED,
        replaced_by=None,
        annotator__kind__in=agreements.PEOPLE,
    )
    rows = rows.select_related("run__task", "annotator", "guideline__guideline").prefetch_related("events")
    grouped: dict[tuple[int, int], list[Annotation]] = defaultdict(list)
    for row in rows.order_by("pk"):
        grouped[row.run_id, row.guideline_id].append(row)
    several = {key: group for key, group in grouped.items() if len(group) > 1}
    hidden = hidden_runs(by, {run_id for run_id, _ in several})
    found = [_case(by, group) for (run_id, _), group in several.items() if run_id not in hidden]
    found.sort(key=lambda case: (case.settled is not None or not case.differ, -case.first.pk))
    return found, len(hidden)


def _case(by: User, group: list[Annotation]) -> Case:
    third = Annotation.objects.filter(
        run_id=group[0].run_id, guideline_id=group[0].guideline_id, kind=Annotation.Kind.ADJUDICATION
    ).select_related("annotator")
    settled = third.filter(state=Annotation.State.SUBMITTED, replaced_by=None).order_by("-pk").first()
    draft = third.filter(state=Annotation.State.DRAFT, annotator__person_id=by.pk).first()
    readings = [agreements.reading_of(one) for one in group]
    return Case(group, label_agreement.differ(readings), settled, draft)


@for_role(Role.OPERATOR)
@transaction.atomic
def open_draft(*, by: User, run_id: int, guideline: GuidelineVersion) -> Annotation:
    """The person's draft of the record that settles a run's labels; begins with what all of them say alike.

    Raises:
        InvalidValueError: fewer than two labels, or the person may still label the run themselves.
    """
    if hidden_runs(by, [run_id]):
        raise InvalidValueError(
            "run", run_id, "still wants labels that you may give; submit yours first, or close its queue"
        )
    rows = Annotation.objects.filter(
        run_id=run_id,
        guideline=guideline,
        kind=Annotation.Kind.LABEL,
        state=Annotation.State.SUBMITTED,
        replaced_by=None,
        annotator__kind__in=agreements.PEOPLE,
    )
    parents = list(rows.prefetch_related("events").order_by("pk"))
    if len(parents) < 2:
        raise InvalidValueError("run", run_id, f"has {len(parents)} label; two are needed to settle anything")
    start = adjudication.agreed([label_rows.read(parent) for parent in parents])
    now = timezone.now()
    key = {
        "run_id": run_id,
        "guideline": guideline,
        "annotator": annotator_of(by),
        "kind": Annotation.Kind.ADJUDICATION,
        "state": Annotation.State.DRAFT,
    }
    values = {"draft": start.model_dump(mode="json"), "started_at": now, "touched_at": now}
    try:
        with transaction.atomic():
            draft, made = Annotation.objects.get_or_create(**key, defaults=values)
    except IntegrityError:  # Two tabs at once: the other one made it.
        draft, made = Annotation.objects.get(**key), False
    if made:
        draft.parents.set(parents)
    return draft


@for_role(Role.OPERATOR)
def take(*, by: User, annotation_id: int, revision: int, parent_id: int, part: str) -> Annotation:
    """Part of one of the labels goes into the draft (see `lab.engine.labels.adjudication.PARTS`).

    Raises:
        NoDraftError, StaleDraftError: as for `labels.edit`.
        InvalidValueError: it is none of the labels that are settled, or has no such part.
    """
    draft = labels.own_draft(by, annotation_id)
    parent = draft.parents.prefetch_related("events").filter(pk=parent_id).first()
    if parent is None:
        raise InvalidValueError("label", parent_id, "is none of those that are settled here")
    source = label_rows.read(parent)
    return labels.replace(draft, revision, adjudication.taken(label_rows.read(draft), source, part))
