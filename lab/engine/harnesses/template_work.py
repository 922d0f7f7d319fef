"""What rendering one template may cost: a budget that is charged before the work is done.

A unit is one character made, read or copied; an item of a list counts as ten. The budget is counted, not
timed, so that a template that is refused on a busy machine is refused on an idle one too. The clock is only
the second fence.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import cast

from jinja2.runtime import Context, Undefined

LARGEST_TEXT = 2_000_000
"""Characters of a rendered text, and of any text or list made on the way."""
ITEM = 10
PART = 5
"""Units of one part of a template (a name, an operator, …) each time it is evaluated in a loop."""
CALL = 50
"""Units of one call that a filter such as `map` or `sort` makes for an item."""
MOST_WORK = 20_000_000
MOST_SECONDS = 5.0
WORK = "~work"
"""Where the budget stands among a template's variables: no template can spell this name."""

_PRINTED_ONLY = (Decimal, date, timedelta, PurePath)


class RefusedError(Exception):
    """What a template asks for is forbidden, or too much. The text goes on from the template's excerpt."""


class Work:
    """What is left of one rendering's budget."""

    __slots__ = ("deadline", "left")

    def __init__(self) -> None:
        self.left = MOST_WORK
        self.deadline = time.monotonic() + MOST_SECONDS

    def charge(self, units: int) -> None:
        """Pay for work that is about to be done.

        Raises:
            RefusedError: the budget or the time is used up.
        """
        self.left -= units
        if self.left < 0 or time.monotonic() > self.deadline:
            raise RefusedError(
                f"takes too much work to render (at most {MOST_WORK:,} characters handled, "
                f"{MOST_SECONDS:g} seconds); loop over less, or build shorter texts"
            )

    def charge_result(self, units: int) -> None:
        """Pay for a text or a list of this size.

        Raises:
            RefusedError: it would be larger than one may be, or the budget is used up.
        """
        if units > LARGEST_TEXT:
            raise RefusedError(
                f"would make a text or a list of more than {LARGEST_TEXT:,} characters "
                f"(an item of a list counts as {ITEM}); cut it first, as in `text[:5000]`"
            )
        self.charge(units)

    def charge_value(self, value: object) -> None:
        """Pay for a finished value, whatever it is.

        Raises:
            RefusedError: it is no plain data, too large, or the budget is used up.
        """
        self.charge_result(len(value) if type(value) is str else size(value))

    def charge_reading(self, value: object) -> None:
        """Pay for looking through a value: a text of any length may be looked through, and costs an eighth.

        Raises:
            RefusedError: it is no plain data, a list too large to look through, or the budget is used up.
        """
        if isinstance(value, str):
            self.charge(1 + (len(value) >> 3))
        else:
            self.charge(size(value))


def insist(value: object) -> None:
    """Do nothing with a value that exists.

    Raises:
        UndefinedError: it does not.
    """
    if isinstance(value, Undefined):
        str(value)  # A strict undefined raises and says what is missing.


def work_of(context: Context) -> Work:
    """The budget of the rendering that a filter or an operator is called in."""
    return cast(Work, context.parent[WORK])


def size(value: object) -> int:
    """Characters in a value, however deep and however often the same list is in it; at most a little over
    `LARGEST_TEXT`, where counting stops.

    Raises:
        RefusedError: something in it is no plain data.
        UndefinedError: the value is undefined.
    """
    total = 0
    waiting = [value]
    while waiting and total <= LARGEST_TEXT:
        item = waiting.pop()
        if isinstance(item, (list, tuple, set, frozenset)):
            total += ITEM * (1 + len(item))
            if total <= LARGEST_TEXT:
                waiting.extend(item)
        elif isinstance(item, Mapping):
            total += 2 * ITEM * (1 + len(item))
            if total <= LARGEST_TEXT:
                waiting.extend(item.keys())
                waiting.extend(item.values())
        else:
            total += _size_of_one(item)
    return total


def _size_of_one(value: object) -> int:
    if isinstance(value, str):
        return 1 + len(value)
    if isinstance(value, int):
        return 1 + (value.bit_length() >> 2)
    if value is None or isinstance(value, (float, *_PRINTED_ONLY)):
        return ITEM
    if isinstance(value, range):
        return ITEM * (1 + len(value))
    insist(value)
    raise RefusedError(
        "uses a function, or something else that is no text, number, list or mapping, as a value; "
        "call it with (), or leave it out"
    )
