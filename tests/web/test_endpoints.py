from __future__ import annotations

import pytest
from django.test import Client

from lab.models import Endpoint, Model
from tests.fakes.openai_server import FakeOpenAI, html, models, plain
from tests.whole_lab import free_port


def test_a_model_is_connected_after_its_server_was_asked(admin: Client, filled: None) -> None:
    with FakeOpenAI(listed=models({"id": "fake", "max_model_len": 40_960})) as fake:
        answer = admin.post("/endpoints/new/", {"base_url": fake.base_url, "model_id": "fake"})
        assert answer.status_code == 302
        model = Model.objects.get(model_id="fake")
        assert (model.context_window, model.endpoint.base_url) == (40_960, fake.base_url)
        page = admin.get("/endpoints/").content.decode()
    assert "40,960" in page
    assert "none needed" in page
    assert "unknown, not in the price table" in page
    assert "price table</td>" not in page
    assert "scripted, no intelligence" in page


def test_a_key_that_is_not_set_any_more_is_seen_in_the_list(admin: Client) -> None:
    endpoint = Endpoint.objects.create(
        name="there", base_url="http://127.0.0.1:1/v1", key_variable="GONE_KEY"
    )
    Model.objects.create(endpoint=endpoint, name="m", model_id="m")
    assert "<code>GONE_KEY</code> is not set" in admin.get("/endpoints/").content.decode()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"base_url": "127.0.0.1:{free}"}, "127.0.0.1:{free}"),
        ({"base_url": "http://127.0.0.1:{free}/v1"}, "127.0.0.1:{free}"),
        ({"base_url": "{site}"}, "HTML"),
        ({"model_id": "gpt-0"}, "“gpt-0”"),
        ({"key_variable": "LAB_SECRET_KEY"}, "“LAB_SECRET_KEY” may not be named by an endpoint"),
        ({"key_variable": "NOT_SET_KEY"}, "“NOT_SET_KEY” is not set"),
        ({"context_window": "-5"}, "“-5” is no number of tokens"),
        ({"base_url": ""}, "write the address of the server"),
    ],
)
def test_what_cannot_be_connected_is_named_and_what_was_typed_stays(
    admin: Client, typed: dict[str, str], said: str
) -> None:
    with FakeOpenAI() as fake, FakeOpenAI(html(), listed=html()) as site:
        known = {"free": str(free_port()), "site": site.base_url}
        sent = {"base_url": fake.base_url, "model_id": "fake", "name": "mine"}
        sent |= {name: text.format(**known) for name, text in typed.items()}
        answer = admin.post("/endpoints/new/", sent)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert said.format(**known) in page
    assert page.count('aria-invalid="true"') == 1
    for value in filter(None, sent.values()):
        assert f'value="{value}"' in page
    assert not Model.objects.exists()


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:1/v1", ""])
def test_a_pasted_key_is_not_on_the_page_that_refuses_it(admin: Client, base_url: str) -> None:
    endpoint = Endpoint.objects.create(name="there", base_url="http://127.0.0.1:1/v1")
    sent = {"base_url": base_url, "model_id": "m", "key_variable": "sk-proj-abcdef0123456789"}
    for address in ("/endpoints/new/", f"/endpoints/{endpoint.pk}/edit/"):
        answer = admin.post(address, sent)
        assert answer.status_code == 422
        assert "abcdef" not in answer.content.decode()


def test_a_name_in_use_is_replaced_after_the_tick_that_then_appears(admin: Client, filled: None) -> None:
    with FakeOpenAI(listed=models("one", "two")) as fake:
        sent = {"base_url": fake.base_url, "model_id": "one", "name": "mine"}
        assert 'name="replace"' not in admin.get("/endpoints/new/").content.decode()
        admin.post("/endpoints/new/", sent)
        refused = admin.post("/endpoints/new/", sent | {"model_id": "two"})
        page = refused.content.decode()
        assert refused.status_code == 422
        assert f"“mine” is one at {fake.base_url} already" in page
        assert 'name="replace" value="mine">' in page
        assert admin.post("/endpoints/new/", sent | {"model_id": "two", "replace": "mine"}).status_code == 302
    assert Model.objects.in_use().get(name="mine").model_id == "two"


def test_a_key_that_is_missing_is_worded_for_its_field(admin: Client, filled: None) -> None:
    with FakeOpenAI(listed=plain({"error": {"message": "who are you"}}, status=401)) as fake:
        page = admin.post("/endpoints/new/", {"base_url": fake.base_url, "model_id": "m"}).content.decode()
    assert (
        f"<span>“no key” was sent, and {fake.base_url} wants one (status 401): who are you; name the" in page
    )


def test_only_admins_connect_endpoints(operator: Client) -> None:
    assert operator.get("/endpoints/new/").status_code == 403
    assert operator.get("/endpoints/").status_code == 200
