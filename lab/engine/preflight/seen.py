"""What a preflight saw, and how a finding shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from lab.engine.llm.base import JSONObject, ModelConfig, Reply
from lab.engine.preflight.exchange import EXCERPT_CHARACTERS, Exchange
from lab.engine.preflight.findings import Evidence, Finding, diagnoses


class Seen(NamedTuple):
    """Everything a preflight saw: exchanges by probe, and what was known before.

    `server_window` in tokens, None: unknown; `wanted_windows` is what each harness allows, in tokens by name.
    `again` and `streamed_again` are the call asked once more: whether a difference is more than chance.
    """

    model: ModelConfig
    exchanges: Mapping[str, Exchange]
    server_window: int | None = None
    wanted_windows: Mapping[str, int] = MappingProxyType({})

    def reply(self, probe: str) -> Reply | None:
        exchange = self.exchanges.get(probe)
        return exchange.reply if exchange is not None else None

    def answered(self, *probes: str) -> Iterator[tuple[Exchange, Reply]]:
        """Exchanges with a reply, of these probes or of all."""
        for name, exchange in self.exchanges.items():
            if exchange.reply is not None and (not probes or name in probes):
                yield exchange, exchange.reply


def finding(code: str, *evidence: Evidence, detail: str = "") -> Finding:
    """The diagnosis of this code with what shows it."""
    return Finding(diagnoses()[code], evidence, detail)


def shown(exchange: Exchange, text: str | None = None, *, around: int = 0) -> Evidence:
    """An excerpt of the answer: the given text around a place in it, else what the message holds."""
    if text is None:
        text = exchange.said if exchange.reply is None else _reply_text(exchange)
    start = max(0, around - 200)
    cut = text[start : start + EXCERPT_CHARACTERS]
    return Evidence(
        exchange.probe, ("…" if start else "") + cut + ("…" if len(text) > start + len(cut) else "")
    )


def _reply_text(exchange: Exchange) -> str:
    """The reply as one JSON object: what the client read, whatever way it came."""
    reply = exchange.reply
    if reply is None:
        return exchange.said
    fields: JSONObject = {"finish_reason": reply.finish_reason, "content": reply.content}
    if reply.reasoning:
        fields[reply.reasoning_field or "reasoning"] = reply.reasoning
    if reply.tool_calls:
        fields["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in reply.tool_calls
        ]
    return json.dumps(fields | {"usage": reply.usage.raw}, ensure_ascii=False)
