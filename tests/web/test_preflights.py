"""The page of a model's preflights, and where else one is seen."""

from __future__ import annotations

import html
from collections.abc import Callable

import pytest
from django.test import Client

from lab.engine.events import RunEnded
from lab.engine.preflight.findings import Evidence, Finding, diagnoses
from lab.models import Endpoint, Experiment, Model, Preflight, Role, Run
from lab.services import preflight_work, preflights, queue
from lab.services.compared_runs import made_with
from lab.services.processes import process_identity
from lab.services.runs import consent_without_isolation
from tests import builders
from tests.builders import person
from tests.fakes.model_server import MODEL, LeakingXML, ModelServer
from tests.fakes.openai_server import JSONObject

pytestmark = pytest.mark.django_db(transaction=True)


def model_at(server: ModelServer) -> Model:
    endpoint = Endpoint.objects.create(name="there", base_url=server.base_url)
    return Model.objects.create(endpoint=endpoint, name="coder", model_id=MODEL, context_window=8_192)


def address(model: Model) -> str:
    return f"/endpoints/models/{model.pk}/preflight/"


def work() -> Preflight:
    claimed = preflights.claim_next(worker=process_identity())
    assert claimed is not None
    return preflight_work.conduct(preflight=claimed)


def diagnosed(code: str) -> JSONObject:
    return Finding(diagnoses()[code], (Evidence("auto", "<tool_call>"),)).to_json()


def text_of(client: Client, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def test_a_preflight_is_asked_for_watched_and_read(operator: Client) -> None:
    with LeakingXML() as server:
        model = model_at(server)
        before = text_of(operator, address(model))
        assert "Never examined" in before
        assert "at least 8,193 tokens, cost unknown" in before
        assert operator.post(f"{address(model)}ask/").status_code == 302
        waiting = text_of(operator, address(model))
        assert "Waits for a worker" in waiting
        assert 'hx-trigger="every 1s"' in waiting
        part = operator.get(address(model), headers={"HX-Request": "true"}).content.decode()
        assert part.strip().startswith('<div id="preflight"')
        work()
    page = text_of(operator, address(model))
    assert "hx-get" not in page
    assert "Runs would be worthless: " in page
    assert "<mark><tool_call>" in page
    assert page.index("<b>SGLang</b>") < page.index("<b>vLLM</b>")
    assert "--tool-call-parser" in page
    assert "Output speed" in page


def test_it_is_seen_beside_the_model_and_in_what_to_do_next(operator: Client) -> None:
    with LeakingXML() as server:
        model = model_at(server)
        assert "never examined" in text_of(operator, "/endpoints/")
        preflights.begin(model=model, worker="somebody")
        assert "being examined" in text_of(operator, "/endpoints/")
        Preflight.objects.all().delete()
        operator.post(f"{address(model)}ask/")
        work()
    assert "failing" in text_of(operator, "/endpoints/")
    home = text_of(operator, "/")
    assert "coder fails its preflight" in home
    assert address(model) in home


def test_a_viewer_reads_and_has_no_button(viewer: Client) -> None:
    with ModelServer() as server:
        model = model_at(server)
    page = text_of(viewer, address(model))
    assert "An operator can run it" in page
    assert "preflight/ask/" not in page
    assert viewer.post(f"{address(model)}ask/").status_code == 403


def test_what_cannot_be_asked_is_said_on_the_page(operator: Client) -> None:
    with ModelServer() as server:
        model = model_at(server)
    Endpoint.objects.update(key_variable="NOT_SET_KEY")
    answer = operator.post(f"{address(model)}ask/")
    assert answer.status_code == 422
    assert "NOT_SET_KEY" in answer.content.decode()


def test_one_that_waits_is_cancelled_and_earlier_ones_stay_readable(operator: Client) -> None:
    with ModelServer() as server:
        model = model_at(server)
        operator.post(f"{address(model)}ask/")
        first = work()
        operator.post(f"{address(model)}ask/", {"over_limit": "yes"})
        assert Preflight.objects.get(state="queued").over_limit
        operator.post(f"{address(model)}cancel/")
    page = text_of(operator, address(model))
    assert "This preflight was not finished" in page
    assert f"{Preflight.objects.latest('pk').cancelled_by} cancelled it before its end" in page
    earlier = text_of(operator, f"{address(model)}?number={first.pk}")
    assert "Nothing here would spoil a run" in earlier
    assert operator.get(f"{address(model)}?number=0").status_code == 404
    assert operator.get(f"{address(model)}?number=x").status_code == 404


def test_what_a_server_says_is_shown_as_text_and_keys_are_masked(operator: Client) -> None:
    key = "sk-proj-" + "Ab3" * 16

    class Nasty(ModelServer):
        def refusal(self, body: JSONObject) -> object:
            return self.error(400, f"<script>alert(1)</script> {key}")

    with Nasty() as server:
        model = model_at(server)
        operator.post(f"{address(model)}ask/")
        work()
    page = operator.get(address(model)).content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert key not in page
    assert "masked, looks like" in page


def test_launching_with_a_failing_one_asks_first_and_the_experiment_keeps_what_was_shown(
    operator: Client, launch_form: Callable[..., dict[str, object]]
) -> None:
    with LeakingXML() as server:
        model = model_at(server)
        operator.post(f"{address(model)}ask/")
        failing = work()
    consent_without_isolation(by=person(Role.ADMIN))
    form = launch_form(models=[model.pk])
    asked = operator.post("/launch/", form)
    page = html.unescape(asked.content.decode())
    assert asked.status_code == 422
    assert not Experiment.objects.exists()
    assert f'name="despite" value="{failing.pk}"' in page
    assert "Tool calls come as text: no parser reads them" in page
    assert operator.post("/launch/", form | {"despite": "999"}).status_code == 422
    assert operator.post("/launch/", form | {"despite": str(failing.pk)}).status_code == 302
    assert Experiment.objects.get().launched_despite == [failing.pk]


def test_running_again_with_a_failing_one_asks_first_and_keeps_what_was_shown(operator: Client) -> None:
    consent_without_isolation(by=person(Role.ADMIN))
    run = builders.run()
    builders.append(run, RunEnded(exit_reason="agent"))
    failing = Preflight.objects.create(
        model=run.arm.model,
        state="ended",
        outcome="failing",
        findings=[diagnosed("calls_as_text")],
    )
    again = f"/runs/{run.pk}/again"
    asked = operator.post(again, {"key": "k"})
    page = html.unescape(asked.content.decode())
    assert asked.status_code == 422
    assert Experiment.objects.count() == 1
    assert f'name="despite" value="{failing.pk}"' in page
    assert 'name="key" value="k"' in page
    assert "Tool calls come as text: no parser reads them" in page
    assert operator.post(again, {"key": "k", "despite": "999"}).status_code == 422
    first = operator.post(again, {"key": "k", "despite": str(failing.pk)})
    second = operator.post(again, {"key": "k", "despite": str(failing.pk)})
    assert first.status_code == 302
    assert first.headers["Location"] == second.headers["Location"]
    assert Experiment.objects.exclude(pk=run.experiment_id).get().launched_despite == [failing.pk]


def test_a_run_keeps_the_preflight_that_was_the_newest_when_it_was_first_claimed(
    operator: Client, launch_form: Callable[..., dict[str, object]]
) -> None:
    with ModelServer() as server:
        model = model_at(server)
        operator.post(f"{address(model)}ask/")
        first = work()
        consent_without_isolation(by=person(Role.ADMIN))
        operator.post("/launch/", launch_form(models=[model.pk]))
        claim = queue.claim_next(worker=process_identity())
        assert claim is not None
        assert claim.run.preflight == first
        operator.post(f"{address(model)}ask/")
        work()
    queue.release(claim=claim)
    again = queue.claim_next(worker=process_identity())
    assert again is not None
    assert again.run.preflight == first
    page = text_of(operator, f"/runs/{claim.run.pk}/")
    assert f"{address(model)}?number={first.pk}" in page
    assert made_with([Run.objects.get(pk=claim.run.pk)])[0].settings["preflight"] == "healthy"


def test_a_version_with_another_price_shows_the_preflight_that_holds_for_it(
    admin: Client, operator: Client
) -> None:
    with ModelServer() as server:
        model = model_at(server)
    found = Preflight.objects.create(
        model=model, state="ended", outcome="failing", findings=[diagnosed("parser_not_model")]
    )
    admin.post(f"/endpoints/models/{model.pk}/edit/", {"price_basis": "card"})
    newer = Model.objects.get(version=2)
    beside = text_of(operator, f"/endpoints/models/{newer.pk}/")
    assert "of version 1, which sends the same requests" in beside
    assert "never examined" not in beside
    assert "failing" in text_of(operator, "/endpoints/")
    page = text_of(operator, address(newer))
    assert f"preflight {found.pk}" in page
    assert "Runs would be worthless: " in page
    assert text_of(operator, f"{address(newer)}?number={found.pk}")
