"""What the pages of endpoints and models show: lists, settings, prices, and what used them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django.db.models import Count, Q, QuerySet

from lab.engine.llm.base import RateCard, Usage
from lab.models import Endpoint, Experiment, Model, Run
from lab.render.numbers import dollars
from lab.render.text import visible_text
from lab.services import price_cards
from lab.services.endpoint_settings import is_own
from lab.services.endpoints import cost_now, key_is_set, price_basis
from lab.services.model_settings import is_used
from lab.services.price_cards import BASIS_WORDS, RATES

RUNS_SHOWN = 8
_DEMO = Experiment.Kind.DEMO


class Counted(NamedTuple):
    """How many runs of the lab's own there are, and how many of a demo beside them."""

    runs: int = 0
    demo_runs: int = 0


class ModelRow(NamedTuple):
    """A model in a list. `price` says its basis, and that it is unknown where no price is found now."""

    model: Model
    price: str
    price_is_known: bool
    used: Counted


class EndpointRow(NamedTuple):
    """An endpoint with its models that can be launched, or were."""

    endpoint: Endpoint
    own: bool
    key_is_set: bool
    models: list[ModelRow]


class PriceNow(NamedTuple):
    """What a call that is made now would be charged by: rates in dollars per million tokens, by part."""

    basis: str
    known: bool
    matched: str
    note: str
    rates: list[tuple[str, str]]


class ModelPage(NamedTuple):
    """One version of a model. `unused_card` is one that holds now and is of another basis than calls go by,
    where these have no price."""

    model: Model
    own: bool
    newest: bool
    used: bool
    key_is_set: bool
    sampling: str
    extra_body: str
    price: PriceNow
    cards: list[price_cards.ShownCard]
    unused_card: price_cards.ShownCard | None
    versions: Sequence[Model]
    counted: Counted
    runs: Sequence[Run]


PART_WORDS = {
    "input": "input",
    "cache_read": "cached input",
    "cache_write": "written to the cache",
    "cache_write_1h": "written for an hour",
    "output": "output",
}


def endpoints_listed() -> list[EndpointRow]:
    """Every endpoint that was not retired, those the lab serves itself last."""
    shown = Endpoint.objects.filter(retired=False)
    models: dict[int, list[ModelRow]] = {}
    for row in _rows(Model.objects.in_use().filter(endpoint__in=shown), shown):
        models.setdefault(row.model.endpoint_id, []).append(row)
    rows = [
        EndpointRow(endpoint, is_own(endpoint), key_is_set(endpoint=endpoint), models.get(endpoint.pk, []))
        for endpoint in shown
    ]
    return sorted(
        (row for row in rows if row.models or not row.own), key=lambda row: (row.own, row.endpoint.name)
    )


def endpoint_row(endpoint: Endpoint) -> EndpointRow:
    """The endpoint with its models, also when it was retired itself."""
    rows = _rows(_newest_at(endpoint).filter(retired=False), [endpoint])
    return EndpointRow(endpoint, is_own(endpoint), key_is_set(endpoint=endpoint), rows)


def retired_models(endpoint: Endpoint) -> QuerySet[Model]:
    """The newest versions of its models that were retired."""
    return _newest_at(endpoint).filter(retired=True)


def _newest_at(endpoint: Endpoint) -> QuerySet[Model]:
    """Models that stand for the endpoint still: a name may have come to mean a model elsewhere."""
    return Model.objects.newest().filter(endpoint=endpoint).order_by("name")


def retired_endpoints() -> QuerySet[Endpoint]:
    """Those that are launched no more."""
    return Endpoint.objects.filter(retired=True)


def model_page(model: Model) -> ModelPage:
    """Everything of one version of a model; the same few queries whatever used it."""
    versions = list(Model.objects.filter(name=model.name).order_by("-version"))
    runs = Run.objects.filter(arm__model=model)
    counted = runs.aggregate(
        runs=Count("pk", filter=~Q(experiment__kind=_DEMO)),
        demo_runs=Count("pk", filter=Q(experiment__kind=_DEMO)),
    )
    price = price_now(model)
    cards = price_cards.shown(endpoint_id=model.endpoint_id, model_id=model.model_id)
    usable = (card for card in cards if card.holds_now and card.card.basis != model.price_basis)
    return ModelPage(
        model=model,
        own=is_own(model.endpoint),
        newest=versions[0].pk == model.pk,
        used=is_used(model),
        key_is_set=key_is_set(endpoint=model.endpoint),
        sampling=_json(model.sampling),
        extra_body=_json(model.extra_body),
        price=price,
        cards=cards,
        unused_card=None if price.known else next(usable, None),
        versions=versions,
        counted=Counted(**counted),
        runs=list(runs.for_rows().order_by("-pk")[:RUNS_SHOWN]),
    )


def price_now(model: Model, *, cards: tuple[RateCard, ...] | None = None) -> PriceNow:
    """The price of a call that is made now, with its basis; `cards` as for `endpoints.cost_now`."""
    cost = cost_now(model, Usage(input_total=1, cache_read=0, output_total=1), cards=cards)
    rates = [
        (PART_WORDS[part], f"{dollars(cost.unit_prices[part])}") for part in RATES if part in cost.unit_prices
    ]
    return PriceNow(
        basis=BASIS_WORDS[price_basis(model)],
        known=cost.amount is not None,
        matched=visible_text(cost.matched),
        note=visible_text(cost.note) if cost.amount is None else "",
        rates=rates,
    )


def _rows(models: QuerySet[Model], endpoints: Iterable[Endpoint]) -> list[ModelRow]:
    """These models of the endpoints for a list; as few queries for hundreds as for one."""
    counts = _counts(Model.objects.filter(endpoint__in=endpoints))
    cards = price_cards.rate_cards_at(endpoints)
    return [_row(model, counts, cards.get((model.endpoint_id, model.model_id), ())) for model in models]


def _row(model: Model, counts: dict[str, Counted], cards: tuple[RateCard, ...]) -> ModelRow:
    now = price_now(model, cards=cards)
    if model.scripted or model.replay:
        price = f"$0, {now.basis}"
    else:
        price = now.basis if now.known else f"unknown, {_why_unknown(now)}"
    return ModelRow(model, price, now.known, counts.get(model.name, Counted()))


def _why_unknown(now: PriceNow) -> str:
    if now.basis == BASIS_WORDS["table"]:
        return "not in the price table"
    return "none is set" if now.basis == BASIS_WORDS["unknown"] else f"no {now.basis} holds now"


def _counts(models: QuerySet[Model]) -> dict[str, Counted]:
    """Model name -> the runs of all its versions."""
    rows = (
        models.order_by()
        .values("name")
        .annotate(
            runs=Count("arms__runs", filter=~Q(arms__experiment__kind=_DEMO)),
            demo=Count("arms__runs", filter=Q(arms__experiment__kind=_DEMO)),
        )
    )
    return {row["name"]: Counted(row["runs"], row["demo"]) for row in rows}


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) if value else ""
