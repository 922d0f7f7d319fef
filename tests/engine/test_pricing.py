"""A call is priced by itself, at its own time, and unknown stays unknown."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from lab.engine.llm.base import Cost, Price, Usage
from lab.engine.llm.usage import read_usage
from lab.engine.pricing import price_call

NOW = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
SERVERS = {
    "anthropic": "https://api.anthropic.com/v1",
    "openai": "https://api.openai.com/v1",
    "google": "https://generativelanguage.googleapis.com/v1beta/openai",
}


def used(total: int, output: int, *, read: int = 0, write: int = 0, write_1h: int | None = None) -> Usage:
    return Usage(
        input_total=total,
        input_uncached=total - read - write,
        cache_read=read,
        cache_write=write,
        cache_write_1h=write_1h,
        output_total=output,
        source="provider",
    )


def cost(model: str, provider: str, usage: Usage, *, at: dt.datetime = NOW) -> Cost:
    return price_call(Price(), usage, model=model, at=at, base_url=SERVERS[provider])


def amount(model: str, provider: str, usage: Usage, *, at: dt.datetime = NOW) -> Decimal:
    found = cost(model, provider, usage, at=at).amount
    assert found is not None
    return found


class TestWorkedExamples:
    def test_c1_cache_writes_are_priced_once_and_hour_long_ones_higher(self) -> None:
        assert amount("claude-sonnet-4-5", "anthropic", used(12_307, 550, write=12_304)) == Decimal(
            "0.054399"
        )
        hour = used(12_307, 550, write=12_304, write_1h=12_304)
        assert amount("claude-sonnet-4-5", "anthropic", hour) == Decimal("0.082083")

    def test_c1_counts_that_contradict_each_other_have_no_price(self) -> None:
        wrong = cost("claude-sonnet-4-5", "anthropic", used(3, 550, write=12_304))
        assert (wrong.amount, wrong.basis) == (None, "unknown")
        assert "cannot be priced" in wrong.note

    def test_c2_cached_input_is_cheaper_and_reasoning_is_part_of_the_output(self) -> None:
        usage = used(100_000, 5_000, read=80_000)
        assert amount("gpt-5", "openai", usage) == Decimal("0.085")
        assert amount("gpt-5", "openai", used(100_000, 5_000)) == Decimal("0.175")
        assert amount("gpt-5", "openai", usage.model_copy(update={"reasoning": 4_000})) == Decimal("0.085")

    def test_c3_a_long_context_is_priced_by_its_tier(self) -> None:
        assert amount("gemini-2.5-pro", "google", used(150_000, 1_000)) == Decimal("0.1975")
        assert amount("gemini-2.5-pro", "google", used(250_000, 1_000)) == Decimal("0.640")

    def test_c4_calls_are_priced_one_by_one_and_not_as_a_sum(self) -> None:
        for model, provider, each, summed in [
            ("claude-sonnet-4-5", "anthropic", "3.300", "6.45"),
            ("gemini-2.5-pro", "google", "1.450", "2.80"),
        ]:
            assert 20 * amount(model, provider, used(50_000, 1_000)) == Decimal(each)
            assert amount(model, provider, used(1_000_000, 20_000)) == Decimal(summed)

    def test_c5_the_price_is_the_one_of_the_calls_day(self) -> None:
        usage = used(1_000_000, 1_000_000)
        assert amount("o3", "openai", usage, at=dt.datetime(2025, 5, 1, tzinfo=dt.UTC)) == Decimal("50.0")
        assert amount("o3", "openai", usage, at=dt.datetime(2025, 7, 1, tzinfo=dt.UTC)) == Decimal("10.0")

    def test_c6_anthropics_exclusive_counts_are_not_counted_twice(self) -> None:
        usage = read_usage(
            {
                "input_tokens": 5,
                "cache_read_input_tokens": 128_955,
                "cache_creation_input_tokens": 1_253,
                "output_tokens": 550,
            }
        )
        found = amount("claude-sonnet-4-5", "anthropic", usage)
        assert found.quantize(Decimal("0.000001")) == Decimal("0.051650")


class TestSnapshot:
    def test_what_is_needed_to_check_the_amount_later_is_kept(self) -> None:
        found = cost("gpt-5", "openai", used(100_000, 5_000, read=80_000))
        assert found.basis == "table"
        assert found.unit_prices == {
            "input": Decimal("1.25"),
            "cache_read": Decimal("0.125"),
            "output": Decimal("10"),
        }
        assert found.matched.startswith("openai/gpt-5 (genai-prices 0.")
        parts = {"input": 20_000, "cache_read": 80_000, "output": 5_000}
        total = sum(found.unit_prices[part] * count for part, count in parts.items()) / 1_000_000
        assert total == found.amount

    def test_the_unit_prices_are_those_of_the_tier_that_was_reached(self) -> None:
        low = cost("gemini-2.5-pro", "google", used(150_000, 1_000)).unit_prices
        high = cost("gemini-2.5-pro", "google", used(250_000, 1_000)).unit_prices
        assert (low["input"], high["input"]) == (Decimal("1.25"), Decimal("2.5"))

    def test_input_priced_as_uncached_for_want_of_a_count_says_so(self) -> None:
        usage = read_usage({"prompt_tokens": 1000, "completion_tokens": 10})
        assert "did not report cached tokens" in cost("gpt-5", "openai", usage).note


class TestUnknown:
    @pytest.mark.parametrize(
        ("base_url", "model"),
        [
            ("http://127.0.0.1:8000/v1", "gpt-5"),
            ("https://api.openai.com/v1", "qwen3-8b-of-our-own"),
            ("https://api.openai.com/v1", "anthropic/claude-sonnet-4-5"),
        ],
    )
    def test_a_model_the_table_does_not_have_there_has_no_price(self, base_url: str, model: str) -> None:
        found = price_call(Price(), used(10, 10), model=model, at=NOW, base_url=base_url)
        assert (found.amount, found.basis) == (None, "unknown")
        assert model in found.note
        assert base_url in found.note

    def test_a_provider_may_be_named_where_the_address_does_not_tell(self) -> None:
        price = Price(provider="openai", model="gpt-5")
        found = price_call(price, used(1_000_000, 0), model="alias", at=NOW, base_url="http://10.0.0.1/v1")
        assert found.amount == Decimal("1.25")

    @pytest.mark.parametrize("usage", [Usage(), Usage(input_total=5), Usage(output_total=5)])
    def test_a_call_without_usage_has_no_price_and_not_zero(self, usage: Usage) -> None:
        assert cost("gpt-5", "openai", usage).amount is None

    def test_zero_tokens_cost_zero(self) -> None:
        assert cost("gpt-5", "openai", used(0, 0)).amount == 0

    def test_a_model_set_to_unknown_stays_unknown_even_where_the_table_has_it(self) -> None:
        price = Price(basis="unknown")
        found = price_call(price, used(1, 1), model="gpt-5", at=NOW, base_url=SERVERS["openai"])
        assert (found.amount, found.basis) == (None, "unknown")

    def test_a_scripted_model_costs_nothing_and_says_so(self) -> None:
        found = price_call(Price(basis="scripted"), Usage(), model="scripted/solver", at=NOW, base_url="")
        assert (found.amount, found.basis) == (Decimal(0), "scripted")
