"""Labels of people: made one operation after another, undone, submitted, corrected; quotes; who sees what."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from lab.engine.errors import InvalidValueError
from lab.models import Annotation, ErrorEvent, Role, Run
from lab.services import evidence, guidelines, known_facts, label_rows, labels, purges, taxonomies
from lab.services.errors import FieldErrors
from lab.services.label_visibility import hidden_runs
from tests import builders

pytestmark = pytest.mark.django_db


def failed_run() -> Run:
    run = builders.run()
    builders.believable(run)
    run.refresh_from_db()
    return run


def somebody() -> User:
    return builders.person(Role.ANNOTATOR)


def opened(by: User, run: Run) -> Annotation:
    return labels.open_draft(by=by, run_id=run.pk, guideline=guidelines.default())


def do(draft: Annotation, by: User, **operation: Any) -> Annotation:
    return labels.edit(by=by, annotation_id=draft.pk, revision=draft.revision, operation=operation)


def complete(by: User, run: Run, *, step: int = 1, category: str = "wrong-root-cause") -> Annotation:
    """A label with one event that is the root cause, ready to be submitted."""
    draft = do(opened(by, run), by, do="set_owner", value="agent")
    draft = do(draft, by, do="point_root", step={"step": step})
    draft = do(draft, by, do="change_event", key=1, field="category", value=category)
    draft = do(draft, by, do="set_root_reason", value="every later edit builds on it")
    return do(draft, by, do="set_sure", value=True)


def submitted(by: User, run: Run, **label: Any) -> Annotation:
    draft = complete(by, run, **label)
    return labels.submit(by=by, annotation_id=draft.pk, revision=draft.revision, known=known_facts.as_json)


def test_a_label_is_made_one_operation_after_another_and_stays_as_submitted() -> None:
    run, mara = failed_run(), somebody()
    done = submitted(mara, run)
    label = label_rows.read(Annotation.objects.get(pk=done.pk))
    assert (label.owner, label.sure) == ("agent", True)
    assert label.root is not None
    assert (label.root.step, label.root.category) == (1, "wrong-root-cause")
    assert label.root_cause is not None
    assert label.root_cause.reason == "every later edit builds on it"
    assert done.known["verdict"] == "unresolved"
    with pytest.raises(labels.NoDraftError, match="submitted already"):
        do(done, mara, do="set_sure", value=False)
    with pytest.raises(ValueError, match="not changed any more"):
        label_rows.write(done, label)


def test_the_step_of_an_event_is_kept_with_the_number_of_its_first_request() -> None:
    run, mara = failed_run(), somebody()
    seq = labels.seq_of_step(run.pk, attempt=1, step=2)
    assert seq is not None
    draft = do(opened(mara, run), mara, do="add_event", step={"step": 2})
    assert label_rows.read(draft).events[0].seq == seq


def test_undo_and_redo_go_through_every_change() -> None:
    run, mara = failed_run(), somebody()
    draft = complete(mara, run)
    whole = draft.draft
    for _ in range(5):
        draft = labels.undo(by=mara, annotation_id=draft.pk, revision=draft.revision)
    assert label_rows.read(draft) == label_rows.Label()
    assert labels.undo(by=mara, annotation_id=draft.pk, revision=draft.revision).revision == draft.revision
    for _ in range(5):
        draft = labels.redo(by=mara, annotation_id=draft.pk, revision=draft.revision)
    assert draft.draft == whole


def test_a_second_tab_is_told_and_loses_nothing() -> None:
    run, mara = failed_run(), somebody()
    first = do(opened(mara, run), mara, do="set_note", value="from the first tab")
    with pytest.raises(labels.StaleDraftError) as stale:
        labels.edit(by=mara, annotation_id=first.pk, revision=0, operation={"do": "set_sure", "value": True})
    assert stale.value.newest.draft["note"] == "from the first tab"
    draft = do(stale.value.newest, mara, do="set_sure", value=True)
    assert (draft.draft["note"], draft.draft["sure"]) == ("from the first tab", True)


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        ({"do": "add_event", "step": {"step": 41}}, "step: 41 does not exist: the run has 7 steps"),
        ({"do": "add_event", "step": {"step": 0}}, "step.*0"),
        ({"do": "add_event", "step": {"step": 1, "attempt": 2}}, "attempt: 2"),
        ({"do": "point_root", "key": 7}, "E7.*none yet"),
        ({"do": "change_event", "key": 7, "field": "note", "value": "x"}, "E7"),
        ({"do": "set_owner", "value": "nobody"}, "owner|value.*nobody"),
        ({"do": "set_root_reason", "value": "x"}, "point at an event first"),
        ({"do": "vanish"}, "vanish"),
        ({"do": "set_note", "value": "x" * 10_001}, "10000"),
        ({"do": "set_alternatives", "value": [{"step": 99}]}, "step: 99"),
    ],
)
def test_what_cannot_be_done_is_told_with_field_and_value(operation: dict[str, Any], says: str) -> None:
    run, mara = failed_run(), somebody()
    draft = opened(mara, run)
    with pytest.raises(InvalidValueError, match=says):
        do(draft, mara, **operation)
    draft.refresh_from_db()
    assert draft.revision == 0


def test_a_category_of_another_vocabulary_and_a_circle_of_causes_are_refused() -> None:
    run, mara = failed_run(), somebody()
    draft = opened(mara, run)
    for step in (1, 2):
        draft = do(draft, mara, do="add_event", step={"step": step})
    with pytest.raises(InvalidValueError, match="fm-1.1"):
        do(draft, mara, do="change_event", key=1, field="category", value="fm-1.1")
    with pytest.raises(InvalidValueError, match="severity"):
        do(draft, mara, do="change_event", key=1, field="severity", value="awful")
    draft = do(draft, mara, do="change_event", key=2, field="caused_by", value=1)
    with pytest.raises(InvalidValueError, match="was itself caused by E1"):
        do(draft, mara, do="change_event", key=1, field="caused_by", value=2)


def test_a_removed_event_takes_the_pointer_along_and_its_number_is_not_given_again() -> None:
    run, mara = failed_run(), somebody()
    draft = do(complete(mara, run), mara, do="remove_event", key=1)
    draft = do(draft, mara, do="add_event", step={"step": 3})
    label = label_rows.read(draft)
    assert (label.root_cause, [event.key for event in label.events]) == (None, [2])


def test_what_is_missing_is_told_by_field_before_a_label_is_submitted() -> None:
    run, mara = failed_run(), somebody()
    draft = opened(mara, run)

    def missing() -> set[str]:
        with pytest.raises(FieldErrors) as refused:
            labels.submit(by=mara, annotation_id=draft.pk, revision=draft.revision)
        return set(refused.value.errors)

    assert missing() == {"owner", "sure"}
    draft = do(draft, mara, do="set_owner", value="agent")
    assert missing() == {"events", "sure"}
    draft = do(draft, mara, do="add_event", step={"step": 1})
    assert missing() == {"events", "root_cause", "sure"}
    draft = do(draft, mara, do="set_owner", value="inconclusive")
    draft = do(draft, mara, do="remove_event", key=1)
    draft = do(draft, mara, do="set_sure", value=False)
    assert labels.submit(by=mara, annotation_id=draft.pk, revision=draft.revision).owner == "inconclusive"


def test_a_correction_is_another_record_that_replaces_the_first() -> None:
    run, mara = failed_run(), somebody()
    first = submitted(mara, run)
    draft = labels.correct(by=mara, annotation_id=first.pk)
    assert label_rows.read(draft).root is not None
    draft = do(draft, mara, do="change_event", key=1, field="category", value="wrong-location")
    second = labels.submit(by=mara, annotation_id=draft.pk, revision=draft.revision)
    assert second.replaces == first
    assert label_rows.current(Annotation.objects.filter(run=run)) == [second]
    assert list(ErrorEvent.objects.values_list("category", flat=True).order_by("pk")) == [
        "wrong-root-cause",
        "wrong-location",
    ]
    with pytest.raises(InvalidValueError, match="corrected already"):
        labels.correct(by=mara, annotation_id=first.pk)
    with pytest.raises(InvalidValueError, match="only its author"):
        labels.correct(by=somebody(), annotation_id=second.pk)


def test_a_draft_stays_in_its_vocabulary_when_a_newer_version_is_made_meanwhile() -> None:
    run, mara = failed_run(), somebody()
    draft = complete(mara, run)
    content = taxonomies.content_of(draft.guideline.taxonomy_version)
    kept = tuple(code for code in content.codes if code.id != "wrong-root-cause")
    version = taxonomies.save_version(
        by=builders.person(), content=content.model_copy(update={"codes": kept}), seen_n=1
    )
    guidelines.save_version(
        by=builders.person(),
        name=guidelines.DEFAULT_NAME,
        taxonomy_version=version,
        definition="inevitable",
        seen_n=1,
    )
    done = labels.submit(by=mara, annotation_id=draft.pk, revision=draft.revision)
    assert done.guideline.n == 1
    assert taxonomies.content_of(done.guideline.taxonomy_version).code("wrong-root-cause") is not None


def test_only_runs_that_ended_are_labelled() -> None:
    mara = somebody()
    with pytest.raises(InvalidValueError, match="is running"):
        opened(mara, builders.run(status=Run.Status.RUNNING))
    with pytest.raises(InvalidValueError, match="does not exist"):
        labels.open_draft(by=mara, run_id=10**6, guideline=guidelines.default())


def test_a_draft_whose_run_was_removed_is_told() -> None:
    run, mara = failed_run(), somebody()
    draft = opened(mara, run)
    run.delete()
    with pytest.raises(labels.NoDraftError, match="may have been removed"):
        do(draft, mara, do="set_sure", value=True)


def test_nobody_changes_the_draft_of_somebody_else() -> None:
    run = failed_run()
    draft = opened(somebody(), run)
    with pytest.raises(labels.NoDraftError, match="not a draft of yours"):
        do(draft, somebody(), do="set_sure", value=True)


def test_marked_words_are_found_where_they_stand() -> None:
    run = failed_run()
    builders.append(run, *builders.bash_step(10, "python -m pytest -q", "1 failed\n1 failed, again\n"))
    found = evidence.find(run_id=run.pk, attempt=1, step=10, quote="1 failed", suffix=", again")
    assert (found.quote, found.start, found.end) == ("1 failed", 9, 17)
    assert evidence.holds(run_id=run.pk, evidence=found)
    folded = evidence.find(run_id=run.pk, attempt=1, step=10, quote="1 failed 1 failed,")
    assert folded.quote == "1 failed\n1 failed,"
    with pytest.raises(InvalidValueError, match="is not in step 10 word for word"):
        evidence.find(run_id=run.pk, attempt=1, step=10, quote="2 failed")
    with pytest.raises(InvalidValueError, match="is empty"):
        evidence.find(run_id=run.pk, attempt=1, step=10, quote="  ")


@pytest.mark.django_db(transaction=True)
def test_a_quote_whose_text_was_purged_does_not_hold_and_no_label_keeps_the_secret() -> None:
    run, mara = failed_run(), somebody()
    builders.append(run, *builders.bash_step(10, "cat key", "opensesame-opensesame is the word\n"))
    quote = evidence.find(run_id=run.pk, attempt=1, step=10, quote="opensesame-opensesame is")
    draft = complete(mara, run)
    draft = do(draft, mara, do="mark_evidence", key=1, step={"step": 10}, evidence=quote.model_dump())
    draft = do(draft, mara, do="set_note", value="it prints opensesame-opensesame")
    labels.submit(by=mara, annotation_id=draft.pk, revision=draft.revision)
    again = labels.correct(by=mara, annotation_id=draft.pk)
    do(again, mara, do="set_sure", value=False)
    purges.purge(secret=purges.Secret("opensesame-opensesame"), person="mara", reason="leaked")
    rows = [*Annotation.objects.values(), *ErrorEvent.objects.values()]
    assert "opensesame" not in str(rows)
    assert not evidence.holds(run_id=run.pk, evidence=quote)


def test_labels_of_others_are_hidden_until_ones_own_is_submitted() -> None:
    run, mara, noor = failed_run(), somebody(), somebody()
    submitted(mara, run)
    assert hidden_runs(noor, [run.pk]) == set()
    opened(noor, run)
    assert hidden_runs(noor, [run.pk]) == {run.pk}
    submitted(noor, run, step=2)
    assert hidden_runs(noor, [run.pk]) == set()
    assert hidden_runs(mara, [run.pk]) == set()


def test_the_facts_say_what_the_tests_say() -> None:
    words = {one.name: one.words for one in known_facts.of(failed_run())}
    assert words["fail_to_pass:some"] == "1 of 2 target tests still failing"
    assert words["pass_to_pass"] == "0 regressions"
    assert words["exit:agent"] == "ended by itself"
