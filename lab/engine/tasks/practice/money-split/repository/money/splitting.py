"""Sharing an amount."""

from fractions import Fraction

from money.amount import Money


def split(amount, weights):
    """Share `amount` in proportion to `weights`, which are whole numbers or fractions, none negative.

    >>> [str(share) for share in split(Money(900, "EUR"), [2, 1])]
    ['6.00 EUR', '3.00 EUR']
    """
    weights = [Fraction(weight) for weight in weights]
    if any(weight < 0 for weight in weights):
        raise ValueError("weights cannot be negative")
    whole = sum(weights)
    if not whole:
        raise ValueError("at least one weight must be more than 0")
    return [Money(int(amount.minor * weight / whole), amount.currency) for weight in weights]
