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


def minors(amount, weights):
    return [share.minor for share in split(amount, weights)]


def test_nothing_is_lost():
    assert minors(Money(1000, "EUR"), [1, 1, 1]) == [334, 333, 333]
    assert minors(Money(1000, "JPY"), [1] * 7) == [143] * 6 + [142]


def test_what_is_left_over_goes_to_whoever_lost_most():
    # Exact shares: 16.67, 33.33, 50.00
    assert minors(Money(100, "EUR"), [1, 2, 3]) == [17, 33, 50]
    # Exact shares: 1.25, 1.25, 7.5
    assert minors(Money(10, "KWD"), [1, 1, 6]) == [1, 1, 8]


def test_no_share_is_off_by_a_whole_unit():
    for total in range(0, 60, 7):
        for weights in ([1, 1, 1], [5, 3, 1, 1], [0, 2, 9], [7, 7, 7, 7, 1]):
            shares = minors(Money(total, "EUR"), weights)
            assert sum(shares) == total
            for share, weight in zip(shares, weights):
                assert abs(share - total * weight / sum(weights)) < 1


def test_refunds_are_shared_like_payments():
    assert minors(Money(-1000, "EUR"), [1, 1, 1]) == [-334, -333, -333]
    assert minors(Money(-100, "EUR"), [1, 2, 3]) == [-17, -33, -50]


def test_leftovers_never_go_to_a_weight_of_nothing():
    assert minors(Money(100, "EUR"), [0, 1, 1, 1]) == [0, 34, 33, 33]
