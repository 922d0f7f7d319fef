"""The one place that computes what a call costs.

Each call is priced by itself (prices have tiers by input length, so a summed run would be priced wrong), at
the time it was made, with the prices that were used kept beside the amount. Unknown stays unknown. What a
server says that its call cost is kept beside the lab's own figure, and a difference is named.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import genai_prices
from genai_prices.types import PriceCalculation, TieredPrices

from lab.engine.llm.base import Cost, Price, RateCard, Usage

_PARTS = {
    "input": "input_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "output": "output_mtok",
}


def price_call(price: Price, usage: Usage, *, model: str, at: dt.datetime, base_url: str) -> Cost:
    """What one call cost in US dollars.

    From the table, the provider is `price.provider`, else the one whose API lives at `base_url`; the model is
    `price.model`, else `model`. Neither is guessed from the other. `at` is the time of the call. Whatever is
    not known gives an amount of None and a note that says why.
    """
    cost = _believable(_priced(price, usage, model=model, at=at, base_url=base_url))
    if price.basis in _FREE:
        # A figure in the usage is that of the call which was recorded.
        return cost
    reported, problem = reported_cost(usage.raw)
    notes = [cost.note, problem]
    if reported is not None:
        notes.append(_difference(cost.amount, reported))
    return cost.model_copy(update={"reported": reported, "note": "; ".join(filter(None, notes))})


def _believable(cost: Cost) -> Cost:
    """An amount that no call can cost comes of a mistake in counts or rates, and is unknown."""
    if cost.amount is None or cost.amount <= _MOST_DOLLARS:
        return cost
    note = f"usage and price make {cost.amount:.0f} USD, which is no price of a call"
    return Cost(note="; ".join(filter(None, [note, cost.note])))


def _priced(price: Price, usage: Usage, *, model: str, at: dt.datetime, base_url: str) -> Cost:
    if price.basis in _FREE:
        return Cost(amount=Decimal(0), basis=price.basis, note=_FREE[price.basis])
    if price.basis == "unknown":
        return Cost(note="no price is set for this model")
    if usage.input_total is None or usage.output_total is None:
        return Cost(note="; ".join([*usage.notes, "the server reported no usage that can be priced"]))
    if price.basis != "table":
        return _by_card(price, usage, at=at)
    return _by_table(price, usage, model=model, at=at, base_url=base_url)


_FREE = {
    "scripted": "a scripted model costs nothing",
    "replay": "recorded turns are served again at no cost",
}


def _by_card(price: Price, usage: Usage, *, at: dt.datetime) -> Cost:
    """The price by the card of this basis that is valid at the time of the call."""
    card = next((card for card in price.cards if card.basis == price.basis and is_valid(card, at)), None)
    if card is None:
        return Cost(note=f"no price card of this model is valid on {at:%Y-%m-%d}")
    if problem := _contradiction(usage):
        return Cost(note="; ".join([*usage.notes, f"the usage cannot be priced: {problem}"]))
    counts = _card_counts(usage)
    missing = [part for part, count in counts.items() if count and _rate(card, part) is None]
    if missing:
        return Cost(note=f"the price card has no rate for {', '.join(missing)}")
    amount = sum((count * (_rate(card, part) or Decimal(0)) for part, count in counts.items()), Decimal(0))
    until = f" to {card.valid_until:%Y-%m-%d}" if card.valid_until is not None else ""
    return Cost(
        amount=amount / _MILLION,
        basis=card.basis,
        unit_prices=dict(card.rates),
        matched=f"price card from {card.valid_from:%Y-%m-%d}{until}"
        + (f", {card.source}" if card.source else ""),
        note=_note(usage, card.rates),
    )


def is_valid(card: RateCard, at: dt.datetime) -> bool:
    """Whether the card holds at that time; its end is excluded."""
    return card.valid_from <= at and (card.valid_until is None or at < card.valid_until)


def _contradiction(usage: Usage) -> str:
    """Why the parts of the input cannot be, "" when they can."""
    read, write, hour = usage.cache_read or 0, usage.cache_write or 0, usage.cache_write_1h or 0
    if read + write > (usage.input_total or 0):
        return "its input is below 0"
    if hour > write:
        return f"{hour} tokens written to the cache for an hour are more than the {write} written at all"
    return ""


def _card_counts(usage: Usage) -> dict[str, int]:
    """The tokens of each part that has a price of its own; each token is in one of them."""
    read, write, hour = usage.cache_read or 0, usage.cache_write or 0, usage.cache_write_1h or 0
    return {
        "input": (usage.input_total or 0) - read - write,
        "cache_read": read,
        "cache_write": write - hour,
        "cache_write_1h": hour,
        "output": usage.output_total or 0,
    }


def _rate(card: RateCard, part: str) -> Decimal | None:
    """Dollars per million tokens of the part; cached input without a rate costs what other input does."""
    if part in card.rates or part == "output":
        return card.rates.get(part)
    if part == "cache_write_1h":
        return _rate(card, "cache_write")
    return card.rates.get("input")


def derived_rate(
    *, gpus: Decimal, usd_per_gpu_hour: Decimal, tokens_per_second: Decimal, utilisation: Decimal
) -> Decimal:
    """Dollars per million output tokens of a server of one's own, from what its machines cost.

    `tokens_per_second` is what it writes at its best with all its GPUs, `utilisation` the share of that which
    it reaches, above 0 and at most 1.
    """
    return gpus * usd_per_gpu_hour / 3600 / (tokens_per_second * utilisation) * _MILLION


def reported_cost(raw: dict[str, Any] | None) -> tuple[Decimal | None, str]:
    """What the server says the call cost in dollars, and what is wrong with what it says.

    Routers put it into the usage object as `cost`, `total_cost` or `cost_usd`; it is rounded to ten places.
    """
    for name in ("cost", "total_cost", "cost_usd"):
        value = (raw or {}).get(name)
        if value is None or isinstance(value, (dict, list)):
            continue
        try:
            amount = Decimal(str(value))
        except ArithmeticError:
            amount = Decimal("nan")
        if isinstance(value, bool) or not amount.is_finite() or not 0 <= amount <= _MOST_DOLLARS:
            return None, f"the server's {name} is {repr(value)[:40]}, which is no price of a call"
        return round(amount, _PLACES).normalize(), ""
    return None, ""


def _difference(ours: Decimal | None, reported: Decimal) -> str:
    """The words for a server's figure that is not ours."""
    if ours is None:
        return f"the server says the call cost {reported:f} USD"
    if abs(ours - reported) <= max(_ROUNDING, abs(reported) * _TOLERANCE):
        return ""
    return f"the server says the call cost {reported:f} USD, the price here gives {ours:f} USD"


_MILLION = Decimal(1_000_000)
# What one call may cost at all, in dollars: what is above it is a mistake.
_MOST_DOLLARS = Decimal(100_000)
_PLACES = 10
# Servers round, and a currency's last digits are nobody's mistake.
_ROUNDING = Decimal("0.000002")
_TOLERANCE = Decimal("0.01")


def _by_table(price: Price, usage: Usage, *, model: str, at: dt.datetime, base_url: str) -> Cost:
    wanted = price.model or model
    where: dict[str, Any] = (
        {"provider_id": price.provider} if price.provider else {"provider_api_url": base_url}
    )
    try:
        found = genai_prices.calc_price(_counts(usage), wanted, genai_request_timestamp=at, **where)
    except LookupError:
        place = price.provider or base_url
        return Cost(note=f"the price table has no model {wanted} at {place}")
    except ValueError as failed:
        return Cost(note="; ".join([*usage.notes, f"the usage cannot be priced: {failed}"]))
    unit_prices = _unit_prices(found, usage.input_total or 0)
    return Cost(
        amount=found.total_price,
        basis="table",
        unit_prices=unit_prices,
        matched=f"{found.provider.id}/{found.model.id} (genai-prices {genai_prices.__version__})",
        note=_note(usage, unit_prices),
    )


def load_prices() -> None:
    """Read the price table now, which takes some 0.2 s, so that no model call has to wait for it."""
    usage = Usage(input_total=1, output_total=1)
    # One that is found, and one of a provider that is looked for among all.
    for provider in ("openai", ""):
        price = Price(provider=provider, model="gpt-4o")
        price_call(price, usage, model="", at=dt.datetime.now(dt.UTC), base_url="http://127.0.0.1")


def _counts(usage: Usage) -> genai_prices.Usage:
    parts = {
        "input_tokens": usage.input_total,
        "output_tokens": usage.output_total,
        "cache_read_tokens": usage.cache_read or None,
        "cache_write_tokens": usage.cache_write or None,
        "cache_write_1h_tokens": usage.cache_write_1h or None,
    }
    return genai_prices.Usage(**{name: count for name, count in parts.items() if count is not None})


def _unit_prices(found: PriceCalculation, input_total: int) -> dict[str, Decimal]:
    prices: dict[str, Decimal] = {}
    for part, key in _PARTS.items():
        value = getattr(found.model_price, key, None)
        if isinstance(value, TieredPrices):
            reached = [tier.price for tier in value.tiers if input_total > tier.start]
            value = reached[-1] if reached else value.base
        if value is not None:
            prices[part] = value
    return prices


def _note(usage: Usage, prices: Mapping[str, Decimal]) -> str:
    """What did not add up, and what was assumed where cached input has a price of its own."""
    notes = list(usage.notes)
    if usage.cache_read is None and prices.get("cache_read", prices.get("input")) != prices.get("input"):
        notes.append("the server did not report cached tokens: all input is priced as uncached")
    return "; ".join(notes)
