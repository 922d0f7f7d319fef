from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from lab.engine.llm.base import Usage
from lab.engine.pricing import price_call
from lab.models import Endpoint, Model, PriceCard
from lab.services import endpoints, price_cards
from lab.services.errors import AccessDeniedError, FieldErrors

GPU = {"gpus": "1", "usd_per_gpu_hour": "3.20", "tokens_per_second": "1500", "utilisation": "0.6"}
OWN = {"input": "2", "cache_read": "0.2", "output": "10"}


@pytest.fixture
def endpoint(db: None) -> Endpoint:
    return Endpoint.objects.create(name="own", base_url="http://127.0.0.1:1/v1")


def add(by: User, endpoint: Endpoint, **values: Any) -> PriceCard:
    fields = {"model_id": "m", "basis": "card", "typed": OWN, "valid_from": "2026-11-01"} | values
    return price_cards.add(by=by, endpoint=endpoint, **fields)


def refused(by: User, endpoint: Endpoint, **values: Any) -> dict[str, str]:
    before = PriceCard.objects.count()
    with pytest.raises(FieldErrors) as raised:
        add(by, endpoint, **values)
    assert PriceCard.objects.count() == before
    return raised.value.errors


def cost(endpoint: Endpoint, basis: str, *, day: str = "2026-11-10", output: int = 1_000_000) -> Any:
    model = Model(endpoint=endpoint, name="m", model_id="m", price_basis=basis)
    usage = Usage(input_total=1_000_000, input_uncached=1_000_000, cache_read=0, output_total=output)
    at = dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC)
    return price_call(endpoints.model_config(model).price, usage, model="m", at=at, base_url="")


def test_a_card_prices_the_calls_of_its_days_and_no_others(alice: User, endpoint: Endpoint) -> None:
    add(alice, endpoint, valid_until="2026-12-01", source="contract 7")
    add(alice, endpoint, valid_from="2026-12-01", typed={"input": "1", "output": "1"})
    assert (cost(endpoint, "card").amount, cost(endpoint, "card").basis) == (12, "card")
    assert cost(endpoint, "card", day="2026-12-01").amount == 2
    assert cost(endpoint, "card", day="2026-10-31").amount is None
    assert "contract 7" in cost(endpoint, "card").matched


def test_a_rate_is_derived_from_gpu_hours_and_shown_with_what_it_is_from(
    alice: User, endpoint: Endpoint
) -> None:
    add(alice, endpoint, basis="gpu_hours", typed=GPU)
    (shown,) = price_cards.shown(endpoint_id=endpoint.pk, model_id="m")
    assert round(shown.rates["output"], 6) == Decimal("0.987654")
    assert shown.derived_from["utilisation"] == Decimal("0.6")
    assert shown.basis_words == "GPU hours"
    assert round(cost(endpoint, "gpu_hours").amount, 6) == Decimal("0.987654")


def test_gpu_hours_that_make_no_price_are_refused_with_what_they_make(
    alice: User, endpoint: Endpoint
) -> None:
    tiny = GPU | {"tokens_per_second": "0.000000000000001", "utilisation": "0.000000000000001"}
    text = refused(alice, endpoint, basis="gpu_hours", typed=tiny)["tokens_per_second"]
    assert "more than 1,000,000 dollars per million tokens" in text


def test_a_long_source_leaves_room_for_what_the_table_says(alice: User, endpoint: Endpoint) -> None:
    typed = {"table_provider": "openai", "table_model": "gpt-4o"}
    stored = add(alice, endpoint, basis="reference", typed=typed, source="x" * 300).source
    assert stored.startswith("x" * 300 + "; openai/gpt-4o")
    long = refused(alice, endpoint, basis="reference", model_id="n", typed=typed, source="x" * 490)["source"]
    assert "write at most" in long


def test_a_reference_price_is_the_twins_in_the_table_and_says_so(alice: User, endpoint: Endpoint) -> None:
    twin = {"table_provider": "openai", "table_model": "gpt-4o"}
    card = add(alice, endpoint, basis="reference", typed=twin)
    assert "openai/gpt-4o" in card.source
    assert "genai-prices" in card.source
    assert cost(endpoint, "reference").amount == Decimal("12.5")
    assert cost(endpoint, "reference").basis == "reference"


def test_a_reference_price_that_is_typed_needs_its_source(alice: User, endpoint: Endpoint) -> None:
    errors = refused(alice, endpoint, basis="reference")
    assert list(errors) == ["source"]
    add(alice, endpoint, basis="reference", source="https://example.com/prices, 2026-11-20")
    assert cost(endpoint, "reference").amount == 12


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"table_model": "gpt-4o"}, "table_provider"),
        ({"table_provider": "openai", "table_model": "no-such"}, "table_model"),
    ],
)
def test_a_twin_that_the_table_does_not_hold_is_named(
    alice: User, endpoint: Endpoint, typed: dict[str, str], field: str
) -> None:
    assert list(refused(alice, endpoint, basis="reference", typed=typed)) == [field]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"valid_from": "2026-12-01"}),
        ({"valid_until": "2026-12-01"}, {"valid_from": "2026-11-30", "valid_until": "2027-01-01"}),
        ({"valid_from": "2026-12-01"}, {"valid_from": "2026-11-01", "valid_until": "2026-12-02"}),
        ({"valid_from": "2026-12-01"}, {}),
    ],
)
def test_cards_that_would_both_hold_are_refused_by_both_their_days(
    alice: User, endpoint: Endpoint, first: dict[str, str], second: dict[str, str]
) -> None:
    there = add(alice, endpoint, **first)
    text = refused(alice, endpoint, **second)["valid_from"]
    assert f"own card from {second.get('valid_from', '2026-11-01')}" in text
    assert price_cards.named(there) in text
    assert "end one of them" in text


@pytest.mark.parametrize(
    "day", ["٢٠٢٦-١١-٠١", "２０２６-11-01", "1999-12-31", "0001-01-01", "2026-11-01 １0:00"]
)
def test_a_date_in_other_digits_or_of_another_age_is_refused(
    alice: User, endpoint: Endpoint, day: str
) -> None:
    for field in ("valid_from", "valid_until"):
        said = refused(alice, endpoint, **{field: day})[field]
        assert day in said
        assert "write one such as 2026-11-01" in said


def test_cards_that_would_both_hold_are_named_with_both_their_ranges(alice: User, endpoint: Endpoint) -> None:
    add(alice, endpoint, valid_from="2026-11-01", valid_until="2026-12-01")
    said = refused(alice, endpoint, valid_from="2026-11-20", valid_until="2027-01-01")["valid_from"]
    assert "own card from 2026-11-20 to 2027-01-01" in said
    assert "own card from 2026-11-01 to 2026-12-01" in said


def test_a_card_may_begin_where_another_ends_and_beside_one_of_another_kind(
    alice: User, endpoint: Endpoint
) -> None:
    add(alice, endpoint, valid_until="2026-12-01")
    add(alice, endpoint, valid_from="2026-12-01")
    add(alice, endpoint, basis="gpu_hours", typed=GPU)
    add(alice, endpoint, model_id="another")
    assert PriceCard.objects.count() == 4


def test_a_card_is_ended_and_not_into_another_one(alice: User, endpoint: Endpoint) -> None:
    first = add(alice, endpoint, valid_until="2026-11-10")
    add(alice, endpoint, valid_from="2026-11-20")
    price_cards.end(by=alice, card=first, valid_until="2026-11-20")
    assert cost(endpoint, "card", day="2026-11-19").amount == 12
    for until, said in (("2026-11-21", "would both hold"), ("", "would both hold"), ("2026-10-01", "after")):
        with pytest.raises(FieldErrors) as raised:
            price_cards.end(by=alice, card=PriceCard.objects.get(pk=first.pk), valid_until=until)
        assert said in raised.value.errors["valid_until"]
    assert PriceCard.objects.get(pk=first.pk).valid_until == dt.datetime(2026, 11, 20, tzinfo=dt.UTC)


def test_without_a_beginning_a_card_holds_from_now_on(alice: User, endpoint: Endpoint) -> None:
    card = add(alice, endpoint, valid_from="")
    assert abs(card.valid_from - timezone.now()) < dt.timedelta(minutes=5)


@pytest.mark.parametrize("rate", ["-1", "a", "1e3", "nan", "1,5", "1_0", "9999999", "."])
def test_what_is_no_rate_is_named_with_what_to_write(alice: User, endpoint: Endpoint, rate: str) -> None:
    text = refused(alice, endpoint, typed=OWN | {"output": rate})["output"]
    assert repr(rate) in text
    assert "write one such as 0.5" in text


def test_everything_that_is_missing_is_said_at_once(alice: User, endpoint: Endpoint) -> None:
    assert set(refused(alice, endpoint, typed={}, valid_from="soon", valid_until="never")) == {
        "input",
        "output",
        "valid_from",
        "valid_until",
    }
    assert set(refused(alice, endpoint, basis="gpu_hours", typed={"utilisation": "1.1"})) == {*GPU}
    assert set(refused(alice, endpoint, basis="measured")) == {"basis"}


def test_a_rate_of_zero_is_a_price_and_an_absent_card_is_none(alice: User, endpoint: Endpoint) -> None:
    add(alice, endpoint, typed={"input": "0", "output": "0"})
    assert cost(endpoint, "card").amount == 0
    assert cost(endpoint, "gpu_hours").amount is None


def test_a_card_that_was_a_mistake_is_removed(alice: User, bob: User, endpoint: Endpoint) -> None:
    card = add(alice, endpoint)
    with pytest.raises(AccessDeniedError, match="admin"):
        price_cards.remove(by=bob, card=card)
    price_cards.remove(by=alice, card=card)
    assert cost(endpoint, "card").amount is None
