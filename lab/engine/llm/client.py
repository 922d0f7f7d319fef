"""Asks a model, tries again where that can help, and writes every try into the run's log."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Protocol

import tenacity

from lab.engine.errors import (
    AttemptStoppedError,
    EndpointError,
    ExitReason,
    InvalidValueError,
    ReplayDivergedError,
)
from lab.engine.events import ModelCallFailed, ModelCallInterrupted, ModelCallStarted
from lab.engine.llm.base import Cost, JSONObject, ModelConfig, Reply, Usage
from lab.engine.llm.bodies import BodyEncoder, complete_body
from lab.engine.llm.endpoint import list_models, names_of
from lab.engine.llm.failures import (
    DIVERGED,
    CallFailure,
    CallInterrupted,
    ContextOverflowError,
    kept_partial,
    way_out,
)
from lab.engine.llm.openai_chat import ChatConnection
from lab.engine.llm.reading import ShowDraft
from lab.engine.pricing import price_call
from lab.engine.redact import Redactor
from lab.engine.sinks import Emit, now
from lab.engine.stop import StopSignal

__all__ = ["Answer", "ContextOverflowError", "ModelClient", "complete_body"]

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0

# An answer that is damaged in the same way again and again will not get better; a busy server will.
_BAD_STREAM_TRIES = 3

Deadline = Callable[[], float | None]


class Answer(NamedTuple):
    """A finished reply, the number of the request within the step that brought it (from 1), and its cost."""

    reply: Reply
    request: int
    cost: Cost


class Gate(Protocol):
    """Decides before each try whether there may be one: pauses, changed limits, budgets. May take long.

    Raises: AttemptStoppedError, HandedOverError: there is none.
    """

    def before_request(self) -> None: ...

    def wait_for_retry(self, seconds: float) -> None:
        """Wait until another try is due."""


class _OpenGate:
    """A gate that only the stop signal closes."""

    def __init__(self, stop: StopSignal) -> None:
        self._stop = stop

    def before_request(self) -> None:
        if self._stop.is_set():
            raise AttemptStoppedError(self._stop.reason or ExitReason.CANCELLED)

    def wait_for_retry(self, seconds: float) -> None:
        self._stop.wait(seconds)
        self.before_request()


class ModelClient:
    """The model of one attempt: one kept connection, retries, and an event for each try.

    `emit` appends to the log, `draft` shows streaming text; both are the sink's. `retry_seconds` bounds how
    long one call is tried again. `key_variable` names the key's variable in error texts. `gate` is asked
    before each try; without one only `stop` counts.
    """

    def __init__(
        self,
        model: ModelConfig,
        *,
        api_key: str,
        emit: Emit,
        draft: ShowDraft,
        stop: StopSignal,
        retry_seconds: float = 900.0,
        redact: Redactor | None = None,
        key_variable: str = "",
        first_wait: float = FIRST_WAIT,
        gate: Gate | None = None,
    ) -> None:
        self.model = model
        self._gate = gate if gate is not None else _OpenGate(stop)
        self._api_key = api_key
        self._emit = emit
        self._draft = draft
        self._stop = stop
        self._retry_seconds = retry_seconds
        self._redact = redact if redact is not None else Redactor({})
        self._key_variable = key_variable
        self._backoff = tenacity.wait_exponential_jitter(
            multiplier=first_wait, max=LONGEST_WAIT, jitter=first_wait
        )
        self._connection: ChatConnection | None = None
        self._encoder = BodyEncoder()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> ModelClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(
        self,
        *,
        step: int,
        body: JSONObject,
        message_count: int,
        deadline: Deadline | None = None,
        tries_before: int = 0,
        again: bool = False,
    ) -> Answer:
        """Get one reply to the body (model, messages, tools, sampling), trying again while that makes sense.

        `deadline` gives the seconds that are left of the attempt's wall time, None for no limit.
        `tries_before` counts requests of this step by an earlier worker child, `again` marks that the last of
        them was interrupted. The caller emits ModelCallFinished, since only it knows the message that joins
        the conversation.

        Raises:
            AttemptStoppedError: the stop signal was set, or the wall time or a budget ended while trying.
            HandedOverError: another worker child goes on.
            ContextOverflowError: the request is longer than the model's context.
            EndpointError: the model cannot be asked: not at all, or not within `retry_seconds`.
        """
        call = _Call(self, step=step, body=body, message_count=message_count, deadline=deadline)
        call.go_on_after(tries_before, again=again)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(call.is_worth_another),
            wait=call.wait,
            stop=call.is_over,
            sleep=call.sleep,
            before_sleep=call.record_failure,
            reraise=True,
        )
        try:
            return retrying(call.attempt)
        except CallFailure as failed:
            call.record_last_failure(failed)
            raise call.final_error(failed) from failed

    def connection(self) -> ChatConnection:
        if self._connection is None:
            self._connection = ChatConnection(self.model, api_key=self._api_key)
        return self._connection


class _Call:
    """One `ask`: the tries of one step."""

    def __init__(
        self,
        client: ModelClient,
        *,
        step: int,
        body: JSONObject,
        message_count: int,
        deadline: Deadline | None,
    ) -> None:
        self._client = client
        self._step = step
        self._encoded = client._encoder.encode(body)
        self._message_count = message_count
        self._deadline = deadline
        self._started = time.monotonic()
        self._try_started = self._started
        self._try_at = now()
        self._request = 0
        self._again = False
        self._damaged = 0

    def go_on_after(self, tries: int, *, again: bool) -> None:
        self._request, self._again = tries, again

    def attempt(self) -> Answer:
        client = self._client
        self._end_with_the_wall_time()
        looked = time.monotonic()
        client._gate.before_request()
        # A pause is no time in which the model could have answered.
        self._started += time.monotonic() - looked
        again, self._again = self._again, False
        self._request += 1
        body = self._encoded.body
        cap = body.get("max_completion_tokens") or body.get("max_tokens")
        client._emit(
            ModelCallStarted(
                step=self._step,
                request=self._request,
                body_sha256=self._encoded.sha256,
                message_count=self._message_count,
                max_tokens=cap if isinstance(cap, int) else None,
                again=again,
            )
        )
        self._try_started = time.monotonic()
        self._try_at = now()
        try:
            reply = client.connection().try_once(
                step=self._step,
                body=self._encoded.content,
                stop=client._stop,
                draft=client._draft,
                seconds_left=self._deadline,
            )
        except CallFailure as failed:
            failed.redact(client._redact)
            raise
        except CallInterrupted as interrupted:
            self._record_interruption(interrupted)
            raise AttemptStoppedError(interrupted.reason) from interrupted
        reply = redacted_reply(reply, client._redact)
        return Answer(reply, self._request, self._price(reply.usage, at=self._try_at))

    def _price(self, usage: Usage, *, at: dt.datetime) -> Cost:
        model = self._client.model
        return price_call(model.price, usage, model=model.model_id, at=at, base_url=model.base_url)

    def is_worth_another(self, error: BaseException) -> bool:
        if not isinstance(error, CallFailure) or not error.retryable:
            return False
        if error.error == "bad_stream":
            self._damaged += 1
            return self._damaged < _BAD_STREAM_TRIES
        return True

    def is_over(self, state: tenacity.RetryCallState) -> bool:
        """No more tries: the time for retries is used up, or the wall time will be before the next one."""
        waited = time.monotonic() - self._started
        left = self._seconds_left()
        return waited >= self._client._retry_seconds or (left is not None and left <= 0)

    def wait(self, state: tenacity.RetryCallState) -> float:
        """Seconds until the next try: what the server asks for, else growing with jitter."""
        failed = state.outcome.exception() if state.outcome is not None else None
        asked = failed.retry_after if isinstance(failed, CallFailure) else None
        seconds = asked if asked is not None else self._client._backoff(state)
        ends = [self._client._retry_seconds - (time.monotonic() - self._started)]
        left = self._seconds_left()
        if left is not None:
            ends.append(left)
        return max(0.0, min(seconds, *ends))

    def sleep(self, seconds: float) -> None:
        waited = time.monotonic()
        self._client._gate.wait_for_retry(seconds)
        self._started += max(0.0, time.monotonic() - waited - seconds)
        self._end_with_the_wall_time()

    def _end_with_the_wall_time(self) -> None:
        left = self._seconds_left()
        if left is not None and left <= 0:
            raise AttemptStoppedError(
                ExitReason.MAX_TIME, detail="the wall time ended before the model answered"
            )

    def _seconds_left(self) -> float | None:
        return self._deadline() if self._deadline is not None else None

    def record_failure(self, state: tenacity.RetryCallState) -> None:
        failed = state.outcome.exception() if state.outcome is not None else None
        if isinstance(failed, CallFailure):
            self._emit_failure(failed, retry_in=state.next_action.sleep if state.next_action else None)

    def record_last_failure(self, failed: CallFailure) -> None:
        self._emit_failure(failed, retry_in=None)

    def _emit_failure(self, failed: CallFailure, *, retry_in: float | None) -> None:
        self._client._emit(
            ModelCallFailed(
                step=self._step,
                request=self._request,
                error=failed.error,
                message=failed.message,
                status=failed.status,
                retry_in=retry_in,
                usage=failed.usage,
                cost=self._price(failed.usage, at=self._try_at),
                partial=failed.partial,
                raw=failed.raw,
                seconds=time.monotonic() - self._try_started,
            )
        )

    def _record_interruption(self, interrupted: CallInterrupted) -> None:
        self._client._emit(
            ModelCallInterrupted(
                step=self._step,
                request=self._request,
                reason=interrupted.reason.value,
                partial=kept_partial(interrupted.partial, self._client._redact),
                usage=interrupted.usage,
                cost=self._price(interrupted.usage, at=self._try_at),
                seconds=time.monotonic() - self._try_started,
            )
        )

    def final_error(self, failed: CallFailure) -> Exception:
        client = self._client
        if failed.error == "context_overflow":
            return ContextOverflowError(failed.message)
        if failed.error == DIVERGED:
            return ReplayDivergedError(failed.message)
        left = self._seconds_left()
        if failed.retryable and left is not None and left <= 0:
            return AttemptStoppedError(
                ExitReason.MAX_TIME,
                detail=f"the wall time ended while the model was tried again: {failed.message}",
            )
        text = way_out(failed, client.model, key_variable=client._key_variable, tries=self._request)
        if failed.status == 404:
            text += self._models_there()
        return EndpointError(client._redact.text(text), retryable=failed.retryable)

    def _models_there(self) -> str:
        """What the server offers instead of an unknown model, as far as it says so quickly."""
        model = self._client.model
        try:
            listed = list_models(model.base_url, self._client._api_key, model.headers, timeout=3.0)
        except InvalidValueError:
            return ""
        return f"; the server lists: {names_of(listed)}"


def redacted_reply(reply: Reply, redactor: Redactor) -> Reply:
    """The reply without known secrets, fit to join the conversation and the log."""
    fields = reply.model_dump()
    clean = redactor.json(fields)
    return reply if clean is fields else Reply.model_validate(clean)
