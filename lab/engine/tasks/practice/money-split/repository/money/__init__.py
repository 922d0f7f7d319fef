"""Amounts of money, and bills shared by friends."""

from money.amount import Money
from money.bill import Bill
from money.splitting import split

__all__ = ["Bill", "Money", "split"]
