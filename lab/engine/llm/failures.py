"""Why a try of a model call failed, as a type, and how the many shapes of server errors are read."""

from __future__ import annotations

import json
import re
from typing import Any

from lab.engine.errors import ExitReason, LabError
from lab.engine.llm.base import JSONObject, ModelConfig, Usage, without_surrogates
from lab.engine.redact import Redactor

RAW_CHARACTERS = 2_000
MESSAGE_CHARACTERS = 2_000
# As much as is kept of a command's output.
PARTIAL_CHARACTERS = 1_000_000
# What is read of an answer for its error. Longer than what is kept: secrets are replaced before the cut.
ANSWER_CHARACTERS = 64 * 1024
# The type of the error with which a replayed model says that its recording goes another way.
DIVERGED = "replay_diverged"
_RAW_NOT_KEPT = "[not kept: the answer held a secret of the lab, perhaps in pieces]"

_OVERFLOW_TEXTS = (
    "context_length_exceeded",
    "reduce the length",
    "maximum context length",
    "longer than the model's context length",
    "exceed_context_size_error",
    "exceeds the available context size",
    "prompt is too long",
    "exceed_max_context",
)

_RETRYABLE_STATUS = frozenset({408, 409, 425, 429})


class CallFailure(Exception):  # an outcome the client acts on, not an error that is shown
    """One try failed. `error` is a word of `events.ModelCallFailed`; `retry_after` in seconds, as asked for.

    `partial` is the text that had arrived, `raw` the beginning of what the server said, `usage` what the
    server reported before it broke off (unknown as a rule). Whoever knows the secrets calls `redact` before
    anything is kept or shown.
    """

    def __init__(
        self,
        error: str,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        partial: str = "",
        raw: str = "",
        retryable: bool = True,
        usage: Usage | None = None,
    ) -> None:
        self.error = error
        self.message = without_surrogates(message)
        self.status = status
        self.retry_after = retry_after
        self.partial = partial
        self.raw = without_surrogates(raw[:ANSWER_CHARACTERS])
        self.retryable = retryable
        self.usage = usage if usage is not None else Usage()
        super().__init__(message)

    def redact(self, redactor: Redactor) -> None:
        """Take the known secrets out of every text, and shorten them to what is kept."""
        partial = kept_partial(self.partial, redactor)
        # In the raw stream a secret that came in several chunks stands in pieces.
        held = partial != self.partial[:PARTIAL_CHARACTERS]
        self.partial = partial
        self.raw = _RAW_NOT_KEPT if held and self.raw else redactor.shortened(self.raw, RAW_CHARACTERS)
        self.message = redactor.shortened(self.message, MESSAGE_CHARACTERS)
        self.usage = Usage.model_validate(redactor.json(self.usage.model_dump()))
        self.args = (self.message,)


def kept_partial(text: str, redactor: Redactor) -> str:
    """What is kept of text that had arrived: its beginning, without secrets or parts of one."""
    # A secret across the cut is replaced as a whole.
    beginning = text[: PARTIAL_CHARACTERS + ANSWER_CHARACTERS]
    return redactor.streaming_lines(beginning)[:PARTIAL_CHARACTERS]


class CallInterrupted(Exception):  # nothing failed
    """The request was broken off on purpose. `partial` and `usage` are what had arrived."""

    def __init__(self, reason: ExitReason, partial: str = "", usage: Usage | None = None) -> None:
        self.reason = reason
        self.partial = partial
        self.usage = usage if usage is not None else Usage()
        super().__init__(reason.value)


class ContextOverflowError(LabError):
    """The request does not fit the model's context any more: a limit, which the harness acts on."""


def is_context_overflow(text: str) -> bool:
    """Whether a server's error text says that the request is longer than the model's context."""
    lowered = text.lower()
    if any(words in lowered for words in _OVERFLOW_TEXTS):
        return True
    return "context length" in lowered and "exceed" in lowered


_KEY_WORDS = re.compile(
    r"\b(?:api[ _-]?keys?|keys?|tokens?|credentials?|authenticat\w*|unauthori[sz]ed|authori[sz]ation|bearer|"
    r"log ?in|permissions?)\b",
    re.IGNORECASE,
)


def is_about_key(text: str) -> bool:
    """Whether a refusal speaks of the key or its rights, rather than of a region, a plan or an address."""
    return _KEY_WORDS.search(text) is not None


def error_object(value: object) -> JSONObject | None:
    """The error in an answer, wrapped (OpenAI, vLLM) or at top level (SGLang); None when it has none."""
    if not isinstance(value, dict):
        return None
    wrapped = value.get("error")
    if isinstance(wrapped, dict):
        return wrapped
    if isinstance(wrapped, str) and wrapped:
        return {"message": wrapped, **{key: value[key] for key in ("code", "type") if key in value}}
    if value.get("object") == "error" or ("detail" in value and "choices" not in value):
        return value
    return None


def error_text(error: JSONObject) -> str:
    """What the error says, for a person: its message, else its detail, else all of it."""
    for key in ("message", "detail", "msg"):
        text = error.get(key)
        if isinstance(text, str) and text:
            return text
    return json.dumps(error, ensure_ascii=False)


def failure_from_status(status: int, body: str, *, retry_after: float | None = None) -> CallFailure:
    """The failure an HTTP error status means. `body` is the beginning of the answer's text."""
    error = error_object(_json_or_none(body))
    text = error_text(error) if error is not None else _first_line(body)
    return _classified(status, text, everything=body, retry_after=retry_after, raw=body)


def failure_from_error(error: JSONObject, *, raw: str, partial: str = "") -> CallFailure:
    """The failure an error object means that came inside a 200 answer or a data line of a stream."""
    failure = _classified(
        _status_of(error), error_text(error), everything=json.dumps(error), retry_after=None, raw=raw
    )
    failure.partial = partial
    return failure


def way_out(failed: CallFailure, model: ModelConfig, *, key_variable: str = "", tries: int = 1) -> str:
    """The failure as a sentence for a person: which model where, what happened, and what to do."""
    where = f"model {model.model_id} at {model.base_url}"
    said = f"the server answered {failed.status}: {failed.message}" if failed.status else failed.message
    variable = f"in variable {key_variable}" if key_variable else "of this endpoint"
    advice = {
        401: f"the key {variable} was refused; check that it is set and belongs to this server",
        403: f"the key {variable} may not use this model; check its rights"
        if is_about_key(failed.message)
        else "the server refuses this for the reason it names; another key may not change that",
        404: "the model id or the base URL is unknown there; compare the id with what /models lists",
        429: "the server limits how often it may be asked; lower the endpoint's concurrency or wait",
    }.get(failed.status or 0, "")
    if not advice and failed.error in {"connection", "timeout"}:
        advice = "check that the server runs and that the base URL is right"
    text = f"{where}: {said}" + (f" ({advice})" if advice else "")
    return f"{text}; given up after {tries} tries" if tries > 1 else text


def _classified(
    status: int, text: str, *, everything: str, retry_after: float | None, raw: str
) -> CallFailure:
    if status == 400 and f'"type": "{DIVERGED}"' in everything:
        return CallFailure(DIVERGED, text, status=status, raw=raw, retryable=False)
    if status in {400, 413, 422, 500} and is_context_overflow(everything):
        return CallFailure("context_overflow", text, status=status, raw=raw, retryable=False)
    if status == 429:
        error, retryable = "rate_limit", True
    elif status >= 500:
        error, retryable = "server", True
    elif status >= 400:
        error, retryable = "http_4xx", status in _RETRYABLE_STATUS
    else:
        error, retryable = "not_json", False
    return CallFailure(error, text, status=status, retry_after=retry_after, raw=raw, retryable=retryable)


def _status_of(error: JSONObject) -> int:
    for key in ("code", "status", "status_code"):
        code = error.get(key)
        # Python takes "²" for a digit and for no number, and refuses thousands of digits.
        if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3:
            code = int(code)
        if isinstance(code, int) and 400 <= code <= 599:
            return code
    words = f"{error.get('type', '')} {error.get('code', '')}".lower()
    if "rate_limit" in words or "ratelimit" in words:
        return 429
    if "invalid_request" in words or "badrequest" in words or is_context_overflow(json.dumps(error)):
        return 400
    return 500


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _first_line(body: str) -> str:
    for line in body.splitlines():
        if line.strip():
            return line.strip()
    return "an empty answer"
