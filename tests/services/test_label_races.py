"""Several people at one queue, and one person in several tabs, at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lab.models import Annotation, Claim, Role
from lab.services import claims, guidelines, labels, taxonomies
from tests import builders
from tests.services.test_queues import ended_runs, queue_of
from tests.services.test_races import Threads

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def threads() -> Iterator[Threads]:
    started = Threads()
    yield started
    started.end()


def test_eight_people_who_claim_at_once_get_one_of_five_runs_each_or_nothing(threads: Threads) -> None:
    queue = queue_of(ended_runs(5))
    people = [builders.person(Role.ANNOTATOR) for _ in range(8)]
    start = threading.Barrier(8)

    def claim(person: object) -> object:
        start.wait()
        draft = claims.claim_next(by=person, queue_id=queue.pk)  # type: ignore[arg-type]
        return draft.run_id if draft is not None else None

    threads.start(*[lambda person=person: claim(person) for person in people])
    threads.end()
    given = [run for run in threads.gave if isinstance(run, int)]
    assert sorted(given) == sorted(queue.items.values_list("run_id", flat=True))
    assert threads.gave.count(None) == 3
    assert Claim.objects.count() == 5


def test_one_person_who_opens_a_run_in_two_tabs_at_once_has_one_draft(threads: Threads) -> None:
    (run,) = ended_runs(1)
    mara, guideline = builders.person(Role.ANNOTATOR), guidelines.default()
    start = threading.Barrier(4)

    def begin() -> object:
        start.wait()
        return labels.open_draft(by=mara, run_id=run.pk, guideline=guideline).pk

    threads.start(*[begin] * 4)
    threads.end()
    assert len(set(threads.gave)) == 1
    assert Annotation.objects.count() == 1


def test_of_two_changes_to_one_revision_one_is_stored_and_the_other_is_told(threads: Threads) -> None:
    (run,) = ended_runs(1)
    mara = builders.person(Role.ANNOTATOR)
    draft = labels.open_draft(by=mara, run_id=run.pk, guideline=guidelines.default())
    start = threading.Barrier(4)

    def change(number: int) -> object:
        start.wait()
        operation = {"do": "set_note", "value": f"from tab {number}"}
        return labels.edit(by=mara, annotation_id=draft.pk, revision=0, operation=operation).revision

    threads.start(*[lambda number=number: change(number) for number in range(4)])
    threads.end()
    assert threads.gave.count(1) == 1
    assert sum(isinstance(gave, labels.StaleDraftError) for gave in threads.gave) == 3


def test_of_two_who_submit_one_label_at_once_one_does(threads: Threads) -> None:
    (run,) = ended_runs(1)
    mara = builders.person(Role.ANNOTATOR)
    draft = labels.open_draft(by=mara, run_id=run.pk, guideline=guidelines.default())
    for operation in ({"do": "set_owner", "value": "grader"}, {"do": "set_sure", "value": True}):
        draft = labels.edit(by=mara, annotation_id=draft.pk, revision=draft.revision, operation=operation)
    start = threading.Barrier(3)

    def submit() -> object:
        start.wait()
        return labels.submit(by=mara, annotation_id=draft.pk, revision=draft.revision).state

    threads.start(*[submit] * 3)
    threads.end()
    assert threads.gave.count("submitted") == 1
    assert sum(isinstance(gave, labels.NoDraftError) for gave in threads.gave) == 2


def test_processes_that_start_at_once_store_each_vocabulary_once(threads: Threads) -> None:
    start = threading.Barrier(3)

    def sync() -> object:
        start.wait()
        taxonomies.sync_presets()
        return guidelines.default().pk

    threads.start(*[sync] * 3)
    threads.end()
    assert len(set(threads.gave)) == 1, threads.gave
