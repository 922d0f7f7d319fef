"""Keeps the secrets that the lab knows out of what is stored and sent on.

Endpoint keys and the lab's own secrets are replaced as text enters the lab from a sandbox or a server, before
anything is stored or joins a conversation: `Redactor` and `RedactingSink`. Text that only looks like a key
belongs to the trajectory and stays in it unchanged; pages mask it (`key_shapes`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from lab.engine.events import EVENT_ADAPTER, Event, Record
from lab.engine.llm.base import without_surrogates
from lab.engine.sandboxes.base import Output
from lab.engine.sinks import Sink

# A shorter value would also hit ordinary words and numbers; `too_short` lists those that are left alone.
MINIMUM_LENGTH = 12


class Redactor:
    """Replaces known secrets by `[redacted: NAME]` in text, bytes and nested JSON.

    `secrets` maps a name (of the variable or setting) to its value. Values shorter than 12 characters are
    left alone and listed in `too_short`. A value is also found as JSON and URLs write it.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self.too_short = sorted(name for name, value in secrets.items() if 0 < len(value) < MINIMUM_LENGTH)
        self._names: dict[str, str] = {}
        for name, value in sorted(secrets.items()):
            if len(value) >= MINIMUM_LENGTH:
                for form in (
                    value,
                    json.dumps(value)[1:-1],
                    json.dumps(value, ensure_ascii=False)[1:-1],
                    quote(value, safe=""),
                ):
                    self._names.setdefault(form, name)
        # The longest first, so that a secret which contains another one is replaced whole.
        forms = sorted(self._names, key=len, reverse=True)
        self._plain = all(form.isascii() and json.dumps(form)[1:-1] == form for form in forms)
        self._pattern = re.compile("|".join(map(re.escape, forms))) if forms else None
        self._bytes_pattern = (
            re.compile(b"|".join(re.escape(form.encode()) for form in forms)) if forms else None
        )

    def text(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(self._replacement, text)

    def data(self, data: bytes) -> bytes:
        """The bytes with stars for each secret, as many as it has bytes: sizes in a tar stay true."""
        if self._bytes_pattern is None:
            return data
        return self._bytes_pattern.sub(lambda found: b"*" * len(found.group()), data)

    def output(self, output: Output) -> str:
        """The kept text of a command's output; no part of a secret is left where bytes were dropped."""
        if output.dropped == 0 or self._pattern is None:
            return self.text(output.text())
        head, tail = (self.text(part.decode("utf-8", "replace")) for part in (output.head, output.tail))
        cut = max(_overlap(tail[::-1], form[::-1]) for form in self._names)
        return output.joined(self._without_beginning(head), tail[cut:])

    def json(self, value: Any) -> Any:
        """The same structure with every string redacted, keys of objects included.

        What holds no secret is returned as the same object, so that unchanged messages stay shared.
        """
        return value if self._pattern is None else _mapped(value, self.text)

    def is_clean(self, written: str) -> bool:
        """Whether JSON surely holds no secret: one look at its text. False where that look is not enough.

        A secret with characters that JSON escapes would stand in nested JSON in yet another form.
        """
        return self._pattern is None or (self._plain and self._pattern.search(written) is None)

    def streaming(self, text: str) -> str:
        """Text that still grows: redacted, and without an end that may be the beginning of a secret."""
        return text if self._pattern is None or not text else self._without_beginning(self.text(text))

    def _without_beginning(self, clean: str) -> str:
        return clean[: len(clean) - max(_overlap(clean, form) for form in self._names)]

    def _replacement(self, found: re.Match[str]) -> str:
        return f"[redacted: {self._names[found.group()]}]"


def _overlap(text: str, secret: str) -> int:
    """How many characters at the end of `text` are the beginning of `secret`."""
    # Called for each piece of a stream: only places where the secret's first character stands are looked at.
    tail = text[1 - len(secret) :]
    start = tail.find(secret[0])
    while start >= 0:
        if secret.startswith(tail[start:]):
            return len(tail) - start
        start = tail.find(secret[0], start + 1)
    return 0


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The structure with every string changed, keys included; the same object where nothing changes."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        changed = {change(key): _mapped(item, change) for key, item in value.items()}
        same = all(left is right for left, right in zip(changed.values(), value.values(), strict=False))
        return value if same and changed.keys() == value.keys() else changed
    if isinstance(value, (list, tuple)):
        items = [_mapped(item, change) for item in value]
        if all(left is right for left, right in zip(items, value, strict=True)):
            return value
        return items if isinstance(value, list) else tuple(items)
    return value


def storable(text: str) -> str:
    """The text as every store can hold it: NUL is shown as U+2400, lone surrogates are U+FFFD."""
    return without_surrogates(text).replace("\0", "\N{SYMBOL FOR NULL}")


class RedactingSink:
    """The one way of an attempt into its log: redacts each event, draft and blob, and makes text storable.

    The conversation is made from what comes back from `append`, so that a model sees what the log holds.
    """

    def __init__(self, sink: Sink, redactor: Redactor) -> None:
        self._sink = sink
        self._redactor = redactor

    def append(self, event: Event) -> Record:
        return self._sink.append(self._cleaned(event))

    def append_all(self, events: Sequence[Event]) -> list[Record]:
        return self._sink.append_all([self._cleaned(event) for event in events])

    def _cleaned(self, event: Event) -> Event:
        if self._is_clean(event):
            return event
        fields = event.model_dump()
        clean = _mapped(fields, lambda text: storable(self._redactor.text(text)))
        return event if clean is fields else EVENT_ADAPTER.validate_python(clean)

    def _is_clean(self, event: Event) -> bool:
        try:
            written = event.model_dump_json()
        except ValueError:
            # Text with lone surrogates has no JSON.
            return False
        return "\\u0000" not in written and self._redactor.is_clean(written)

    def draft(self, *, step: int, content: str, reasoning: str, calls: str, characters: int) -> None:
        content, reasoning, calls = (
            storable(self._redactor.streaming(text)) for text in (content, reasoning, calls)
        )
        self._sink.draft(step=step, content=content, reasoning=reasoning, calls=calls, characters=characters)

    def put_blob(self, data: bytes) -> str:
        return self._sink.put_blob(self._redactor.data(data))

    def flush(self) -> None:
        self._sink.flush()
