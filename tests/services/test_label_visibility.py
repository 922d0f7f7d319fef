"""Who sees whose label when: queues, drafts, corrections, roles, and how many queries that takes."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from lab.models import Annotation, GuidelineVersion, Queue, QueueItem, Role, Run, Skip
from lab.services import claims, guidelines, label_rows, labels
from lab.services.annotators import imported_annotator
from lab.services.label_visibility import hidden_runs
from tests import builders

pytestmark = pytest.mark.django_db


def failed_run() -> Run:
    run = builders.run()
    builders.believable(run)
    run.refresh_from_db()
    return run


def somebody(role: Role = Role.ANNOTATOR) -> User:
    return builders.person(role)


def queued(*runs: Run, wanted: int = 1, guideline: GuidelineVersion | None = None) -> Queue:
    under = guideline or guidelines.default()
    queue = Queue.objects.create(name=f"queue {Queue.objects.count() + 1}", guideline=under)
    for position, run in enumerate(runs, 1):
        QueueItem.objects.create(queue=queue, run=run, position=position, wanted=wanted)
    return queue


def submitted(by: User, run: Run, guideline: GuidelineVersion | None = None) -> Annotation:
    under = guideline or guidelines.default()
    return finished(by, labels.open_draft(by=by, run_id=run.pk, guideline=under))


def finished(by: User, draft: Annotation) -> Annotation:
    changes: list[dict[str, Any]] = [
        {"do": "set_owner", "value": "grader"},
        {"do": "set_sure", "value": True},
    ]
    for change in changes:
        draft = labels.edit(by=by, annotation_id=draft.pk, revision=draft.revision, operation=change)
    return labels.submit(by=by, annotation_id=draft.pk, revision=draft.revision)


def other_guideline() -> GuidelineVersion:
    one = guidelines.default()
    fields = {
        field.attname: getattr(one, field.attname)
        for field in one._meta.concrete_fields
        if not field.primary_key
    }
    return GuidelineVersion.objects.create(**fields | {"n": one.n + 1})


def test_a_draft_outside_any_queue_hides_until_it_is_discarded() -> None:
    run, mara, noor = failed_run(), somebody(), somebody()
    submitted(mara, run)
    draft = labels.open_draft(by=noor, run_id=run.pk, guideline=guidelines.default())
    assert hidden_runs(noor, [run.pk]) == {run.pk}
    labels.discard(by=noor, annotation_id=draft.pk)
    assert hidden_runs(noor, [run.pk]) == set()


def test_an_open_queue_hides_from_everybody_who_gave_no_label_and_a_closed_one_does_not() -> None:
    run, mara = failed_run(), somebody()
    queue = queued(run, wanted=2)
    submitted(mara, run)
    for role in (Role.VIEWER, Role.ANNOTATOR, Role.OPERATOR):
        assert hidden_runs(somebody(role), [run.pk]) == {run.pk}
    assert hidden_runs(mara, [run.pk]) == set()
    Queue.objects.filter(pk=queue.pk).update(closed_at=timezone.now())
    assert hidden_runs(somebody(), [run.pk]) == set()


def test_an_operator_who_is_labelling_sees_no_more_than_others() -> None:
    run, mara, omar = failed_run(), somebody(), somebody(Role.OPERATOR)
    submitted(mara, run)
    draft = labels.open_draft(by=omar, run_id=run.pk, guideline=guidelines.default())
    assert hidden_runs(omar, [run.pk]) == {run.pk}
    finished(omar, draft)
    assert hidden_runs(omar, [run.pk]) == set()


def test_a_postponed_item_stays_hidden_also_when_others_have_filled_it() -> None:
    run, mara, noor = failed_run(), somebody(), somebody()
    queue = queued(run)
    draft = claims.claim_next(by=noor, queue_id=queue.pk)
    assert draft is not None
    claims.skip(by=noor, annotation_id=draft.pk, to=Skip.To.ME, reason="needs more time")
    submitted(mara, run)
    assert hidden_runs(noor, [run.pk]) == {run.pk}


def test_imported_labels_and_adjudications_fill_no_place_of_a_queue() -> None:
    run = failed_run()
    queued(run)
    for kind, name in ((Annotation.Kind.LABEL, "file A"), (Annotation.Kind.ADJUDICATION, "file B")):
        Annotation.objects.create(
            run=run,
            guideline=guidelines.default(),
            annotator=imported_annotator(name),
            kind=kind,
            state=Annotation.State.SUBMITTED,
            submitted_at=timezone.now(),
        )
    assert hidden_runs(somebody(), [run.pk]) == {run.pk}


def test_a_correction_in_the_making_hides_nothing_and_fills_no_second_place() -> None:
    run, mara = failed_run(), somebody()
    queued(run, wanted=2)
    first = submitted(mara, run)
    draft = labels.correct(by=mara, annotation_id=first.pk)
    assert hidden_runs(mara, [run.pk]) == set()
    labels.submit(by=mara, annotation_id=draft.pk, revision=draft.revision)
    assert len(label_rows.current(Annotation.objects.filter(run=run))) == 1
    assert hidden_runs(somebody(), [run.pk]) == {run.pk}


def test_a_label_under_another_guideline_fills_no_place_of_a_queue() -> None:
    run, mara = failed_run(), somebody()
    queued(run)
    submitted(mara, run, other_guideline())
    assert hidden_runs(somebody(), [run.pk]) == {run.pk}


def test_what_was_passed_to_nobody_is_hidden_from_nobody() -> None:
    run, mara, noor = failed_run(), somebody(), somebody()
    queue = queued(run, wanted=2)
    submitted(mara, run)
    draft = claims.claim_next(by=noor, queue_id=queue.pk)
    assert draft is not None
    claims.skip(by=noor, annotation_id=draft.pk, to=Skip.To.NOBODY, reason="the log is cut")
    assert hidden_runs(noor, [run.pk]) == set()


def test_whoever_is_no_member_sees_nothing() -> None:
    run = failed_run()
    submitted(somebody(), run)
    assert hidden_runs(AnonymousUser(), [run.pk]) == {run.pk}


def test_five_hundred_runs_take_as_many_queries_as_one() -> None:
    run, mara = failed_run(), somebody()
    queued(run)
    counts = []
    for ids in ([run.pk], [run.pk, *range(100_000, 100_499)], [run.pk, *range(100_000, 140_000)]):
        with CaptureQueriesContext(connection) as queries:
            assert hidden_runs(mara, ids) == {run.pk}
        counts.append(len(queries))
    assert counts[0] == counts[1] == counts[2] <= 3
