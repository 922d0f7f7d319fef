"""The labelling page: blind, stored at every change, plain about what cannot be done."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from lab.models import Annotation, Claim, Endpoint, Harness, HiddenTaskPart, Model, Role, Run
from lab.services import label_rows
from tests import builders
from tests.web.labelling import annotator, do, draft_of, failed_run, post, queue_of, submitted

pytestmark = pytest.mark.django_db

NAMES = ("cedar-unmistakable", "model-id-unmistakable", "harness-unmistakable", "endpoint-unmistakable")


def named_run() -> Run:
    """A failed run whose arm, model, endpoint and limits have names that stand nowhere else."""
    run = builders.run()
    Model.objects.filter(pk=run.arm.model_id).update(name=NAMES[0], model_id=NAMES[1])
    Harness.objects.filter(pk=run.arm.harness_version.harness_id).update(name=NAMES[2])
    Endpoint.objects.filter(pk=run.arm.model.endpoint_id).update(name=NAMES[3])
    run = Run.objects.get(pk=run.pk)
    builders.believable(run)
    return Run.objects.get(pk=run.pk)


def everything_on(client: Client, address: str, *, depth: int = 1) -> str:
    """The page, and whatever it fetches by itself or by a click into itself."""
    text = client.get(address).content.decode()
    found = [text]
    fetched = set(re.findall(r'(?:data-lazy|data-url|hx-get)="([^"]+)"', text))
    for link in sorted(fetched) if depth else ():
        found.append(everything_on(client, link.replace("&amp;", "&"), depth=depth - 1))
    return "\n".join(found)


def test_a_blind_page_and_what_it_fetches_betray_nothing_of_the_arm() -> None:
    run = named_run()
    person, client = annotator()
    draft = draft_of(person, run)
    text = everything_on(client, f"/annotate/labels/{draft.pk}/")
    assert "pytest" in text, "the steps are there"
    for name in NAMES:
        assert name not in text
    for link in (
        f"/experiments/{run.experiment_id}/",
        f"/harnesses/{run.arm.harness_version_id}/",
        f"/compare/?runs={run.pk}",
        f"/runs/{run.pk}/export",
        f'href="/runs/{run.pk}/"',
        "/ws/",
    ):
        assert link not in text
    assert "131,072" not in text, "a limit"
    assert 'class="cost"' not in text
    assert "at most 8,192 tokens" not in text


def test_what_a_server_said_when_it_failed_is_hidden_because_it_may_name_the_model() -> None:
    run = named_run()
    event = run.events.get(kind="model_call_failed")
    event.payload |= {"message": f"no such model: {NAMES[1]}", "raw": NAMES[1], "partial": NAMES[1]}
    event.save()
    person, client = annotator()
    assert NAMES[1] not in client.get(f"/annotate/labels/{draft_of(person, run).pk}/").content.decode()


def test_more_steps_of_a_long_run_come_blind_too() -> None:
    run = builders.run()
    Model.objects.filter(pk=run.arm.model_id).update(name=NAMES[0])
    builders.start(run)
    for step in range(1, 71):
        builders.append(run, *builders.bash_step(step, f"echo {step}", "x\n"))
    builders.append(run, *builders.ending(steps=70))
    person, client = annotator()
    draft = draft_of(person, Run.objects.get(pk=run.pk))
    text = client.get(f"/annotate/labels/{draft.pk}/").content.decode()
    (more,) = re.findall(r'data-url="([^"]+after=\d+)"', text)
    later = client.get(more).content.decode()
    assert "echo 70" in later
    assert "cost" not in later


def test_the_gold_patch_is_shown_where_the_queue_says_so() -> None:
    run = failed_run()
    HiddenTaskPart.objects.create(
        task=run.task, verification={}, gold_patch="diff --git a/gold.py b/gold.py\n"
    )
    for shows in (False, True):
        queue = queue_of([run], name=f"queue {shows}", show_hidden=shows, overlap=100)
        _, client = annotator()
        answer = client.post(f"/annotate/queues/{queue.pk}/next", follow=True)
        assert ("gold.py" in answer.content.decode()) == shows


def test_others_labels_are_shown_when_ones_own_is_submitted() -> None:
    run = failed_run()
    queue = queue_of([run], overlap=100)
    mara, _ = annotator("mara")
    first = submitted(mara, run)
    noor, client = annotator("noor")
    client.post(f"/annotate/queues/{queue.pk}/next")
    assert client.get(f"/annotate/labels/{first.pk}/").status_code == 404
    draft = Annotation.objects.get(annotator__person=noor)
    assert "mara" not in client.get(f"/annotate/labels/{draft.pk}/").content.decode()
    own = submitted(noor, run, step=2)
    text = client.get(f"/annotate/labels/{own.pk}/").content.decode()
    assert "mara" in text
    assert client.get(f"/annotate/labels/{first.pk}/").status_code == 200


def test_a_draft_is_its_authors_alone() -> None:
    run = failed_run()
    draft = draft_of(annotator()[0], run)
    _, other = annotator()
    assert other.get(f"/annotate/labels/{draft.pk}/").status_code == 404
    assert post(other, draft, "edit", operation={"do": "set_sure", "value": True}).status_code == 410


def test_a_change_comes_back_as_the_panel_with_its_new_revision() -> None:
    person, client = annotator()
    draft = draft_of(person, failed_run())
    answer = post(client, draft, "edit", operation={"do": "point_root", "step": {"step": 4}})
    text = answer.content.decode()
    assert answer.status_code == 200
    assert 'data-revision="1"' in text
    assert "step 4" in text
    assert "root cause" in text
    assert post(client, draft, "undo").content.decode().count("None yet.") == 1


def test_a_stale_tab_gets_the_newest_panel_and_a_sentence() -> None:
    person, client = annotator()
    draft = do(person, draft_of(person, failed_run()), {"do": "set_note", "value": "from the other tab"})
    answer = post(client, draft, "edit", revision=0, operation={"do": "set_sure", "value": True})
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "changed in another tab" in text
    assert "from the other tab" in text


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        ({"do": "add_event", "step": {"step": 41}}, "41 does not exist: the run has 7 steps"),
        ("no json", "is no JSON"),
        ("[1]", "is no JSON object"),
        ({"do": "mark", "step": {"step": 2, "attempt": 1}, "quote": "never said"}, "is not in step 2"),
        ({"do": "mark", "step": "2", "quote": "x"}, "is no step"),
        ({"do": "set_alternatives", "value": "4, soon"}, "is no step; write numbers such as 4, 7"),
        ({"do": "set_alternatives", "value": "4, 70"}, "70 does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_in_the_panel_and_changes_nothing(operation: object, says: str) -> None:
    person, client = annotator()
    draft = draft_of(person, failed_run())
    answer = post(client, draft, "edit", operation=operation)
    text = answer.content.decode().replace("&#x27;", "'")
    assert answer.status_code == 422
    assert says in text
    draft.refresh_from_db()
    assert draft.revision == 0


def test_words_of_a_step_become_evidence_with_their_place() -> None:
    person, client = annotator()
    draft = draft_of(person, failed_run())
    mark = {"do": "mark", "step": {"step": 5, "attempt": 1}, "quote": "1 failed,", "suffix": " 41 passed"}
    text = post(client, draft, "edit", operation=mark).content.decode()
    assert "characters 5 to 14" in text
    draft.refresh_from_db()
    (event,) = label_rows.read(draft).events
    assert (event.step, event.evidence[0].quote) == (5, "1 failed,")


def test_an_incomplete_label_is_not_submitted_and_each_field_says_why() -> None:
    person, client = annotator()
    draft = do(person, draft_of(person, failed_run()), {"do": "set_owner", "value": "agent"})
    answer = post(client, draft, "submit")
    text = answer.content.decode()
    assert answer.status_code == 422
    assert "There is no error event" in text
    assert "Sure or unsure is not answered" in text
    assert Annotation.objects.get().state == "draft"


def test_submitting_goes_on_to_the_next_run_of_the_queue() -> None:
    first = failed_run()
    queue = queue_of([first, failed_run(first)])
    person, client = annotator()
    client.post(f"/annotate/queues/{queue.pk}/next")
    draft = Annotation.objects.get()
    draft = do(person, draft, {"do": "set_owner", "value": "grader"}, {"do": "set_sure", "value": False})
    went = post(client, draft, "submit").json()["go"]
    assert went == f"/annotate/labels/{Annotation.objects.get(state='draft').pk}/"
    last = Annotation.objects.get(state="draft")
    last = do(person, last, {"do": "set_owner", "value": "grader"}, {"do": "set_sure", "value": True})
    assert post(client, last, "submit").json()["go"] == f"/annotate/queues/{queue.pk}/"


def test_a_skip_without_a_reason_is_refused_and_one_with_it_goes_on() -> None:
    queue = queue_of([failed_run()])
    person, client = annotator()
    client.post(f"/annotate/queues/{queue.pk}/next")
    draft = Annotation.objects.get(annotator__person=person)
    assert "say why" in post(client, draft, "skip", to="me", reason=" ").content.decode()
    answer = post(client, draft, "skip", to="others", reason="I wrote it")
    assert answer.json()["go"] == f"/annotate/queues/{queue.pk}/"
    assert "I wrote it" in client.get(f"/annotate/queues/{queue.pk}/").content.decode()


def test_a_claim_that_ran_out_is_said_and_the_draft_can_be_submitted() -> None:
    queue = queue_of([failed_run()])
    person, client = annotator()
    client.post(f"/annotate/queues/{queue.pk}/next")
    draft = Annotation.objects.get(annotator__person=person)
    Claim.objects.all().delete()
    _, other = annotator()
    other.post(f"/annotate/queues/{queue.pk}/next")
    text = client.get(f"/annotate/labels/{draft.pk}/").content.decode()
    assert "no longer held for you" in text
    do(person, draft, {"do": "set_owner", "value": "grader"}, {"do": "set_sure", "value": True})
    assert post(client, draft, "submit").status_code == 200


def test_a_sign_of_life_says_how_long_the_run_is_held() -> None:
    queue = queue_of([failed_run()])
    person, client = annotator()
    client.post(f"/annotate/queues/{queue.pk}/next")
    draft = Annotation.objects.get(annotator__person=person)
    assert "held for you until" in post(client, draft, "alive").content.decode()


def test_without_script_a_form_leads_back_to_the_page_and_says_what_was_wrong() -> None:
    person, client = annotator()
    draft = draft_of(person, failed_run())
    address = f"/annotate/labels/{draft.pk}/"
    good = {"revision": 0, "operation": '{"do":"set_owner","value":"grader"}'}
    assert client.post(f"{address}edit", good).headers["Location"] == address
    bad = {"revision": 1, "operation": '{"do":"add_event","step":{"step":99}}'}
    assert "99 does not exist" in client.post(f"{address}edit", bad, follow=True).content.decode()
    assert "Sure or unsure" in client.post(f"{address}submit", {"revision": 1}, follow=True).content.decode()


def test_a_submitted_label_is_corrected_by_another_one() -> None:
    person, client = annotator()
    first = submitted(person, failed_run())
    answer = client.post(f"/annotate/labels/{first.pk}/correct", follow=True)
    draft = Annotation.objects.get(state="draft")
    assert answer.redirect_chain[-1][0] == f"/annotate/labels/{draft.pk}/"
    post(client, draft, "submit")
    assert "It was corrected" in client.get(f"/annotate/labels/{first.pk}/").content.decode()


def test_a_label_in_a_run_that_goes_on_is_not_begun() -> None:
    run = builders.run(status=Run.Status.RUNNING)
    _, client = annotator()
    text = client.post(f"/runs/{run.pk}/label", follow=True).content.decode()
    assert "can be labelled when it has ended" in text
    assert not Annotation.objects.exists()


def test_a_viewer_reads_labels_and_begins_none(viewer: Client) -> None:
    run = failed_run()
    label = submitted(annotator("mara")[0], run)
    assert viewer.get("/annotate/").status_code == 200
    assert "mara" in viewer.get(f"/annotate/labels/{label.pk}/").content.decode()
    assert viewer.post(f"/runs/{run.pk}/label").status_code == 403


def test_what_a_person_typed_is_shown_as_text() -> None:
    person, client = annotator()
    draft = do(
        person, draft_of(person, failed_run()), {"do": "set_note", "value": "<script>alert(1)</script>'\">"}
    )
    text = client.get(f"/annotate/labels/{draft.pk}/").content.decode()
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_operators_see_gold_patches_and_people_of_other_roles_none() -> None:
    run = failed_run()
    HiddenTaskPart.objects.create(
        task=run.task, verification={}, gold_patch="diff --git a/gold.py b/gold.py\n"
    )
    operator = builders.person(Role.OPERATOR)
    client = Client()
    client.force_login(operator)
    assert "gold.py" in client.get(f"/annotate/labels/{draft_of(operator, run).pk}/").content.decode()
