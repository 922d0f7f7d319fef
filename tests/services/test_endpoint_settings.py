from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User

from lab.models import Endpoint, Model
from lab.services import endpoint_settings, endpoints
from lab.services.errors import FieldErrors
from lab.services.known_secrets import known_secrets
from tests.fakes.openai_server import FakeOpenAI, html, models, plain, says
from tests.whole_lab import free_port


@pytest.fixture
def endpoint(db: None) -> Endpoint:
    return Endpoint.objects.create(name="own", base_url="http://127.0.0.1:1/v1")


def refused(by: User, endpoint: Endpoint, **typed: str) -> dict[str, str]:
    before = Endpoint.objects.values().get(pk=endpoint.pk)
    with pytest.raises(FieldErrors) as raised:
        endpoint_settings.change(by=by, endpoint=endpoint, typed=typed)
    assert Endpoint.objects.values().get(pk=endpoint.pk) == before
    return raised.value.errors


def test_limits_and_time_outs_reach_every_model_of_the_endpoint(alice: User, endpoint: Endpoint) -> None:
    model = Model.objects.create(endpoint=endpoint, name="m", model_id="m")
    typed = {"name": "rack 3", "concurrency_limit": "8", "connect_timeout": "2.5", "read_timeout": "1,200"}
    endpoint_settings.change(by=alice, endpoint=endpoint, typed=typed)
    model.refresh_from_db()
    config = endpoints.model_config(Model.objects.get(pk=model.pk))
    assert (config.connect_timeout, config.read_timeout) == (2.5, 1200.0)
    assert (endpoint.name, endpoint.concurrency_limit) == ("rack 3", 8)
    endpoint_settings.change(by=alice, endpoint=endpoint, typed={"concurrency_limit": ""})
    assert Endpoint.objects.get(pk=endpoint.pk).concurrency_limit is None


def test_headers_are_added_replaced_and_taken_away_one_by_one(alice: User) -> None:
    with FakeOpenAI() as server:
        endpoint = Endpoint.objects.create(
            name="own", base_url=server.base_url, headers={"X-Team": "blue", "X-Old": "1"}
        )
        typed = {"headers": "x-team: red\n\nX-Api-Key: sk-9876543210abcdefgh:x"}
        endpoint_settings.change(by=alice, endpoint=endpoint, typed=typed, without_headers=["X-Old"])
        asked = server.requests[-1]
    assert endpoint.headers == {"x-team": "red", "X-Api-Key": "sk-9876543210abcdefgh:x"}
    assert (asked.headers["x-team"], asked.headers["x-api-key"]) == ("red", "sk-9876543210abcdefgh:x")
    assert "sk-9876543210abcdefgh:x" in known_secrets().values()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("no colon", "line 1 has no name with a value"),
        ("X-A:", "line 1 has no name with a value"),
        ("X A: hidden-value", "line 1 has a name that no header can have"),
        ("X-Ok: 1\nHost: hidden-value", "line 2 names Host"),
        ("X-A: hidden-valué", "line 1 has a value that cannot be sent"),
    ],
)
def test_a_header_that_cannot_be_sent_is_named_by_its_line_and_not_by_its_value(
    alice: User, endpoint: Endpoint, line: str, said: str
) -> None:
    text = refused(alice, endpoint, headers=line)["headers"]
    assert said in text
    assert "hidden" not in text


def test_a_server_is_asked_before_another_address_is_stored(
    alice: User, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = f"http://127.0.0.1:{free_port()}/v1"
    assert away in refused(alice, endpoint, base_url=away)["base_url"]
    with FakeOpenAI(listed=html()) as page:
        wrong = page.base_url.removesuffix("/v1")
        assert f"try {wrong}/v1" in refused(alice, endpoint, base_url=wrong)["base_url"]
    monkeypatch.setenv("OTHER_KEY", "sk-1234567890abcdef")
    with FakeOpenAI(listed=plain({"error": {"message": "no"}}, status=401)) as strict:
        errors = refused(alice, endpoint, base_url=strict.base_url, key_variable="OTHER_KEY")
        assert "'OTHER_KEY' was refused" in errors["key_variable"]
    with FakeOpenAI(listed=plain({}, status=404)) as without_list:
        endpoint_settings.change(by=alice, endpoint=endpoint, typed={"base_url": without_list.base_url})
    assert Endpoint.objects.get(pk=endpoint.pk).base_url == without_list.base_url


def test_a_server_that_keeps_its_list_back_is_asked_for_a_token(
    alice: User, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", "sk-1234567890abcdef")
    Model.objects.create(endpoint=endpoint, name="m", model_id="m")
    forbidden = plain({"error": {"message": "this key may not"}}, status=403)
    with FakeOpenAI(forbidden, says("Hi"), listed=forbidden) as server:
        typed = {"base_url": server.base_url, "key_variable": "OTHER_KEY"}
        errors = refused(alice, endpoint, **typed)
        assert "was refused by" in errors["key_variable"]
        endpoint_settings.change(by=alice, endpoint=endpoint, typed=typed)
    assert [call.body["model"] for call in server.calls] == ["m", "m"]


def test_a_limit_is_changed_while_the_server_is_away(alice: User, endpoint: Endpoint) -> None:
    typed = {"base_url": endpoint.base_url, "key_variable": "", "concurrency_limit": "4"}
    endpoint_settings.change(by=alice, endpoint=endpoint, typed=typed)
    assert Endpoint.objects.get(pk=endpoint.pk).concurrency_limit == 4


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "scripted"),
        ("name", "replay"),
        ("name", "a\u200bb"),
        ("name", "x" * 101),
        ("name", "taken"),
        ("concurrency_limit", "0"),
        ("concurrency_limit", "eight"),
        ("connect_timeout", "0"),
        ("read_timeout", "1e9"),
        ("read_timeout", ""),
        ("key_variable", "NOT_SET_KEY"),
    ],
)
def test_every_field_refuses_what_it_cannot_be(
    alice: User, endpoint: Endpoint, field: str, value: str
) -> None:
    Endpoint.objects.create(name="taken", base_url="http://h/v1")
    errors = refused(alice, endpoint, **{field: value})
    assert list(errors) == [field]


def test_the_labs_own_endpoints_have_no_settings(alice: User, db: None) -> None:
    own = endpoints.sync_scripted()[0].endpoint
    assert "the lab's own" in refused(alice, own, concurrency_limit="1")["endpoint"]
    with pytest.raises(FieldErrors, match="retire its models"):
        endpoint_settings.retire(by=alice, endpoint=own)


def test_a_retired_endpoint_takes_its_models_out_of_the_launch(alice: User, endpoint: Endpoint) -> None:
    Model.objects.create(endpoint=endpoint, name="m", model_id="m")
    endpoint_settings.retire(by=alice, endpoint=endpoint)
    assert not Model.objects.in_use().exists()
    with FakeOpenAI(listed=models("m")) as server:
        Endpoint.objects.filter(pk=endpoint.pk).update(base_url=server.base_url)
        again = endpoints.connect(by=alice, base_url=server.base_url, model_id="m", name="again")
    assert again.endpoint != endpoint
    endpoint_settings.restore(by=alice, endpoint=endpoint)
    assert set(Model.objects.in_use().values_list("name", flat=True)) == {"m", "again"}


def test_no_value_of_a_header_is_in_what_is_shown_of_an_error(alice: User) -> None:
    secret = "sk-9876543210abcdefgh"
    with FakeOpenAI(listed=plain({"error": {"message": f"bad {secret}"}}, status=401)) as server:
        endpoint = Endpoint.objects.create(name="own", base_url=server.base_url)
        errors = refused(alice, endpoint, headers=f"X-Api-Key: {secret}")
    assert secret not in json.dumps(errors)
