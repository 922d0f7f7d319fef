"""Who labels what next: one item at a time, held by a claim that runs out.

An item is given to as many people as it lacks labels, to nobody twice. Claims of one queue are made one after
another, so that two people who ask at once never hold the same last place.
"""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Exists, F, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from lab.engine.errors import InvalidValueError
from lab.engine.redact import storable
from lab.models import Annotation, Annotator, Claim, Queue, QueueItem, Role, Skip
from lab.services import labels, queues
from lab.services.access import for_role
from lab.services.annotators import annotator_of

LONGEST_REASON = 2_000


class Held(NamedTuple):
    """Until when somebody holds the item of a draft; None: not any more. `full`: it needs no more labels."""

    until: dt.datetime | None
    full: bool


@for_role(Role.ANNOTATOR)
@transaction.atomic
def claim_next(*, by: User, queue_id: int) -> Annotation | None:
    """What the person labels next, as a draft that they hold; None when the queue has nothing for them.

    First a draft of theirs that is not postponed, then items that several people label, then the others in
    the queue's order, at last what they postponed.

    Raises:
        InvalidValueError: there is no such queue, or it is closed.
    """
    queue = queues.open_queue(queue_id)
    annotator = annotator_of(by)
    item = _own_draft(queue, annotator) or _free_item(queue, annotator) or _postponed(queue, annotator)
    if item is None:
        return None
    draft = labels.open_draft(by=by, run_id=item.run_id, guideline=queue.guideline, item=item)
    _hold(item, annotator, queue)
    return draft


def _hold(item: QueueItem, annotator: Annotator, queue: Queue) -> dt.datetime:
    until = timezone.now() + dt.timedelta(minutes=queue.claim_minutes)
    Claim.objects.update_or_create(item=item, annotator=annotator, defaults={"until": until})
    return until


def _postponements(annotator: Annotator) -> QuerySet[Skip]:
    return Skip.objects.filter(annotator=annotator, to=Skip.To.ME)


def _own_draft(queue: Queue, annotator: Annotator) -> QueueItem | None:
    drafts = Annotation.objects.filter(
        item__queue=queue,
        annotator=annotator,
        kind=Annotation.Kind.LABEL,
        state=Annotation.State.DRAFT,
        item__in=_unfinished(queue, annotator),
    ).exclude(item__skips__in=_postponements(annotator))
    newest = drafts.select_related("item__run").order_by("-touched_at").first()
    return newest.item if newest is not None else None


def _labels() -> QuerySet[Annotation]:
    return Annotation.objects.filter(
        run_id=OuterRef("run_id"),
        guideline_id=OuterRef("queue__guideline_id"),
        kind=Annotation.Kind.LABEL,
        state=Annotation.State.SUBMITTED,
        replaced_by=None,
        annotator__kind=Annotator.Kind.PERSON,
    )


def _unfinished(queue: Queue, annotator: Annotator) -> QuerySet[QueueItem]:
    """Items that this person has neither labelled nor passed on, and that nobody counted as done."""
    skips = Skip.objects.filter(item_id=OuterRef("pk"))
    passed = skips.filter(Q(to=Skip.To.NOBODY) | Q(to=Skip.To.OTHERS, annotator=annotator))
    items = QueueItem.objects.filter(queue=queue)
    return items.filter(~Exists(passed), ~Exists(_labels().filter(annotator=annotator)))


def _count(rows: QuerySet[Annotation] | QuerySet[Claim], by: str) -> Coalesce:
    counted = rows.order_by().values(by).annotate(n=Count("annotator", distinct=True)).values("n")
    return Coalesce(Subquery(counted, output_field=IntegerField()), 0)


def _open_items(queue: Queue, annotator: Annotator) -> QuerySet[QueueItem]:
    """Those of them with a place that neither a label nor somebody at work fills."""
    held = Claim.objects.filter(item_id=OuterRef("pk"), until__gt=timezone.now()).exclude(annotator=annotator)
    items = _unfinished(queue, annotator).annotate(given=_count(_labels(), "run_id"))
    return items.annotate(held=_count(held, "item_id")).filter(wanted__gt=F("given") + F("held"))


def _free_item(queue: Queue, annotator: Annotator) -> QueueItem | None:
    postponed = _postponements(annotator).filter(item_id=OuterRef("pk"))
    return _open_items(queue, annotator).filter(~Exists(postponed)).order_by("position").first()


def _postponed(queue: Queue, annotator: Annotator) -> QueueItem | None:
    postponed = _postponements(annotator).filter(item_id=OuterRef("pk")).order_by("-pk")
    items = _open_items(queue, annotator).annotate(last_skip=Subquery(postponed.values("pk")[:1]))
    return items.filter(last_skip__isnull=False).order_by("last_skip").first()


def held(annotation: Annotation) -> Held:
    """Whether the author of a draft still holds its item."""
    item = annotation.item
    if item is None:
        return Held(None, full=False)
    until = Claim.objects.filter(item=item, annotator_id=annotation.annotator_id).values_list(
        "until", flat=True
    )
    current = next((one for one in until if one > timezone.now()), None)
    labels = queues.labels_that_count(item.queue).filter(run_id=annotation.run_id)
    others = labels.exclude(annotator_id=annotation.annotator_id).values("annotator").distinct().count()
    return Held(current, full=others >= item.wanted)


@for_role(Role.ANNOTATOR)
@transaction.atomic
def renew(*, by: User, annotation_id: int) -> Held:
    """A sign of life: the claim holds on. One that ran out is taken again if the item still has a place.

    Raises:
        NoDraftError: it is no draft of this person (any more).
    """
    draft = labels.alive(by=by, annotation_id=annotation_id)
    if draft.item is None:
        return held(draft)
    queue = Queue.objects.select_for_update().get(pk=draft.item.queue_id)
    if queue.closed_at is None and _open_items(queue, draft.annotator).filter(pk=draft.item.pk).exists():
        _hold(draft.item, draft.annotator, queue)
    return held(draft)


@for_role(Role.ANNOTATOR)
@transaction.atomic
def skip(*, by: User, annotation_id: int, to: str, reason: str) -> Skip:
    """Passes the item of a draft on. The draft is kept where it comes `back to me`, else it is discarded.

    Raises:
        NoDraftError: it is no draft of this person (any more).
        InvalidValueError: no reason, nowhere to pass it to, or a draft that belongs to no queue.
    """
    draft = labels.own_draft(by, annotation_id)
    reason = storable(reason.strip())
    if draft.item is None:
        raise InvalidValueError("skip", annotation_id, "is a label outside any queue; discard it instead")
    if to not in Skip.To.values:
        raise InvalidValueError("to", to, f"is none of {', '.join(Skip.To.values)}")
    if not 1 <= len(reason) <= LONGEST_REASON:
        raise InvalidValueError(
            "reason", reason[:40], f"has {len(reason)} characters; say why in 1 to {LONGEST_REASON:,}"
        )
    Claim.objects.filter(item=draft.item, annotator=draft.annotator).delete()
    if to != Skip.To.ME:
        labels.discard(by=by, annotation_id=annotation_id)
    return Skip.objects.create(item=draft.item, annotator=draft.annotator, to=to, reason=reason)
