"""Values of foreign documents, read with care: what is not of the expected shape is None, never a guess."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from lab.engine.llm.base import JSONObject

# Seconds since 1970 lie between 2001 and 2286; more digits are milliseconds, microseconds, nanoseconds.
_EPOCH_SECONDS = (1e9, 1e10)
_FIRST_YEAR = 2001
_LARGEST_COUNT = 2**53


def text(value: Any) -> str:
    """A text, "" for everything else."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> JSONObject:
    """An object, empty for everything else."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """A list, empty for everything else."""
    return value if isinstance(value, list) else []


def count(value: Any) -> int | None:
    """A whole number of 0 or more, also one written as 12.0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # A comparison first: a whole number of hundreds of digits is no float, and NaN lies between nothing.
    if not 0 <= value <= _LARGEST_COUNT or value != int(value):
        return None
    return int(value)


def number(value: Any) -> float | None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def seconds(value: Any) -> float | None:
    """A finite number that is not below 0."""
    found = number(value)
    return None if found is None or found < 0 else found


def dollars(value: Any) -> Decimal | None:
    """A finite amount of 0 or more, exactly as its shortest decimal form says."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        return None
    return found if found.is_finite() and found >= 0 else None


def moment(value: Any) -> dt.datetime | None:
    """A point in time from 2001 on: ISO 8601 (without a zone it is taken as UTC), or a number since 1970.

    None for earlier ones: programs write 0001-01-01 or 1970-01-01 where they know of no time.
    """
    if isinstance(value, str):
        found = _iso_moment(value.strip())
        return None if found is None or found.year < _FIRST_YEAR else found
    since = number(value)
    if since is None:
        return None
    while since >= _EPOCH_SECONDS[1]:
        since /= 1000
    if since < _EPOCH_SECONDS[0]:
        return None
    return dt.datetime.fromtimestamp(since, dt.UTC)


def _iso_moment(value: str) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(value)
    except ValueError:
        return None
    try:
        return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found.astimezone(dt.UTC)
    except OverflowError:
        return None


def without(source: Mapping[str, Any], *taken: str) -> JSONObject:
    """What is left of an object once the named fields are modelled: the part to keep raw."""
    return {name: value for name, value in source.items() if name not in taken}


def plain_text(content: Any) -> str:
    """The text of a message's content: a string, or a list of parts whose texts are joined by lines."""
    if isinstance(content, str):
        return content
    parts = (mapping(part) for part in items(content))
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
