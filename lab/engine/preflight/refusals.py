"""Requests that a server refused: what is wrong with it, with a setting, or only with the moment. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab.engine.preflight.exchange import Exchange
from lab.engine.preflight.findings import Finding
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
# A server that answers so is busy, and runs ask it again.
_BUSY = {429, 502, 503, 504, 529}


def refusals(seen: Seen) -> Iterator[Finding]:
    """Requests that were refused."""
    for name, exchange in seen.exchanges.items():
        if exchange.reply is not None or name == "over_limit":
            continue
        said = exchange.said.lower()
        if exchange.status in {400, 500} and "tool" in said and any(flag in said for flag in _TOOL_FLAGS):
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
            yield finding("cannot_ask", shown(exchange), detail=exchange.said)


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
