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
    record, None while there is none; `draft`: the one that the person who asks has begun. `newer`: labels
    came or were corrected since it was settled.
    """

    labels: list[Annotation]
    differ: list[str]
    settled: Annotation | None
    draft: Annotation | None
    newer: bool = False

    @property
    def waits(self) -> bool:
        """Whether somebody should settle it, or settle it anew."""
        return bool(self.differ) and (self.settled is None or self.newer)

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
    thirds = _thirds({run_id for run_id, _ in several})
    found = [_case(by, group, thirds.get(key, [])) for key, group in several.items() if key[0] not in hidden]
    found.sort(key=lambda case: (not case.waits, -case.first.pk))
    return found, len(hidden)


def _thirds(run_ids: set[int]) -> dict[tuple[int, int], list[Annotation]]:
    """Records that settle labels of these runs, and drafts of such, by run and guideline.

    The one that was submitted last stands last.
    """
    rows = Annotation.objects.filter(run_id__in=run_ids, kind=Annotation.Kind.ADJUDICATION)
    rows = rows.exclude(state=Annotation.State.DISCARDED).select_related("annotator")
    found: dict[tuple[int, int], list[Annotation]] = defaultdict(list)
    for row in rows.prefetch_related("parents").order_by("submitted_at", "pk"):
        found[row.run_id, row.guideline_id].append(row)
    return found


def _case(by: User, group: list[Annotation], thirds: list[Annotation]) -> Case:
    done = [one for one in thirds if one.state == Annotation.State.SUBMITTED]
    settled = done[-1] if done else None
    drafts = [one for one in thirds if one.state == Annotation.State.DRAFT]
    draft = next((one for one in drafts if one.annotator.person_id == by.pk), None)
    readings = [agreements.reading_of(one) for one in group]
    now = {one.pk for one in group}
    newer = settled is not None and {parent.pk for parent in settled.parents.all()} != now
    return Case(group, label_agreement.differ(readings), settled, draft, newer)


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
            draft, _ = Annotation.objects.get_or_create(**key, defaults=values)
    except IntegrityError:  # Two tabs at once: the other one made it.
        draft = Annotation.objects.get(**key)
    # Also of a draft that was begun before: labels may have come or been corrected since.
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
