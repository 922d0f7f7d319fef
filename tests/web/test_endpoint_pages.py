from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils.html import escape

from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.replay import Difference
from lab.models import Endpoint, Harness, HarnessVersion, Model, PriceCard, Run
from lab.services import endpoints
from tests import builders
from tests.fakes.openai_server import FakeOpenAI, models, plain


@pytest.fixture
def run(db: None) -> Run:
    run = builders.run()
    builders.believable(run)
    Endpoint.objects.filter(pk=run.arm.model.endpoint_id).update(
        name="rack 3", base_url="http://127.0.0.1:1/v1", headers={"X-Api-Key": "sk-hidden-9876543210"}
    )
    return Run.objects.select_related("arm__model__endpoint").get(pk=run.pk)


def text(client: Client, address: str, status: int = 200) -> str:
    answer = client.get(address)
    assert answer.status_code == status
    return re.sub(r"\s+", " ", answer.content.decode())


def at(run: Run, rest: str = "") -> str:
    return f"/endpoints/models/{run.arm.model_id}/{rest}"


def card(**values: Any) -> dict[str, Any]:
    return {"basis": "card", "input": "2", "output": "10", "valid_from": "2026-11-01"} | values


def test_the_list_shows_endpoints_with_their_models_prices_and_runs(viewer: Client, run: Run) -> None:
    endpoints.sync_scripted()
    page = text(viewer, "/endpoints/")
    assert page.index("rack 3") < page.index("scripted/solver")
    assert f'<a href="{at(run)}">{run.arm.model.name}</a>' in page
    assert "unknown, not in the price table" in page
    assert "$0, scripted" in page
    assert 'data-label="runs">1</td>' in page
    assert "Add models" not in page
    assert "Connect an endpoint" not in page


def test_a_name_that_means_a_model_elsewhere_is_not_listed_at_its_first_endpoint(
    viewer: Client, run: Run
) -> None:
    first = run.arm.model
    other = Endpoint.objects.create(name="rack 4", base_url="http://127.0.0.1:2/v1")
    Model.objects.create(endpoint=other, name=first.name, model_id="m", version=2)
    assert first.name not in text(viewer, f"/endpoints/{first.endpoint_id}/")
    assert first.name in text(viewer, f"/endpoints/{other.pk}/")


@pytest.mark.parametrize("address", ["/endpoints/", "/endpoints/{}/"])
def test_hundreds_of_models_are_listed_with_their_cards_in_few_queries(
    viewer: Client, run: Run, address: str, django_assert_max_num_queries: Any
) -> None:
    endpoint = run.arm.model.endpoint
    Model.objects.bulk_create(
        Model(endpoint=endpoint, name=f"m{n}", model_id=f"m{n}", price_basis="card") for n in range(200)
    )
    PriceCard.objects.create(
        endpoint=endpoint,
        model_id="m7",
        basis="card",
        rates={"input": "1", "output": "2"},
        valid_from=run.created_at,
    )
    with django_assert_max_num_queries(20):
        page = text(viewer, address.format(endpoint.pk))
    assert page.count("no own card holds now") == 199


def test_an_endpoints_page_names_its_headers_and_never_their_values(
    admin: Client, viewer: Client, run: Run
) -> None:
    address = f"/endpoints/{run.arm.model.endpoint_id}/"
    for page in (text(viewer, address), text(admin, address), text(admin, f"{address}edit/")):
        assert "X-Api-Key" in page
        assert "sk-hidden" not in page
    assert "no limit but the lab" in text(viewer, address)


def test_settings_of_an_endpoint_are_changed_and_what_was_typed_stays_after_a_mistake(
    admin: Client, run: Run
) -> None:
    address = f"/endpoints/{run.arm.model.endpoint_id}/edit/"
    sent = {
        "name": "rack 4",
        "base_url": "http://127.0.0.1:1/v1",
        "key_variable": "",
        "concurrency_limit": "eight",
        "connect_timeout": "5",
        "read_timeout": "0",
    }
    answer = admin.post(address, sent)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert page.count('aria-invalid="true"') == 2
    assert "“eight” is no number of runs from 1 to 10,000" in page
    for value in filter(None, sent.values()):
        assert f'value="{value}"' in page
    assert admin.post(address, sent | {"concurrency_limit": "8", "read_timeout": "900"}).status_code == 302
    endpoint = Endpoint.objects.get(pk=run.arm.model.endpoint_id)
    assert (endpoint.name, endpoint.concurrency_limit, endpoint.read_timeout) == ("rack 4", 8, 900)
    assert endpoint.headers == {"X-Api-Key": "sk-hidden-9876543210"}


def test_a_used_model_that_is_changed_has_a_new_version_and_both_have_a_page(admin: Client, run: Run) -> None:
    form = text(admin, at(run, "edit/"))
    assert "what you save is version 2" in form
    answer = admin.post(at(run, "edit/"), {"sampling": '{"temperature": 0.2}', "price_basis": "card"})
    newer = Model.objects.get(name=run.arm.model.name, version=2)
    assert answer.headers["Location"] == f"/endpoints/models/{newer.pk}/"
    page = text(admin, f"/endpoints/models/{newer.pk}/")
    assert "&quot;temperature&quot;: 0.2" in page
    assert "no price card of this model is valid" in page
    old = text(admin, at(run))
    assert "older version" in old
    assert "1 run</a>" in old
    assert "No sampling is sent" in old


def test_json_that_is_none_is_named_and_kept(admin: Client, run: Run) -> None:
    answer = admin.post(at(run, "edit/"), {"sampling": "{temperature: 1}", "price_basis": "table"})
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "is no JSON (line 1, column 2" in page
    assert "{temperature: 1}</textarea>" in page


@pytest.mark.parametrize(("field", "typed"), [("extra_body", '{"a":1e999}'), ("sampling", '{"a":-1e999}')])
def test_a_number_that_no_request_can_hold_is_refused_and_what_was_typed_stays(
    admin: Client, run: Run, field: str, typed: str
) -> None:
    answer = admin.post(at(run, "edit/"), {field: typed, "context_window": "4096", "price_basis": "table"})
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "999 is too large" in page
    assert escape(typed) in page
    assert 'value="4096"' in page


def hidden(client: Client, address: str) -> str:
    found = re.search(r'name="seen" value="([^"]*)"', client.get(address).content.decode())
    assert found
    return unescape(found[1])


def test_two_tabs_that_edit_one_model_do_not_undo_each_other_unseen(admin: Client, run: Run) -> None:
    same = {"sampling": "", "extra_body": "", "max_tokens_per_turn": "", "price_basis": "table"}
    seen = hidden(admin, at(run, "edit/"))
    first = {**same, "context_window": "8192", "seen": seen}
    assert admin.post(at(run, "edit/"), first).status_code == 302
    second = {**same, "context_window": "", "extra_body": '{"top_k": 4}', "seen": seen}
    refused = admin.post(at(run, "edit/"), second)
    page = unescape(refused.content.decode())
    assert refused.status_code == 422
    assert "context window is “8192” now, and was empty" in page
    assert '{"top_k": 4}</textarea>' in page
    assert Model.objects.filter(name=run.arm.model.name).count() == 2
    again = re.search(r'name="seen" value="([^"]*)"', refused.content.decode())
    assert again
    assert admin.post(at(run, "edit/"), second | {"seen": unescape(again[1])}).status_code == 302
    newest = Model.objects.filter(name=run.arm.model.name).order_by("-version")[0]
    assert (newest.context_window, newest.extra_body) == (None, {"top_k": 4})


def test_a_tab_that_undoes_nothing_is_not_refused(admin: Client, run: Run) -> None:
    seen = hidden(admin, at(run, "edit/"))
    sent = {"context_window": "8192", "seen": seen}
    for _ in range(2):
        assert admin.post(at(run, "edit/"), sent).status_code == 302
    assert admin.post(at(run, "edit/"), {"max_tokens_per_turn": "99", "seen": seen}).status_code == 302
    newest = Model.objects.filter(name=run.arm.model.name).order_by("-version")[0]
    assert (newest.context_window, newest.max_tokens_per_turn) == (8192, 99)


def test_two_tabs_that_edit_one_endpoint_do_not_undo_each_other_unseen(admin: Client, run: Run) -> None:
    address = f"/endpoints/{run.arm.model.endpoint_id}/edit/"
    seen = hidden(admin, address)
    assert "sk-hidden" not in seen
    with FakeOpenAI([models(("a", 8192))]) as server:
        one = {
            "concurrency_limit": "4",
            "headers": "X-Api-Key: sk-other-123456789",
            "base_url": server.base_url,
        }
        assert admin.post(address, one | {"seen": seen}).status_code == 302
    two = {"concurrency_limit": "", "headers": "X-Api-Key: sk-third-123456789", "seen": seen}
    page = unescape(admin.post(address, two).content.decode())
    assert "concurrency limit is “4” now, and was empty" in page
    assert "headers changed" in page
    assert "sk-other" not in page
    endpoint = Endpoint.objects.get(pk=run.arm.model.endpoint_id)
    assert (endpoint.concurrency_limit, endpoint.headers["X-Api-Key"]) == (4, "sk-other-123456789")


def test_price_cards_are_stored_shown_ended_and_removed(admin: Client, run: Run) -> None:
    gpu = {"gpus": "2", "usd_per_gpu_hour": "3.20", "tokens_per_second": "3000", "utilisation": "0.6"}
    assert admin.post(at(run, "prices/new/"), card(basis="gpu_hours", **gpu)).status_code == 302
    assert admin.post(at(run, "prices/new/"), card(source="contract 7")).status_code == 302
    page = text(admin, at(run))
    assert "2 GPUs × $3.20 an hour ÷ (3,000 tokens/s × 0.6), input included" in page
    assert "output $0.987654" in page
    assert "contract 7" in page
    assert "holds, not the basis" in page
    own = PriceCard.objects.get(basis="card")
    assert own.rates == {"input": "2", "output": "10"}
    again = admin.post(at(run, "prices/new/"), card(valid_from="2026-12-24"))
    assert again.status_code == 422
    told = again.content.decode()
    assert "own card from 2026-12-24 without an end" in told
    assert "own card from 2026-11-01 without an end" in told
    assert 'value="2026-12-24"' in told
    admin.post(at(run, f"prices/{own.pk}/end"), {"valid_until": "2026-12-24"})
    assert admin.post(at(run, "prices/new/"), card(valid_from="2026-12-24")).status_code == 302
    refused = admin.post(at(run, f"prices/{own.pk}/end"), {"valid_until": "2027-01-01"}, follow=True)
    assert "would both hold" in refused.content.decode()
    admin.post(at(run, f"prices/{own.pk}/remove"))
    assert not PriceCard.objects.filter(pk=own.pk).exists()


def test_a_card_that_is_there_and_prices_nothing_yet_is_used_by_one_button(
    admin: Client, viewer: Client, run: Run
) -> None:
    Model.objects.filter(pk=run.arm.model_id).update(price_basis="unknown", model_id="nobody-knows-it")
    assert "Use this card" not in text(admin, at(run))
    answer = admin.post(at(run, "prices/new/"), card(valid_from="2026-01-01"), follow=True)
    page = re.sub(r"\s+", " ", answer.content.decode())
    assert "The own card from 2026-01-01 without an end is there, and no call is priced by it" in page
    assert page.count("Use this card") == 1
    assert "Use this card" not in text(viewer, at(run))
    assert viewer.post(at(run, "basis"), {"basis": "card"}).status_code == 403
    used = admin.post(at(run, "basis"), {"basis": "card"}, follow=True)
    page = re.sub(r"\s+", " ", used.content.decode())
    newest = Model.objects.filter(name=run.arm.model.name).order_by("-version")[0]
    assert (newest.version, newest.price_basis) == (2, "card")
    assert "basis: own card" in page
    assert "<b>$2.0000</b> input" in page
    assert "Use this card" not in page
    refused = admin.post(at(run, "basis"), {"basis": "gold"}, follow=True)
    assert "is no price basis" in refused.content.decode()


def test_the_price_in_use_stands_on_the_page_with_its_basis(admin: Client, run: Run) -> None:
    Model.objects.filter(pk=run.arm.model_id).update(price_basis="card")
    admin.post(at(run, "prices/new/"), card(valid_from="2026-01-01"))
    page = text(admin, at(run))
    assert "basis: own card" in page
    assert "<b>$2.0000</b> input" in page
    assert "in use" in page
    assert "own card</span>" in text(admin, "/endpoints/")


def press(client: Client, address: str) -> str:
    """Press the button of the page that retires, twice as an impatient person does; returns what it says."""
    wanted = re.search(r'name="wanted" value="(\w+)"', text(client, address))
    assert wanted is not None
    once = client.post(f"{address}retire", {"wanted": wanted.group(1)})
    twice = client.post(f"{address}retire", {"wanted": wanted.group(1)}, follow=True)
    assert once.status_code == 302
    return str(twice.content.decode())


def test_a_model_is_retired_and_comes_back_however_often_the_button_is_clicked(
    admin: Client, run: Run
) -> None:
    endpoint = f"/endpoints/{run.arm.model.endpoint_id}/"
    assert "is retired" in press(admin, at(run))
    assert run.arm.model.name not in text(admin, "/endpoints/")
    assert "Retired:" in text(admin, endpoint)
    assert "can be launched again" in press(admin, at(run))
    assert run.arm.model.name in text(admin, "/endpoints/")
    assert "rack 3 is retired" in press(admin, endpoint)
    assert "Retired: <a" in text(admin, "/endpoints/")
    assert "can be launched again" in press(admin, endpoint)
    assert "Retired: <a" not in text(admin, "/endpoints/")


def test_a_list_of_thousands_is_searched_and_the_chosen_become_models(admin: Client, db: None) -> None:
    entries = [{"id": f"maker/model-{n}", "context_length": 1000 + n} for n in range(20_000)]
    with FakeOpenAI(listed=models(*entries)) as server:
        endpoint = Endpoint.objects.create(name="router", base_url=server.base_url)
        address = f"/endpoints/{endpoint.pk}/models/"
        page = text(admin, address)
        assert "20,000 that the server lists" in page
        assert "the first 200 are shown" in page
        part = admin.get(address, {"q": "model-19999"}, headers={"X-Requested-With": "fetch"})
        assert part.content.decode().count('name="chosen"') == 1
        assert "<html" not in part.content.decode()
        sent = {"chosen": ["maker/model-7", "maker/model-19999"]}
        assert admin.post(address, sent).headers["Location"] == f"/endpoints/{endpoint.pk}/"
        assert "is here already" in text(admin, f"{address}?q=model-19999")
    assert set(Model.objects.values_list("model_id", "context_window")) == {
        ("maker/model-7", 1007),
        ("maker/model-19999", 20_999),
    }


def test_a_server_without_a_list_says_so_and_takes_typed_ids(admin: Client, db: None) -> None:
    with FakeOpenAI(listed=plain({}, status=404)) as server:
        endpoint = Endpoint.objects.create(name="bare", base_url=server.base_url)
        address = f"/endpoints/{endpoint.pk}/models/"
        assert "has no /models (status 404)" in text(admin, address)
        refused = admin.post(address, {"typed": "a\u200bb"})
        assert refused.status_code == 422
        assert "a\u200bb</textarea>" in refused.content.decode()
        assert admin.post(address, {"typed": "my-model"}).status_code == 302
    assert Model.objects.get().model_id == "my-model"


def test_a_replay_is_asked_for_from_a_run_and_from_an_arm(operator: Client, run: Run) -> None:
    page = text(operator, f"/runs/{run.pk}/replay/")
    assert "(as recorded)" in page
    assert "stop at the first difference" in page
    arm = f"/arms/{run.arm_id}/replay/"
    assert "1 recorded run," in text(operator, arm)
    sent = {"harness_version": run.arm.harness_version_id, "on_difference": "follow", "key": "k"}
    answer = operator.post(arm, sent)
    again = Run.objects.exclude(pk=run.pk).get()
    assert answer.headers["Location"] == f"/runs/{again.pk}/"
    assert operator.post(arm, sent).headers["Location"] == answer.headers["Location"]
    assert (again.arm.model.on_difference, again.arm.model.replays) == ("follow", run.arm)
    shown = text(operator, f"/endpoints/models/{again.arm.model_id}/")
    assert f"experiment {run.experiment_id}, arm A" in shown
    assert "follow the recording all the same" in shown


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"harness_version": "999999"}, "is not known any more"),
        ({"harness_version": "9" * 40}, "is not known any more"),
        ({"on_difference": "guess"}, "choose one of stop, follow"),
    ],
)
def test_a_replay_that_cannot_be_is_told_and_not_launched(
    operator: Client, run: Run, sent: dict[str, str], said: str
) -> None:
    whole = {"harness_version": run.arm.harness_version_id, "on_difference": "stop"} | sent
    answer = operator.post(f"/runs/{run.pk}/replay/", whole)
    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert Run.objects.count() == 1


def test_a_run_that_goes_on_cannot_be_replayed_yet(operator: Client, db: None) -> None:
    waiting = builders.run()
    sent = {"harness_version": waiting.arm.harness_version_id, "on_difference": "stop", "scope": "run"}
    answer = operator.post(f"/runs/{waiting.pk}/replay/", sent)
    assert answer.status_code == 422
    assert f"run {waiting.pk} goes on; replay it when it has ended" in answer.content.decode()
    assert Run.objects.count() == 1


def test_a_run_without_a_recorded_turn_is_not_offered_and_says_so_when_asked(
    operator: Client, db: None
) -> None:
    cancelled = builders.run()
    builders.start(cancelled)
    failed = builders.failed_request(1, retry_in=None)
    builders.append(cancelled, builders.asked(1), failed, *builders.ending(steps=1))
    page = f"/runs/{cancelled.pk}/"
    assert f"{page}replay/" not in text(operator, page)
    assert "/replay/" not in text(operator, f"/experiments/{cancelled.experiment_id}/")
    sent = {"harness_version": cancelled.arm.harness_version_id, "on_difference": "stop", "scope": "run"}
    answer = operator.post(f"{page}replay/", sent)
    assert answer.status_code == 422
    assert f"no turn was recorded in run {cancelled.pk}" in answer.content.decode()
    for form in (text(operator, f"{page}replay/"), text(operator, f"/arms/{cancelled.arm_id}/replay/")):
        assert "o turn was recorded in" in form
        assert "all 0" not in form
        assert "0 recorded runs" not in form
        assert 'class="button primary"' not in form
    builders.believable(builders.another_run(cancelled, seed=2))
    assert "all 1 recorded run of arm A" in text(operator, f"{page}replay/")
    assert f"/arms/{cancelled.arm_id}/replay/" in text(operator, f"/experiments/{cancelled.experiment_id}/")


def test_the_replay_form_warns_of_harnesses_that_cannot_use_the_recording(operator: Client, run: Run) -> None:
    whole = load_preset("leaf-compatible").model_dump(mode="json")
    narrow = whole | {"tools": [tool for tool in whole["tools"] if tool["name"] in ("Bash", "Read", "Write")]}
    fenced = load_preset("mini").model_dump(mode="json") | {"protocol": "fenced"}
    HarnessVersion.objects.filter(pk=run.arm.harness_version_id).update(config=whole)
    for name, config in (("narrow", narrow), ("fenced", fenced)):
        harness = Harness.objects.create(name=name)
        HarnessVersion.objects.create(harness=harness, version=1, digest=name, config=config)
    page = text(operator, f"/runs/{run.pk}/replay/")
    assert re.search(r"narrow v?1</b> does not offer Edit, Glob, which recorded turns may call", page)
    assert re.search(r"fenced v?1</b> takes one fenced command in the text", page)
    assert page.count("(leaves the recording)") == 2


def test_a_replay_that_diverged_shows_both_sides_and_leads_to_the_recorded_run(
    operator: Client, run: Run
) -> None:
    sent = {"harness_version": run.arm.harness_version_id, "on_difference": "stop", "scope": "run"}
    operator.post(f"/runs/{run.pk}/replay/", sent)
    again = Run.objects.exclude(pk=run.pk).get()
    builders.start(again)
    told = Difference(1, 3, "tool: a", "tool: It said: a").beside(f"run {run.pk}")
    failed = builders.failed_request(1, retry_in=None)
    failed = failed.model_copy(update={"error": "replay_diverged", "message": told})
    diverged = [event.model_copy(update=_DIVERGED.get(event.kind, {})) for event in builders.ending(steps=1)]
    kept = [event for event in diverged if event.kind in ("attempt_ended", "run_ended")]
    builders.append(again, builders.asked(1), failed, *kept)
    page = text(operator, f"/runs/{again.pk}/")
    assert f'replays <a href="/runs/{run.pk}/">run {run.pk}</a>' in page
    assert page.count('<dd class="del">') == 2
    assert "It said: a</dd>" in page
    follow = f"/runs/{run.pk}/replay/?on_difference=follow&amp;harness_version={run.arm.harness_version_id}"
    assert f'href="{follow}"' in page
    form = text(operator, follow.replace("&amp;", "&"))
    assert 'value="follow" checked' in form
    assert "$0.0000" not in page
    assert "1 retry" not in page


def test_a_recording_at_its_end_is_not_advised_to_be_followed(operator: Client, run: Run) -> None:
    sent = {"harness_version": run.arm.harness_version_id, "on_difference": "follow", "scope": "run"}
    operator.post(f"/runs/{run.pk}/replay/", sent)
    again = Run.objects.exclude(pk=run.pk).get()
    builders.start(again)
    failed = builders.failed_request(1, retry_in=None)
    failed = failed.model_copy(update={"error": "replay_diverged", "message": "the recording has 1 turn"})
    ended = [event.model_copy(update=_DIVERGED.get(event.kind, {})) for event in builders.ending(steps=1)]
    kept = [event for event in ended if event.kind in _DIVERGED]
    builders.append(again, builders.asked(1), failed, *kept)
    page = text(operator, f"/runs/{again.pk}/")
    assert "It has no further turn to serve" in page
    assert "choose “follow" not in page


_DIVERGED = {
    "attempt_ended": {"exit_reason": "replay_diverged"},
    "run_ended": {"exit_reason": "replay_diverged", "verdict": None},
}


def test_operators_find_the_replay_on_the_pages_of_run_and_experiment(
    operator: Client, viewer: Client, run: Run
) -> None:
    link = f'href="/runs/{run.pk}/replay/"'
    assert link in text(operator, f"/runs/{run.pk}/")
    assert link not in text(viewer, f"/runs/{run.pk}/")
    arm = f'href="/arms/{run.arm_id}/replay/"'
    assert arm in text(operator, f"/experiments/{run.experiment_id}/")
    assert arm not in text(viewer, f"/experiments/{run.experiment_id}/")
