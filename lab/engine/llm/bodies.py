"""Encodes the bodies of one conversation: what was sent before is not encoded again for every step.

A body near 500 KB takes milliseconds to encode, twice (as sent, and canonical for its hash), and each step
only adds two messages to it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

from lab.engine.llm.base import JSONObject, canonical_json, clean_json, without_surrogates


class EncodedBody(NamedTuple):
    """A complete body, the bytes to send, and the SHA-256 of its canonical JSON."""

    body: JSONObject
    content: bytes
    sha256: str


class _Encoded(NamedTuple):
    """A value of a body with its JSON, as sent and canonical. It holds the value, so that `is` is safe."""

    value: Any
    content: bytes
    canonical: bytes


def complete_body(body: JSONObject) -> JSONObject:
    """The body as it is sent: streamed, with usage asked for, and in text that can be encoded."""
    complete = _streamed(body)
    try:
        canonical_json(complete, strict=True)
    except UnicodeEncodeError:
        clean: JSONObject = clean_json(complete)
        return clean
    return complete


def as_sent(value: Any) -> bytes:
    """UTF-8 JSON in the order of the keys; lone surrogates become U+FFFD."""
    return _as_sent(value, strict=False)


class BodyEncoder:
    """Encodes one body after the other. Messages and other nested values must never be changed in place."""

    def __init__(self) -> None:
        self._messages: list[_Encoded] = []
        self._values: dict[str, _Encoded] = {}

    def encode(self, body: JSONObject) -> EncodedBody:
        complete = _streamed(body)
        parts = {
            name: self._encoded_messages(value)
            if name == "messages" and isinstance(value, list)
            else self._encoded_value(name, value)
            for name, value in complete.items()
        }
        content = b",".join(as_sent(name) + b":" + part.content for name, part in parts.items())
        digest = hashlib.sha256()
        for position, name in enumerate(sorted(parts, key=without_surrogates)):
            digest.update((b"," if position else b"{") + as_sent(name) + b":")
            digest.update(parts[name].canonical)
        digest.update(b"}")
        return EncodedBody(complete, b"{" + content + b"}", digest.hexdigest())

    def _encoded_messages(self, messages: list[Any]) -> _Encoded:
        known = self._messages
        for index, message in enumerate(messages):
            if index < len(known) and known[index].value is message:
                continue
            # From the first message that is another one, nothing known can be used.
            del known[index:]
            known.append(_encode(message))
        del known[len(messages) :]
        return _Encoded(
            messages,
            b"[" + b",".join(message.content for message in known) + b"]",
            b"[" + b",".join(message.canonical for message in known) + b"]",
        )

    def _encoded_value(self, name: str, value: Any) -> _Encoded:
        known = self._values.get(name)
        if known is None or known.value is not value:
            known = self._values[name] = _encode(value)
        return known


def _streamed(body: JSONObject) -> JSONObject:
    asked = body.get("stream_options")
    options = {**asked, "include_usage": True} if isinstance(asked, dict) else {"include_usage": True}
    return {**body, "stream": True, "stream_options": options}


def _encode(value: Any) -> _Encoded:
    try:
        return _Encoded(value, _as_sent(value, strict=True), canonical_json(value, strict=True))
    except UnicodeEncodeError:
        clean = clean_json(value)
        return _Encoded(value, _as_sent(clean, strict=True), canonical_json(clean))


def _as_sent(value: Any, *, strict: bool) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        if strict:
            raise
        return _as_sent(clean_json(value), strict=True)
