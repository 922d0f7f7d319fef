from __future__ import annotations

from decimal import Decimal

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.limits import Limits, parse_limit


def test_an_experiment_tightens_a_limit_and_never_widens_it() -> None:
    limits = Limits(max_steps=100, max_total_time_sec=60)
    assert limits.tightened({"max_steps": 5}).max_steps == 5
    assert limits.tightened({"max_steps": 500}).max_steps == 100
    assert limits.tightened({"max_steps": None}).max_steps == 100


def test_no_limit_can_be_narrowed_to_a_limit() -> None:
    assert Limits(max_cost_usd=None).tightened({"max_cost_usd": Decimal(2)}).max_cost_usd == Decimal(2)
    assert Limits(max_cost_usd=None).tightened({"max_cost_usd": None}).max_cost_usd is None


def test_what_is_not_asked_stays_the_harnesss() -> None:
    assert Limits(max_steps=7).tightened({}) == Limits(max_steps=7)


def test_the_context_is_the_smaller_of_harness_and_model() -> None:
    limits = Limits(max_context_tokens=65_536)
    assert limits.tightened({}, context_window=8_192).max_context_tokens == 8_192
    assert limits.tightened({}, context_window=262_144).max_context_tokens == 65_536
    assert limits.tightened({}, context_window=None).max_context_tokens == 65_536


def test_equal_limits_have_equal_digests_and_different_ones_differ() -> None:
    assert Limits(max_steps=5).digest == Limits(max_steps=5).digest
    assert Limits(max_steps=5).digest != Limits(max_steps=6).digest


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("max_steps", "150", 150),
        ("max_context_tokens", "131 072", 131_072),
        ("max_context_tokens", "131_072", 131_072),
        ("max_context_tokens", "131,072", 131_072),
        ("max_context_tokens", "1'000'000", 1_000_000),
        ("max_steps", " 1 000 ", 1000),
        ("max_cost_usd", "1,000.50", Decimal("1000.50")),
        ("max_total_time_sec", "1.5", 1.5),
        ("max_cost_usd", "0.25", Decimal("0.25")),
    ],
)
def test_numbers_are_read_as_people_write_them(name: str, text: str, number: object) -> None:
    assert parse_limit(name, text) == number


@pytest.mark.parametrize(
    ("name", "text", "way_out"),
    [
        ("max_cost_usd", "$5", "write 5"),
        ("max_steps", "-1", "write 1 or more"),
        ("max_steps", "0", "write 1 or more"),
        ("max_steps", "2.5", "write 2"),
        ("max_steps", "0.5", "write 1"),
        ("max_steps", "many", "write a number"),
        ("max_steps", "", "write a number"),
        ("max_cost_usd", "5,5", "write 5.5"),
        ("max_cost_usd", "0,500", "write 0.500"),
        ("max_cost_usd", "$5,5", "write 5.5"),
        ("max_cost_usd", "1.000,5", "write 1000.5"),
        ("max_steps", "1,0", "write 1"),
        ("max_steps", "1 0", "write 10"),
        ("max_steps", "1_0", "write 10"),
        ("max_steps", "1,000 000", "write 1000000"),
        ("max_steps", "1.2.3", "write a number such as 5"),
        ("max_steps", "1,00,000", "write 100000"),
        ("max_steps", "nan", "positive"),
        ("max_total_time_sec", "inf", "positive"),
        ("max_total_time_sec", "1e400", "write 1000000000000 or less"),
        ("max_steps", "1e999999", "write 1000000000000 or less"),
        ("max_cost_usd", "1e999999", "write 1000000000000 or less"),
        ("max_total_time_sec", "1e-400", "write 1 or more"),
    ],
)
def test_a_bad_limit_is_refused_with_field_value_and_way_out(name: str, text: str, way_out: str) -> None:
    with pytest.raises(InvalidValueError) as raised:
        parse_limit(name, text)
    assert name in str(raised.value)
    assert repr(text) in str(raised.value)
    assert way_out in str(raised.value)


def test_a_number_of_thousands_of_digits_is_refused_and_quoted_shortly() -> None:
    with pytest.raises(InvalidValueError, match="write 1000000000000 or less") as raised:
        parse_limit("max_steps", "9" * 5000)
    assert len(str(raised.value)) < 200
