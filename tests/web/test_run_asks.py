"""Buttons and forms by which people ask something of a run, with and without script."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from lab.engine.events import RunEnded
from lab.models import Control, Event, Role, Run
from tests import builders

pytestmark = pytest.mark.django_db
SCRIPT = {"X-Requested-With": "fetch"}


@pytest.fixture
def client(client: Client) -> Client:
    client.force_login(builders.person(Role.OPERATOR, name="oscar"))
    return client


@pytest.fixture
def run() -> Run:
    return builders.run()


def text_of(answer: Any) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", answer.content.decode()).split())


def page(client: Client, run: Run) -> str:
    return client.get(f"/runs/{run.pk}/").content.decode()


def test_a_run_that_goes_on_offers_what_can_be_asked_of_it(client: Client, run: Run) -> None:
    html = page(client, run)
    for path in ("pause", "message", "limit", "cancel"):
        assert f'/runs/{run.pk}/{path}"' in html
    for path in ("resume", "again", "attempt"):
        assert f'/runs/{run.pk}/{path}"' not in html


def test_a_viewer_sees_no_button_and_may_ask_nothing(run: Run) -> None:
    viewer = Client()
    viewer.force_login(builders.person(Role.VIEWER))
    assert "part-actions" not in page(viewer, run)
    for path in ("pause", "resume", "message", "limit", "cancel", "again", "attempt"):
        assert viewer.post(f"/runs/{run.pk}/{path}").status_code == 403
    assert not Control.objects.exists()


def test_without_script_a_button_leads_back_to_the_page_which_says_what_came_of_it(
    client: Client, run: Run
) -> None:
    answer = client.post(f"/runs/{run.pk}/pause", follow=True)
    assert answer.redirect_chain == [(f"/runs/{run.pk}/", 302)]
    assert f"Run {run.pk} is paused; nobody starts it until it is resumed." in text_of(answer)
    assert "Paused by oscar" in text_of(answer)
    assert f'/runs/{run.pk}/resume"' in page(client, run)


def test_a_button_that_does_not_fit_any_more_says_why(client: Client, run: Run) -> None:
    builders.append(run, RunEnded(exit_reason="agent"))
    answer = client.post(f"/runs/{run.pk}/pause", headers=SCRIPT)
    assert (answer.status_code, text_of(answer)) == (
        409,
        f"Run {run.pk} has ended (agent) and cannot be paused.",
    )
    assert "has ended (agent) and cannot be paused" in text_of(
        client.post(f"/runs/{run.pk}/pause", follow=True)
    )


@pytest.mark.parametrize("headers", [{}, SCRIPT])
def test_a_message_that_cannot_be_sent_stands_in_its_field_with_what_is_wrong(
    client: Client, run: Run, headers: dict[str, str]
) -> None:
    # Four bytes each.
    long = "\N{SNAKE}" * 1_000_000
    answer = client.post(f"/runs/{run.pk}/message", {"message": long}, headers=headers)
    html = answer.content.decode()
    assert answer.status_code == 422
    assert "has 1,000,000 characters and may have 32,000; shorten it" in html
    assert long in html
    assert 'aria-invalid="true"' in html
    assert ("<html" in html) is not bool(headers)
    assert not Control.objects.exists()


def test_a_message_that_is_no_html_page_of_its_own_is_one_for_a_dialog(client: Client, run: Run) -> None:
    html = client.get(f"/runs/{run.pk}/message", headers=SCRIPT).content.decode()
    assert html.lstrip().startswith("<form")
    assert "<html" in client.get(f"/runs/{run.pk}/message").content.decode()


def test_a_message_is_taken(client: Client, run: Run) -> None:
    answer = client.post(f"/runs/{run.pk}/message", {"message": "Look\r\nhere"}, headers=SCRIPT)
    assert (answer.status_code, text_of(answer)) == (
        200,
        "The message joins the conversation before the next model call.",
    )
    assert Control.objects.get().value == {"text": "Look\nhere"}
    assert "A message of oscar waits for the next model call." in text_of(client.get(f"/runs/{run.pk}/"))


def test_one_wrong_limit_of_several_changes_none_and_keeps_what_was_typed(client: Client, run: Run) -> None:
    typed = {"max_steps": "300", "max_total_time_sec": "soon", "max_cost_usd_none": "on"}
    answer = client.post(f"/runs/{run.pk}/limit", typed, headers=SCRIPT)
    html = answer.content.decode()
    assert answer.status_code == 422
    assert "“soon” is not a number of seconds" in html
    assert 'value="300"' in html
    assert 'value="soon"' in html
    assert 'name="max_cost_usd_none" checked' in html
    assert not Control.objects.exists()


def test_a_number_and_no_limit_together_are_a_mistake_of_their_field(client: Client, run: Run) -> None:
    typed = {"max_steps": "300", "max_steps_none": "on"}
    answer = client.post(f"/runs/{run.pk}/limit", typed, headers=SCRIPT)
    assert "“300” and “no limit” are both given" in answer.content.decode()


def test_a_form_of_limits_in_which_nothing_was_typed_says_so(client: Client, run: Run) -> None:
    answer = client.post(f"/runs/{run.pk}/limit", {}, headers=SCRIPT)
    assert (answer.status_code, "nothing was typed" in answer.content.decode()) == (422, True)


def test_several_limits_are_asked_for_at_once(client: Client, run: Run) -> None:
    typed = {"max_steps": "300", "max_cost_usd_none": "on"}
    answer = client.post(f"/runs/{run.pk}/limit", typed, headers=SCRIPT)
    assert "300 steps from the agent's next event on." in answer.content.decode()
    assert [row.value for row in Control.objects.all()] == [
        {"limit": "max_steps", "after": 300},
        {"limit": "max_cost_usd", "after": None},
    ]


def test_the_form_says_what_holds_and_what_is_used(client: Client, run: Run) -> None:
    builders.start(run)
    builders.append(run, *builders.bash_step(1, "ls", "it\n"))
    text = text_of(client.get(f"/runs/{run.pk}/limit"))
    assert "Steps 1 step used" in text
    assert "$0.01 used" in text


def test_run_again_leads_to_the_new_run_and_both_pages_know(client: Client, run: Run, settings: Any) -> None:
    settings.LAB_SANDBOX = "process"
    builders.append(run, RunEnded(exit_reason="agent"))
    model = run.arm.model
    model.endpoint.scripted = True
    model.endpoint.save()
    run.task.task_set.folder = str(settings.BASE_DIR)
    first = client.post(f"/runs/{run.pk}/again", {"key": "k"})
    second = client.post(f"/runs/{run.pk}/again", {"key": "k"})
    fresh = Run.objects.exclude(pk=run.pk).get()
    assert first.headers["Location"] == second.headers["Location"] == f"/runs/{fresh.pk}/"
    assert f"oscar ran it again as run {fresh.pk}" in text_of(client.get(f"/runs/{run.pk}/"))


def test_only_a_run_that_infrastructure_ended_offers_another_attempt(client: Client, run: Run) -> None:
    builders.start(run)
    run.attempts.update(exit_reason="tool_error")
    builders.append(run, RunEnded(exit_reason="tool_error"))
    assert f'/runs/{run.pk}/attempt"' in page(client, run)
    assert "is queued for another attempt" in text_of(client.post(f"/runs/{run.pk}/attempt", follow=True))
    assert Event.objects.filter(run=run, kind="control_asked").count() == 1
    other = builders.run()
    builders.append(other, RunEnded(exit_reason="agent"))
    assert f'/runs/{other.pk}/attempt"' not in page(client, other)
