import pytest

from money import Bill, Money


def test_everybody_pays_what_they_had_and_their_tip():
    dinner = Bill("EUR", tip_percent=10)
    dinner.add("Pizza", "12.00", ["ann", "bo"])
    dinner.add("Wine", "20.00", ["bo"])
    assert dinner.shares() == {"ann": Money(660, "EUR"), "bo": Money(2860, "EUR")}
    assert dinner.total() == Money(3520, "EUR")


def test_people_in_the_order_they_were_named():
    lunch = Bill("EUR")
    lunch.add("Soup", "8.00", ["cy", "ann"])
    lunch.add("Bread", "2.00", ["bo", "cy"])
    assert lunch.people() == ["cy", "ann", "bo"]


def test_an_item_needs_somebody_and_nobody_twice():
    lunch = Bill("EUR")
    with pytest.raises(ValueError, match="nobody"):
        lunch.add("Soup", "8.00", [])
    with pytest.raises(ValueError, match="twice"):
        lunch.add("Soup", "8.00", ["ann", "ann"])


def test_an_empty_bill():
    assert Bill("EUR", tip_percent=10).shares() == {}
    assert Bill("EUR", tip_percent=10).total() == Money(0, "EUR")


def test_a_bill_of_free_items():
    lunch = Bill("EUR", tip_percent=10)
    lunch.add("Water", "0", ["ann", "bo"])
    assert lunch.shares() == {"ann": Money(0, "EUR"), "bo": Money(0, "EUR")}
