"""Price cards: what a model costs by the lab's own reckoning, between two moments.

A call keeps the prices it was charged with, so a card that is added, ended or removed changes no run's cost.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from lab.engine.errors import InvalidValueError
from lab.engine.llm.base import Price, RateCard, Usage
from lab.models import Endpoint, PriceCard, Role
from lab.services import endpoint_fields as fields
from lab.services.access import for_role
from lab.services.errors import FieldErrorCollector
from lab.services.locks import one_at_a_time

RATES = ("input", "cache_read", "cache_write", "cache_write_1h", "output")
DERIVED_FROM = ("gpus", "usd_per_gpu_hour", "tokens_per_second", "utilisation")
# What such a price is called beside every figure.
BASIS_WORDS = {
    "table": "price table",
    "card": "own card",
    "gpu_hours": "GPU hours",
    "reference": "reference price",
    "scripted": "scripted",
    "replay": "replay",
    "unknown": "unknown",
}
_LIMITS = {
    "gpus": (Decimal(100_000), "GPUs"),
    "usd_per_gpu_hour": (Decimal(10_000), "dollars"),
    "tokens_per_second": (Decimal(100_000_000), "tokens a second"),
    "utilisation": (Decimal(1), "the share of that speed it reaches"),
}
_PLACES = Decimal("1E-10")


class ShownCard(NamedTuple):
    """A card as a page shows it: its rates by part, and what they were derived from."""

    card: PriceCard
    rates: dict[str, Decimal]
    derived_from: dict[str, Decimal]
    holds_now: bool

    @property
    def basis_words(self) -> str:
        return BASIS_WORDS[self.card.basis]

    @property
    def named(self) -> str:
        """Its kind and its days."""
        return named(self.card)


@for_role(Role.ADMIN)
def add(
    *,
    by: User,
    endpoint: Endpoint,
    model_id: str,
    basis: str,
    typed: Mapping[str, str],
    valid_from: str = "",
    valid_until: str = "",
    source: str = "",
) -> PriceCard:
    """A card for a model id of the endpoint. `valid_from` empty: from now on; `valid_until` empty: still.

    `typed` holds dollars per million tokens by part (`RATES`); for `gpu_hours` what the rate is derived from
    (`DERIVED_FROM`); for `reference` either rates with their source, or `table_provider` and `table_model` of
    the hosted twin, whose rates at the card's beginning are taken over.

    Raises:
        AccessDeniedError: `by` is no admin.
        FieldErrors: for basis, the rates, source, valid_from (also where it overlaps another card) and
            valid_until.
    """
    errors = FieldErrorCollector()
    since = fields.moment("valid_from", valid_from, errors) or timezone.now()
    until = fields.moment("valid_until", valid_until, errors)
    fields.check_text("source", source.strip(), errors)
    rates, source = _of_basis(basis, typed, since, source.strip(), errors)
    _check_order(since, until, valid_until, errors)
    errors.raise_if_any()
    card = PriceCard(
        endpoint=endpoint,
        model_id=model_id,
        basis=basis,
        rates={name: format(rate, "f") for name, rate in rates.items()},
        source=source,
        valid_from=since,
        valid_until=until,
        created_by=by,
    )
    with transaction.atomic():
        one_at_a_time("models")
        _check_overlap(card, "valid_from", valid_from.strip() or "now", errors)
        errors.raise_if_any()
        card.save()
    return card


@for_role(Role.ADMIN)
def end(*, by: User, card: PriceCard, valid_until: str) -> PriceCard:
    """Let the card hold until then, which is excluded; empty: without an end.

    Raises:
        AccessDeniedError: `by` is no admin.
        FieldErrors: for valid_until: no date, not after the card's beginning, or into another card.
    """
    errors = FieldErrorCollector()
    until = fields.moment("valid_until", valid_until, errors)
    _check_order(card.valid_from, until, valid_until, errors)
    errors.raise_if_any()
    with transaction.atomic():
        one_at_a_time("models")
        card.valid_until = until
        _check_overlap(card, "valid_until", valid_until.strip() or "no end", errors)
        errors.raise_if_any()
        card.save(update_fields=["valid_until"])
    return card


@for_role(Role.ADMIN)
def remove(*, by: User, card: PriceCard) -> None:
    """Take a card out that was a mistake. Calls that were charged by it keep their cost and its rates.

    Raises:
        AccessDeniedError: `by` is no admin.
    """
    card.delete()


def rate_cards(*, endpoint_id: int, model_id: str) -> tuple[RateCard, ...]:
    """The cards of a model id at an endpoint as the engine takes them, oldest first."""
    cards = PriceCard.objects.filter(endpoint_id=endpoint_id, model_id=model_id).order_by("valid_from")
    return tuple(_rate_card(card) for card in cards)


def rate_cards_at(endpoints: Iterable[Endpoint]) -> dict[tuple[int, str], tuple[RateCard, ...]]:
    """The same for everything at these endpoints in one query, by endpoint row and model id."""
    found: dict[tuple[int, str], tuple[RateCard, ...]] = {}
    for card in PriceCard.objects.filter(endpoint__in=endpoints).order_by("valid_from"):
        key = (card.endpoint_id, card.model_id)
        found[key] = (*found.get(key, ()), _rate_card(card))
    return found


def shown(*, endpoint_id: int, model_id: str) -> list[ShownCard]:
    """The same for people, newest first."""
    now = timezone.now()
    cards = PriceCard.objects.filter(endpoint_id=endpoint_id, model_id=model_id).order_by(
        "-valid_from", "-pk"
    )
    found = []
    for card in cards.select_related("created_by"):
        rates = _rate_card(card)
        holds = card.valid_from <= now and (card.valid_until is None or now < card.valid_until)
        found.append(ShownCard(card, dict(rates.rates), dict(rates.derived_from), holds))
    return found


def named(card: PriceCard) -> str:
    """ "own card from 2026-11-01 to 2026-12-01"."""
    until = "without an end" if card.valid_until is None else f"to {_day(card.valid_until)}"
    return f"{BASIS_WORDS[card.basis]} from {_day(card.valid_from)} {until}"


def _day(at: dt.datetime) -> str:
    at = at.astimezone(dt.UTC)
    return f"{at:%Y-%m-%d}" if at.time() == dt.time.min else f"{at:%Y-%m-%d %H:%M}"


def _rate_card(card: PriceCard) -> RateCard:
    # Imported late: the price table behind it is large.
    from lab.engine.pricing import derived_rate

    values = {name: Decimal(str(value)) for name, value in card.rates.items()}
    common: dict[str, Any] = {
        "basis": card.basis,
        "valid_from": card.valid_from,
        "valid_until": card.valid_until,
        "source": card.source,
    }
    if card.basis != PriceCard.Basis.GPU_HOURS:
        return RateCard(rates=values, **common)
    rate = derived_rate(**{name: values[name] for name in DERIVED_FROM}).quantize(_PLACES)
    # The machine's whole time is charged to what it writes; what it reads is in that.
    return RateCard(rates={"input": Decimal(0), "output": rate}, derived_from=values, **common)


def _of_basis(
    basis: str, typed: Mapping[str, str], since: dt.datetime, source: str, errors: FieldErrorCollector
) -> tuple[dict[str, Decimal], str]:
    """What the card holds, and where that is from."""
    if basis == PriceCard.Basis.GPU_HOURS:
        return _gpu_hours(typed, errors), source
    if basis == PriceCard.Basis.REFERENCE and typed.get("table_model", "").strip():
        return _of_the_table(typed, since, source, errors)
    if basis in (PriceCard.Basis.CARD, PriceCard.Basis.REFERENCE):
        _check_source(basis, source, errors)
        return _rates(typed, errors), source
    reason = f"is no basis of a card; choose one of {', '.join(PriceCard.Basis.values)}"
    errors.add(InvalidValueError("basis", basis, reason))
    return {}, source


def _rates(typed: Mapping[str, str], errors: FieldErrorCollector) -> dict[str, Decimal]:
    rates = {}
    for part in RATES:
        text = typed.get(part, "")
        rate = fields.amount(part, text, errors, unit="dollars per million tokens")
        if rate is not None:
            rates[part] = rate
        elif part in ("input", "output") and not text.strip():
            errors.add(InvalidValueError(part, "", "is empty; write dollars per million tokens, such as 0.5"))
    return rates


def _gpu_hours(typed: Mapping[str, str], errors: FieldErrorCollector) -> dict[str, Decimal]:
    from lab.engine.pricing import derived_rate

    values = {}
    for name in DERIVED_FROM:
        most, unit = _LIMITS[name]
        text = typed.get(name, "")
        value = fields.amount(name, text, errors, unit=unit, above_zero=True, most=most)
        if value is not None:
            values[name] = value
        elif not text.strip():
            errors.add(InvalidValueError(name, "", f"is empty; write a number of {unit}"))
    if len(values) == len(DERIVED_FROM) and derived_rate(**values) > fields.MOST_DOLLARS:
        reason = f"makes more than {fields.MOST_DOLLARS:,} dollars per million tokens; check all four numbers"
        errors.add(InvalidValueError("tokens_per_second", typed["tokens_per_second"].strip(), reason))
    return values


def _check_source(basis: str, source: str, errors: FieldErrorCollector) -> None:
    if basis == PriceCard.Basis.REFERENCE and not source:
        reason = "is empty; write where the hosted twin's price stands, or name its provider and model"
        errors.add(InvalidValueError("source", "", reason))


def _of_the_table(
    typed: Mapping[str, str], at: dt.datetime, source: str, errors: FieldErrorCollector
) -> tuple[dict[str, Decimal], str]:
    """The twin's rates at that time out of the price table, and what they are from."""
    from lab.engine.pricing import price_call

    provider, model = typed.get("table_provider", "").strip(), typed["table_model"].strip()
    if not provider:
        reason = "is empty; write the provider of the hosted twin as the price table names it, such as openai"
        errors.add(InvalidValueError("table_provider", "", reason))
        return {}, source
    price = Price(provider=provider, model=model)

    def rates_for(size: int) -> dict[str, Decimal]:
        usage = Usage(input_total=size, cache_read=0, output_total=1)
        cost = price_call(price, usage, model=model, at=at, base_url="")
        if cost.amount is None:
            errors.add(InvalidValueError("table_model", model, f"has no price: {cost.note}"))
        names.append(cost.matched)
        return dict(cost.unit_prices)

    names: list[str] = []
    rates = rates_for(1)
    steps = "; its price for short input" if rates and rates_for(50_000_000) != rates else ""
    told = "; ".join(filter(None, [source, f"{names[0]} on {_day(at)}{steps}"]))
    fields.check_length("source", told, errors)
    return rates, told


def _check_order(
    since: dt.datetime, until: dt.datetime | None, typed: str, errors: FieldErrorCollector
) -> None:
    if until is not None and until <= since:
        reason = f"is not after the card's beginning, {_day(since)}; write a later one, or leave it empty"
        errors.add(InvalidValueError("valid_until", typed.strip(), reason))


def _check_overlap(card: PriceCard, field: str, typed: str, errors: FieldErrorCollector) -> None:
    others = PriceCard.objects.filter(
        Q(valid_until=None) | Q(valid_until__gt=card.valid_from),
        endpoint_id=card.endpoint_id,
        model_id=card.model_id,
        basis=card.basis,
    ).exclude(pk=card.pk)
    if card.valid_until is not None:
        others = others.filter(valid_from__lt=card.valid_until)
    other = others.order_by("valid_from").first()
    if other is not None:
        both = f"the {named(card)} and the {named(other)} would both hold"
        reason = f"overlaps: {both}; end one of them before the other begins"
        errors.add(InvalidValueError(field, typed, reason))
