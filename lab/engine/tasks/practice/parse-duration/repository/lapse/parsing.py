"""Text to timedelta."""

import re
from datetime import timedelta
from decimal import Decimal

from lapse.units import SPELLINGS

_UNIT = "|".join(SPELLINGS)
_PART = re.compile(rf"(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>{_UNIT})s?(?![a-z])")
_SEPARATOR = re.compile(r"[\s,]*")


class DurationError(ValueError):
    """The text is no span of time. `position` is where reading stopped, counted from 0."""

    def __init__(self, text, position, reason):
        super().__init__(f"{text!r}: {reason} at position {position}")
        self.text = text
        self.position = position


def parse(text):
    """Return the timedelta that `text` describes.

    >>> parse("-1d 12h")
    datetime.timedelta(days=-2, seconds=43200)
    """
    lowered = text.lower().rstrip()
    position = len(lowered) - len(lowered.lstrip())
    negative = lowered[position : position + 1] == "-"
    if negative:
        position = _SEPARATOR.match(lowered, position + 1).end()
    if position == len(lowered):
        raise DurationError(text, position, "expected a number")

    total = Decimal(0)
    while position < len(lowered):
        part = _PART.match(lowered, position)
        if part is None:
            raise DurationError(text, position, "expected a number and a unit")
        total += Decimal(part["amount"]) * SPELLINGS[part["unit"]]
        position = _SEPARATOR.match(lowered, part.end()).end()

    span = timedelta(microseconds=int(total.to_integral_value()))
    return -span if negative else span
