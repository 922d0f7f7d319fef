"""Spans are stored before they are acknowledged, by whoever may send them, and each of them once."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from django.test import Client
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pytest_django.live_server_helper import LiveServer

from lab.models import Endpoint, Role, Span, Trace
from lab.services import otlp, tokens
from tests import builders

URL = "/api/otlp/v1/traces"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def spans(count: int, trace: str = TRACE, parent: str = "00000000000000ff") -> dict[str, Any]:
    sent = [
        {"traceId": trace, "spanId": f"{number:016x}", "parentSpanId": parent, "name": f"chat {number}"}
        for number in range(1, count + 1)
    ]
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": sent}]}]}


def bearer(role: Role = Role.OPERATOR) -> str:
    return "Bearer " + tokens.make(by=builders.person(role), name="spans", role=role.value).secret


def send(client: Client, value: Any, token: str, **headers: str) -> Any:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return client.post(
        URL, body, content_type="application/json", headers={"Authorization": token, **headers}
    )


@pytest.mark.django_db
def test_spans_are_stored_once_however_often_they_are_sent(client: Client) -> None:
    token = bearer()
    assert send(client, spans(3), token).status_code == 200
    again = send(client, gzip.compress(json.dumps(spans(5)).encode()), token, **{"Content-Encoding": "gzip"})
    assert (again.status_code, again.json()) == (200, {})
    trace = Trace.objects.get()
    assert [body["span"]["name"] for body in otlp.spans_of(trace)] == [f"chat {n}" for n in range(1, 6)]
    assert trace.root_at is None


@pytest.mark.django_db
def test_the_span_without_a_parent_closes_its_trace(client: Client) -> None:
    token = bearer()
    send(client, spans(1), token)
    send(client, spans(2, parent=""), token)
    assert Trace.objects.get().root_at is not None


@pytest.mark.django_db
@pytest.mark.parametrize("role", [Role.VIEWER, Role.ANNOTATOR])
def test_who_may_not_import_may_not_send_spans(client: Client, role: Role) -> None:
    answer = send(client, spans(1), bearer(role))
    assert answer.status_code == 403
    assert "operator" in answer.json()["message"]
    assert not Span.objects.exists()


@pytest.mark.django_db
def test_without_a_token_nobody_sends_spans(client: Client) -> None:
    answer = client.post(URL, b"{}", content_type="application/json")
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="trajectory-lab"')
    assert client.get(URL).status_code == 405


@pytest.mark.django_db
def test_a_request_that_is_damaged_stores_nothing_and_says_why(client: Client) -> None:
    answer = send(client, b'{"resourceSpans": [', bearer())
    assert answer.status_code == 400
    assert "no JSON" in answer.json()["message"]
    assert not Trace.objects.exists()


@pytest.mark.django_db
def test_a_known_secret_is_not_stored(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QWEN_KEY", "a-very-secret-key-of-ours")
    Endpoint.objects.create(name="qwen", base_url="http://qwen.example/v1", key_variable="QWEN_KEY")
    value = spans(1)
    value["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"] = "chat a-very-secret-key-of-ours"
    assert send(client, value, bearer()).status_code == 200
    (body,) = otlp.spans_of(Trace.objects.get())
    assert "very-secret" not in json.dumps(body)


@pytest.mark.django_db(transaction=True)
def test_the_exporter_of_opentelemetry_is_understood(live_server: LiveServer) -> None:
    exporter = OTLPSpanExporter(f"{live_server.url}{URL}", headers={"Authorization": bearer()})
    provider = TracerProvider(resource=Resource.create({"service.name": "agent"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("tests")
    with tracer.start_as_current_span("invoke_agent"):
        for number in range(20):
            with tracer.start_as_current_span(f"chat {number}"):
                pass
    provider.shutdown()
    trace = Trace.objects.get()
    assert trace.root_at is not None
    bodies = list(otlp.spans_of(trace))
    assert len(bodies) == 21
    assert {body["span"]["traceId"] for body in bodies} == {trace.trace_id}


@pytest.mark.django_db
def test_half_a_surrogate_pair_is_stored_as_a_mark(client: Client) -> None:
    value = spans(1)
    value["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"] = "chat \ud800"
    assert send(client, value, bearer()).status_code == 200
    (body,) = otlp.spans_of(Trace.objects.get())
    assert body["span"]["name"] == "chat \ufffd"
