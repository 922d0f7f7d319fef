import pytest

from money import Money


@pytest.mark.parametrize("text", ["10.50 EUR", "1000 JPY", "0.125 KWD", "-3.00 USD"], ids=lambda text: text[-3:])
def test_what_is_parsed_is_printed(text):
    assert str(Money.parse(text)) == text


@pytest.mark.parametrize("text", ["1.005 EUR", "0.5 JPY", "ten EUR", "5 XYZ", "5"], ids=["digits", "yen", "word", "code", "bare"])
def test_bad_amounts(text):
    with pytest.raises(ValueError):
        Money.parse(text)


def test_arithmetic_stays_in_one_currency():
    assert Money(150, "EUR") - Money(200, "EUR") == Money(-50, "EUR")
    with pytest.raises(ValueError, match="cannot add JPY to EUR"):
        Money(1, "EUR") + Money(1, "JPY")


def test_percent_rounds_half_to_even():
    assert Money(250, "EUR").percent(1) == Money(2, "EUR")
    assert Money(350, "EUR").percent(1) == Money(4, "EUR")
