"""The judge's pages: asking, what a reading came to, what is kept back from whoever may still label."""

from __future__ import annotations

import json

import pytest
from django.test import Client
from django.urls import reverse

from lab.models import Annotation, JudgeRun, Queue, QueueItem, Role
from lab.services import guidelines, judge_work, judging, labels
from lab.services.annotators import annotator_of
from tests import builders
from tests.fakes.openai_server import FakeOpenAI
from tests.services.test_judging import END, event, failed_run, judge_at, piece, said

pytestmark = pytest.mark.django_db(transaction=True)


def signed_in(role: Role) -> tuple[Client, object]:
    user = builders.person(role)
    client = Client()
    client.force_login(user)
    return client, user


def read_one(by: object, note: str = "it never looked at the hour") -> JudgeRun:
    with FakeOpenAI(piece(event(note=note)), said(END)) as server:
        judging.ask(
            by=by,  # type: ignore[arg-type]
            model=judge_at(server),
            run_ids=[failed_run().pk],
            guideline=guidelines.default(),
        )
        claimed = judging.claim_next()
        assert claimed is not None
        return judge_work.conduct(reading=claimed)


def test_an_operator_asks_and_lands_on_the_reading() -> None:
    client, _ = signed_in(Role.OPERATOR)
    with FakeOpenAI() as server:
        model = judge_at(server)
    run = failed_run()
    typed = {"model": model.pk, "guideline": guidelines.default().pk, "runs": str(run.pk)}
    answer = client.post(reverse("judge_ask"), typed)
    reading = JudgeRun.objects.get()
    assert answer["Location"] == reverse("judge", args=[reading.pk])
    assert "waits for a worker" in client.get(answer["Location"]).content.decode()


@pytest.mark.parametrize(
    ("runs", "said"),
    [("seven", "“seven” is no number"), ("9-3", "names none"), ("", "none are given"), ("999999", "no run")],
)
def test_wrong_numbers_are_named_and_stay_in_the_form(runs: str, said: str) -> None:
    client, _ = signed_in(Role.OPERATOR)
    with FakeOpenAI() as server:
        model = judge_at(server)
    typed = {"model": model.pk, "guideline": guidelines.default().pk, "runs": runs}
    answer = client.post(reverse("judge_ask"), typed)
    page = answer.content.decode()
    assert answer.status_code == 400
    assert said in page
    assert f'value="{runs}"' in page
    assert not JudgeRun.objects.exists()


def test_a_reading_shows_what_was_said_what_it_cost_and_what_was_refused() -> None:
    client, operator = signed_in(Role.OPERATOR)
    with FakeOpenAI(piece(event(step=99), event()), said(END)) as server:
        model = judge_at(server, price_provider="openai", price_model="gpt-4o")
        judging.ask(
            by=operator,  # type: ignore[arg-type]
            model=model,
            run_ids=[failed_run().pk],
            guideline=guidelines.default(),
        )
        claimed = judging.claim_next()
        assert claimed is not None
        ended = judge_work.conduct(reading=claimed)
    page = client.get(reverse("judge", args=[ended.pk])).content.decode()
    for words in ("1 failed, 41 passed", "step 99", "$0.0070", "made by a model"):
        assert words in page, words


def test_markup_in_a_judges_words_is_text() -> None:
    client, operator = signed_in(Role.OPERATOR)
    ended = read_one(operator, note="<script>alert(1)</script>")
    page = client.get(reverse("judge", args=[ended.pk])).content.decode()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_what_it_says_is_kept_back_from_whoever_may_still_label_the_run() -> None:
    _, operator = signed_in(Role.OPERATOR)
    ended = read_one(operator)
    client, person = signed_in(Role.ANNOTATOR)
    address = reverse("judge", args=[ended.pk])
    queue = Queue.objects.create(name="q", guideline=guidelines.default(), made_by=operator)
    QueueItem.objects.create(queue=queue, run=ended.run, position=1, wanted=2)
    page = client.get(address).content.decode()
    assert "is kept back" in page
    for words in ("never looked at the hour", "1 failed, 41 passed", "Nothing after it mends"):
        assert words not in page
    assert "left out, which you may still label blind" in client.get(reverse("judges")).content.decode()
    draft = labels.open_draft(by=person, run_id=ended.run_id, guideline=guidelines.default())  # type: ignore[arg-type]
    for operation in ({"do": "set_owner", "value": "grader"}, {"do": "set_sure", "value": True}):
        draft = labels.edit(
            by=person,  # type: ignore[arg-type]
            annotation_id=draft.pk,
            revision=draft.revision,
            operation=operation,
        )
    labels.submit(by=person, annotation_id=draft.pk, revision=draft.revision, known=lambda run: {})  # type: ignore[arg-type]
    assert "never looked at the hour" in client.get(address).content.decode()


def test_a_viewer_may_not_ask() -> None:
    client, _ = signed_in(Role.VIEWER)
    assert client.post(reverse("judge_ask"), {}).status_code == 403
    assert "Ask a judge" not in client.get(reverse("judges")).content.decode()


def test_the_record_against_people_stands_on_the_page() -> None:
    client, operator = signed_in(Role.OPERATOR)
    ended = read_one(operator)
    Annotation.objects.create(
        run=ended.run,
        guideline=guidelines.default(),
        annotator=annotator_of(builders.person(Role.ANNOTATOR)),
        state=Annotation.State.SUBMITTED,
        owner="grader",
        phase="implement",
        sure=True,
    )
    page = client.get(reverse("judges")).content.decode()
    assert "1 of the 1 run it read have a label" in page
    assert json.dumps("0 of 1")[1:-1] in page
    assert "on no run do both point at a step" in page
