"""Invoices and credit notes, and the bookings they cause."""

from dataclasses import dataclass
from decimal import Decimal

from ledger.amounts import checked, to_cents, vat_of


@dataclass(frozen=True)
class Line:
    """One position: what, the price of one in net, how many, and a discount in percent."""

    text: str
    price: Decimal
    quantity: int = 1
    discount: Decimal = Decimal(0)

    def net(self):
        full = checked(self.price) * self.quantity
        return to_cents(full * (100 - self.discount) / 100)


@dataclass(frozen=True)
class Invoice:
    number: str
    customer: str
    lines: list
    vat: str = "standard"
    sign = 1

    def net(self):
        return sum((self.sign * line.net() for line in self.lines), Decimal("0.00"))

    def vat_amount(self):
        """VAT line by line, as printed."""
        return sum((vat_of(self.sign * line.net(), self.vat) for line in self.lines), Decimal("0.00"))

    def gross(self):
        return self.net() + self.vat_amount()

    def bookings(self):
        """Pairs of account and amount; they sum to zero."""
        return [
            ("receivables", self.gross()),
            ("revenue", -self.net()),
            ("vat payable", -self.vat_amount()),
        ]


@dataclass(frozen=True)
class CreditNote(Invoice):
    """Takes an invoice back: the same lines, all amounts negative."""

    sign = -1

    @classmethod
    def for_invoice(cls, number, invoice):
        return cls(number, invoice.customer, list(invoice.lines), invoice.vat)
