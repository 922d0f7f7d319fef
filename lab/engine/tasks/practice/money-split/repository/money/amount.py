"""The amount itself."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from money.currency import minor_digits


@dataclass(frozen=True, order=True)
class Money:
    """A whole number of minor units of a currency: Money(1050, "EUR") is 10.50 EUR."""

    minor: int
    currency: str

    @classmethod
    def parse(cls, text):
        """Read "10.50 EUR". More digits than the currency has are refused."""
        number, _, code = text.partition(" ")
        return cls.of(number, code)

    @classmethod
    def of(cls, number, code):
        """Return the amount of a decimal number in text form."""
        try:
            scaled = Decimal(number).scaleb(minor_digits(code))
        except InvalidOperation:
            raise ValueError(f"{number!r} is no amount") from None
        if scaled != scaled.to_integral_value():
            raise ValueError(f"{number} {code} has more than {minor_digits(code)} digits after the point")
        return cls(int(scaled), code)

    def __add__(self, other):
        self._require_same_currency(other)
        return Money(self.minor + other.minor, self.currency)

    def __sub__(self, other):
        return self + -other

    def __neg__(self):
        return Money(-self.minor, self.currency)

    def percent(self, percent):
        """Return so many percent of the amount, rounded to the minor unit, half of one to the even side."""
        return Money(round(Fraction(self.minor) * Fraction(percent) / 100), self.currency)

    def __str__(self):
        digits = minor_digits(self.currency)
        return f"{Decimal(self.minor).scaleb(-digits):.{digits}f} {self.currency}"

    def _require_same_currency(self, other):
        if self.currency != other.currency:
            raise ValueError(f"cannot add {other.currency} to {self.currency}")


def total_of(amounts, currency):
    return sum(amounts, Money(0, currency))
