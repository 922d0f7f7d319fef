"""Queues of runs to be labelled: filled by rules, given out one at a time, passed on, closed."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from lab.engine.errors import InvalidValueError
from lab.models import Annotation, Claim, Queue, Role, Run, RunFacts, Skip
from lab.services import claims, guidelines, labels, overview, queue_rules, queues
from lab.services.annotators import annotator_of
from lab.services.errors import FieldErrors
from tests import builders

pytestmark = pytest.mark.django_db


def ended_runs(number: int, **facts: Any) -> list[Run]:
    """Runs of one arm that ended, each with these facts."""
    first = builders.run(status=Run.Status.ENDED)
    runs = [first, *(builders.another_run(first, seed=seed) for seed in range(2, number + 1))]
    for run in runs:
        Run.objects.filter(pk=run.pk).update(status=Run.Status.ENDED, exit_reason="agent")
        RunFacts.objects.update_or_create(run=run, defaults={"verdict": "unresolved", **facts})
    return runs


def queue_of(runs: list[Run], *, name: str = "failures", **settings: Any) -> Queue:
    values = {"overlap": 0, "guideline": guidelines.default()} | settings
    return queues.make(
        by=builders.person(),
        settings=queues.Settings(name=name, **values),
        rules={"runs": [run.pk for run in runs]},
    )


def somebody(name: str = "") -> User:
    return builders.person(Role.ANNOTATOR, name=name)


def label(draft: Annotation, by: User) -> Annotation:
    """Says the shortest complete label of it, and submits."""
    for operation in ({"do": "set_owner", "value": "grader"}, {"do": "set_sure", "value": True}):
        draft = labels.edit(by=by, annotation_id=draft.pk, revision=draft.revision, operation=operation)
    return labels.submit(by=by, annotation_id=draft.pk, revision=draft.revision)


def claim(by: User, queue: Queue) -> Annotation:
    draft = claims.claim_next(by=by, queue_id=queue.pk)
    assert draft is not None
    return draft


def test_two_people_never_hold_the_same_only_place() -> None:
    queue = queue_of(ended_runs(2))
    mara, noor = somebody(), somebody()
    assert claim(mara, queue).run_id != claim(noor, queue).run_id
    assert claims.claim_next(by=somebody(), queue_id=queue.pk) is None


def test_whoever_asks_again_gets_the_draft_they_hold() -> None:
    queue = queue_of(ended_runs(3))
    mara = somebody()
    assert claim(mara, queue) == claim(mara, queue)


def test_an_item_that_two_people_label_is_given_to_both_and_to_nobody_else() -> None:
    queue = queue_of(ended_runs(1), overlap=100)
    mara, noor, otto = somebody(), somebody(), somebody()
    assert claim(mara, queue).run_id == claim(noor, queue).run_id
    assert claims.claim_next(by=otto, queue_id=queue.pk) is None
    label(claim(mara, queue), mara)
    assert claims.claim_next(by=mara, queue_id=queue.pk) is None
    assert claims.claim_next(by=otto, queue_id=queue.pk) is None


def test_items_that_several_people_label_come_first() -> None:
    queue = queue_of(ended_runs(10), overlap=20)
    assert [item.wanted for item in queue.items.all()] == [2, 2, *[1] * 8]


def test_a_claim_that_ran_out_gives_the_item_to_somebody_else_and_the_draft_survives() -> None:
    queue = queue_of(ended_runs(1))
    mara, noor = somebody(), somebody()
    draft = claim(mara, queue)
    labels.edit(
        by=mara, annotation_id=draft.pk, revision=0, operation={"do": "set_note", "value": "half done"}
    )
    Claim.objects.update(until=timezone.now() - dt.timedelta(seconds=1))
    assert claims.held(draft).until is None
    other = claim(noor, queue)
    assert (other.run_id, other.pk != draft.pk) == (draft.run_id, True)
    draft.refresh_from_db()
    assert draft.draft["note"] == "half done"
    assert claims.renew(by=mara, annotation_id=draft.pk).until is None
    label(other, noor)
    assert claims.held(draft).full
    assert label(draft, mara).state == Annotation.State.SUBMITTED


def test_a_claim_that_ran_out_is_taken_again_by_a_sign_of_life() -> None:
    queue = queue_of(ended_runs(1))
    mara = somebody()
    draft = claim(mara, queue)
    Claim.objects.update(until=timezone.now() - dt.timedelta(seconds=1))
    until = claims.renew(by=mara, annotation_id=draft.pk).until
    assert until is not None
    assert until > timezone.now()


def test_what_is_postponed_comes_back_last_with_its_draft() -> None:
    queue = queue_of(ended_runs(2))
    mara = somebody()
    first = claim(mara, queue)
    claims.skip(by=mara, annotation_id=first.pk, to="me", reason="needs the log of the build")
    second = claim(mara, queue)
    assert second.run_id != first.run_id
    label(second, mara)
    assert claim(mara, queue) == first


def test_what_is_passed_to_others_does_not_come_back() -> None:
    queue = queue_of(ended_runs(1))
    mara, noor = somebody(), somebody()
    draft = claim(mara, queue)
    claims.skip(by=mara, annotation_id=draft.pk, to="others", reason="I wrote this task")
    assert claims.claim_next(by=mara, queue_id=queue.pk) is None
    assert claim(noor, queue).run_id == draft.run_id


def test_what_is_passed_to_nobody_counts_as_done() -> None:
    queue = queue_of(ended_runs(1))
    mara = somebody()
    claims.skip(by=mara, annotation_id=claim(mara, queue).pk, to="nobody", reason="the log is empty")
    assert claims.claim_next(by=somebody(), queue_id=queue.pk) is None
    assert queues.progress(queue).done == 1
    assert Skip.objects.get().reason == "the log is empty"


@pytest.mark.parametrize(
    ("to", "reason", "says"), [("me", " ", "reason"), ("them", "why", "them"), ("me", "x" * 2001, "2,000")]
)
def test_a_skip_needs_a_reason_and_somewhere_to_go(to: str, reason: str, says: str) -> None:
    queue = queue_of(ended_runs(1))
    mara = somebody()
    draft = claim(mara, queue)
    with pytest.raises(InvalidValueError, match=says):
        claims.skip(by=mara, annotation_id=draft.pk, to=to, reason=reason)


def test_progress_counts_labels_up_to_what_is_wanted() -> None:
    queue = queue_of(ended_runs(2), overlap=50)
    mara = somebody()
    label(claim(mara, queue), mara)
    now = queues.progress(queue, annotator=annotator_of(mara))
    assert now == queues.Progress(items=2, done=0, labels=1, wanted=3, claimed=0, passed=0, own=1)
    assert queues.place_of(claim(mara, queue)) == (2, 3)


def test_a_label_made_outside_the_queue_counts_in_it() -> None:
    runs = ended_runs(1)
    mara = somebody()
    label(labels.open_draft(by=mara, run_id=runs[0].pk, guideline=guidelines.default()), mara)
    queue = queue_of(runs)
    assert queues.progress(queue).done == 1
    assert claims.claim_next(by=somebody(), queue_id=queue.pk) is None


def test_a_closed_queue_gives_nothing_and_keeps_what_there_is() -> None:
    queue = queue_of(ended_runs(1))
    mara = somebody()
    draft = claim(mara, queue)
    queues.close(by=builders.person(), queue_id=queue.pk)
    with pytest.raises(InvalidValueError, match="is closed"):
        claims.claim_next(by=mara, queue_id=queue.pk)
    assert claims.held(draft).until is None
    assert label(draft, mara).state == Annotation.State.SUBMITTED
    queues.reopen(by=builders.person(), queue_id=queue.pk)
    assert claims.claim_next(by=mara, queue_id=queue.pk) is None


def test_a_run_that_goes_on_is_in_no_queue() -> None:
    going = builders.run(status=Run.Status.RUNNING)
    with pytest.raises(FieldErrors, match="No ended run"):
        queue_of([going])


def test_a_queue_filled_again_takes_what_ended_since() -> None:
    runs = ended_runs(2)
    queue = queues.make(
        by=builders.person(),
        settings=queues.Settings(name="all", guideline=guidelines.default(), overlap=0),
        rules={"experiments": [runs[0].experiment_id]},
    )
    third = builders.another_run(runs[0], seed=9)
    assert queues.refill(by=builders.person(), queue_id=queue.pk) == 0
    Run.objects.filter(pk=third.pk).update(status=Run.Status.ENDED)
    assert queues.refill(by=builders.person(), queue_id=queue.pk) == 1
    assert queue.items.count() == 3


def test_a_sample_is_the_same_for_the_same_seed_and_grows_with_its_size() -> None:
    numbers = range(1, 101)
    few = queue_rules.chosen(numbers, sample=10, seed=7, overlap=0, wanted=2)
    more = queue_rules.chosen(numbers, sample=20, seed=7, overlap=0, wanted=2)
    assert more[:10] == few != queue_rules.chosen(numbers, sample=10, seed=8, overlap=0, wanted=2)


@pytest.mark.parametrize(
    ("behaviour", "facts"),
    [
        ("empty_patch", {"changed_files": []}),
        ("never_fixed", {"fail_to_pass_passed": 1}),
        ("regression", {"pass_to_pass_passed": 3}),
        ("both", {"fail_to_pass_passed": 1, "pass_to_pass_passed": 3}),
        ("never_ran", {"fail_to_pass_passed": 0, "pass_to_pass_passed": 0}),
        ("never_ran", {"verdict": "unparsed"}),
    ],
)
def test_runs_are_chosen_by_what_their_tests_say(behaviour: str, facts: dict[str, Any]) -> None:
    whole = {
        **{"fail_to_pass_passed": 2, "fail_to_pass_total": 2},
        **{"pass_to_pass_passed": 4, "pass_to_pass_total": 4, "changed_files": [{"path": "a.py"}]},
    }
    (wanted,) = ended_runs(1, **whole | facts)
    for name in queue_rules.Behaviour.__args__:
        found = queue_rules.matching(queue_rules.rules_of({"behaviours": [name]}))
        assert found == ([wanted.pk] if name == behaviour else [])


@pytest.mark.parametrize(
    ("rules", "settings", "field"),
    [
        ({"verdicts": ["bad"]}, {}, "verdicts"),
        ({"sample": 0}, {}, "sample"),
        ({"exit_reasons": ["tired"]}, {}, "exit_reasons"),
        ({"colour": 1}, {}, "colour"),
        ({}, {"overlap": 101}, "overlap"),
        ({}, {"labels_wanted": 1}, "labels_wanted"),
        ({}, {"claim_minutes": 0}, "claim_minutes"),
        ({}, {"name": " "}, "name"),
    ],
)
def test_what_cannot_be_used_is_told_by_field(
    rules: dict[str, Any], settings: dict[str, Any], field: str
) -> None:
    ended_runs(1)
    values = {"name": "failures", "guideline": guidelines.default()} | settings
    with pytest.raises(FieldErrors) as refused:
        queues.make(by=builders.person(), settings=queues.Settings(**values), rules=rules)
    assert list(refused.value.errors) == [field]


def test_the_first_page_says_how_many_labels_a_queue_waits_for() -> None:
    queue = queue_of(ended_runs(2), overlap=50)
    (waiting,) = [card for card in overview.suggestions(task_set=None) if card.verb == "Label"]
    assert (waiting.title, waiting.url) == ("3 labels waiting", f"/annotate/queues/{queue.pk}/")
    queues.close(by=builders.person(), queue_id=queue.pk)
    assert not [card for card in overview.suggestions(task_set=None) if card.verb == "Label"]
