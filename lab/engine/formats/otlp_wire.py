"""Requests of OTLP/HTTP with spans, as JSON or protobuf, packed or not, read into one form.

A span is kept as OTLP's JSON writes it (ids in hexadecimal, names in camel case), with its resource's and
scope's attributes beside it, so that spans of many requests can be put together again.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from lab.engine.errors import LabError
from lab.engine.formats.base import parsed
from lab.engine.formats.reading import items, mapping, text
from lab.engine.llm.base import JSONObject

MOST_BYTES = 64 * 1024 * 1024
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_SPAN_ID = re.compile(r"[0-9a-f]{16}")
JSON_TYPE = "application/json"
PROTOBUF_TYPE = "application/x-protobuf"


class WireError(LabError):
    """The request cannot be taken; `status` is the answer's, the text says what to send instead."""

    def __init__(self, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ReceivedSpan:
    """One span. `body` is `{"resource": …, "scope": …, "span": …}` in OTLP's JSON form."""

    trace_id: str
    span_id: str
    parent_id: str
    body: JSONObject


@dataclass(frozen=True)
class SpanRequest:
    """What a request holds. `rejected` counts spans without valid ids, which nobody could find again."""

    spans: list[ReceivedSpan]
    rejected: int


def read_request(body: bytes, *, content_type: str, encoding: str = "") -> SpanRequest:
    """
    Raises:
        WireError: another content type or encoding, damaged, or more than `MOST_BYTES` unpacked.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (JSON_TYPE, PROTOBUF_TYPE):
        raise WireError(
            f"Content-Type {content_type[:80]!r} is not taken; send {JSON_TYPE} or {PROTOBUF_TYPE}",
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        )
    plain = _unpacked(body, encoding.strip().lower())
    document = _from_json(plain) if kind == JSON_TYPE else _from_protobuf(plain)
    bodies = span_bodies(document)
    if kind == PROTOBUF_TYPE:
        bodies = ({**body, "span": _with_hex_ids(body["span"])} for body in bodies)
    found = [_received(body) for body in bodies]
    spans = [
        span for span in found if _TRACE_ID.fullmatch(span.trace_id) and _SPAN_ID.fullmatch(span.span_id)
    ]
    return SpanRequest(spans, len(found) - len(spans))


def answer(request: SpanRequest, *, content_type: str) -> tuple[bytes, str]:
    """The body of an ExportTraceServiceResponse in the request's own encoding, and its content type."""
    words = "without a valid traceId and spanId" if request.rejected else ""
    if content_type.startswith(PROTOBUF_TYPE):
        return _protobuf_answer(request.rejected, words), PROTOBUF_TYPE
    partial = {"partialSuccess": {"rejectedSpans": str(request.rejected), "errorMessage": words}}
    return json.dumps(partial if request.rejected else {}).encode(), JSON_TYPE


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        plain = body
    elif encoding == "gzip":
        unpacker = zlib.decompressobj(wbits=31)
        try:
            plain = unpacker.decompress(body, MOST_BYTES + 1)
        except zlib.error as error:
            raise WireError(f"The body is no gzip: {error}") from None
        if len(plain) <= MOST_BYTES and not unpacker.eof:
            raise WireError("The body's gzip is cut short; send it again")
    else:
        raise WireError(
            f"Content-Encoding {encoding[:80]!r} is not taken; send gzip or none",
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        )
    if len(plain) > MOST_BYTES:
        raise WireError(
            f"The request holds more than {MOST_BYTES:,} bytes; send fewer spans at once "
            "(OTEL_BSP_MAX_EXPORT_BATCH_SIZE)",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
    return plain


def _from_json(body: bytes) -> JSONObject:
    try:
        document = parsed(body.decode())
    except UnicodeDecodeError as error:
        raise WireError(f"The body is not UTF-8: byte {error.start}") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise WireError(f"The body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise WireError("The body is no ExportTraceServiceRequest: an object with resourceSpans")
    return document


def _from_protobuf(body: bytes) -> JSONObject:
    try:
        from google.protobuf.json_format import (  # type: ignore[import-untyped]  # has no types
            MessageToDict,
        )
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # has no types
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError:
        raise WireError(
            "This lab reads spans as JSON only; set OTEL_EXPORTER_OTLP_PROTOCOL=http/json, or install the "
            "extra trajectory-lab[otel]",
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        ) from None
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise WireError(f"The body is no ExportTraceServiceRequest: {error}") from None
    document: JSONObject = MessageToDict(request)
    return document


def span_bodies(document: Any) -> Iterator[JSONObject]:
    """Each span of a request in OTLP's JSON form, as `{"resource": …, "scope": …, "span": …}`."""
    for of_resource in map(mapping, items(mapping(document).get("resourceSpans"))):
        resource = mapping(of_resource.get("resource"))
        # Before OTLP 0.15 the scope was the instrumentation library.
        scoped = of_resource.get("scopeSpans") or of_resource.get("instrumentationLibrarySpans")
        for of_scope in map(mapping, items(scoped)):
            scope = mapping(of_scope.get("scope") or of_scope.get("instrumentationLibrary"))
            for span in map(mapping, items(of_scope.get("spans"))):
                yield {"resource": resource, "scope": scope, "span": span}


def _received(body: JSONObject) -> ReceivedSpan:
    span = body["span"]
    return ReceivedSpan(
        trace_id=text(span.get("traceId")).lower(),
        span_id=text(span.get("spanId")).lower(),
        parent_id=text(span.get("parentSpanId")).lower(),
        body=body,
    )


_IDS = ("traceId", "spanId", "parentSpanId")


def _with_hex_ids(span: JSONObject) -> JSONObject:
    """Protobuf's own JSON writes bytes as base64, OTLP's writes ids in hexadecimal."""
    links = [{**link, **_hex_ids(link)} for link in map(mapping, items(span.get("links")))]
    return {**span, **_hex_ids(span), **({"links": links} if links else {})}


def _hex_ids(holder: JSONObject) -> dict[str, str]:
    return {name: _hex(holder[name]) for name in _IDS if holder.get(name)}


def _hex(value: Any) -> str:
    try:
        return base64.b64decode(text(value)).hex()
    except (binascii.Error, ValueError):
        return ""


def _protobuf_answer(rejected: int, words: str) -> bytes:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    response = ExportTraceServiceResponse()
    if rejected:
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = words
    data: bytes = response.SerializeToString()
    return data
