"""One try of one streaming chat completion, through the OpenAI SDK.

The SDK builds and sends the request and types its errors. The body goes through `extra_body`, because the SDK
otherwise checks every message again on every call, and the stream is read here, because the SDK's own reader
costs more than all the rest and knows nothing of what other servers send.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import json
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

import httpx2
import openai
from openai import APIResponse, Omit

from lab.engine.errors import ExitReason
from lab.engine.llm.base import JSONObject, ModelConfig, Reply
from lab.engine.llm.failures import (
    RAW_CHARACTERS,
    CallFailure,
    CallInterrupted,
    error_object,
    failure_from_error,
    failure_from_status,
)
from lab.engine.llm.reply import ReplyBuilder
from lab.engine.llm.sse import DONE, DataLines
from lab.engine.llm.transport import AbortableBackend, AbortableTransport
from lab.engine.llm.usage import read_usage
from lab.engine.stop import StopSignal

NO_API = "the server answered with {}: this is not an OpenAI-compatible base URL; usually it ends in /v1"
MAX_REPLY_BYTES = 64 * 1024 * 1024

# NaN and infinities are no JSON; nothing that reads the log later would take them.
_DECODER = json.JSONDecoder(parse_constant=lambda name: None)

# Below this many characters every network read shows a draft; above it at most one in this many seconds, so
# that joining text that is still growing stays linear.
_DRAFT_ALWAYS_BELOW = 4_000
_DRAFT_SECONDS = 0.05

_AFTER_THE_END_SECONDS = 0.2


class ShowDraft(Protocol):
    """Shows text that is still streaming; `Sink.draft` is one."""

    def __call__(self, *, step: int, content: str, reasoning: str, calls: str, characters: int) -> None: ...


class ChatConnection:
    """A connection to one endpoint, kept open between calls. One request at a time.

    `api_key` may be empty: then no Authorization header is sent.
    """

    def __init__(self, model: ModelConfig, *, api_key: str, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        self.model = model
        self._max_reply_bytes = max_reply_bytes
        self._backend = AbortableBackend()
        has_key = bool(api_key) or any(name.lower() == "authorization" for name in model.headers)
        self._without_key: dict[str, Omit] = {} if has_key else {"Authorization": Omit()}
        self._client = openai.OpenAI(
            api_key=api_key or "none",
            base_url=model.base_url,
            max_retries=0,
            default_headers=model.headers,
            http_client=httpx2.Client(
                transport=AbortableTransport(model.base_url, self._backend), follow_redirects=True
            ),
        )
        # Read from the environment by the SDK, and no business of servers other than OpenAI's.
        self._client.organization = None
        self._client.project = None
        self._client.admin_api_key = None

    def close(self) -> None:
        self._client.close()
        self._backend.forget()

    def __enter__(self) -> ChatConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def try_once(
        self,
        *,
        step: int,
        body: JSONObject,
        stop: StopSignal,
        draft: ShowDraft,
        seconds_left: Callable[[], float | None] | None = None,
    ) -> Reply:
        """Send the body once and read the whole answer.

        `seconds_left` is what remains of the attempt's wall time; when it is used up the request is broken
        off.

        Raises:
            CallFailure: whatever went wrong, typed; nothing is retried here.
            CallInterrupted: the stop signal was set, or the wall time ended.
        """
        left = seconds_left() if seconds_left is not None else None
        reading = _Reading(step=step, draft=draft, max_bytes=self._max_reply_bytes, wall_seconds=left)
        self._backend.arm()
        with stop.on_set(self._backend.abort):
            try:
                return self._exchange(body, reading, left)
            except CallFailure as failed:
                failed.partial = failed.partial or reading.builder.partial_text()
                reason = self._break_reason(stop, reading)
                if reason is not None:
                    raise CallInterrupted(reason, failed.partial) from failed
                raise

    @staticmethod
    def _break_reason(stop: StopSignal, reading: _Reading) -> ExitReason | None:
        if stop.is_set():
            return stop.reason or ExitReason.CANCELLED
        return ExitReason.MAX_TIME if reading.wall_time_is_over() else None

    def _exchange(self, body: JSONObject, reading: _Reading, left: float | None) -> Reply:
        connect, read = self.model.connect_timeout, self.model.read_timeout
        if left is not None:
            connect, read = min(connect, max(left, 0.01)), min(read, max(left, 0.01))
        try:
            with self._client.chat.completions.with_streaming_response.create(
                model=self.model.model_id,
                messages=[],
                stream=True,
                extra_body=body,
                extra_headers=self._without_key,
                timeout=httpx2.Timeout(read, connect=connect),
            ) as response:
                self._read(response, reading)
                return reading.finish()
        except openai.APIStatusError as failed:
            raise _status_failure(failed) from failed
        except openai.APITimeoutError as failed:
            raise CallFailure("timeout", _timeout_text(failed, reading, connect, read)) from failed
        except openai.APIConnectionError as failed:
            raise _connection_failure(failed, self.model.base_url) from failed
        except httpx2.TimeoutException as failed:
            raise CallFailure("timeout", _timeout_text(failed, reading, connect, read)) from failed
        except (httpx2.TransportError, httpx2.StreamError) as failed:
            raise CallFailure(
                "stream_broken", f"the connection broke in the middle of the answer: {failed}"
            ) from failed
        except httpx2.DecodingError as failed:
            raise CallFailure("bad_stream", f"the answer's compression is damaged: {failed}") from failed

    def _read(self, response: APIResponse[Any], reading: _Reading) -> None:
        """Read to the end of the body, so that the connection can be used again.

        A server that keeps the connection open after the end mark is left alone soon.
        """
        try:
            for data in response.iter_bytes():
                if reading.is_done:
                    return
                reading.take(data)
                if reading.is_done:
                    self._backend.hurry(_AFTER_THE_END_SECONDS)
        except httpx2.HTTPError:
            if not reading.is_done:
                raise


class _Reading:
    """Reads one answer: a stream of events, or one JSON object, whichever the server sends."""

    def __init__(self, *, step: int, draft: ShowDraft, max_bytes: int, wall_seconds: float | None) -> None:
        self.builder = ReplyBuilder()
        self.is_done = False
        self._step = step
        self._draft = draft
        self._max_bytes = max_bytes
        self._started = time.monotonic()
        self._ends = None if wall_seconds is None else self._started + wall_seconds
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
        return self._ends is not None and time.monotonic() >= self._ends

    def take(self, data: bytes) -> None:
        """Take bytes as they arrive; `is_done` is set once the answer has said that it is complete."""
        self._bytes += len(data)
        if len(self._head) < RAW_CHARACTERS:
            self._head += data[:RAW_CHARACTERS]
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
            return
        for payload in self._lines.feed(data):
            if self._take_payload(payload):
                self.is_done = True
                break
        self._show()

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
            content=str(builder.content),
            reasoning=str(builder.reasoning),
            calls=builder.calls_text(),
            characters=builder.characters,
        )

    def finish(self) -> Reply:
        """The reply, after the last byte.

        Raises:
            CallFailure: the answer is empty, no stream, no JSON, an error, or ends in the middle.
        """
        if self._kind == "events":
            for payload in [] if self.is_done else self._lines.finish():
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
        if builder.finish_reason:
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


def _status_failure(failed: openai.APIStatusError) -> CallFailure:
    response = failed.response
    text = response.content[: 64 * 1024].decode("utf-8", "replace")
    failure = failure_from_status(
        response.status_code, text, retry_after=retry_after_seconds(response.headers)
    )
    if response.status_code < 500 and text.lstrip()[:1] == "<":
        failure.message = NO_API.format("an HTML page")
    return failure


def _connection_failure(failed: openai.APIConnectionError, base_url: str) -> CallFailure:
    cause: BaseException = failed
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = str(cause) or type(cause).__name__
    certificate = "CERTIFICATE_VERIFY_FAILED" in text
    unusable = certificate or isinstance(failed.__cause__, (httpx2.UnsupportedProtocol, httpx2.InvalidURL))
    return CallFailure("connection", f"{base_url} cannot be reached: {text}", retryable=not unusable)


def _timeout_text(failed: Exception, reading: _Reading, connect: float, read: float) -> str:
    cause = failed if isinstance(failed, httpx2.TimeoutException) else failed.__cause__
    if isinstance(cause, httpx2.ConnectTimeout):
        return f"no connection within {connect:g} s"
    if isinstance(cause, httpx2.WriteTimeout):
        return f"the server did not take the request within {read:g} s"
    if reading.has_begun:
        return f"the stream stalled: nothing came for {read:g} s"
    return f"no answer within {read:g} s"


def retry_after_seconds(headers: Any) -> float | None:
    """Seconds the server asks to wait (`retry-after-ms`, or `Retry-After` as seconds or date), or None."""
    milliseconds = headers.get("retry-after-ms")
    if milliseconds is not None:
        try:
            return max(0.0, float(milliseconds) / 1000)
        except ValueError:
            pass
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    moment = email.utils.parsedate_tz(value)
    if moment is None:
        return None
    return max(0.0, email.utils.mktime_tz(moment) - dt.datetime.now(dt.UTC).timestamp())
