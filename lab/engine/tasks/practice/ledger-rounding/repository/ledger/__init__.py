"""A small double-entry ledger for invoices and credit notes."""

from ledger.books import Ledger, UnbalancedError
from ledger.documents import CreditNote, Invoice, Line

__all__ = ["CreditNote", "Invoice", "Ledger", "Line", "UnbalancedError"]
