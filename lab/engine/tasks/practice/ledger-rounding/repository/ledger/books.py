"""The ledger itself."""

import threading
from collections import defaultdict
from decimal import Decimal


class UnbalancedError(ValueError):
    """The bookings of a document do not sum to zero."""


class Ledger:
    """Keeps the balance of every account and which documents made it."""

    def __init__(self):
        self._balances = defaultdict(lambda: Decimal("0.00"))
        self._documents = {}
        self._lock = threading.Lock()

    def post(self, document):
        """Book a document. A number can be used once."""
        bookings = document.bookings()
        difference = sum(amount for _, amount in bookings)
        if difference:
            raise UnbalancedError(f"{document.number} is off by {difference}")
        with self._lock:
            if document.number in self._documents:
                raise ValueError(f"{document.number} is posted already")
            self._documents[document.number] = document
            for account, amount in bookings:
                self._balances[account] += amount

    def balance(self, account):
        with self._lock:
            return self._balances[account]

    def statement(self, customer):
        """Return (number, gross) of the customer's documents in the order they were posted."""
        with self._lock:
            return [(d.number, d.gross()) for d in self._documents.values() if d.customer == customer]
