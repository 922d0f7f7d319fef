"""Queues, keys, agreement and adjudication on their pages."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from lab.models import Annotation, Queue
from lab.services import agreements, guidelines, label_keys, label_rows, labels
from tests import builders
from tests.web.labelling import annotator, do, draft_of, failed_run, post, queue_of, submitted

pytestmark = pytest.mark.django_db


def form(**changed: object) -> dict[str, object]:
    """What the form of a queue sends when one changes nothing, with what one changes."""
    return {
        "name": "failures",
        "guideline": guidelines.default().pk,
        "overlap": "20",
        "labels_wanted": "2",
        "claim_minutes": "30",
        "seed": "1",
        "verdicts": ["unresolved"],
        **changed,
    }


def test_a_queue_is_made_of_what_the_form_says(operator: Client) -> None:
    first = failed_run()
    for seed in range(2, 6):
        failed_run(first, seed=seed)
    answer = operator.post("/annotate/queues/new", form(sample="3", behaviours=["never_fixed"]), follow=True)
    queue = Queue.objects.get()
    assert f"“{queue.name}” holds 3 runs." in answer.content.decode()
    assert queue.rules["behaviours"] == ["never_fixed"]
    assert sorted(item.wanted for item in queue.items.all()) == [1, 1, 2]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"overlap": "many"}, "overlap: &#x27;many&#x27; is no whole number"),
        ({"overlap": "200"}, "200 cannot be used; choose 0 to 100"),
        ({"name": ""}, "a name has 1 to 200"),
        ({"sample": "-1"}, "sample"),
        ({"guideline": "999999"}, "guideline"),
        ({"verdicts": ["splendid"]}, "splendid"),
        ({"verdicts": ["resolved"]}, "No ended run is as these rules ask"),
    ],
)
def test_what_cannot_be_used_is_said_and_what_was_typed_stays(
    operator: Client, changed: dict[str, object], says: str
) -> None:
    failed_run()
    answer = operator.post("/annotate/queues/new", form(seed="77", **changed))
    text = answer.content.decode()
    assert answer.status_code == 422
    assert says in text
    assert 'value="77"' in text
    assert not Queue.objects.exists()


def test_the_form_counts_the_runs_before_a_queue_is_made(operator: Client) -> None:
    first = failed_run()
    failed_run(first)
    text = operator.get("/annotate/queues/preview?verdicts=unresolved&sample=1").content.decode()
    assert "<b>2</b> ended runs" in text
    assert "<b>1</b> of them at random" in text
    assert "splendid" in operator.get("/annotate/queues/preview?verdicts=splendid").content.decode()


def test_a_queue_is_closed_opened_and_filled_again(operator: Client) -> None:
    queue = queue_of([failed_run()])
    address = f"/annotate/queues/{queue.pk}/"
    assert "Open again" in operator.post(f"{address}change", {"do": "close"}, follow=True).content.decode()
    _, client = annotator()
    assert "is closed" in client.post(f"{address}next", follow=True).content.decode()
    operator.post(f"{address}change", {"do": "reopen"})
    answer = operator.post(f"{address}change", {"do": "refill"}, follow=True)
    assert "No further run" in answer.content.decode()
    assert "is none of" in operator.post(f"{address}change", {"do": "burn"}, follow=True).content.decode()


def test_the_list_says_how_far_each_queue_is_and_what_one_has_begun() -> None:
    first = failed_run()
    queue = queue_of([first, failed_run(first)])
    person, client = annotator()
    submitted(person, first)
    client.post(f"/annotate/queues/{queue.pk}/next")
    text = client.get("/annotate/").content.decode()
    assert "1 of 2" in text
    assert "Your drafts" in text


def test_keys_are_changed_and_what_clashes_is_refused() -> None:
    person, client = annotator()
    keys = {action: key for action, (key, _) in label_keys.ACTIONS.items()}
    bad = client.post("/annotate/keys/", keys | {"event": "j", "note": "sure"})
    text = bad.content.decode()
    assert bad.status_code == 422
    assert "has a meaning on every page" in text
    assert "is not one key" in text
    both = client.post("/annotate/keys/", keys | {"event": "r"}).content.decode()
    assert "is also the key of" in both
    assert client.post("/annotate/keys/", keys | {"event": "a"}).status_code == 302
    page = client.get(f"/annotate/labels/{draft_of(person, failed_run()).pk}/").content.decode()
    assert "<kbd>a</kbd> error event at this step" in page


def test_agreement_shows_each_number_with_its_n_and_the_runs_behind_it(viewer: Client) -> None:
    mara, noor = annotator("mara")[0], annotator("noor")[0]
    first = failed_run()
    runs = [first, *(failed_run(first, seed=seed) for seed in range(2, 5))]
    queue_of(runs, overlap=100)
    for run, step, other in zip(runs, (1, 2, 3, 4), (1, 2, 6, 4), strict=True):
        submitted(mara, run, step=step)
        differs = run == runs[2]
        submitted(noor, run, step=other, category="wrong-location" if differs else "wrong-root-cause")
    text = re.sub(r"\s+", " ", viewer.get("/annotate/agreement/").content.decode())
    assert "75.0 %" in text
    assert "3 of 4" in text, "the same step"
    assert "4 of 4" in text, "within three steps"
    assert "not estimable, because only one label was ever given" in text
    (cell,) = set(
        re.findall(r'href="(\?[^"]*cell=category[^"]*wrong-root-cause%3Awrong-location[^"]*)"', text)
    )
    behind = viewer.get(f"/annotate/agreement/{cell.replace('&amp;', '&')}").content.decode()
    assert f"run {runs[2].pk}" in behind[behind.index('id="cell"') :]
    assert f"run {runs[0].pk}" not in behind[behind.index('id="cell"') :]


def test_agreement_leaves_out_what_somebody_may_still_label() -> None:
    run = failed_run()
    queue_of([run], overlap=100, labels_wanted=3)
    mara, client = annotator("mara")
    submitted(mara, run)
    submitted(annotator("noor")[0], run)
    assert "Labels of 1 run that you" not in client.get("/annotate/agreement/").content.decode()
    _, third = annotator()
    text = third.get("/annotate/agreement/").content.decode()
    assert "Labels of 1 run that you may still label yourself are left out" in text


def test_labels_that_differ_are_settled_by_a_third_record(operator: Client) -> None:
    run = failed_run()
    one = submitted(annotator("mara")[0], run, step=1)
    other = submitted(annotator("noor")[0], run, step=5, category="verification-skipped")
    before = [label_rows.read(Annotation.objects.get(pk=pk)) for pk in (one.pk, other.pk)]
    listed = operator.get("/annotate/adjudications/").content.decode()
    assert "category, step" in listed
    guideline = {"guideline": one.guideline_id}
    answer = operator.post(f"/runs/{run.pk}/adjudicate", guideline, follow=True)
    draft = Annotation.objects.get(kind="adjudication")
    assert "The labels to settle" in answer.content.decode()
    assert label_rows.read(draft).owner == "agent", "what both say alike is there already"
    assert label_rows.read(draft).root is None
    taken = post(operator, draft, "take", parent=other.pk, part="root")
    assert taken.status_code == 200
    assert post(operator, draft, "take", parent=0, part="root").status_code == 422
    assert post(operator, draft, "take", parent=other.pk, part="hat").status_code == 422
    post(operator, draft, "edit", operation={"do": "set_sure", "value": True})
    assert post(operator, draft, "submit").json()["go"] == "/annotate/adjudications/"
    draft.refresh_from_db()
    root = label_rows.read(draft).root
    assert root is not None
    assert (root.step, root.category) == (5, "verification-skipped")
    assert set(draft.parents.values_list("pk", flat=True)) == {one.pk, other.pk}
    assert [label_rows.read(Annotation.objects.get(pk=pk)) for pk in (one.pk, other.pk)] == before


def test_whoever_may_still_label_a_run_settles_nothing_of_it() -> None:
    run = failed_run()
    queue_of([run], overlap=100, labels_wanted=3)
    label = submitted(annotator("mara")[0], run)
    submitted(annotator("noor")[0], run)
    client = Client()
    client.force_login(builders.person())
    answer = client.post(f"/runs/{run.pk}/adjudicate", {"guideline": label.guideline_id}, follow=True)
    assert "submit yours first" in answer.content.decode()
    assert not Annotation.objects.filter(kind="adjudication").exists()


def test_one_label_is_nothing_to_settle(operator: Client) -> None:
    run = failed_run()
    label = submitted(annotator("mara")[0], run)
    answer = operator.post(f"/runs/{run.pk}/adjudicate", {"guideline": label.guideline_id}, follow=True)
    assert "two are needed" in answer.content.decode()


def test_unsure_labels_wait_too(operator: Client) -> None:
    run = failed_run()
    for name, sure in (("mara", True), ("noor", False)):
        person, client = annotator(name)
        draft = do(person, draft_of(person, run), {"do": "set_owner", "value": "grader"})
        draft = do(person, draft, {"do": "set_sure", "value": sure})
        post(client, draft, "submit")
    assert "1 of 1 wait" in operator.get("/annotate/adjudications/").content.decode()


def test_a_label_begun_with_another_in_sight_does_not_count_in_agreement(operator: Client) -> None:
    run = failed_run()
    mara, noor = annotator("mara")[0], annotator("noor")[0]
    first = submitted(mara, run, owner="agent")
    draft = draft_of(noor, run)
    assert not draft.blind
    blind = failed_run(run, seed=7)
    submitted(mara, blind)
    do(noor, draft, {"do": "set_owner", "value": "grader"})
    text = operator.get("/annotate/agreement/").content.decode()
    assert "does not count here" not in text
    draft = do(noor, draft_of(noor, run), {"do": "set_sure", "value": True})
    labels.submit(by=noor, annotation_id=draft.pk, revision=draft.revision)
    text = operator.get("/annotate/agreement/").content.decode()
    assert "1 label was begun with another reading of the run in sight and does not count here" in text
    assert first.blind


def test_a_correction_made_with_the_others_in_sight_leaves_the_blind_label_in_agreement() -> None:
    run = failed_run()
    queue_of([run], overlap=100)
    mara, noor = annotator("mara")[0], annotator("noor")[0]
    submitted(mara, run, step=1)
    item = run.queue_items.get()
    draft = labels.open_draft(by=noor, run_id=run.pk, guideline=guidelines.default(), item=item)
    draft = do(noor, draft, {"do": "set_owner", "value": "grader"}, {"do": "set_sure", "value": True})
    own = labels.submit(by=noor, annotation_id=draft.pk, revision=draft.revision)
    assert own.blind
    again = labels.correct(by=noor, annotation_id=own.pk)
    again = do(noor, again, {"do": "set_owner", "value": "environment"})
    labels.submit(by=noor, annotation_id=again.pk, revision=again.revision)
    readings = agreements.compared(by=builders.person()).readings
    assert {one.owner for one in readings} == {"agent", "grader"}


def test_whoever_has_labelled_a_run_is_led_to_their_label(operator: Client) -> None:
    run = failed_run()
    person, client = annotator()
    label = submitted(person, run)
    answer = client.post(f"/runs/{run.pk}/label")
    assert answer.headers["Location"] == f"/annotate/labels/{label.pk}/"


def test_how_often_a_code_is_used_leaves_out_what_is_hidden() -> None:
    run = failed_run()
    queue_of([run], overlap=100)
    submitted(annotator("mara")[0], run, category="other")
    version = guidelines.default().taxonomy_version
    _, client = annotator()
    text = client.get(f"/annotate/taxonomies/{version.pk}/").content.decode()
    assert "in 1 error event" not in text
