"""Keeps the secrets that the lab knows out of what is stored and sent on.

Endpoint keys and the lab's own secrets are replaced as text enters the lab from a sandbox or a server, before
anything is stored or joins a conversation: `Redactor` and `RedactingSink`. Text that only looks like a key
belongs to the trajectory and stays in it unchanged; pages mask it (`key_shapes`).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from lab.engine.events import EVENT_ADAPTER, Event, Record
from lab.engine.llm.base import without_surrogates
from lab.engine.sandboxes.base import Output
from lab.engine.sinks import Sink
from lab.engine.workspace_archive import rewritten

# A shorter value would also hit ordinary words and numbers; `too_short` lists those that are left alone.
MINIMUM_LENGTH = 12
# Of each text that still streams the newest are shown and stored again and again, never all.
DRAFT_CHARACTERS = 20_000
# In the middle of a text, fewer characters of a secret are no part worth hiding, and end many a line.
_TELLING = 4


def written_forms(value: str) -> set[str]:
    """The value as plain text, JSON (also within JSON), URLs, HTML, Python and shells write it.

    White space around it does not count, and of several lines each long one counts by itself. Another coding
    (base64, compression) is not among them.
    """
    value = value.strip()
    in_json = _in_json(value)
    quoted = {quote(value, safe=""), quote(value), quote_plus(value)}
    forms = {
        value,
        *in_json,
        *(nested for form in in_json for nested in _in_json(form)),
        *quoted,
        *(re.sub("%[0-9A-F]{2}", lambda found: found.group().lower(), form) for form in quoted),
        html.escape(value),
        html.escape(value, quote=False),
        repr(value)[1:-1],
        value.replace("'", "'\\''"),
    }
    lines = value.splitlines()
    if len(lines) > 1:
        forms |= {line for line in lines if len(line) >= MINIMUM_LENGTH}
    return forms


def _in_json(value: str) -> set[str]:
    return {json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}


class Redactor:
    """Replaces known secrets by `[redacted: NAME]` in text, bytes and nested JSON.

    `secrets` maps a name (of the variable or setting) to its value. Values shorter than 12 characters are
    left alone and listed in `too_short`. A value is found in each of its `written_forms`.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        lengths = {name: len(value.strip()) for name, value in secrets.items()}
        self.too_short = sorted(name for name, length in lengths.items() if 0 < length < MINIMUM_LENGTH)
        self._names: dict[str, str] = {}
        for name, value in sorted(secrets.items()):
            if lengths[name] >= MINIMUM_LENGTH:
                for form in written_forms(value):
                    self._names.setdefault(form, name)
        # The longest first, so that a secret which contains another one is replaced whole.
        forms = sorted(self._names, key=len, reverse=True)
        self._plain = all(form.isascii() and json.dumps(form)[1:-1] == form for form in forms)
        self._forms = forms
        self._encoded_forms = [form.encode("utf-8", "surrogatepass") for form in forms]
        self._pattern = re.compile("|".join(map(re.escape, forms))) if forms else None
        self._bytes_pattern = re.compile(b"|".join(map(re.escape, self._encoded_forms))) if forms else None

    def text(self, text: str) -> str:
        # Looking for each form by itself is many times faster than the pattern, and nearly always enough.
        if self._pattern is None or not any(form in text for form in self._forms):
            return text
        return self._pattern.sub(self._replacement, text)

    def data(self, data: bytes) -> bytes:
        """The bytes with stars for each secret, as many as it has bytes: sizes in a tar stay true."""
        if self._bytes_pattern is None or not any(form in data for form in self._encoded_forms):
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
        return value if self._pattern is None else mapped_texts(value, self.text)

    def is_clean(self, written: str) -> bool:
        """Whether JSON surely holds no secret: one look at its text. False where that look is not enough.

        A secret with characters that JSON escapes would stand in nested JSON in yet another form.
        """
        return self._pattern is None or (self._plain and not any(form in written for form in self._forms))

    def event(self, event: Event) -> Event:
        """The event as it may be stored: without secrets, every text such that any store can hold it."""
        if self._is_storable(event):
            return event
        fields = event.model_dump()
        clean = mapped_texts(fields, lambda text: storable(self.text(text)))
        return event if clean is fields else EVENT_ADAPTER.validate_python(clean)

    def _is_storable(self, event: Event) -> bool:
        try:
            written = event.model_dump_json()
        except ValueError:
            # Text with lone surrogates has no JSON.
            return False
        return "\\u0000" not in written and self.is_clean(written)

    def streaming(self, text: str) -> str:
        """Text that still grows: redacted, and without an end that may be the beginning of a secret."""
        return text if self._pattern is None or not text else self._without_beginning(self.text(text))

    def streaming_lines(self, text: str) -> str:
        """As `streaming` for several texts that grow at once, one a line: each may end in the middle."""
        if self._pattern is None or "\n" not in text:
            return self.streaming(text)
        *lines, last = self.text(text).split("\n")
        return "\n".join(
            [*(self._without_telling_end(line) for line in lines), self._without_beginning(last)]
        )

    def from_its_middle(self, draft: str) -> str:
        """A draft that is the end of a longer text, without a beginning that may be the end of a secret."""
        if self._pattern is None or len(draft) < DRAFT_CHARACTERS:
            return draft
        return draft[max(_overlap(draft[::-1], form[::-1]) for form in self._forms) :]

    def shortened(self, text: str, characters: int) -> str:
        """The first characters of a text, redacted before it is cut.

        A text that is longer may have been cut before, perhaps in the middle of a secret.
        """
        clean = self.text(text) if len(text) <= characters else self.streaming(text)
        return clean[:characters]

    def _without_telling_end(self, line: str) -> str:
        overlap = max(_overlap(line, form) for form in self._forms)
        return line[: len(line) - overlap] if overlap >= _TELLING else line

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


def mapped_texts(value: Any, change: Callable[[str], str]) -> Any:
    """The structure with every string changed, keys included; the same object where nothing changes."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        changed = {change(key): mapped_texts(item, change) for key, item in value.items()}
        same = all(left is right for left, right in zip(changed.values(), value.values(), strict=False))
        return value if same and changed.keys() == value.keys() else changed
    if isinstance(value, (list, tuple)):
        items = [mapped_texts(item, change) for item in value]
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
        return self._sink.append(self._redactor.event(event))

    def append_all(self, events: Sequence[Event]) -> list[Record]:
        return self._sink.append_all([self._redactor.event(event) for event in events])

    def draft(self, *, step: int, content: str, reasoning: str, calls: str, characters: int) -> None:
        redactor = self._redactor
        self._sink.draft(
            step=step,
            content=storable(redactor.streaming(redactor.from_its_middle(content))),
            reasoning=storable(redactor.streaming(redactor.from_its_middle(reasoning))),
            # Servers may send several calls at once, a piece of each in turn.
            calls=storable(redactor.streaming_lines(redactor.from_its_middle(calls))),
            characters=characters,
        )

    def put_blob(self, data: bytes) -> str:
        return self._sink.put_blob(rewritten(data, self._redactor.data))

    def flush(self) -> None:
        self._sink.flush()
