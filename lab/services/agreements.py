"""Labels of several people of the same runs, ready to be compared."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from django.contrib.auth.models import User

from lab.analysis.label_agreement import Reading
from lab.models import Annotation, Annotator, GuidelineVersion, Queue, Role
from lab.services import label_rows
from lab.services.access import for_role
from lab.services.label_visibility import hidden_runs

PEOPLE = (Annotator.Kind.PERSON, Annotator.Kind.IMPORTED)


class Compared(NamedTuple):
    """Readings whose `item` is a run's number and `rater` an annotator's.

    `annotators` are all who labelled anything. `hidden` counts runs whose labels are left out because whoever
    asks may still label them, `informed` labels whose authors had seen another reading before they began.
    `vocabularies`: in how many the categories are written; of more than one they are not compared.
    """

    readings: list[Reading]
    annotators: dict[int, Annotator]
    labels: dict[int, int]
    hidden: int
    informed: int
    vocabularies: int


@for_role(Role.VIEWER)
def compared(
    *,
    by: User,
    guideline: GuidelineVersion | None = None,
    queue: Queue | None = None,
    annotators: Collection[int] = (),
) -> Compared:
    """Submitted labels of people, those of the lab and those whose labels were imported; never a model's.

    Empty filters ask for nothing. Of somebody's labels of one run the newest that they made blind counts: a
    correction that was made with the others' labels in sight changes nothing here.
    """
    rows = Annotation.objects.filter(
        kind=Annotation.Kind.LABEL,
        state=Annotation.State.SUBMITTED,
        annotator__kind__in=PEOPLE,
    )
    if guideline is not None:
        rows = rows.filter(guideline=guideline)
    if queue is not None:
        rows = rows.filter(run__queue_items__queue=queue)
    rows = rows.select_related("annotator", "guideline__taxonomy_version").prefetch_related("events")
    found = list(rows.order_by("annotator_id", "pk"))
    hidden = hidden_runs(by, {row.run_id for row in found})
    visible = [row for row in found if row.run_id not in hidden]
    shown = [row for row in visible if row.blind]
    without = {(row.run_id, row.annotator_id) for row in visible}
    without -= {(row.run_id, row.annotator_id) for row in shown}
    known = {row.annotator_id: row.annotator for row in shown}
    counts = {pk: sum(row.annotator_id == pk for row in shown) for pk in known}
    chosen = [row for row in shown if not annotators or row.annotator_id in annotators]
    vocabularies = {row.guideline.taxonomy_version.taxonomy_id for row in chosen}
    return Compared(
        readings=readings_of(chosen, categories=len(vocabularies) == 1),
        annotators=known,
        labels=counts,
        hidden=len(hidden),
        informed=len(without),
        vocabularies=len(vocabularies),
    )


def readings_of(annotations: Iterable[Annotation], *, categories: bool = True) -> list[Reading]:
    """The labels as they are compared, one a run and annotator: the newest of several.

    `categories`: whether these are of one vocabulary, and can be compared.
    """
    newest = {(one.run_id, one.annotator_id): one for one in annotations}
    return [reading_of(one, categories=categories) for one in newest.values()]


def reading_of(annotation: Annotation, *, categories: bool = True) -> Reading:
    """One submitted label as it is compared. Prefetch `events` to read many."""
    label = label_rows.read(annotation)
    root = label.root
    return Reading(
        item=annotation.run_id,
        rater=annotation.annotator_id,
        owner=label.owner,
        phase=label.phase,
        sure=None if label.sure is None else ("sure" if label.sure else "unsure"),
        category=(root.category or None) if root and categories else None,
        agent=(root.agent or None) if root else None,
        attempt=root.attempt if root else None,
        step=root.step if root else None,
        categories=(", ".join(sorted({event.category for event in label.events})) or "none")
        if categories
        else None,
        severities=tuple(
            {
                (event.attempt, event.step): (event.attempt, event.step, event.severity.value)
                for event in label.events
                if event.severity is not None
            }.values()
        ),
    )
