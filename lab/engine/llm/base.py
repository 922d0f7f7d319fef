"""What a model call asks and what it answers, in one normal form for every server."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

JSONObject = dict[str, Any]

CountSource = Literal["provider", "estimated", "absent"]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(Frozen):
    """One call as the server sent it. `arguments` is the raw text, whatever it is.

    `synthesised_id` marks an id the server left out and the client made.
    """

    id: str
    name: str
    arguments: str
    synthesised_id: bool = False


class Usage(Frozen):
    """Tokens of one call. None is unknown and never 0.

    `input_total` = uncached + cache_read + cache_write; `output_total` contains `reasoning`.
    `raw` is the usage object as it came. `notes` names what did not add up; nothing is clamped.
    """

    input_total: int | None = None
    input_uncached: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    output_total: int | None = None
    reasoning: int | None = None
    source: CountSource = "absent"
    raw: JSONObject | None = None
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int | None:
        if self.input_total is None or self.output_total is None:
            return None
        return self.input_total + self.output_total


class Cost(Frozen):
    """Money for one call, in US dollars, with everything needed to check it later.

    `amount` None is unknown, never 0. `basis` is one of: table, card, gpu_hours, reference, scripted, replay,
    unknown. `reported` is what the server itself says the call cost, kept beside ours. `unit_prices` holds
    dollars per million tokens by part; `matched` the price table's own id and version, or the card.
    """

    amount: Decimal | None = None
    basis: Literal["table", "card", "gpu_hours", "reference", "scripted", "replay", "unknown"] = "unknown"
    reported: Decimal | None = None
    unit_prices: dict[str, Decimal] = Field(default_factory=dict)
    matched: str = ""
    note: str = ""


class Reply(Frozen):
    """One finished answer of a model, raw and whole.

    `reasoning_field` is the name of the field the reasoning came in (`reasoning_content`, `reasoning`), or
    "". Times are seconds from sending the request; `first_token_seconds` is None for an empty answer, both
    for a call that another program recorded without times.
    """

    content: str = ""
    reasoning: str = ""
    reasoning_field: str = ""
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    model: str = ""
    response_id: str = ""
    usage: Usage = Usage()
    first_token_seconds: float | None = None
    seconds: float | None = 0.0

    @property
    def cut_by_length(self) -> bool:
        return self.finish_reason.lower() in {"length", "max_tokens", "max_new_tokens"}


class RateCard(Frozen):
    """Dollars per million tokens by part, between two moments (the end is excluded, None: still).

    `rates` has the parts of `Cost.unit_prices`; a part that is missing has no price, except that cached input
    without a rate of its own costs what other input does. `derived_from` are the figures a rate was derived
    from, `source` where they come from.
    """

    basis: Literal["card", "gpu_hours", "reference"]
    rates: dict[str, Decimal]
    valid_from: dt.datetime
    valid_until: dt.datetime | None = None
    derived_from: dict[str, Decimal] = Field(default_factory=dict)
    source: str = ""


class Price(Frozen):
    """How calls of a model are priced.

    basis `table` looks provider and model up in genai-prices at the call's time; `card`, `gpu_hours` and
    `reference` take the one of `cards` that was valid then; `scripted` and `replay` cost nothing; `unknown`
    stays unknown.
    """

    basis: Literal["table", "card", "gpu_hours", "reference", "scripted", "replay", "unknown"] = "table"
    provider: str = ""
    model: str = ""
    cards: tuple[RateCard, ...] = ()


class ModelConfig(Frozen):
    """A model at an endpoint. The key itself is never part of it: it is handed to the client apart.

    `sampling` and `extra_body` are merged into every request; `max_tokens_per_turn` caps a turn (None: the
    harness's). `context_window` in tokens, None when unknown. Time-outs in seconds.
    """

    name: str
    model_id: str
    base_url: str
    scripted: bool = False
    sampling: JSONObject = Field(default_factory=dict)
    extra_body: JSONObject = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    max_tokens_per_turn: int | None = None
    context_window: int | None = None
    connect_timeout: float = 10.0
    read_timeout: float = 600.0
    price: Price = Price()


def canonical_json(value: Mapping[str, Any] | Sequence[Any], *, strict: bool = False) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces; lone surrogates become U+FFFD first.

    Raises:
        UnicodeEncodeError: the value holds lone surrogates and `strict` is set.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        if strict:
            raise
        return without_surrogates(text).encode()


def without_surrogates(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced by U+FFFD, so that it encodes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_json(value: Any) -> Any:
    """The same structure with `without_surrogates` on every string, keys of objects included."""
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, dict):
        return {without_surrogates(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_json(item) for item in value]
    return value


def canonical_sha256(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()
