"""Reads one answer of a model server as its bytes arrive: a stream of events, or one JSON object."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Protocol

from lab.engine.llm.base import JSONObject, Reply
from lab.engine.llm.failures import CallFailure, error_object, failure_from_error
from lab.engine.llm.reply import ReplyBuilder
from lab.engine.llm.sse import DONE, DataLines
from lab.engine.llm.usage import read_usage
from lab.engine.redact import DRAFT_CHARACTERS

NO_API = "the server answered with {}: this is not an OpenAI-compatible base URL; usually it ends in /v1"

# NaN and infinities are no JSON; nothing that reads the log later would take them.
_DECODER = json.JSONDecoder(parse_constant=lambda name: None)

# Kept of the answer's beginning for people to look at: more than is stored, so that nothing is cut twice.
_HEAD_BYTES = 16 * 1024

# Below this many characters every network read shows a draft; above it at most one in this many seconds, so
# that joining text that is still growing stays linear.
_DRAFT_ALWAYS_BELOW = 4_000
_DRAFT_SECONDS = 0.05


class ShowDraft(Protocol):
    """Shows the newest text that is still streaming; `Sink.draft` is one. `characters` counts all of it."""

    def __call__(self, *, step: int, content: str, reasoning: str, calls: str, characters: int) -> None: ...


def no_draft(*, step: int, content: str, reasoning: str, calls: str, characters: int) -> None:
    """Shows nothing: nobody watches what is written."""


SecondsLeft = Callable[[], float | None] | None
# Hears each object of an answer as it came, for whoever examines the server.
OnChunk = Callable[[JSONObject], object] | None


class Reading:
    """Reads one answer: a stream of events, or one JSON object, whichever the server sends."""

    def __init__(
        self,
        *,
        step: int,
        draft: ShowDraft,
        max_bytes: int,
        seconds_left: SecondsLeft,
        on_chunk: OnChunk = None,
    ) -> None:
        self.builder = ReplyBuilder()
        self._is_done = False
        self._step = step
        self._draft = draft
        self._max_bytes = max_bytes
        self._started = time.monotonic()
        self._seconds_left = seconds_left
        self._on_chunk = on_chunk
        self._lines = DataLines()
        self._kind = ""
        self._head = bytearray()
        self._whole: list[bytes] = []
        self._bytes = 0
        self._events = 0
        self._first_token: float | None = None
        self._drafted_at = 0.0
        self._drafted_characters = 0

    @property
    def has_begun(self) -> bool:
        return self._bytes > 0

    def wall_time_is_over(self) -> bool:
        """Looked at anew each time: the wall time can be raised while a reply streams."""
        left = self._seconds_left() if self._seconds_left is not None else None
        return left is not None and left <= 0

    def take(self, data: bytes) -> bool:
        """Take bytes as they arrive; True once the answer has said that it is complete."""
        self._bytes += len(data)
        if len(self._head) < _HEAD_BYTES:
            self._head += data[:_HEAD_BYTES]
        if self._bytes > self._max_bytes:
            raise CallFailure(
                "bad_stream",
                f"the answer is longer than {self._max_bytes:,} bytes and was broken off",
                raw=self._raw(),
                retryable=False,
            )
        if self.wall_time_is_over():
            raise CallFailure("timeout", "the attempt's wall time is used up")
        if not self._kind:
            self._kind = _kind_of(bytes(self._head))
        if self._kind != "events":
            self._whole.append(data)
            return False
        for payload in self._lines.feed(data):
            if self._take_payload(payload):
                self._is_done = True
                break
        self._show()
        return self._is_done

    def _take_payload(self, payload: bytes) -> bool:
        if payload.startswith(DONE):
            return True
        self._events += 1
        text = payload.decode("utf-8", "replace")
        try:
            chunk = _DECODER.decode(text)
        except (ValueError, RecursionError) as failed:
            raise CallFailure(
                "bad_stream", f"a data line of the stream is not JSON ({failed})", raw=text
            ) from failed
        if not isinstance(chunk, dict):
            raise CallFailure("bad_stream", "a data line of the stream is no JSON object", raw=text)
        error = error_object(chunk)
        if error is not None:
            raise failure_from_error(error, raw=text)
        if self._on_chunk is not None:
            self._on_chunk(chunk)
        self.builder.add_chunk(chunk)
        if self._first_token is None and self.builder.characters:
            self._first_token = time.monotonic() - self._started
        return False

    def _show(self) -> None:
        builder = self.builder
        if builder.characters == self._drafted_characters:
            return
        now = time.monotonic()
        if builder.characters > _DRAFT_ALWAYS_BELOW and now - self._drafted_at < _DRAFT_SECONDS:
            return
        self._drafted_at, self._drafted_characters = now, builder.characters
        self._draft(
            step=self._step,
            content=builder.content.end(DRAFT_CHARACTERS),
            reasoning=builder.reasoning.end(DRAFT_CHARACTERS),
            calls=builder.newest_calls(DRAFT_CHARACTERS),
            characters=builder.characters,
        )

    def finish(self) -> Reply:
        """The reply, after the last byte.

        Raises:
            CallFailure: the answer is empty, no stream, no JSON, an error, or ends in the middle.
        """
        if self._kind == "events":
            for payload in [] if self._is_done else self._lines.finish():
                self._take_payload(payload)
        elif self._kind == "json":
            self._take_json()
        elif self._bytes == 0 or not self._head.strip():
            raise CallFailure("bad_stream", "the server answered 200 and sent nothing")
        else:
            raise _no_api(self._raw())
        self._check_complete()
        return self.builder.build(
            first_token_seconds=self._first_token, seconds=time.monotonic() - self._started
        )

    def _take_json(self) -> None:
        text = b"".join(self._whole).decode("utf-8", "replace")
        try:
            answer = _DECODER.decode(text)
        except (ValueError, RecursionError) as failed:
            raise CallFailure(
                "bad_stream", f"the answer is neither a stream nor whole JSON ({failed})", raw=text
            ) from failed
        error = error_object(answer)
        if error is not None:
            raise failure_from_error(error, raw=text)
        if not isinstance(answer, dict) or not answer.get("choices"):
            raise CallFailure("bad_stream", "the answer is JSON without choices", raw=text)
        if self._on_chunk is not None:
            self._on_chunk(answer)
        self.builder.add_chunk(answer)
        self._events += 1
        if self.builder.characters:
            self._first_token = time.monotonic() - self._started
        # A whole object cannot have been cut; servers that answer so may leave the finish reason null.
        self.builder.finish_reason = self.builder.finish_reason or "stop"

    def _check_complete(self) -> None:
        builder = self.builder
        if builder.finish_reason == "abort":
            raise CallFailure(
                "stream_broken",
                "the server broke its own answer off (finish reason abort)",
                raw=self._raw(),
                usage=read_usage(builder.usage_object),
            )
        # Servers exist that end a whole answer with the end mark and no finish reason.
        if builder.finish_reason or (self._is_done and builder.looks_whole):
            return
        if builder.has_anything:
            raise CallFailure(
                "stream_broken",
                "the stream ended in the middle of the answer (no finish reason came)",
                raw=self._raw(),
            )
        if self._events == 0 and self._lines.garbage:
            raise _no_api(self._raw())
        raise CallFailure("bad_stream", "the stream ended without any answer", raw=self._raw())

    def _raw(self) -> str:
        return bytes(self._head).decode("utf-8", "replace")


def _kind_of(head: bytes) -> str:
    """events, json, html, text, or "" while only white space has arrived."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        return ""
    if start[:1] in b"{[":
        return "json"
    return "html" if start[:1] == b"<" else "events"


def _no_api(raw: str) -> CallFailure:
    looks = "an HTML page" if raw.lstrip().startswith("<") else "text that is no API answer"
    return CallFailure(
        "not_json",
        NO_API.format(looks),
        raw=raw,
        retryable=False,
    )
