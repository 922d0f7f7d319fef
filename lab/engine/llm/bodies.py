"""Encodes the bodies of one conversation: what was sent before is not encoded again for every step.

A body near 500 KB takes milliseconds to encode, twice (as sent, and canonical for its hash), and each step
only adds two messages to it.
"""

from __future__ import annotations

import hashlib
import json
import operator
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


class _Conversation:
    """The messages of one conversation as JSON, which only grows while its messages stay the same objects.

    `before` is the same conversation until its history was rewritten: what stayed is not encoded again.
    """

    def __init__(self, before: _Conversation | None = None) -> None:
        self._messages: list[Any] = []
        # Where each message lies in both encodings, without its comma.
        self._places: list[tuple[slice, slice]] = []
        self._before = before.by_identity() if before is not None else {}
        self._content = bytearray()
        self._canonical = bytearray()
        self._opening = b""
        self._digest = hashlib.sha256()

    def by_identity(self) -> dict[int, _Encoded]:
        """Each message's encodings by its `id`; the value is held, so that the id stays its own."""
        return {
            id(message): _Encoded(message, bytes(self._content[sent]), bytes(self._canonical[canonical]))
            for message, (sent, canonical) in zip(self._messages, self._places, strict=True)
        }

    def is_continued_by(self, messages: list[Any]) -> bool:
        """Whether `messages` begin with all that were taken, the very same objects."""
        known = self._messages
        return len(known) <= len(messages) and all(map(operator.is_, known, messages))

    def take(self, messages: list[Any]) -> bytes:
        """The messages as sent; only those that were not taken before are encoded."""
        for message in messages[len(self._messages) :]:
            encoded = self._before.get(id(message)) or _encode(message)
            separator = b"," if self._messages else b""
            self._content += separator + encoded.content
            self._canonical += separator + encoded.canonical
            self._digest.update(separator + encoded.canonical)
            self._messages.append(message)
            self._places.append(
                (
                    slice(len(self._content) - len(encoded.content), len(self._content)),
                    slice(len(self._canonical) - len(encoded.canonical), len(self._canonical)),
                )
            )
        self._before = {}
        return b"[" + self._content + b"]"

    def digest_after(self, opening: bytes) -> hashlib._Hash:
        """The hash of `opening` and the messages in canonical form, without the closing bracket."""
        if opening != self._opening:
            self._opening = opening
            self._digest = hashlib.sha256(opening)
            self._digest.update(self._canonical)
        return self._digest.copy()


class BodyEncoder:
    """Encodes one body after the other. Messages and other nested values must never be changed in place."""

    def __init__(self) -> None:
        self._conversation = _Conversation()
        self._values: dict[str, _Encoded] = {}

    def encode(self, body: JSONObject) -> EncodedBody:
        complete = _streamed(body)
        sent = [as_sent(name) + b":" + self._as_sent(name, value) for name, value in complete.items()]
        return EncodedBody(complete, b"{" + b",".join(sent) + b"}", self._sha256(complete))

    def _as_sent(self, name: str, value: Any) -> bytes:
        if not _is_conversation(name, value):
            return self._encoded(name, value).content
        if not self._conversation.is_continued_by(value):
            self._conversation = _Conversation(self._conversation)
        return self._conversation.take(value)

    def _sha256(self, complete: JSONObject) -> str:
        """The hash of the canonical form, of which the conversation up to now was hashed before."""
        digest = hashlib.sha256()
        pending = b"{"
        for name in sorted(complete, key=without_surrogates):
            pending += as_sent(name) + b":"
            if _is_conversation(name, complete[name]):
                digest = self._conversation.digest_after(pending + b"[")
                pending = b"],"
            else:
                pending += self._encoded(name, complete[name]).canonical + b","
        digest.update(pending.removesuffix(b",") + b"}")
        return digest.hexdigest()

    def _encoded(self, name: str, value: Any) -> _Encoded:
        known = self._values.get(name)
        if known is None or known.value is not value:
            known = self._values[name] = _encode(value)
        return known


def _is_conversation(name: str, value: Any) -> bool:
    return name == "messages" and isinstance(value, list)


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
