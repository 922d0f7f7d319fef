"""Requests with spans: JSON and protobuf give the same, and what cannot be taken is told why."""

from __future__ import annotations

import gzip
import json
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.formats import otlp_wire
from lab.engine.formats.otlp_wire import JSON_TYPE, PROTOBUF_TYPE, WireError, read_request

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def document(**changes: Any) -> dict[str, Any]:
    span = {"traceId": TRACE, "spanId": SPAN, "name": "chat qwen", "startTimeUnixNano": "1700000000000000000"}
    span["attributes"] = [{"key": "gen_ai.usage.input_tokens", "value": {"intValue": "12"}}]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "agent"}}]}
    scoped = {"scope": {"name": "lib"}, "spans": [{**span, **changes}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scoped]}]}


def as_protobuf(value: dict[str, Any]) -> bytes:
    from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ParseDict(value, ExportTraceServiceRequest())
    # Protobuf's own JSON would take the ids for base64.
    message.resource_spans[0].scope_spans[0].spans[0].trace_id = bytes.fromhex(TRACE)
    message.resource_spans[0].scope_spans[0].spans[0].span_id = bytes.fromhex(SPAN)
    data: bytes = message.SerializeToString()
    return data


def test_json_and_protobuf_of_the_same_spans_are_the_same() -> None:
    value = document()
    from_json = read_request(json.dumps(value).encode(), content_type=JSON_TYPE)
    from_protobuf = read_request(as_protobuf(value), content_type=PROTOBUF_TYPE)
    assert from_json == from_protobuf
    (span,) = from_json.spans
    assert (span.trace_id, span.span_id, span.parent_id) == (TRACE, SPAN, "")
    assert span.body["scope"] == {"name": "lib"}


def test_a_packed_request_is_unpacked() -> None:
    packed = gzip.compress(json.dumps(document()).encode())
    assert len(read_request(packed, content_type=JSON_TYPE, encoding="gzip").spans) == 1


def test_spans_without_ids_are_rejected_and_counted_and_the_others_taken() -> None:
    value = document()
    value["resourceSpans"][0]["scopeSpans"][0]["spans"] += [{"name": "lost"}, {"traceId": "xyz", "spanId": 3}]
    request = read_request(json.dumps(value).encode(), content_type=JSON_TYPE)
    assert (len(request.spans), request.rejected) == (1, 2)
    body, kind = otlp_wire.answer(request, content_type=JSON_TYPE)
    assert json.loads(body)["partialSuccess"]["rejectedSpans"] == "2"
    packed, kind = otlp_wire.answer(request, content_type=PROTOBUF_TYPE)
    assert kind == PROTOBUF_TYPE
    assert b"traceId" in packed


@pytest.mark.parametrize(
    ("body", "kind", "encoding", "status", "says"),
    [
        (b"{", JSON_TYPE, "", HTTPStatus.BAD_REQUEST, "no JSON"),
        (b"[]", JSON_TYPE, "", HTTPStatus.BAD_REQUEST, "resourceSpans"),
        (b"\xff", JSON_TYPE, "", HTTPStatus.BAD_REQUEST, "UTF-8"),
        (b"\x0f\xff", PROTOBUF_TYPE, "", HTTPStatus.BAD_REQUEST, "ExportTraceServiceRequest"),
        (b"{}", "text/plain", "", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "application/json"),
        (b"{}", JSON_TYPE, "br", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "gzip"),
        (b"{}", JSON_TYPE, "gzip", HTTPStatus.BAD_REQUEST, "no gzip"),
        (gzip.compress(b"{}" * 99, mtime=0)[:-9], JSON_TYPE, "gzip", HTTPStatus.BAD_REQUEST, "cut short"),
    ],
)
def test_a_request_that_cannot_be_taken_says_what_to_send(
    body: bytes, kind: str, encoding: str, status: HTTPStatus, says: str
) -> None:
    with pytest.raises(WireError, match=says) as raised:
        read_request(body, content_type=kind, encoding=encoding)
    assert raised.value.status == status


def test_a_bomb_stops_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_wire, "MOST_BYTES", 1000)
    with pytest.raises(WireError, match="OTEL_BSP_MAX_EXPORT_BATCH_SIZE") as raised:
        read_request(gzip.compress(b" " * 10_000_000), content_type=JSON_TYPE, encoding="gzip")
    assert raised.value.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["resourceSpans", "scopeSpans", "spans", "resource", "traceId", "spanId", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(value=st.dictionaries(st.sampled_from(["resourceSpans", "other"]), JSON_VALUES))
def test_no_document_breaks_the_reader(value: dict[str, Any]) -> None:
    request = read_request(json.dumps(value).encode(), content_type=JSON_TYPE)
    assert all(len(span.trace_id) == 32 for span in request.spans)
