"""Decimal amounts and how they become cents."""

from decimal import Decimal

CENT = Decimal("0.01")
VAT_RATES = {
    "standard": Decimal("0.19"),
    "reduced": Decimal("0.07"),
    "zero": Decimal("0"),
}


def checked(amount):
    """Return `amount` if it is a finite Decimal.

    Raises TypeError for anything else, because a float has lost its cents before it gets here.
    """
    if not isinstance(amount, Decimal) or not amount.is_finite():
        raise TypeError(f"amounts must be finite Decimals, not {amount!r}")
    return amount


def to_cents(amount):
    """Round to whole cents."""
    return checked(amount).quantize(CENT)


def vat_of(net, rate):
    """Return the VAT on a net amount, in whole cents."""
    if rate not in VAT_RATES:
        known = ", ".join(sorted(VAT_RATES))
        raise ValueError(f"unknown VAT rate {rate!r}; known are {known}")
    return to_cents(net * VAT_RATES[rate])
