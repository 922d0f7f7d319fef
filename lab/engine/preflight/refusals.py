"""Requests that a server refused: what is wrong with it, with a setting, or only with the moment. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab.engine.llm.failures import is_about_key
from lab.engine.preflight.exchange import Exchange
from lab.engine.preflight.findings import Evidence, Finding
from lab.engine.preflight.seen import Seen, finding, shown

# What vLLM and llama.cpp name in their refusal when they were started without what tools need.
_TOOL_FLAGS = ("enable-auto-tool-choice", "call-parser", "--jinja")
# What a request may hold that not every server takes: the model's settings are among these.
_ESSENTIAL = {"model", "messages", "tools", "tool_choice", "stream"}
_REFUSES = (
    "unsupported",
    "not support",
    "unknown",
    "unrecognized",
    "unexpected",
    "not permitted",
    "not allowed",
)
_STREAMING = re.compile(r"\bstream(?:ing|ed)?\b")
_MEMORY = ("out of memory", "outofmemory", "cuda oom", "failed to allocate")
# A server that answers so is busy, and runs ask it again.
_BUSY = {429, 502, 503, 504, 529}


def refusals(seen: Seen) -> Iterator[Finding]:
    """Requests that were refused."""
    for name, exchange in seen.exchanges.items():
        if exchange.reply is not None or name == "over_limit":
            continue
        if _lacks_tool_flags(exchange):
            yield finding("tool_flags_missing", shown(exchange))
        elif name == "result" and exchange.status in {400, 422, 500} and seen.reply("auto") is not None:
            yield finding("tool_result_refused", shown(exchange))
        elif name == "required" and seen.reply("auto") is not None:
            # Not every server can force a call; runs do not ask for it.
            continue
        elif _is_busy(exchange) and any(seen.answered()):
            yield finding("answers_missing", shown(exchange), detail=exchange.said)
        elif field := _refused_field(exchange):
            yield finding("field_refused", shown(exchange), detail=f"{field}: {exchange.said}")
        else:
            yield finding(_why(exchange), shown(exchange), detail=_said(exchange))
    for _, exchange in [*seen.exchanges.items()]:
        if exchange.reply is not None and exchange.hiccup:
            yield finding("failed_once", Evidence(exchange.probe, exchange.hiccup), detail=exchange.hiccup)


def is_passing(exchange: Exchange, *, has_answered: bool) -> bool:
    """Whether what went wrong may be over at once. `has_answered`: the server has answered something."""
    if exchange.reply is not None or not exchange.retryable or exchange.failure == "timeout":
        return False
    if exchange.failure == "connection":
        return has_answered
    return not _lacks_tool_flags(exchange)


def _why(exchange: Exchange) -> str:
    """The code of the diagnosis for a request that failed, whatever it asked."""
    said = exchange.said.lower()
    is_refusal = exchange.status in {400, 404, 405, 422, 500, 501}
    reasons = {
        "context_below_probe": exchange.failure == "context_overflow",
        "out_of_memory": any(words in said for words in _MEMORY),
        "rate_limited": exchange.status == 429,
        "access_denied": exchange.status == 403 and not is_about_key(exchange.said),
        "no_streaming": exchange.streamed
        and is_refusal
        and bool(_STREAMING.search(said))
        and any(words in said for words in (*_REFUSES, "disabled", "must be false")),
        "stream_breaks": exchange.failure == "stream_broken",
        "unreadable_answer": exchange.failure == "bad_stream",
        "server_fails": (exchange.status or 0) >= 500,
    }
    return next((code for code, holds in reasons.items() if holds), "cannot_ask")


def _said(exchange: Exchange) -> str:
    asks = exchange.retry_after
    return exchange.said + (f" (asks to wait {asks:,.0f} s)" if asks else "")


def _lacks_tool_flags(exchange: Exchange) -> bool:
    said = exchange.said.lower()
    return exchange.status in {400, 500} and "tool" in said and any(flag in said for flag in _TOOL_FLAGS)


def _is_busy(exchange: Exchange) -> bool:
    return exchange.failure in {"timeout", "connection"} or exchange.status in _BUSY


def _refused_field(exchange: Exchange) -> str:
    """The field of the request that the server says it does not take, "" for none."""
    said = exchange.said.lower()
    if exchange.status not in {400, 422} or not any(words in said for words in _REFUSES):
        return ""
    named = [
        (found.start(), name)
        for name in exchange.body.keys() - _ESSENTIAL
        if (found := re.search(rf"\b{re.escape(name.lower())}\b", said))
    ]
    return min(named)[1] if named else ""
