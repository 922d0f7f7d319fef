"""What is wrong with the form of answers, whatever they say: streams, types and numbers. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator

from lab.engine.llm.base import JSONObject, Reply
from lab.engine.preflight.exchange import Exchange
from lab.engine.preflight.findings import Evidence, Finding
from lab.engine.preflight.seen import Seen, finding, shown

# A stream of so many tokens after so many seconds of silence, at more tokens a second than any server writes.
_FEWEST_TOKENS = 15
_A_WAIT = 1.0
_FASTEST = 5_000
# What makes a longer answer worth asking for: so many pieces, all in the last part of so many seconds.
_FEWEST_PIECES = 4
_A_SHORT_WAIT = 0.4
_LAST_PART = 0.05
# Requests of different length whose counts are compared.
_FEWEST_COUNTED = 4


def buffered(seen: Seen) -> Iterator[Finding]:
    """All pieces of an answer came at its end, faster than anything writes."""
    for exchange, reply in seen.answered("thinking", "streamed", "long"):
        first, tokens, whole = reply.first_token_seconds, reply.usage.output_total or 0, reply.seconds or 0.0
        if not reply.reasoning:
            # What a model thought that is not shown came before the first piece.
            tokens -= reply.usage.reasoning or 0
        if reply.tool_calls and not reply.content:
            # Many servers send a call whole, once its parser has read it.
            continue
        if not _is_stream(exchange) or first is None or whole < _A_WAIT or tokens < _FEWEST_TOKENS:
            continue
        if tokens > (whole - first) * _FASTEST:
            detail = f"the first piece came after {first:.1f} s, the last after {whole:.1f} s"
            yield finding("stream_buffered", Evidence(exchange.probe, detail), detail=detail)


def may_be_buffered(seen: Seen) -> bool:
    """Whether a stream came all at once that is too short to say so of the server."""
    return not list(buffered(seen)) and any(
        _came_at_once(exchange, reply) for exchange, reply in seen.answered("thinking", "streamed")
    )


def _came_at_once(exchange: Exchange, reply: Reply) -> bool:
    first, whole = reply.first_token_seconds, reply.seconds or 0.0
    pieces = sum(bool(set(delta) - {"role"}) for delta in exchange.deltas)
    if first is None or pieces < _FEWEST_PIECES or whole < _A_SHORT_WAIT:
        return False
    return whole - first < whole * _LAST_PART


def stream_ignored(seen: Seen) -> Iterator[Finding]:
    """A stream was asked for and one whole object came."""
    for exchange, _ in seen.answered():
        if exchange.streamed and exchange.chunks and not _is_stream(exchange):
            yield finding(
                "stream_ignored", shown(exchange, json.dumps(exchange.chunks[0], ensure_ascii=False))
            )


def _is_stream(exchange: Exchange) -> bool:
    choices = exchange.chunks[0].get("choices") if exchange.chunks else None
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    return exchange.streamed and "message" not in first


def arguments_as_object(seen: Seen) -> Iterator[Finding]:
    """Arguments that are JSON themselves instead of a text that holds it."""
    for exchange, _ in seen.answered():
        for call in _raw_calls(exchange):
            function = call.get("function")
            if isinstance(function, dict) and isinstance(function.get("arguments"), (dict, list)):
                yield finding("arguments_as_object", shown(exchange, json.dumps(call, ensure_ascii=False)))
                break


def _raw_calls(exchange: Exchange) -> Iterator[JSONObject]:
    choices = [chunk["choices"][0] for chunk in exchange.chunks if _has_choice(chunk)]
    for choice in choices:
        for part in (choice.get("message"), choice.get("delta")):
            calls = part.get("tool_calls") if isinstance(part, dict) else None
            yield from (call for call in calls or [] if isinstance(call, dict))


def _has_choice(chunk: JSONObject) -> bool:
    choices = chunk.get("choices")
    return isinstance(choices, list) and bool(choices) and isinstance(choices[0], dict)


def same_counts(seen: Seen) -> Iterator[Finding]:
    """Requests and answers of very different length are counted with the same numbers."""
    counted = [(one, reply.usage) for one, reply in seen.answered() if reply.usage.input_total]
    questions = {json.dumps([one.body.get("messages"), one.body.get("tools")]) for one, _ in counted}
    numbers = {(usage.input_total, usage.output_total) for _, usage in counted}
    if len(questions) >= _FEWEST_COUNTED and len(numbers) == 1 and counted[0][1].output_total:
        exchange, usage = counted[-1]
        detail = (
            f"each of {len(counted)} different requests was counted with {usage.input_total:,} tokens of "
            f"input and {usage.output_total:,} of output"
        )
        yield finding("usage_absurd", shown(exchange, json.dumps(usage.raw)), detail=detail)


def absurd_cost(seen: Seen) -> Iterator[Finding]:
    """What the server says a request cost is no amount of money."""
    for exchange, reply in seen.answered():
        raw = reply.usage.raw or {}
        cost = raw.get("cost")
        is_number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
        if cost is not None and (not is_number or cost < 0):
            detail = f"the server reports a cost of {json.dumps(cost)[:60]}"
            yield finding("cost_absurd", shown(exchange, json.dumps(raw, ensure_ascii=False)), detail=detail)
