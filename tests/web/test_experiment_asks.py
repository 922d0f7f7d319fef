"""Buttons and forms by which people ask something of a whole experiment, with and without script."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.test import Client

from lab.engine.errors import ExitReason
from lab.models import Experiment, Preflight, Role, Run
from lab.services import endpoints, experiment_asks, harnesses, log, queue
from tests.services import events as ev
from tests.services.builders import launched, person

SCRIPT = {"X-Requested-With": "fetch"}


@pytest.fixture
def oscar(db: None) -> User:
    return person(Role.OPERATOR, "oscar")


@pytest.fixture
def client(client: Client, oscar: User) -> Client:
    client.force_login(oscar)
    return client


@pytest.fixture
def experiment(oscar: User) -> Experiment:
    return launched(oscar, runs_wanted=2, seeds=2)


def text_of(answer: Any) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", answer.content.decode()).split())


def path_of(experiment: Experiment, what: str) -> str:
    return f"/experiments/{experiment.pk}/ask/{what}/"


def buttons(experiment: Experiment) -> str:
    experiment.refresh_from_db()
    asks = experiment_asks.asks_of(experiment)
    parts = ("experiments/_asks.html", "experiments/_head_more.html")
    context = {"experiment": experiment, "asks": asks}
    return "".join(render_to_string(part, context, HttpRequest()) for part in parts)


def offered(experiment: Experiment) -> set[str]:
    return set(re.findall(rf"/experiments/{experiment.pk}/ask/(\w+)/", buttons(experiment)))


def break_one() -> None:
    held = queue.claim_next(worker="w")
    assert held is not None
    ended = ev.attempt_ended("tool_error")
    log.append(run_id=held.run.pk, attempt=1, lease_token=held.lease_token, events=[ended])
    queue.settle(claim=held, retryable=False, reason=ExitReason.TOOL_ERROR, verdict=None)


def test_what_can_be_asked_right_now_is_offered(client: Client, experiment: Experiment) -> None:
    always = {"add_seeds", "add_arm", "budget"}
    assert offered(experiment) == {*always, "pause", "cancel"}
    client.post(path_of(experiment, "pause"))
    assert offered(experiment) == {*always, "resume", "cancel"}
    client.post(path_of(experiment, "resume"))
    break_one()
    assert offered(experiment) == {*always, "pause", "cancel", "rerun_infrastructure"}
    assert "Rerun 1 infrastructure error<" in buttons(experiment)
    client.post(path_of(experiment, "cancel"), {"expected": "3"})
    assert offered(experiment) == {*always, "rerun_infrastructure"}


def test_a_button_leads_back_to_the_page_which_says_what_came_of_it(
    client: Client, experiment: Experiment
) -> None:
    answer = client.post(path_of(experiment, "pause"), follow=True)
    assert answer.redirect_chain == [(f"/experiments/{experiment.pk}/", 302)]
    assert "The experiment is paused: runs stop at their next event" in text_of(answer)
    answer = client.post(path_of(experiment, "resume"), headers=SCRIPT)
    assert (answer.status_code, text_of(answer)) == (200, "The experiment goes on where it stood.")


def test_what_does_not_fit_any_more_says_why(client: Client, experiment: Experiment) -> None:
    Experiment.objects.update(kind=Experiment.Kind.DEMO)
    answer = client.post(path_of(experiment, "pause"), headers=SCRIPT)
    words = "It is a recorded demo, and nothing runs it; launch one of your own."
    assert (answer.status_code, text_of(answer)) == (409, words)
    assert words in text_of(client.post(path_of(experiment, "budget"), {"max_hours": "1"}, follow=True))


def test_cancelling_is_confirmed_with_the_number_of_runs(client: Client, experiment: Experiment) -> None:
    shown = client.get(path_of(experiment, "cancel"))
    assert "Cancel 4 runs" in text_of(shown)
    assert 'name="expected" value="4"' in shown.content.decode()
    refused = client.post(path_of(experiment, "cancel"), {"expected": "3"})
    assert refused.status_code == 422
    assert "it was 3, and by now 4 runs would be cancelled; confirm it again" in text_of(refused)
    assert client.post(path_of(experiment, "cancel")).status_code == 422
    client.post(path_of(experiment, "cancel"), {"expected": "4"})
    assert set(Run.objects.values_list("exit_reason", flat=True)) == {"cancelled"}


def test_seeds_are_added_by_a_form_that_keeps_what_was_typed(client: Client, experiment: Experiment) -> None:
    shown = client.get(path_of(experiment, "add_seeds"))
    assert "Its highest seed is 2, of 2 tasks with 1 arm. Each seed more is 2 runs" in text_of(shown)
    assert 'name="seeds" value="3"' in shown.content.decode()
    refused = client.post(path_of(experiment, "add_seeds"), {"seeds": "many"})
    assert refused.status_code == 422
    assert 'name="seeds" value="many"' in refused.content.decode()
    assert "“many” is no whole number from 2 to 100; write 3" in text_of(refused)
    answer = client.post(path_of(experiment, "add_seeds"), {"seeds": "4"}, follow=True)
    assert "4 runs are queued." in text_of(answer)
    assert experiment.runs.count() == 8


def test_an_arm_is_added_by_a_form_that_says_everything_at_once(
    client: Client, experiment: Experiment
) -> None:
    assert "Add 4 runs" in text_of(client.get(path_of(experiment, "add_arm")))
    refused = client.post(path_of(experiment, "add_arm"), {"harness_version": "9" * 30})
    assert refused.status_code == 422
    assert text_of(refused).count("nothing is chosen, or it is not known any more") == 2
    both = {"max_steps": "5", "max_steps_none": "on", "max_cost_usd": "lots"}
    refused = client.post(path_of(experiment, "add_arm"), both)
    assert text_of(refused).count("nothing is chosen, or it is not known any more") == 2
    assert "are both given" in text_of(refused)
    assert "“lots” is not a number of dollars" in text_of(refused)
    version, model = harnesses.sync_presets()[1], endpoints.sync_scripted()[1]
    chosen = {"harness_version": str(version.pk), "model": str(model.pk)}
    refused = client.post(path_of(experiment, "add_arm"), {**chosen, "max_steps": "lots"})
    assert "“lots” is not a number of steps" in text_of(refused)
    assert f'value="{version.pk}" selected' in refused.content.decode()
    answer = client.post(path_of(experiment, "add_arm"), {**chosen, "max_steps": "7"}, follow=True)
    assert "Arm B: 4 runs are queued." in text_of(answer)
    assert experiment.arms.get(letter="B").limits["max_steps"] == 7


def test_a_failing_preflight_is_shown_and_confirmed(client: Client, experiment: Experiment) -> None:
    version, model = harnesses.sync_presets()[0], endpoints.sync_scripted()[1]
    findings = [{"severity": "failing", "title": "It calls no tool"}]
    failing = Preflight.objects.create(
        model=model, state=Preflight.State.ENDED, outcome=Preflight.Outcome.FAILING, findings=findings
    )
    chosen = {"harness_version": str(version.pk), "model": str(model.pk)}
    asked = client.post(path_of(experiment, "add_arm"), chosen)
    assert (asked.status_code, "It calls no tool" in text_of(asked)) == (422, True)
    assert f'name="despite" value="{failing.pk}"' in asked.content.decode()
    client.post(path_of(experiment, "add_arm"), {**chosen, "despite": str(failing.pk)})
    assert experiment.arms.count() == 2


def test_budgets_and_how_many_go_on_at_once_are_changed_all_or_none(
    client: Client, experiment: Experiment
) -> None:
    shown = text_of(client.get(path_of(experiment, "budget")))
    assert "Cost $0.00 so far" in shown
    typed = {"max_tokens": "1,000,000", "max_hours": "soon", "concurrency": "2"}
    refused = client.post(path_of(experiment, "budget"), typed)
    assert refused.status_code == 422
    assert "“soon” is not a number of hours; write it like 1.5" in text_of(refused)
    experiment.refresh_from_db()
    assert (experiment.budgets, experiment.concurrency) == ({}, None)
    answer = client.post(path_of(experiment, "budget"), {**typed, "max_hours": "8"}, follow=True)
    assert "From now on 2 runs at once; what goes on is not stopped." in text_of(answer)
    assert "From now on the experiment has 1,000,000 tokens and 8 hours." in text_of(answer)
    client.post(path_of(experiment, "budget"), {"max_hours_none": "on", "concurrency_none": "on"})
    experiment.refresh_from_db()
    assert (experiment.budgets, experiment.concurrency) == ({"max_tokens": 1_000_000}, None)
    both = client.post(path_of(experiment, "budget"), {"max_tokens": "1", "max_tokens_none": "on"})
    assert "“1” and “no limit” are both given" in text_of(both)
    assert "Nothing was typed" in text_of(client.post(path_of(experiment, "budget")))


def test_a_paused_experiment_may_go_on_with_the_budget_that_is_raised(
    client: Client, experiment: Experiment
) -> None:
    client.post(path_of(experiment, "pause"))
    shown = client.get(path_of(experiment, "budget"))
    assert "It is paused: oscar paused it." in text_of(shown)
    assert 'name="goes_on"' in shown.content.decode()
    client.post(path_of(experiment, "budget"), {"max_hours": "2", "goes_on": "on"})
    experiment.refresh_from_db()
    assert (experiment.state, experiment.budgets) == ("active", {"max_hours": 2})


def test_forms_fit_a_dialog_as_well(client: Client, experiment: Experiment) -> None:
    for what in ("add_seeds", "add_arm", "budget", "cancel"):
        fragment = client.get(path_of(experiment, what), headers=SCRIPT).content.decode()
        assert 'class="ask-form"' in fragment
        assert "<html" not in fragment
        assert "<html" in client.get(path_of(experiment, what)).content.decode()


def test_what_has_no_form_leads_back_and_what_nobody_knows_is_not_found(
    client: Client, experiment: Experiment
) -> None:
    assert client.get(path_of(experiment, "pause")).headers["Location"] == f"/experiments/{experiment.pk}/"
    assert client.get(path_of(experiment, "explode")).status_code == 404
    assert client.post(path_of(experiment, "explode")).status_code == 404
    assert client.get("/experiments/999/ask/pause/").status_code == 404


def test_a_viewer_may_ask_nothing(experiment: Experiment) -> None:
    viewer = Client()
    viewer.force_login(person(Role.VIEWER, "vera"))
    for what in ("pause", "resume", "cancel", "add_seeds", "add_arm", "budget", "rerun_infrastructure"):
        assert viewer.post(path_of(experiment, what)).status_code == 403
    experiment.refresh_from_db()
    assert experiment.state == "active"
