"""The one place that computes what a call costs.

Each call is priced by itself (prices have tiers by input length, so a summed run would be priced wrong), at
the time it was made, with the prices that were used kept beside the amount. Unknown stays unknown.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import genai_prices
from genai_prices.types import PriceCalculation, TieredPrices

from lab.engine.llm.base import Cost, Price, Usage

_PARTS = {
    "input": "input_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "output": "output_mtok",
}


def price_call(price: Price, usage: Usage, *, model: str, at: dt.datetime, base_url: str) -> Cost:
    """What one call cost in US dollars.

    The provider is `price.provider`, else the one whose API lives at `base_url`; the model is `price.model`,
    else `model`. Neither is guessed from the other. `at` is the time of the call. Whatever is not known gives
    an amount of None and a note that says why.
    """
    if price.basis == "scripted":
        return Cost(amount=Decimal(0), basis="scripted", note="a scripted model costs nothing")
    if price.basis == "unknown":
        return Cost(note="no price is set for this model")
    if usage.input_total is None or usage.output_total is None:
        return Cost(note="the server reported no usage")
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
        return Cost(note=f"the usage cannot be priced: {failed}")
    return Cost(
        amount=found.total_price,
        basis="table",
        unit_prices=_unit_prices(found, usage.input_total),
        matched=f"{found.provider.id}/{found.model.id} (genai-prices {genai_prices.__version__})",
        note=_note(usage),
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


def _note(usage: Usage) -> str:
    notes = list(usage.notes)
    if usage.cache_read is None:
        notes.append("the server did not report cached tokens: all input is priced as uncached")
    return "; ".join(notes)
