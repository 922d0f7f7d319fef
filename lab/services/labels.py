"""Labels of people, from the first key to the submitted record.

A draft belongs to one person, run and guideline version; every change is stored at once and can be undone.
What was submitted is never changed: a correction is another record that replaces it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Max, Min
from django.utils import timezone

from lab.engine.errors import InvalidValueError, LabError
from lab.engine.labels import complete, edits
from lab.engine.labels.label import Label
from lab.engine.labels.taxonomy import Taxonomy
from lab.engine.llm.base import JSONObject
from lab.engine.redact import mapped_texts, storable
from lab.models import Annotation, Annotator, Claim, Event, GuidelineVersion, QueueItem, Role, Run
from lab.services import label_rows
from lab.services.access import for_role
from lab.services.annotators import annotator_of
from lab.services.errors import FieldErrors
from lab.services.label_visibility import hidden_runs

# Two signs of life further apart than this: the person was away in between, which is no time of work.
IDLE_SECONDS = 60.0
_UNDO_STEPS = 60
State = Annotation.State


class StaleDraftError(LabError):
    """A draft was changed since it was shown, in another tab; `newest` is what it is now."""

    def __init__(self, newest: Annotation) -> None:
        self.newest = newest
        super().__init__(
            "This label was changed in another tab or window since it was shown. What it is now is shown; "
            "do the last step again, if it is still needed."
        )


class NoDraftError(InvalidValueError):
    """There is no such draft of this person: it was submitted, discarded, or its run was removed."""

    def __init__(self, annotation_id: int, found: Annotation | None) -> None:
        self.found = found
        became = (
            f"is {found.state} already; open it to read or correct it"
            if found is not None and found.state != State.DRAFT
            else "is not a draft of yours; its run may have been removed"
        )
        super().__init__("label", annotation_id, became)


def find(annotation_id: int) -> Annotation | None:
    """The record with what its page names."""
    rows = Annotation.objects.select_related(
        "run__task",
        "annotator",
        "guideline__guideline",
        "guideline__taxonomy_version__taxonomy",
        "item__queue",
    )
    return rows.filter(pk=annotation_id).first()


def taxonomy_of(annotation: Annotation) -> Taxonomy:
    """The vocabulary that this label is written in, whatever newer one there is."""
    return Taxonomy.model_validate(annotation.guideline.taxonomy_version.content)


def frame_of(annotation: Annotation) -> edits.Frame:
    """What the label may speak of. A retired code can be kept and not newly chosen by the page."""
    codes = frozenset(code.id for code in taxonomy_of(annotation).codes)
    return edits.Frame(steps=steps_of(annotation.run_id), codes=codes)


def steps_of(run_id: int) -> dict[int, int]:
    """How many steps each attempt of a run has, by its number."""
    counted = Event.objects.filter(run_id=run_id, step__gte=1).values("attempt").annotate(last=Max("step"))
    return {row["attempt"]: row["last"] for row in counted.order_by("attempt")}


def seq_of_step(run_id: int, *, attempt: int, step: int) -> int | None:
    """The number of the step's first `model_call_started`, None where the log has none."""
    started = Event.objects.filter(run_id=run_id, attempt=attempt, step=step, kind="model_call_started")
    found: int | None = started.aggregate(first=Min("seq"))["first"]
    return found


@for_role(Role.ANNOTATOR)
@transaction.atomic
def open_draft(
    *, by: User, run_id: int, guideline: GuidelineVersion, item: QueueItem | None = None
) -> Annotation:
    """The person's draft of this run under this guideline, made if there is none.

    Raises:
        InvalidValueError: there is no such run, or it has not ended.
    """
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise InvalidValueError("run", run_id, "does not exist; it may have been removed")
    if run.status != Run.Status.ENDED:
        raise InvalidValueError("run", run_id, f"is {run.status}; it can be labelled when it has ended")
    key = {
        "run": run,
        "guideline": guideline,
        "annotator": annotator_of(by),
        "kind": Annotation.Kind.LABEL,
        "state": State.DRAFT,
    }
    now = timezone.now()
    values = {
        "item": item,
        "draft": _stored(Label()),
        "started_at": now,
        "touched_at": now,
        "blind": not _sees_others(by, run_id),
    }
    try:
        with transaction.atomic():
            draft, made = Annotation.objects.get_or_create(**key, defaults=values)
    except IntegrityError:  # Two tabs at once: the other one made it.
        draft, made = Annotation.objects.get(**key), False
    if not made and item is not None and draft.item_id != item.pk:
        draft.item = item
        draft.save(update_fields=["item"])
    return draft


def _sees_others(person: User, run_id: int) -> bool:
    """Whether somebody else's reading of the run is shown to the person right now."""
    others = Annotation.objects.filter(run_id=run_id, state=State.SUBMITTED)
    others = others.exclude(annotator__person_id=person.pk)
    return others.exists() and run_id not in hidden_runs(person, [run_id])


def own_draft(person: User, annotation_id: int) -> Annotation:
    """The person's draft, with what its page names. Raises: NoDraftError."""
    found = find(annotation_id)
    own = found is not None and found.annotator.person_id == person.pk
    if found is None or not own or found.state != State.DRAFT:
        raise NoDraftError(annotation_id, found if own else None)
    return found


def _stored(label: Label) -> JSONObject:
    written: JSONObject = label.model_dump(mode="json")
    return written


def _storable(value: Any) -> Any:
    """Typed texts as every database holds them."""
    return mapped_texts(value, storable)


@for_role(Role.ANNOTATOR)
def edit(*, by: User, annotation_id: int, revision: int, operation: Mapping[str, Any]) -> Annotation:
    """The draft after one operation of `lab.engine.labels.edits`, stored.

    `revision` is the one that the person saw.

    Raises:
        NoDraftError: it is no draft of this person (any more).
        StaleDraftError: it was changed meanwhile; nothing of either is lost.
        InvalidValueError: the operation cannot be done; names field and value.
    """
    draft = own_draft(by, annotation_id)
    _must_be_newest(draft, revision)
    wanted = edits.operation_of(_storable(dict(operation)))
    return replace(draft, revision, edits.apply(label_rows.read(draft), wanted, frame_of(draft)))


def replace(draft: Annotation, revision: int, label: Label) -> Annotation:
    """The draft with another label in it, which undo takes back. Raises as `edit`."""
    _must_be_newest(draft, revision)
    before, after = label_rows.read(draft), _with_numbers(draft.run_id, label)
    if after == before:
        return _touched(draft)
    earlier = [*draft.earlier, _stored(before)][-_UNDO_STEPS:]
    return _changed(draft, draft=_stored(after), earlier=earlier, later=[])


def _with_numbers(run_id: int, label: Label) -> Label:
    """The label with the number of each event's step in the log, where nobody gave it."""
    events = tuple(
        event.model_copy(update={"seq": seq_of_step(run_id, attempt=event.attempt, step=event.step)})
        if event.seq is None
        else event
        for event in label.events
    )
    return label.model_copy(update={"events": events})


@for_role(Role.ANNOTATOR)
def undo(*, by: User, annotation_id: int, revision: int) -> Annotation:
    """The draft as it was before its last change, or as it is if there was none. Raises as `edit`."""
    return _moved(by, annotation_id, revision, back=True)


@for_role(Role.ANNOTATOR)
def redo(*, by: User, annotation_id: int, revision: int) -> Annotation:
    """The change that was undone last, done again. Raises as `edit`."""
    return _moved(by, annotation_id, revision, back=False)


def _moved(by: User, annotation_id: int, revision: int, *, back: bool) -> Annotation:
    draft = own_draft(by, annotation_id)
    _must_be_newest(draft, revision)
    source, target = (draft.earlier, draft.later) if back else (draft.later, draft.earlier)
    if not source:
        return draft
    rest, shown, kept = source[:-1], source[-1], [*target, draft.draft]
    earlier, later = (rest, kept) if back else (kept, rest)
    return _changed(draft, draft=shown, earlier=earlier, later=later)


def _must_be_newest(draft: Annotation, revision: int) -> None:
    if draft.revision != revision:
        raise StaleDraftError(draft)


def _changed(row: Annotation, **columns: Any) -> Annotation:
    """Stores the change, unless another one came first."""
    now = timezone.now()
    columns |= {
        "revision": row.revision + 1,
        "touched_at": now,
        "lead_seconds": worked_seconds(row, now),
    }
    rows = Annotation.objects.filter(pk=row.pk, state=State.DRAFT, revision=row.revision)
    if not rows.update(**columns):
        newest = find(row.pk)
        if newest is None or newest.state != State.DRAFT:
            raise NoDraftError(row.pk, newest)
        raise StaleDraftError(newest)
    for name, value in columns.items():
        setattr(row, name, value)
    return row


def worked_seconds(draft: Annotation, now: dt.datetime) -> float:
    """Seconds of work on it until `now`: times between signs of life, each no longer than IDLE_SECONDS."""
    since = (now - draft.touched_at).total_seconds() if draft.touched_at else 0.0
    return (draft.lead_seconds or 0.0) + min(max(since, 0.0), IDLE_SECONDS)


@for_role(Role.ANNOTATOR)
def alive(*, by: User, annotation_id: int) -> Annotation:
    """Notes that the person still works on it. Raises: NoDraftError."""
    return _touched(own_draft(by, annotation_id))


def _touched(draft: Annotation) -> Annotation:
    now = timezone.now()
    seconds = worked_seconds(draft, now)
    Annotation.objects.filter(pk=draft.pk, state=State.DRAFT).update(touched_at=now, lead_seconds=seconds)
    draft.touched_at, draft.lead_seconds = now, seconds
    return draft


@for_role(Role.ANNOTATOR)
@transaction.atomic
def submit(
    *,
    by: User,
    annotation_id: int,
    revision: int,
    known: Callable[[Run], JSONObject] | None = None,
) -> Annotation:
    """The draft as a record that counts and never changes; the person's claim of its item ends.

    Raises:
        NoDraftError, StaleDraftError: as for `edit`.
        FieldErrors: something is missing, by field (see `lab.engine.labels.complete`).
    """
    Annotation.objects.select_for_update().filter(pk=annotation_id).first()
    draft = own_draft(by, annotation_id)
    _must_be_newest(draft, revision)
    label = label_rows.read(draft)
    if missing := complete.missing(label):
        raise FieldErrors(missing)
    now = timezone.now()
    draft.lead_seconds, draft.touched_at = worked_seconds(draft, now), now
    earlier = _newest_own(draft)
    draft.replaces = earlier
    draft.submitted_at = now
    draft.known = known(draft.run) if known is not None else {}
    label_rows.write(draft, label)
    Claim.objects.filter(item_id=draft.item_id, annotator_id=draft.annotator_id).delete()
    return draft


def _newest_own(draft: Annotation) -> Annotation | None:
    """The same person's label of the same run and guideline that counts so far."""
    same = Annotation.objects.filter(
        run_id=draft.run_id,
        guideline_id=draft.guideline_id,
        annotator_id=draft.annotator_id,
        kind=draft.kind,
        state=State.SUBMITTED,
        replaced_by=None,
    )
    return same.order_by("-pk").first()


@for_role(Role.ANNOTATOR)
@transaction.atomic
def correct(*, by: User, annotation_id: int) -> Annotation:
    """A draft that says what the person's own submitted label says, to be changed and submitted in its place.

    Raises:
        InvalidValueError: it is not a submitted label of this person, or was replaced already.
    """
    found = find(annotation_id)
    if found is None or found.annotator.person_id != by.pk or found.kind != Annotation.Kind.LABEL:
        raise InvalidValueError(
            "label", annotation_id, "is not a label of yours; only its author corrects it"
        )
    if found.state != State.SUBMITTED:
        raise NoDraftError(annotation_id, found)
    if Annotation.objects.filter(replaces=found).exists():
        raise InvalidValueError("label", annotation_id, "was corrected already; correct the newer one")
    draft = open_draft(by=by, run_id=found.run_id, guideline=found.guideline, item=found.item)
    if draft.revision == 0:
        Annotation.objects.filter(pk=draft.pk).update(draft=_stored(label_rows.read(found)), revision=1)
        draft.refresh_from_db()
    return draft


@for_role(Role.ANNOTATOR)
@transaction.atomic
def discard(*, by: User, annotation_id: int) -> Annotation:
    """The draft is not wanted any more: it stays as a record, and counts nowhere. Raises: NoDraftError."""
    draft = own_draft(by, annotation_id)
    rows = Annotation.objects.filter(pk=draft.pk, state=State.DRAFT)
    if not rows.update(state=State.DISCARDED, touched_at=timezone.now()):
        raise NoDraftError(draft.pk, find(draft.pk))  # It was submitted meanwhile, and stays so.
    Claim.objects.filter(item_id=draft.item_id, annotator_id=draft.annotator_id).delete()
    draft.state = State.DISCARDED
    return draft


def own_submitted(annotator: Annotator, run_id: int) -> Annotation | None:
    """The annotator's label of a run that counts, under whichever guideline; the newest of several."""
    rows = Annotation.objects.filter(
        annotator=annotator,
        run_id=run_id,
        kind=Annotation.Kind.LABEL,
        state=State.SUBMITTED,
        replaced_by=None,
    )
    return rows.order_by("-pk").first()
