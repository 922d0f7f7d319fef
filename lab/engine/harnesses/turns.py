"""Small facts of one turn: its cap and its tokens."""

from __future__ import annotations

import json

from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject, ModelConfig, Reply
from lab.engine.llm.usage import is_count


def turn_cap(model: ModelConfig, limits: Limits) -> int | None:
    """The cap per turn in tokens: the smallest of limit, model and the model's request settings, if any."""
    settings = {**model.sampling, **model.extra_body}
    caps = [limits.max_tokens_per_turn, model.max_tokens_per_turn]
    caps += [settings.get(name) for name in ("max_tokens", "max_completion_tokens")]
    return min((cap for cap in caps if isinstance(cap, int) and cap > 0), default=None)


def estimated_tokens(messages: list[JSONObject]) -> int:
    """A token for every four bytes of compact JSON, rounded up: what Leaf does without a tokenizer."""
    text = json.dumps(messages, separators=(",", ":"), ensure_ascii=False)
    return -(-len(text.encode("utf-8", "replace")) // 4)


def provider_total(reply: Reply) -> int | None:
    """All tokens of a call as the server counted them, None when it did not."""
    total = (reply.usage.raw or {}).get("total_tokens")
    if isinstance(total, int) and is_count(total) and total > 0:
        return total
    return reply.usage.total
