"""One try of one streaming chat completion, through the OpenAI SDK.

The SDK builds and sends the request and types its errors. It gets the body as bytes, because it otherwise
checks every message again on every call, and the stream is read here, because the SDK's own reader costs more
than all the rest and knows nothing of what other servers send.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import email.utils
from collections.abc import Callable
from types import TracebackType
from typing import Any, cast

import httpx2
import openai
from openai import Omit

from lab.engine.errors import ExitReason
from lab.engine.llm.base import JSONObject, ModelConfig, Reply, Usage
from lab.engine.llm.bodies import as_sent
from lab.engine.llm.failures import (
    ANSWER_CHARACTERS,
    CallFailure,
    CallInterrupted,
    failure_from_status,
)
from lab.engine.llm.reading import NO_API, OnChunk, Reading, ShowDraft
from lab.engine.llm.transport import AbortableBackend, AbortableTransport, untrusted
from lab.engine.llm.usage import read_usage
from lab.engine.stop import StopSignal

MAX_REPLY_BYTES = 64 * 1024 * 1024

_AFTER_THE_END_SECONDS = 0.2
# What may come on the wire beside the body: headers and the marks between chunks.
_HEADERS_BYTES = 1024 * 1024


class ChatConnection:
    """A connection to one endpoint, kept open between calls. One request at a time.

    `api_key` may be empty: then no Authorization header is sent.
    """

    def __init__(self, model: ModelConfig, *, api_key: str, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        self.model = model
        self._max_reply_bytes = max_reply_bytes
        self._backend = AbortableBackend(max_bytes=max_reply_bytes + _HEADERS_BYTES)
        # One spelling, or the SDK would send its own header beside the model's.
        headers = {
            "Authorization" if name.lower() == "authorization" else name: value
            for name, value in model.headers.items()
        }
        has_key = bool(api_key) or "Authorization" in headers
        self._without_key: dict[str, Omit] = {} if has_key else {"Authorization": Omit()}
        self._client = openai.OpenAI(
            api_key=api_key or "none",
            base_url=model.base_url,
            max_retries=0,
            default_headers=headers,
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
        body: JSONObject | bytes,
        stop: StopSignal,
        draft: ShowDraft,
        seconds_left: Callable[[], float | None] | None = None,
        on_chunk: OnChunk = None,
    ) -> Reply:
        """Send the body once, bytes as they are, and read the whole answer.

        `seconds_left` is what remains of the attempt's wall time; when it is used up the request is broken
        off. `on_chunk` hears each object of the answer as it came.

        Raises:
            CallFailure: whatever went wrong, typed; nothing is retried here.
            CallInterrupted: the stop signal was set, or the wall time ended.
        """
        left = seconds_left() if seconds_left is not None else None
        reading = Reading(
            step=step,
            draft=draft,
            max_bytes=self._max_reply_bytes,
            seconds_left=seconds_left,
            on_chunk=on_chunk,
        )
        self._backend.arm()
        with stop.on_set(self._backend.abort):
            try:
                return self._exchange(body if isinstance(body, bytes) else as_sent(body), reading, left)
            except CallFailure as failed:
                failed.partial = failed.partial or reading.builder.partial_text()
                if failed.usage == Usage():
                    # Some servers count with every chunk: what was counted by then will be billed.
                    failed.usage = read_usage(reading.builder.usage_object)
                reason = self._break_reason(stop, reading)
                if reason is not None:
                    raise CallInterrupted(reason, failed.partial, failed.usage) from failed
                raise

    @staticmethod
    def _break_reason(stop: StopSignal, reading: Reading) -> ExitReason | None:
        if stop.is_set():
            return stop.reason or ExitReason.CANCELLED
        return ExitReason.MAX_TIME if reading.wall_time_is_over() else None

    def _exchange(self, body: bytes, reading: Reading, left: float | None) -> Reply:
        connect, read = self.model.connect_timeout, self.model.read_timeout
        if left is not None:
            connect, read = min(connect, max(left, 0.01)), min(read, max(left, 0.01))
        try:
            with contextlib.closing(self._post(body, httpx2.Timeout(read, connect=connect))) as response:
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

    def _post(self, body: bytes, timeout: httpx2.Timeout) -> httpx2.Response:
        """The answer with its body still to be read."""
        answer = self._client.post(
            "/chat/completions",
            cast_to=httpx2.Response,
            content=body,
            options={"headers": self._without_key, "timeout": timeout},
            stream=True,
            stream_cls=openai.Stream[Any],
        )
        # With this `cast_to` the SDK gives out the plain response, which its types do not know.
        return cast(httpx2.Response, answer)

    def _read(self, response: httpx2.Response, reading: Reading) -> None:
        """Read to the end of the body, so that the connection can be used again.

        A server that keeps the connection open after the end mark is left alone soon.
        """
        done = False
        try:
            for data in response.iter_bytes():
                if done:
                    return
                done = reading.take(data)
                if done:
                    self._backend.hurry(_AFTER_THE_END_SECONDS)
        except httpx2.HTTPError:
            if not done:
                raise


def _status_failure(failed: openai.APIStatusError) -> CallFailure:
    response = failed.response
    text = response.content[:ANSWER_CHARACTERS].decode("utf-8", "replace")
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
    certificate = untrusted(text)
    unusable = bool(certificate) or isinstance(
        failed.__cause__, (httpx2.UnsupportedProtocol, httpx2.InvalidURL)
    )
    message = f"{base_url} cannot be reached: {text}{certificate}"
    return CallFailure("connection", message, retryable=not unusable)


def _timeout_text(failed: Exception, reading: Reading, connect: float, read: float) -> str:
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
