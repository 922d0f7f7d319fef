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


def check_sum(bill):
    assert sum(share.minor for share in bill.shares().values()) == bill.total().minor


def test_shares_add_up_when_an_item_cannot_be_divided():
    dinner = Bill("EUR")
    dinner.add("Cake", "10.00", ["ann", "bo", "cy"])
    check_sum(dinner)
    assert dinner.shares()["ann"] == Money(334, "EUR")


def test_shares_add_up_when_only_the_tip_cannot_be_divided():
    dinner = Bill("EUR", tip_percent=10)
    for who in ["ann", "bo", "cy"]:
        dinner.add("Coffee", "2.45", [who])
    # 10 % of 7.35 is 0.735, rounded 0.74; 10 % of 2.45 is 0.245, rounded 0.24
    assert dinner.tip() == Money(74, "EUR")
    check_sum(dinner)
    assert [share.minor for share in dinner.shares().values()] == [270, 270, 269]


def test_shares_add_up_with_items_and_tip():
    dinner = Bill("KWD", tip_percent=15)
    dinner.add("Starters", "7.550", ["ann", "bo", "cy", "di", "ed", "flo", "gus"])
    dinner.add("Fish", "11.275", ["bo", "flo"])
    dinner.add("Sweets", "4.001", ["ann", "gus", "cy"])
    check_sum(dinner)


def test_a_refunded_bill():
    refund = Bill("EUR", tip_percent=10)
    refund.add("Cake returned", "-10.00", ["ann", "bo", "cy"])
    check_sum(refund)
    assert all(share.minor < 0 for share in refund.shares().values())


def test_an_item_and_its_refund_leave_nothing_to_pay():
    dinner = Bill("EUR", tip_percent=10)
    dinner.add("Cake", "10.00", ["ann", "bo", "cy"])
    dinner.add("Cake returned", "-10.00", ["ann", "bo", "cy"])
    assert dinner.shares() == {who: Money(0, "EUR") for who in ["ann", "bo", "cy"]}
