"""Runs, queues and labels for tests of the pages of annotation."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from lab.models import Annotation, Queue, Role, Run
from lab.services import guidelines, labels, queues
from tests import builders

FETCH = {"X-Requested-With": "fetch"}


def failed_run(like: Run | None = None, *, seed: int = 2) -> Run:
    """A run of seven steps that ended unresolved; another one of the arm of `like`."""
    run = builders.run() if like is None else builders.another_run(like, seed=seed)
    builders.believable(run)
    return Run.objects.get(pk=run.pk)


def queue_of(runs: list[Run], *, overlap: int = 0, **settings: Any) -> Queue:
    values = {"name": "failures", "guideline": guidelines.default()} | settings
    return queues.make(
        by=builders.person(),
        settings=queues.Settings(overlap=overlap, **values),
        rules={"runs": [run.pk for run in runs]},
    )


def annotator(name: str = "") -> tuple[User, Client]:
    """Somebody who labels, signed in."""
    person = builders.person(Role.ANNOTATOR, name=name)
    client = Client()
    client.force_login(person)
    return person, client


def draft_of(person: User, run: Run) -> Annotation:
    return labels.open_draft(by=person, run_id=run.pk, guideline=guidelines.default())


def do(person: User, draft: Annotation, *operations: dict[str, Any]) -> Annotation:
    for operation in operations:
        draft = labels.edit(by=person, annotation_id=draft.pk, revision=draft.revision, operation=operation)
    return draft


def submitted(
    person: User, run: Run, *, step: int = 1, category: str = "wrong-root-cause", owner: str = "agent"
) -> Annotation:
    """A label whose only event is the root cause."""
    draft = do(
        person,
        draft_of(person, run),
        {"do": "set_owner", "value": owner},
        {"do": "point_root", "step": {"step": step}},
        {"do": "change_event", "key": 1, "field": "category", "value": category},
        {"do": "set_sure", "value": True},
    )
    return labels.submit(by=person, annotation_id=draft.pk, revision=draft.revision)


def post(client: Client, draft: Annotation, what: str, **fields: Any) -> HttpResponse:
    """What the page's script sends; a mapping as `operation` becomes JSON."""
    if isinstance(fields.get("operation"), dict):
        fields["operation"] = json.dumps(fields["operation"])
    draft.refresh_from_db()
    values = {"revision": draft.revision} | fields
    return client.post(f"/annotate/labels/{draft.pk}/{what}", values, headers=FETCH)
