"""A call is priced by itself, at its own time, and unknown stays unknown."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from lab.engine.llm.base import Cost, Price, RateCard, Usage
from lab.engine.llm.usage import read_usage
from lab.engine.pricing import derived_rate, price_call

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


def card(*, since: dt.datetime, until: dt.datetime | None = None, **rates: str) -> RateCard:
    priced = {part: Decimal(rate) for part, rate in rates.items()}
    return RateCard(basis="card", rates=priced, valid_from=since, valid_until=until, source="contract 7")


def by_card(usage: Usage, *cards: RateCard, at: dt.datetime = NOW) -> Cost:
    return price_call(Price(basis="card", cards=cards), usage, model="own", at=at, base_url="http://x/v1")


class TestOwnCards:
    def test_each_part_is_priced_once_at_its_own_rate(self) -> None:
        rates = card(
            since=NOW, input="2", cache_read="0.2", cache_write="2.5", cache_write_1h="4", output="10"
        )
        found = by_card(used(1_000_000, 100_000, read=600_000, write=300_000, write_1h=100_000), rates)
        # 0.1 M at 2, 0.6 M at 0.2, 0.2 M at 2.5, 0.1 M at 4, 0.1 M at 10.
        assert found.amount == Decimal("2.22")
        assert (found.basis, found.unit_prices["output"]) == ("card", Decimal(10))
        assert "contract 7" in found.matched
        assert "2026-11-01" in found.matched

    def test_cached_input_without_a_rate_costs_what_other_input_does(self) -> None:
        found = by_card(
            used(1_000_000, 0, read=400_000, write=100_000), card(since=NOW, input="2", output="1")
        )
        assert found.amount == 2

    @pytest.mark.parametrize(("rates", "says_so"), [({}, False), ({"cache_read": "0.2"}, True)])
    def test_cached_input_that_was_not_counted_matters_only_where_it_has_a_rate(
        self, rates: dict[str, str], says_so: bool
    ) -> None:
        usage = Usage(input_total=1_000_000, output_total=0, source="provider")
        found = by_card(usage, card(since=NOW, input="2", output="1", **rates))
        assert found.amount == 2
        assert ("did not report cached tokens" in found.note) is says_so

    def test_the_card_is_the_one_of_the_calls_time_and_its_end_is_excluded(self) -> None:
        change = NOW + dt.timedelta(days=30)
        old, new = (
            card(since=NOW, until=change, input="1", output="1"),
            card(since=change, input="3", output="3"),
        )
        last, first = change - dt.timedelta(microseconds=1), change
        assert by_card(used(1_000_000, 0), old, new, at=last).amount == 1
        assert by_card(used(1_000_000, 0), old, new, at=first).amount == 3
        before = by_card(used(1, 1), old, new, at=NOW - dt.timedelta(seconds=1))
        assert (before.amount, before.basis) == (None, "unknown")
        assert "2026-10-31" in before.note

    def test_a_card_of_another_basis_is_not_used(self) -> None:
        price = Price(basis="reference", cards=(card(since=NOW, input="1", output="1"),))
        assert price_call(price, used(1, 1), model="own", at=NOW, base_url="").amount is None

    def test_a_missing_rate_leaves_the_price_unknown_unless_nothing_needs_it(self) -> None:
        rates = card(since=NOW, input="1")
        assert by_card(used(1_000_000, 0), rates).amount == 1
        missing = by_card(used(1, 1), rates)
        assert missing.amount is None
        assert "output" in missing.note

    def test_counts_that_contradict_each_other_have_no_price(self) -> None:
        rates = card(since=NOW, input="1", output="1")
        assert by_card(used(5, 1, read=10), rates).amount is None
        hour = by_card(used(100, 1, write=40, write_1h=50), rates)
        assert hour.amount is None
        assert "50 tokens written to the cache for an hour are more than the 40 written at all" in hour.note

    def test_an_amount_that_no_call_can_cost_is_unknown_and_named(self) -> None:
        absurd = by_card(used(10**9, 1), card(since=NOW, input="1000000", output="0"))
        assert absurd.amount is None
        assert "1000000000 USD" in absurd.note
        assert "no price of a call" in absurd.note

    def test_a_rate_is_derived_from_gpu_hours(self) -> None:
        rate = derived_rate(
            gpus=Decimal(1),
            usd_per_gpu_hour=Decimal("3.20"),
            tokens_per_second=Decimal(1500),
            utilisation=Decimal("0.6"),
        )
        assert round(rate, 6) == Decimal("0.987654")


class TestReportedCosts:
    def told(self, value: object, *, name: str = "cost", price: Price | None = None) -> Cost:
        raw = {"prompt_tokens": 1_000_000, "completion_tokens": 0, name: value}
        price = price or Price(basis="card", cards=(card(since=NOW, input="2", output="1"),))
        return price_call(price, read_usage(raw), model="own", at=NOW, base_url="http://x/v1")

    @pytest.mark.parametrize("value", [2, 2.0, "2.00", 1.99])
    def test_a_servers_figure_that_agrees_is_kept_without_a_word(self, value: object) -> None:
        found = self.told(value)
        assert (found.amount, found.reported) == (2, Decimal(str(value)))
        assert "the server says" not in found.note

    @pytest.mark.parametrize("name", ["cost", "total_cost", "cost_usd"])
    def test_a_difference_names_both_figures_and_their_sources(self, name: str) -> None:
        found = self.told(2.5, name=name)
        assert (found.amount, found.reported) == (2, Decimal("2.5"))
        assert "the server says the call cost 2.5 USD, the price here gives 2 USD" in found.note

    def test_without_a_price_of_ours_the_amount_stays_unknown(self) -> None:
        found = self.told(0.25, price=Price(basis="unknown"))
        assert (found.amount, found.reported) == (None, Decimal("0.25"))
        assert "0.25" in found.note

    @pytest.mark.parametrize("basis", ["replay", "scripted"])
    def test_a_figure_in_turns_that_are_served_again_was_paid_before(self, basis: str) -> None:
        found = self.told(0.25, price=Price.model_validate({"basis": basis}))
        assert (found.amount, found.reported) == (0, None)
        assert "the server says" not in found.note

    @pytest.mark.parametrize("value", ["1e-999999", "0." + "1" * 5_000])
    def test_a_figure_of_endless_digits_is_rounded(self, value: str) -> None:
        found = self.told(value)
        assert found.reported == round(Decimal(value), 10)
        assert len(found.note) < 200

    @pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "free", True, 1e9])
    def test_what_is_no_price_is_named_and_not_used(self, value: object) -> None:
        found = self.told(value)
        assert (found.amount, found.reported) == (2, None)
        assert "no price of a call" in found.note
