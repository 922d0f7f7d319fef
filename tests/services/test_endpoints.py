from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from pytest_django.fixtures import Settings

from lab.engine.errors import InvalidValueError
from lab.models import Endpoint, Model
from lab.services import endpoints
from lab.services.errors import AccessDeniedError, FieldErrors
from lab.services.known_secrets import known_secrets
from tests.fakes.openai_server import Answer, FakeOpenAI, Request, html, models, plain, says
from tests.whole_lab import free_port


def refused(by: User, **values: Any) -> dict[str, str]:
    with pytest.raises(FieldErrors) as raised:
        endpoints.connect(by=by, **values)
    assert not Model.objects.exists()
    return raised.value.errors


def test_a_model_is_connected_and_its_context_window_read_from_the_server(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_KEY", "sk-1234567890abcdef")
    with FakeOpenAI(listed=models({"id": "m", "max_model_len": 32768}, "other")) as server:
        model = endpoints.connect(
            by=alice, base_url=f" {server.base_url}/ ", model_id="m", key_variable="SERVER_KEY"
        )
    assert (model.name, model.version, model.context_window) == ("m", 1, 32768)
    assert model.endpoint.base_url == server.base_url
    assert endpoints.key_for(model.endpoint) == "sk-1234567890abcdef"
    assert "sk-1234567890abcdef" not in json.dumps(list(Endpoint.objects.values()), default=str)
    assert known_secrets()["SERVER_KEY"] == "sk-1234567890abcdef"


def test_the_same_model_again_is_the_same_row_and_other_settings_are_a_new_version(alice: User) -> None:
    with FakeOpenAI(listed=models("m")) as server:
        values: dict[str, Any] = {"by": alice, "base_url": server.base_url, "model_id": "m"}
        first = endpoints.connect(**values, context_window="8,192")
        assert endpoints.connect(**values, context_window=8192) == first
        second = endpoints.connect(**values, context_window="16384")
    first.refresh_from_db()
    assert (first.version, first.context_window) == (1, 8192)
    assert (second.version, second.context_window) == (2, 16384)
    assert first.endpoint == second.endpoint
    assert list(Model.objects.in_use()) == [second]


def test_a_name_in_use_is_taken_by_another_model_only_on_purpose(alice: User) -> None:
    with FakeOpenAI(listed=models("m", "n")) as server:
        values: dict[str, Any] = {"by": alice, "base_url": server.base_url, "name": "mine"}
        first = endpoints.connect(**values, model_id="m")
        for replace in ("", "another"):
            with pytest.raises(FieldErrors) as raised:
                endpoints.connect(**values, model_id="n", replace=replace)
            text = raised.value.errors["name"]
            assert f"'mine' is m at {server.base_url} already" in text
            assert "write another name, or tick “replace mine”" in text
            assert "replace" in raised.value.errors
        assert list(Model.objects.all()) == [first]
        second = endpoints.connect(**values, model_id="n", replace="mine")
    assert (second.name, second.version, second.model_id) == ("mine", 2, "n")


@pytest.mark.django_db(transaction=True)
def test_a_name_that_was_taken_while_the_server_was_asked_is_refused(alice: User) -> None:
    class Meanwhile(FakeOpenAI):
        def take(self, request: Request) -> Answer:
            # Somebody else connects another model while this answer is waited for.
            endpoints.connect(by=alice, base_url=two.base_url, model_id="m", name="coder")
            connections.close_all()
            return super().take(request)

    with FakeOpenAI(listed=models("m")) as two, Meanwhile(listed=models("m")) as one:
        with pytest.raises(FieldErrors) as raised:
            endpoints.connect(by=alice, base_url=one.base_url, model_id="m", name="coder")
        assert f"is m at {two.base_url} already" in raised.value.errors["name"]
    assert Model.objects.get(name="coder").endpoint.base_url == two.base_url


def test_a_server_is_asked_with_the_headers_of_the_endpoint_that_it_is(alice: User) -> None:
    with FakeOpenAI(listed=models("m")) as server:
        Endpoint.objects.create(name="own", base_url=server.base_url, headers={"X-Team": "blue"})
        model = endpoints.connect(by=alice, base_url=server.base_url, model_id="m")
    assert model.endpoint.name == "own"
    assert server.requests[0].headers["x-team"] == "blue"


def test_a_server_at_another_address_does_not_take_a_name_over(alice: User) -> None:
    with FakeOpenAI(listed=models("m")) as one, FakeOpenAI(listed=models("m")) as two:
        endpoints.connect(by=alice, base_url=one.base_url, model_id="m")
        with pytest.raises(FieldErrors, match="replace m"):
            endpoints.connect(by=alice, base_url=two.base_url, model_id="m")


@pytest.mark.parametrize(
    "values", [{"name": "scripted/solver"}, {"name": " Scripted/x"}, {"model_id": "scripted/y"}]
)
def test_a_name_like_the_labs_own_models_is_refused(alice: User, values: dict[str, str]) -> None:
    text = refused(alice, **({"base_url": "http://h/v1", "model_id": "m"} | values))["name"]
    assert "write a name that does not begin with scripted/" in text


@pytest.mark.parametrize("tokens", ["9" * 26, "9" * 5000, "0", "100,000,001", "32,76", "5,5", "٣"])
def test_a_context_window_that_is_none_is_refused_with_its_bounds(alice: User, tokens: str) -> None:
    errors = refused(alice, base_url="http://h/v1", model_id="m", context_window=tokens)
    assert "is no number of tokens from 1 to 100,000,000" in errors["context_window"]
    assert len(errors["context_window"]) < 200


@pytest.mark.parametrize("field", ["base_url", "model_id", "name"])
def test_a_text_too_long_to_keep_is_refused_with_the_length_that_fits(alice: User, field: str) -> None:
    values = {"base_url": "http://h/v1", "model_id": "m"}
    values[field] = ("http://h/" if field == "base_url" else "") + "x" * 600
    text = refused(alice, **values)[field]
    assert "characters; write at most" in text
    assert len(text) < 200


@pytest.mark.parametrize("field", ["base_url", "model_id", "name"])
def test_a_character_that_cannot_be_seen_is_refused(alice: User, field: str) -> None:
    values = {"base_url": "http://h/v1", "model_id": "m", "name": "n"}
    values[field] += "\u200bx"
    assert "U+200B" in refused(alice, **values)[field]


def test_a_price_is_known_only_where_the_table_holds_the_model(db: None) -> None:
    hosted = Endpoint.objects.create(name="hosted", base_url="https://api.openai.com/v1")
    own = Endpoint.objects.create(name="own", base_url="http://127.0.0.1:1/v1")
    assert endpoints.price_is_known(Model(endpoint=hosted, name="a", model_id="gpt-4o"))
    assert not endpoints.price_is_known(Model(endpoint=hosted, name="b", model_id="no-such-model"))
    assert not endpoints.price_is_known(Model(endpoint=own, name="c", model_id="gpt-4o"))
    assert all(endpoints.price_is_known(model) for model in endpoints.sync_scripted())


def test_only_an_admin_connects_a_model(bob: User) -> None:
    with pytest.raises(AccessDeniedError, match="admin"):
        endpoints.connect(by=bob, base_url="http://127.0.0.1:1/v1", model_id="m")


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://host/v1", "http://", "http://[::1", "javascript:x"]
)
def test_what_is_no_address_is_refused_with_an_example(alice: User, url: str) -> None:
    assert repr(url.strip()) in (text := refused(alice, base_url=url, model_id="m")["base_url"]), text


def test_a_key_inside_the_address_is_refused_and_not_repeated(alice: User) -> None:
    text = refused(alice, base_url="http://me:hunter2hunter2@host/v1", model_id="m")["base_url"]
    assert "hunter2" not in text
    assert "name the variable that holds the key" in text


def test_every_wrong_field_is_named_at_once(alice: User) -> None:
    errors = refused(alice, base_url="x", model_id=" ", key_variable="LAB_SECRET_KEY", context_window="a lot")
    assert set(errors) == {"base_url", "model_id", "key_variable", "context_window"}
    assert "'a lot'" in errors["context_window"]


@pytest.mark.parametrize(
    "name", ["LAB_SECRET_KEY", "MY_SECRET_KEY", "HOME", "sk-abc", "lab_key", "DATABASE_URL"]
)
def test_a_variable_that_no_endpoint_may_name_is_refused(
    alice: User, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "value")
    text = refused(alice, base_url="http://h/v1", model_id="m", key_variable=name)["key_variable"]
    assert repr(name) in text
    assert "*_KEY" in text


def test_a_variable_that_is_not_set_is_named(alice: User) -> None:
    text = refused(alice, base_url="http://h/v1", model_id="m", key_variable="NOBODY_SET_KEY")["key_variable"]
    assert "'NOBODY_SET_KEY' is not set" in text
    assert "export it" in text


def test_a_server_that_is_not_there_is_named(alice: User) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    text = refused(alice, base_url=url, model_id="m")["base_url"]
    assert url in text
    assert "cannot be reached" in text


def test_an_answer_in_html_names_the_address(alice: User) -> None:
    with FakeOpenAI(html(), listed=html()) as server:
        text = refused(alice, base_url=server.base_url, model_id="m")["base_url"]
    assert server.base_url in text
    assert "HTML" in text


@pytest.mark.parametrize("listed", [html(), models()])
def test_a_server_without_a_list_of_use_is_connected_by_the_id_that_is_typed(
    alice: User, listed: Answer
) -> None:
    with FakeOpenAI(says("Hi"), listed=listed) as server:
        model = endpoints.connect(by=alice, base_url=server.base_url, model_id="by-hand")
    assert (model.model_id, model.context_window) == ("by-hand", None)
    assert server.calls[0].body["model"] == "by-hand"


@pytest.mark.parametrize(
    "key", ["sk-proj-abcdef0123456789", "gsk_Ab12cd34Ef56", "AIzaSyDabcdefghijk", "f" * 130]
)
def test_a_key_that_was_pasted_for_its_variable_is_not_repeated(alice: User, key: str) -> None:
    text = refused(alice, base_url="http://h/v1", model_id="m", key_variable=key)["key_variable"]
    assert key not in text
    assert key[4:12] not in text
    assert "looks like a key" in text
    assert "write the variable's name here" in text


def test_a_wrong_key_is_the_keys_fault_and_not_shown(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", "sk-1234567890abcdef")
    with FakeOpenAI(listed=plain({"error": {"message": "Incorrect API key"}}, status=401)) as server:
        errors = refused(alice, base_url=server.base_url, model_id="m", key_variable="SERVER_KEY")
    assert errors["key_variable"].startswith("key_variable: 'SERVER_KEY' was refused by http://")
    assert "start the lab again" in errors["key_variable"]
    assert "sk-1234567890abcdef" not in str(errors)


def test_a_model_the_server_does_not_know_is_named_with_those_it_knows(alice: User) -> None:
    with FakeOpenAI(listed=models("one", "two")) as server:
        text = refused(alice, base_url=server.base_url, model_id="three")["model_id"]
    assert "'three'" in text
    assert "one, two" in text


def test_a_key_is_asked_for_anew_each_time_and_its_absence_named(
    alice: User, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    endpoint = Endpoint.objects.create(name="e", base_url="http://h/v1", key_variable="SOME_KEY")
    assert not endpoints.key_is_set(endpoint=endpoint)
    with pytest.raises(InvalidValueError, match="SOME_KEY"):
        endpoints.key_for(endpoint)
    monkeypatch.setenv("SOME_KEY", "value")
    assert endpoints.key_for(endpoint) == "value"
    assert endpoints.key_is_set(endpoint=endpoint)
    settings.LAB_KEY_VARIABLES = ["OTHER_*"]
    with pytest.raises(InvalidValueError, match="LAB_KEY_VARIABLES"):
        endpoints.key_for(endpoint)


def test_the_scripted_models_are_there_once_however_often_the_lab_starts(db: None) -> None:
    endpoints.sync_scripted()
    first = endpoints.sync_scripted()
    assert [model.name for model in first] == ["scripted/solver", "scripted/struggler"]
    assert Model.objects.count() == 2
    assert all(model.scripted and model.price_basis == "scripted" for model in first)
