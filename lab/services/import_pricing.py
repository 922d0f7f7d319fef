"""What the calls of imported runs cost by the lab's own price table, beside what their files say."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

from lab.engine.formats.trajectory import FailedRequest, Item, ModelUsed, Note, Trajectory, Turn
from lab.engine.llm.base import Cost, Price, Usage

_UNTIMED = "priced as of the import: when the call was made is not recorded"
# What one call may cost at all: above it is a mistake.
_MOST_DOLLARS = 100_000
# What a call may take at all, a year: no date can be made of whatever somebody wrote.
_LONGEST_SECONDS = 366 * 86_400.0
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


def with_believable_figures(trajectory: Trajectory) -> tuple[Trajectory, tuple[Note, ...]]:
    """The trajectory without costs that no call can have and times that none can take: not recorded then."""
    items = tuple(map(_believable, trajectory.items))
    seconds = trajectory.totals.seconds
    lasted = seconds if _can_last(seconds) else None
    notes = []
    if any(_cost(was) != _cost(now) for was, now in zip(trajectory.items, items, strict=True)):
        notes.append(Note(kind="lost", field="cost", detail="a recorded cost is no price of a call"))
    if lasted != seconds or any(
        _durations(was) != _durations(now) for was, now in zip(trajectory.items, items, strict=True)
    ):
        notes.append(Note(kind="lost", field="seconds", detail="a recorded time is longer than a year"))
    if not notes:
        return trajectory, ()
    totals = dataclasses.replace(trajectory.totals, seconds=lasted)
    return dataclasses.replace(trajectory, items=items, totals=totals), tuple(notes)


def _believable(item: Item) -> Item:
    if not isinstance(item, (Turn, FailedRequest)):
        return item
    cost, seconds = item.cost_reported, item.seconds
    if cost is not None and not (cost.is_finite() and 0 <= cost <= _MOST_DOLLARS):
        item = dataclasses.replace(item, cost_reported=None)
    if not _can_last(seconds):
        item = dataclasses.replace(item, seconds=None)
    if isinstance(item, Turn) and not all(_can_last(call.seconds) for call in item.calls):
        calls = (
            call if _can_last(call.seconds) else dataclasses.replace(call, seconds=None)
            for call in item.calls
        )
        item = dataclasses.replace(item, calls=tuple(calls))
    return item


def _can_last(seconds: float | None) -> bool:
    return seconds is None or seconds <= _LONGEST_SECONDS


def _cost(item: Item) -> Decimal | None:
    return item.cost_reported if isinstance(item, (Turn, FailedRequest)) else None


def _durations(item: Item) -> list[float | None]:
    if isinstance(item, Turn):
        return [item.seconds, *(call.seconds for call in item.calls)]
    return [item.seconds] if isinstance(item, FailedRequest) else []
