"""Queues, drafts and labels for whoever tries an action or a page of annotation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import AnonymousUser, User

from lab.models import Annotation, Queue, QueueItem, Role, Run
from lab.services import adjudications, guidelines, labels, taxonomies
from lab.services.access import holds
from lab.services.queues import Settings
from tests import builders

_NOTE = {"do": "set_note", "value": "looked at"}


def ended(run: Run) -> Run:
    """The run as one that can be labelled."""
    Run.objects.filter(pk=run.pk).update(status=Run.Status.ENDED)
    return run


def queue_settings() -> Settings:
    return Settings(name="failures", guideline=guidelines.default())


def queue(run: Run) -> Queue:
    """A queue with this run alone."""
    found, made = Queue.objects.get_or_create(name="of the matrix", guideline=guidelines.default())
    if made:
        QueueItem.objects.create(queue=found, run=ended(run), position=1)
    return found


def seen() -> int:
    return taxonomies.newest("coding").n


def draft(by: User, run: Run) -> Annotation:
    """The person's draft of the run, held in the queue."""
    item = queue(run).items.get()
    return labels.open_draft(by=by, run_id=run.pk, guideline=item.queue.guideline, item=item)


def submitted(by: User, run: Run) -> Annotation:
    one = labels.open_draft(by=by, run_id=ended(run).pk, guideline=guidelines.default())
    for operation in ({"do": "set_owner", "value": "grader"}, {"do": "set_sure", "value": True}):
        one = labels.edit(by=by, annotation_id=one.pk, revision=one.revision, operation=operation)
    return labels.submit(by=by, annotation_id=one.pk, revision=one.revision)


def labelled_twice(run: Run) -> dict[str, Any]:
    """What opens the record that settles two labels of the run."""
    for _ in range(2):
        submitted(builders.person(Role.ANNOTATOR), run)
    return {"run_id": run.pk, "guideline": guidelines.default()}


def _settling(by: User, run: Run) -> dict[str, Any]:
    one = adjudications.open_draft(by=by, **labelled_twice(run))
    parent = one.parents.first()
    assert parent is not None
    return {"annotation_id": one.pk, "revision": 0, "parent_id": parent.pk, "part": "owner"}


def _of_draft(**more: Any) -> Callable[[User, Run], dict[str, Any]]:
    return lambda by, run: {"annotation_id": draft(by, run).pk, **more}


_OWN: dict[str, Callable[[User, Run], dict[str, Any]]] = {
    "labels.edit": _of_draft(revision=0, operation=_NOTE),
    "labels.undo": _of_draft(revision=0),
    "labels.redo": _of_draft(revision=0),
    "labels.alive": _of_draft(),
    "labels.submit": _of_draft(revision=0),
    "labels.discard": _of_draft(),
    "labels.correct": lambda by, run: {"annotation_id": submitted(by, run).pk},
    "claims.renew": _of_draft(),
    "claims.skip": _of_draft(to="me", reason="later"),
    "adjudications.take": _settling,
}
OWN = frozenset(_OWN)
"""Actions on what is the person's own."""


def own(name: str, by: User | AnonymousUser, run: Run) -> dict[str, Any]:
    """A sample of such an action: on the person's own draft, or on none for whoever may have none."""
    needed = Role.OPERATOR if name == "adjudications.take" else Role.ANNOTATOR
    if isinstance(by, User) and holds(by, needed):
        return _OWN[name](by, run)
    return dict.fromkeys(
        ("annotation_id", "revision", "parent_id", "part", "operation", "to", "reason"), 0
    ) | {"annotation_id": 0}
