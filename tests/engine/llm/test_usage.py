"""Usage objects as servers really send them, read into one form."""

from __future__ import annotations

from typing import Any

import pytest

from lab.engine.llm.base import Usage
from lab.engine.llm.usage import read_usage


def parts(usage: Usage) -> tuple[int | None, ...]:
    """Total, uncached, read, write, output, reasoning."""
    return (
        usage.input_total,
        usage.input_uncached,
        usage.cache_read,
        usage.cache_write,
        usage.output_total,
        usage.reasoning,
    )


OPENAI = {
    "prompt_tokens": 17_903,
    "completion_tokens": 120,
    "total_tokens": 18_023,
    "prompt_tokens_details": {"cached_tokens": 17_817, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 64},
}
ANTHROPIC = {
    "input_tokens": 5,
    "cache_read_input_tokens": 128_955,
    "cache_creation_input_tokens": 1_253,
    "cache_creation": {"ephemeral_5m_input_tokens": 253, "ephemeral_1h_input_tokens": 1_000},
    "output_tokens": 550,
}


class TestForms:
    def test_openai_counts_cached_tokens_inside_the_prompt(self) -> None:
        usage = read_usage(OPENAI)
        assert parts(usage) == (17_903, 86, 17_817, None, 120, 64)
        assert (usage.source, usage.notes, usage.raw) == ("provider", (), OPENAI)

    def test_anthropic_counts_cached_tokens_beside_the_input(self) -> None:
        usage = read_usage(ANTHROPIC)
        assert parts(usage) == (130_213, 5, 128_955, 1_253, 550, None)
        assert usage.cache_write_1h == 1_000

    def test_a_proxy_that_shows_both_forms_is_read_once(self) -> None:
        both = OPENAI | {"cache_read_input_tokens": 17_817, "cache_creation_input_tokens": 0}
        assert parts(read_usage(both)) == (17_903, 86, 17_817, 0, 120, 64)

    def test_sglang_without_its_cache_report_leaves_the_cached_part_unknown(self) -> None:
        usage = read_usage(
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "total_tokens": 120,
                "prompt_tokens_details": None,
                "reasoning_tokens": 12,
            }
        )
        assert parts(usage) == (100, None, None, None, 20, 12)
        assert usage.notes == ()

    def test_openrouters_cache_writes_are_part_of_the_prompt_and_its_own_cost_is_kept_raw(self) -> None:
        details = {"cached_tokens": 70, "cache_write_tokens": 20}
        raw = {"prompt_tokens": 100, "completion_tokens": 5, "cost": 0.001, "prompt_tokens_details": details}
        usage = read_usage(raw)
        assert parts(usage) == (100, 10, 70, 20, 5, None)
        assert usage.raw is not None
        assert usage.raw["cost"] == 0.001

    def test_deepseeks_hits_and_misses_are_known(self) -> None:
        raw = {
            "prompt_tokens": 100,
            "completion_tokens": 5,
            "prompt_cache_hit_tokens": 64,
            "prompt_cache_miss_tokens": 36,
        }
        assert parts(read_usage(raw)) == (100, 36, 64, None, 5, None)

    def test_llama_cpps_timings_stand_in_for_missing_usage_and_add_the_cached_part(self) -> None:
        timings = {"prompt_n": 30, "cache_n": 70, "predicted_n": 12, "predicted_ms": 99.5}
        assert parts(read_usage({"timings": timings})) == (100, 30, 70, None, 12, None)
        both = {"prompt_tokens": 100, "completion_tokens": 12, "total_tokens": 112, "timings": timings}
        assert parts(read_usage(both)) == (100, 30, 70, None, 12, None)

    def test_the_responses_forms_input_includes_its_cached_part(self) -> None:
        raw = {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 40},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 6},
            "total_tokens": 110,
        }
        assert parts(read_usage(raw)) == (100, 60, 40, None, 10, 6)


class TestReasoningOutside:
    def test_reasoning_outside_the_completion_is_counted_once_as_output(self) -> None:
        usage = read_usage(
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 94},
            }
        )
        assert (usage.output_total, usage.reasoning, usage.total) == (103, 94, 135)
        assert "outside the completion" in usage.notes[0]

    def test_a_remainder_that_nothing_explains_is_named_and_not_counted(self) -> None:
        usage = read_usage({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 200})
        assert (usage.output_total, usage.total) == (50, 150)
        assert "50 more than its parts" in usage.notes[0]

    def test_a_remainder_beside_reasoning_inside_the_completion_is_not_taken_for_it(self) -> None:
        usage = read_usage(
            {
                "prompt_tokens": 100,
                "completion_tokens": 50,
                "total_tokens": 190,
                "completion_tokens_details": {"reasoning_tokens": 30},
            }
        )
        assert usage.output_total == 50
        assert "40 more" in usage.notes[0]

    def test_reasoning_longer_than_the_output_it_should_be_in_is_named_and_not_cut(self) -> None:
        usage = read_usage(
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "completion_tokens_details": {"reasoning_tokens": 8},
            }
        )
        assert (usage.output_total, usage.reasoning) == (5, 8)
        assert "more than the 5" in usage.notes[0]


class TestUnknown:
    @pytest.mark.parametrize("raw", [None, {}, {"prompt_tokens": None}])
    def test_missing_counts_are_unknown_and_not_zero(self, raw: dict[str, Any] | None) -> None:
        usage = read_usage(raw)
        assert parts(usage) == (None,) * 6
        assert (usage.source, usage.total) == ("absent", None)

    def test_zeros_are_zeros(self) -> None:
        usage = read_usage({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})
        assert (usage.input_total, usage.output_total, usage.source) == (0, 0, "provider")

    def test_more_cached_than_there_was_is_named_and_not_clamped(self) -> None:
        usage = read_usage(
            {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 30}}
        )
        assert (usage.input_total, usage.input_uncached, usage.cache_read) == (10, None, 30)
        assert "more than the 10" in usage.notes[0]

    @pytest.mark.parametrize("value", [-1, "12", True, 1.5, [3], float("inf"), float("nan")])
    def test_what_is_no_count_is_unknown_and_named(self, value: Any) -> None:
        usage = read_usage({"prompt_tokens": value, "completion_tokens": 3})
        assert usage.input_total is None
        assert "prompt_tokens" in usage.notes[0]

    @pytest.mark.parametrize("value", [10**30, 10**9 + 1, 1e308, 9.3e18])
    def test_more_than_any_model_can_take_is_no_count_either(self, value: Any) -> None:
        usage = read_usage({"prompt_tokens": 3, "completion_tokens": value, "total_tokens": value})
        assert (usage.input_total, usage.output_total, usage.total) == (3, None, None)
        assert f"completion_tokens is {value!r}, which is no count of tokens" in usage.notes

    def test_a_number_of_thousands_of_digits_is_named_by_its_first_ones(self) -> None:
        usage = read_usage({"prompt_tokens": 10**4000})
        assert len(usage.notes[0]) < 200

    def test_the_largest_counts_are_counts(self) -> None:
        usage = read_usage({"prompt_tokens": 10**9, "completion_tokens": 1e6})
        assert (usage.input_total, usage.output_total, usage.notes) == (10**9, 10**6, ())
