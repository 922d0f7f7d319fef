"""Small facts of one turn: its cap and its tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject, ModelConfig, Reply
from lab.engine.llm.usage import is_count

# However full the context is, a turn is asked for with room for a short answer.
_SMALLEST_CAP = 1_024


def turn_cap(model: ModelConfig, limits: Limits) -> int | None:
    """The cap per turn in tokens: the smallest of limit, model and the model's request settings, if any."""
    settings = {**model.sampling, **model.extra_body}
    caps = [limits.max_tokens_per_turn, model.max_tokens_per_turn]
    caps += [settings.get(name) for name in ("max_tokens", "max_completion_tokens")]
    return min((cap for cap in caps if isinstance(cap, int) and cap > 0), default=None)


def request_cap(
    model: ModelConfig,
    limits: Limits,
    messages: Sequence[JSONObject],
    parameters: JSONObject,
    *,
    counted: int,
) -> int | None:
    """The cap of a request in tokens; without one by limits, what is left of the context, if that is known.

    `counted` are the context's tokens after the last answer, 0 before the first one.
    """
    fixed = turn_cap(model, limits)
    if fixed is not None:
        return fixed
    windows = (limits.max_context_tokens, model.context_window)
    window = min((size for size in windows if size), default=None)
    if window is None:
        return None
    # Before the first answer nothing is counted yet: half a token a byte is more than any text has.
    used = counted or 2 * estimated_tokens([*messages, parameters])
    return max(window - used - window // 50, _SMALLEST_CAP)


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
