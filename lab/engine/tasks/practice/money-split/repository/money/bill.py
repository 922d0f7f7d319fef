"""A bill that several people share."""

from money.amount import Money, total_of
from money.splitting import split


class Bill:
    """Items with who had them, and a tip in percent of the whole."""

    def __init__(self, currency, *, tip_percent=0):
        self.currency = currency
        self.tip_percent = tip_percent
        self._items = []

    def add(self, text, price, people):
        """Add an item that these people share equally."""
        if not people:
            raise ValueError(f"nobody had the {text}")
        if len(set(people)) != len(people):
            raise ValueError(f"somebody is named twice for the {text}")
        self._items.append((text, Money.of(price, self.currency), list(people)))

    def people(self):
        """Everybody on the bill, in the order they were first named."""
        return list(dict.fromkeys(who for _, _, people in self._items for who in people))

    def subtotal(self):
        """What was had, without tip."""
        return total_of((price for _, price, _ in self._items), self.currency)

    def tip(self):
        return self.subtotal().percent(self.tip_percent)

    def total(self):
        return self.subtotal() + self.tip()

    def consumed(self):
        """What each person had, without tip."""
        had = {who: Money(0, self.currency) for who in self.people()}
        for _, price, people in self._items:
            for who, share in zip(people, split(price, [1] * len(people))):
                had[who] += share
        return had

    def shares(self):
        """What each person has to pay, tip included."""
        return {who: had + had.percent(self.tip_percent) for who, had in self.consumed().items()}
