"""Queues: filled by rules, and how far each is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Max, QuerySet
from django.utils import timezone

from lab.engine.errors import InvalidValueError
from lab.engine.redact import storable
from lab.models import Annotation, Annotator, Claim, GuidelineVersion, Queue, QueueItem, Role, Skip
from lab.services import queue_rules
from lab.services.access import for_role
from lab.services.errors import FieldErrorCollector

MOST_CLAIM_MINUTES = 24 * 60
_ROWS_AT_ONCE = 2_000


class Settings(NamedTuple):
    """What a person chooses of a queue beside its rules. `overlap` in percent, `claim_minutes` in minutes."""

    name: str
    guideline: GuidelineVersion
    seed: int = 1
    overlap: int = 20
    labels_wanted: int = 2
    show_hidden: bool = False
    claim_minutes: int = 30


class Progress(NamedTuple):
    """How far a queue is: items with all labels they want, labels given (no more than wanted) and wanted,
    items held right now, items that somebody counted as done by skipping, labels of the person who asks.
    """

    items: int
    done: int
    labels: int
    wanted: int
    claimed: int
    passed: int
    own: int


@for_role(Role.OPERATOR)
@transaction.atomic
def make(*, by: User, settings: Settings, rules: Mapping[str, Any]) -> Queue:
    """A queue filled with the runs that the rules choose.

    Raises:
        FieldErrors: a value cannot be used, or no run is chosen.
    """
    errors = FieldErrorCollector()
    checked = _checked(settings, rules, errors)
    run_ids = queue_rules.matching(checked) if not errors.errors else []
    if not errors.errors and not run_ids:
        errors.say("rules", "No ended run is as these rules ask; loosen one of them.")
    errors.raise_if_any()
    queue = Queue.objects.create(
        **settings._replace(name=storable(settings.name.strip()))._asdict(),
        rules=checked.model_dump(mode="json"),
        made_by=by,
    )
    _append(queue, run_ids, checked.sample)
    return queue


def _checked(settings: Settings, rules: Mapping[str, Any], errors: FieldErrorCollector) -> queue_rules.Rules:
    name = settings.name.strip()
    if not 1 <= len(name) <= 200:
        errors.say("name", f"“{name[:40]}” has {len(name)} characters; a name has 1 to 200")
    elif Queue.objects.filter(name=name).exists():
        errors.say("name", f"“{name}” is the name of another queue; choose another")
    limits = {
        "overlap": (settings.overlap, 0, 100, "percent"),
        "labels_wanted": (settings.labels_wanted, 2, queue_rules.MOST_LABELS, "labels"),
        "claim_minutes": (settings.claim_minutes, 1, MOST_CLAIM_MINUTES, "minutes"),
        "seed": (settings.seed, 0, 2**31 - 1, ""),
    }
    for field, (value, least, most, unit) in limits.items():
        if not least <= value <= most:
            errors.say(field, f"{value} cannot be used; choose {least} to {most} {unit}".rstrip())
    try:
        return queue_rules.rules_of(rules)
    except InvalidValueError as invalid:
        errors.add(invalid)
        return queue_rules.Rules()


def _append(queue: Queue, run_ids: list[int], sample: int | None) -> int:
    first = (queue.items.aggregate(last=Max("position"))["last"] or 0) + 1
    picked = queue_rules.chosen(
        run_ids, sample=sample, seed=queue.seed, overlap=queue.overlap, wanted=queue.labels_wanted
    )
    items = (
        QueueItem(queue=queue, run_id=one.run_id, position=place, wanted=one.wanted)
        for place, one in enumerate(picked, first)
    )
    return len(QueueItem.objects.bulk_create(items, batch_size=_ROWS_AT_ONCE))


@for_role(Role.OPERATOR)
@transaction.atomic
def refill(*, by: User, queue_id: int) -> int:
    """Adds runs that ended since and are as the rules ask, up to the sample's size; says how many."""
    queue = open_queue(queue_id)
    rules = queue_rules.rules_of(queue.rules)
    known = set(queue.items.values_list("run_id", flat=True))
    new = [run_id for run_id in queue_rules.matching(rules) if run_id not in known]
    left = None if rules.sample is None else max(0, rules.sample - len(known))
    return _append(queue, new, left) if left != 0 else 0


@for_role(Role.OPERATOR)
@transaction.atomic
def close(*, by: User, queue_id: int) -> Queue:
    """Nobody gets anything of it any more; drafts and labels stay. Closing again changes nothing."""
    queue = Queue.objects.select_for_update().filter(pk=queue_id).first()
    if queue is None:
        raise InvalidValueError("queue", queue_id, "does not exist")
    if queue.closed_at is None:
        queue.closed_at = timezone.now()
        queue.save(update_fields=["closed_at"])
        Claim.objects.filter(item__queue=queue).delete()
    return queue


@for_role(Role.OPERATOR)
@transaction.atomic
def reopen(*, by: User, queue_id: int) -> Queue:
    """A closed queue gives out runs again."""
    queue = Queue.objects.select_for_update().filter(pk=queue_id).first()
    if queue is None:
        raise InvalidValueError("queue", queue_id, "does not exist")
    queue.closed_at = None
    queue.save(update_fields=["closed_at"])
    return queue


def open_queue(queue_id: int) -> Queue:
    """The queue, locked: of two people one is first. Raises: InvalidValueError: none, or closed."""
    queue = Queue.objects.select_for_update().filter(pk=queue_id).first()
    if queue is None:
        raise InvalidValueError("queue", queue_id, "does not exist")
    if queue.closed_at is not None:
        raise InvalidValueError("queue", queue.name, "is closed; an operator can open it again")
    return queue


def labels_that_count(queue: Queue) -> QuerySet[Annotation]:
    """Submitted labels by people, of the queue's runs under its guideline version, in or outside of it."""
    return Annotation.objects.filter(
        run__queue_items__queue=queue,
        guideline_id=queue.guideline_id,
        kind=Annotation.Kind.LABEL,
        state=Annotation.State.SUBMITTED,
        replaced_by=None,
        annotator__kind=Annotator.Kind.PERSON,
    )


def progress(queue: Queue, *, annotator: Annotator | None = None) -> Progress:
    """How far the queue is, for whoever asks."""
    labels = labels_that_count(queue)
    given = Counter(labels.values_list("run_id", flat=True))
    items = list(queue.items.values_list("pk", "run_id", "wanted"))
    passed = set(Skip.objects.filter(item__queue=queue, to=Skip.To.NOBODY).values_list("item_id", flat=True))
    own = labels.filter(annotator=annotator).count() if annotator is not None else 0
    return Progress(
        items=len(items),
        done=sum(pk in passed or given[run] >= wanted for pk, run, wanted in items),
        labels=sum(min(given[run], wanted) for pk, run, wanted in items if pk not in passed),
        wanted=sum(wanted for pk, _, wanted in items if pk not in passed),
        claimed=Claim.objects.filter(item__queue=queue, until__gt=timezone.now()).count(),
        passed=len(passed),
        own=own,
    )


def place_of(annotation: Annotation) -> tuple[int, int] | None:
    """Which label of how many wanted ones this is in its queue; None for one that belongs to none."""
    if annotation.item is None:
        return None
    now = progress(annotation.item.queue)
    submitted = annotation.state == Annotation.State.SUBMITTED
    return min(now.labels + (not submitted), max(now.wanted, 1)), now.wanted


def all_queues() -> QuerySet[Queue]:
    """Every queue, newest first, with `n_items`."""
    rows = Queue.objects.select_related("guideline__guideline", "made_by")
    return rows.annotate(n_items=Count("items"))


class ItemRow(NamedTuple):
    """An item as its queue's page shows it. `given`: labels of people; `own`: the person's reading of it;
    `held`: by how many it is held right now; `passed`: it counts as done without a label.
    """

    item: QueueItem
    given: int
    held: int
    own: Annotation | None
    passed: bool


def item_rows(items: list[QueueItem], *, annotator: Annotator | None) -> list[ItemRow]:
    """The rows of some items of one queue, in their order; the same few queries however many."""
    if not items:
        return []
    queue = items[0].queue
    runs = [item.run_id for item in items]
    given = Counter(labels_that_count(queue).filter(run_id__in=runs).values_list("run_id", flat=True))
    claims = Claim.objects.filter(item__in=items, until__gt=timezone.now())
    held = Counter(claims.values_list("item_id", flat=True))
    passed = set(Skip.objects.filter(item__in=items, to=Skip.To.NOBODY).values_list("item_id", flat=True))
    own = Annotation.objects.filter(
        annotator=annotator, run_id__in=runs, guideline_id=queue.guideline_id, kind=Annotation.Kind.LABEL
    ).exclude(state=Annotation.State.DISCARDED)
    by_run = {one.run_id: one for one in own.order_by("pk")} if annotator is not None else {}
    return [
        ItemRow(item, given[item.run_id], held[item.pk], by_run.get(item.run_id), item.pk in passed)
        for item in items
    ]
