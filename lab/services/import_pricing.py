"""What the calls of imported runs cost by the lab's own price table, beside what their files say."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import NamedTuple

from lab.engine.formats.trajectory import FailedRequest, Item, ModelUsed, Note, Trajectory, Turn
from lab.engine.llm.base import Cost, Price, Usage

_UNTIMED = "priced as of the import: when the call was made is not recorded"
# What one call may cost at all: above it is a mistake.
_MOST_DOLLARS = 100_000
_FROM_NAME = "the provider is taken from the model's name"
# Names of models often begin with the provider, in the words of whatever sent the request.
_PROVIDERS = {
    **{name: name for name in ("anthropic", "arcee", "avian", "aws", "azure", "baseten", "cerebras")},
    **{name: name for name in ("cloudflare", "cohere", "databricks", "deepseek", "fireworks", "google")},
    **{name: name for name in ("groq", "meta", "minimax", "mistral", "moonshotai", "novita", "openai")},
    **{name: name for name in ("openrouter", "ovhcloud", "perplexity", "together", "voyageai", "x-ai")},
    **{name: name for name in ("zai", "zhipuai")},
    "bedrock": "aws",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "moonshot": "moonshotai",
    "together_ai": "together",
    "vertex_ai": "google",
    "xai": "x-ai",
}


class _Named(NamedTuple):
    provider: str
    model: str
    from_name: bool = False


def pricer(used: ModelUsed, imported_at: dt.datetime) -> Callable[[Usage, str, dt.datetime | None], Cost]:
    """Prices a call by the table, as of when it was made; one without a time as of the import.

    A provider that is not recorded is taken from a model's name that begins with one, and the cost says so.
    """
    # Imported late: the table is large.
    from lab.engine.pricing import price_call

    def priced(usage: Usage, model: str, at: dt.datetime | None) -> Cost:
        if not model:
            return Cost(note="the model is not recorded")
        named = _named(used, model)
        if not named.provider and not used.base_url:
            return Cost(note="the model's provider is not recorded")
        price = Price(basis="table", provider=named.provider)
        cost = price_call(price, usage, model=named.model, at=at or imported_at, base_url=used.base_url)
        notes = [cost.note]
        if cost.amount is not None:
            notes += [_UNTIMED] * (at is None) + [_FROM_NAME] * named.from_name
        return cost.model_copy(update={"note": "; ".join(filter(None, notes))})

    return priced


def _named(used: ModelUsed, model: str) -> _Named:
    """Provider and model id in the table's words."""
    first, _, rest = model.partition("/")
    begins_with = _PROVIDERS.get(first.lower(), "") if rest else ""
    if used.provider:
        provider = _PROVIDERS.get(used.provider.lower(), used.provider)
        return _Named(provider, rest if begins_with == provider else model)
    if used.base_url or not begins_with:
        return _Named("", model)
    return _Named(begins_with, rest, from_name=True)


def with_believable_costs(trajectory: Trajectory) -> tuple[Trajectory, tuple[Note, ...]]:
    """The trajectory without costs that no call can have, which are not recorded then."""
    if all(_has_price(item) for item in trajectory.items):
        return trajectory, ()
    items = tuple(map(_without_cost, trajectory.items))
    note = Note(kind="lost", field="cost", detail="a recorded cost is no price of a call")
    return dataclasses.replace(trajectory, items=items), (note,)


def _without_cost(item: Item) -> Item:
    if isinstance(item, (Turn, FailedRequest)) and not _has_price(item):
        return dataclasses.replace(item, cost_reported=None)
    return item


def _has_price(item: Item) -> bool:
    if not isinstance(item, (Turn, FailedRequest)) or item.cost_reported is None:
        return True
    return item.cost_reported.is_finite() and 0 <= item.cost_reported <= _MOST_DOLLARS
