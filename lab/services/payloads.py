"""How an event's payload lies in its row: long texts are blobs, so that sums and lists never read bodies.

A text over 4 KiB becomes `{"$blob": sha256, "bytes": n, "characters": n, "preview": first 400 characters}`.
A mapping of the event that has a `$blob` or `$plain` of its own (arguments a model made up) is wrapped as
`{"$plain": …}`, so that no text a model writes is ever taken for a reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lab.engine.llm.base import JSONObject

LONG_TEXT_BYTES = 4096
PREVIEW_CHARACTERS = 400
REFERENCE = "$blob"
_MARKS = (REFERENCE, "$plain")


def thin(payload: JSONObject, *, keep: Callable[[bytes], str]) -> JSONObject:
    """The payload with long texts given to `keep`, which stores bytes and returns their SHA-256."""
    return {name: _thin(value, keep) for name, value in payload.items()}


def whole(payload: JSONObject, *, text_of: Callable[[JSONObject], str]) -> JSONObject:
    """The payload as it was: each reference replaced by what `text_of` gives for it."""
    return {name: _whole(value, text_of) for name, value in payload.items()}


def is_reference(value: object) -> bool:
    """Whether a value of a thin payload stands for a long text."""
    return isinstance(value, dict) and "$blob" in value


def references(value: Any) -> Iterator[str]:
    """The SHA-256 of every long text that a thin payload stands for."""
    if isinstance(value, list):
        for item in value:
            yield from references(item)
    elif isinstance(value, dict):
        if is_reference(value):
            yield value[REFERENCE]
            return
        for item in value.get("$plain", value).values():
            yield from references(item)


def short_text(value: object) -> str:
    """A text of a thin payload as far as its row holds it."""
    if isinstance(value, dict):
        return str(value.get("preview", ""))
    return value if isinstance(value, str) else ""


def _thin(value: Any, keep: Callable[[bytes], str]) -> Any:
    if isinstance(value, str):
        return _thin_text(value, keep)
    if isinstance(value, dict):
        inner = {name: _thin(item, keep) for name, item in value.items()}
        return {"$plain": inner} if any(mark in value for mark in _MARKS) else inner
    if isinstance(value, list):
        return [_thin(item, keep) for item in value]
    return value


def _thin_text(text: str, keep: Callable[[bytes], str]) -> Any:
    # A character takes at most four bytes: most texts need no encoding to be known as short.
    if len(text) * 4 <= LONG_TEXT_BYTES:
        return text
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= LONG_TEXT_BYTES:
        return text
    return {
        "$blob": keep(data),
        "bytes": len(data),
        "characters": len(text),
        "preview": text[:PREVIEW_CHARACTERS],
    }


def _whole(value: Any, text_of: Callable[[JSONObject], str]) -> Any:
    if isinstance(value, list):
        return [_whole(item, text_of) for item in value]
    if not isinstance(value, dict):
        return value
    if "$blob" in value:
        return text_of(value)
    plain = value.get("$plain", value)
    return {name: _whole(item, text_of) for name, item in plain.items()}
