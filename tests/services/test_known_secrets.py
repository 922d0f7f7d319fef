"""Which values are secrets of the lab: keys, what headers of endpoints hold, its own."""

from __future__ import annotations

import base64

import pytest
from django.contrib.auth.models import User
from django.test import Client

from lab import terminal
from lab.models import Endpoint, Role
from lab.services import endpoints
from lab.services.errors import FieldErrors
from lab.services.known_secrets import header_secrets, known_secrets, redactor, too_short
from tests import builders
from tests.fakes.openai_server import Answer, FakeOpenAI, models, plain

pytestmark = pytest.mark.django_db
KEY = "an-endpoint-key-0123456789"


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("Authorization", f"Bearer {KEY}", [KEY, f"Bearer {KEY}"]),
        ("X-Api-Key", KEY, [KEY]),
        ("Cookie", f"session={KEY}; theme=dark", [KEY]),
        (
            "Proxy-Authorization",
            "Basic " + base64.b64encode(b"me:the-long-password").decode(),
            ["me:the-long-password", "the-long-password"],
        ),
        ("X-Tenant", "sk-" + "proj-" + "aB1c" * 10, ["sk-" + "proj-" + "aB1c" * 10]),
        ("X-Tenant", "9f86d081884c7d659a2feaa0c55ad015", ["9f86d081884c7d659a2feaa0c55ad015"]),
    ],
)
def test_what_is_secret_in_a_header_is_told_by_its_name_or_its_looks(
    name: str, value: str, secrets: list[str]
) -> None:
    found = set(header_secrets({name: value}, of="acme").values())
    assert set(secrets) <= found


@pytest.mark.parametrize(
    ("name", "value"),
    [("Accept", "application/json"), ("X-Title", "trajectory lab"), ("X-Version", "2024-10-21")],
)
def test_other_headers_are_no_secrets(name: str, value: str) -> None:
    assert header_secrets({name: value}, of="acme") == {}


def test_every_secret_of_every_endpoint_is_known_and_printed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_KEY", KEY)
    Endpoint.objects.create(name="a", key_variable="ACME_KEY")
    Endpoint.objects.create(name="b", headers={"X-Api-Key": "the-key-in-a-header", "X-Title": "lab"})
    assert {"ACME_KEY", "header X-Api-Key of b", "LAB_SECRET_KEY"} <= known_secrets().keys()
    assert (
        redactor().text(f"{KEY} the-key-in-a-header")
        == "[redacted: ACME_KEY] [redacted: header X-Api-Key of b]"
    )
    assert "the-key-in-a-header" not in terminal.printable("the-key-in-a-header")


def test_a_short_key_or_header_is_named_where_its_endpoint_is_made(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_KEY", "short-key")
    client.force_login(builders.person(Role.ADMIN))
    with FakeOpenAI(listed=models("m")) as server:
        form = {"base_url": server.base_url, "model_id": "m", "key_variable": "TINY_KEY"}
        page = client.post("/endpoints/new/", form, follow=True).content.decode()
    assert "TINY_KEY: fewer than 12 characters are too few" in page
    assert "short-key" not in page
    endpoint = Endpoint(name="x", headers={"X-Api-Key": "tiny", "Authorization": f"Bearer {KEY}"})
    assert too_short(endpoint) == ["header X-Api-Key of x"]


LISTS = {
    "refused": lambda text: plain({"error": {"message": f"the key {text} is wrong"}}, status=401),
    "no list": lambda text: plain({"error": {"message": f"{'x' * 190}{text}"}}, status=500),
    "plain": lambda text: Answer(pieces=[("x" * 190 + text).encode()], status=500, content_type="text/plain"),
    "its models": lambda text: models(text, "another"),
}


@pytest.mark.parametrize("kind", LISTS)
def test_a_server_that_answers_with_the_key_does_not_bring_it_onto_the_form(
    alice: User, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("ACME_KEY", KEY)
    with FakeOpenAI(listed=LISTS[kind](KEY)) as server, pytest.raises(FieldErrors) as raised:
        endpoints.connect(by=alice, base_url=server.base_url, model_id="m", key_variable="ACME_KEY")
    text = str(raised.value.errors)
    assert KEY[:8] not in text
    assert kind == "plain" or kind == "no list" or "[redacted: ACME_KEY]" in text


def test_a_server_without_a_list_that_answers_with_the_key_neither(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_KEY", KEY)
    refused = plain({"error": {"message": f"the key {KEY} is wrong"}}, status=401)
    with FakeOpenAI(refused, listed=Answer(status=404)) as server, pytest.raises(FieldErrors) as raised:
        endpoints.connect(by=alice, base_url=server.base_url, model_id="m", key_variable="ACME_KEY")
    assert "[redacted: ACME_KEY]" in str(raised.value.errors)
    assert KEY not in str(raised.value.errors)


def test_a_key_that_no_header_can_hold_is_not_shown_by_the_error(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_KEY", f"{KEY}\n{KEY}\n")
    with FakeOpenAI() as server, pytest.raises(FieldErrors) as raised:
        endpoints.connect(by=alice, base_url=server.base_url, model_id="fake", key_variable="ACME_KEY")
    assert KEY not in str(raised.value.errors)
