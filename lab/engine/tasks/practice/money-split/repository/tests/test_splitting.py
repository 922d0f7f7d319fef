import pytest

from money import Money, split


def test_equal_shares():
    assert split(Money(900, "EUR"), [1, 1, 1]) == [Money(300, "EUR")] * 3


def test_weighted_shares():
    assert split(Money(1000, "JPY"), [3, 1, 1]) == [Money(600, "JPY"), Money(200, "JPY"), Money(200, "JPY")]


def test_a_weight_of_nothing_gets_nothing():
    assert split(Money(10, "EUR"), [0, 1]) == [Money(0, "EUR"), Money(10, "EUR")]


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1]], ids=["none", "zero", "negative"])
def test_weights_that_make_no_sense(weights):
    with pytest.raises(ValueError):
        split(Money(10, "EUR"), weights)
