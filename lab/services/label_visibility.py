"""Who may see whose label: others' readings of a run are hidden from whoever may still read it themselves."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Count, Exists, F, IntegerField, OuterRef, Subquery
from django.db.models.functions import Coalesce

from lab.models import Annotation, Annotator, QueueItem, Role, Skip
from lab.services.access import holds


def hidden_runs(person: User | AnonymousUser, run_ids: Iterable[int]) -> set[int]:
    """Of these runs, those whose labels by others, judgements and adjudications this person may not see yet.

    That is a run they have a draft of, or one that an open queue still wants labels of, as long as they have
    submitted none of their own. Viewers cannot label; but what they see is told on, so the queue's wish
    counts for them too.
    """
    wanted = set(run_ids)
    own = Annotation.objects.filter(
        run_id__in=wanted, annotator__person_id=person.pk, kind=Annotation.Kind.LABEL
    ).values_list("run_id", "guideline_id", "state")
    submitted = {(run, guideline) for run, guideline, state in own if state == Annotation.State.SUBMITTED}
    drafted = {(run, guideline) for run, guideline, state in own if state == Annotation.State.DRAFT}
    begun = {run for run, _ in drafted - submitted}
    return begun | (_still_wanted(person, wanted) if holds(person, Role.VIEWER) else wanted)


def _still_wanted(person: User | AnonymousUser, run_ids: set[int]) -> set[int]:
    """Runs of which an open queue lacks labels under its guideline, the person's own among them."""
    labels = Annotation.objects.filter(
        run_id=OuterRef("run_id"),
        guideline_id=OuterRef("queue__guideline_id"),
        state=Annotation.State.SUBMITTED,
        kind=Annotation.Kind.LABEL,
        replaced_by=None,
        annotator__kind=Annotator.Kind.PERSON,
    )
    counted = labels.order_by().values("run_id").annotate(n=Count("annotator", distinct=True)).values("n")
    passed = Skip.objects.filter(item_id=OuterRef("pk"), to=Skip.To.NOBODY)
    items = QueueItem.objects.filter(~Exists(passed), run_id__in=run_ids, queue__closed_at=None)
    if person.pk is not None:
        items = items.filter(~Exists(labels.filter(annotator__person_id=person.pk)))
    given = Coalesce(Subquery(counted, output_field=IntegerField()), 0)
    return set(items.annotate(given=given).filter(given__lt=F("wanted")).values_list("run_id", flat=True))
