"""Who may see whose label: others' readings of a run are hidden from whoever may still read it themselves."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Count, F, Q

from lab.models import Annotation, Annotator, QueueItem, Role
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
    ).values_list("run_id", "state")
    submitted = {run for run, state in own if state == Annotation.State.SUBMITTED}
    drafted = {run for run, state in own if state == Annotation.State.DRAFT} - submitted
    return drafted | (_still_wanted(wanted - submitted) if holds(person, Role.VIEWER) else wanted)


def _still_wanted(run_ids: set[int]) -> set[int]:
    labels = Count(
        "run__annotations__annotator",
        filter=Q(
            run__annotations__state=Annotation.State.SUBMITTED,
            run__annotations__kind=Annotation.Kind.LABEL,
            run__annotations__annotator__kind=Annotator.Kind.PERSON,
        ),
        distinct=True,
    )
    items = QueueItem.objects.filter(run_id__in=run_ids, queue__closed_at=None)
    return set(items.annotate(given=labels).filter(given__lt=F("wanted")).values_list("run_id", flat=True))
