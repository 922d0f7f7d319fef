"""Data from outside, before anything else looks at it: JSON's kinds alone, bounded in size and depth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

from lab.engine.harnesses.problems import Problem, error, path_of

LARGEST_CONFIG = 2_000_000
"""Characters of all texts, names and numbers of a harness together."""
_DEEPEST = 40
_MOST_VALUES = 200_000
_LARGEST_NUMBER = 2**63
_MOST_PROBLEMS = 20

Place = tuple[int | str, ...]


def plain_problems(raw: object) -> list[Problem]:
    """What in `raw` is no JSON, cannot be stored, or is too much of it."""
    found: list[Problem] = []
    characters = 0
    for values, (place, value) in enumerate(_walked(raw)):
        characters += _size(value)
        if characters > LARGEST_CONFIG or values > _MOST_VALUES:
            found.append(_too_large(raw))
            break
        reason = _wrong(value, len(place))
        if reason:
            found.append(error(path_of(place, raw) or "harness", value, reason))
        if len(found) == _MOST_PROBLEMS:
            break
    return found


def _walked(raw: object) -> Iterator[tuple[Place, object]]:
    """Every value with its place, outer ones first; nothing is looked into that is too deep."""
    waiting: list[tuple[Place, object]] = [((), raw)]
    while waiting:
        place, value = waiting.pop()
        yield place, value
        if len(place) >= _DEEPEST:
            continue
        if isinstance(value, dict):
            entries = [
                ((*place, key if isinstance(key, str) else repr(key)), one) for key, one in value.items()
            ]
            waiting.extend(reversed(entries))
        elif isinstance(value, list | tuple):
            waiting.extend(reversed([((*place, index), one) for index, one in enumerate(value)]))


def _size(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) for key in value if isinstance(key, str))
    return 8


def _too_large(raw: object) -> Problem:
    """The longest text of the harness stands for all of it: it is what has to become shorter."""
    longest: Place = ()
    characters = 0
    for place, value in _walked(raw):
        if isinstance(value, str) and len(value) > characters:
            longest, characters, text = place, len(value), value
    limit = f"a harness has at most {LARGEST_CONFIG:,} characters in all"
    if not characters:
        return Problem("harness", "", f"has too many values; {limit} and {_MOST_VALUES:,} values")
    return error(
        path_of(longest, raw) or "harness", text, f"has {characters:,} characters, and {limit}; shorten it"
    )


def _wrong(value: object, depth: int) -> str:
    if isinstance(value, str):
        return unstorable(value)
    # Decimal: a limit in dollars that was read already; checked as a limit.
    if value is None or isinstance(value, bool | Decimal):
        return ""
    if isinstance(value, int):
        return "" if abs(value) < _LARGEST_NUMBER else "is too large a number; write a smaller one"
    if isinstance(value, float):
        return "" if math.isfinite(value) else "is no finite number; write one, or leave it out"
    if isinstance(value, dict):
        return _wrong_mapping(value, depth)
    if isinstance(value, list | tuple):
        return _too_deep(depth)
    return f"is a {type(value).__name__}; only texts, numbers, true, false, lists and mappings are taken"


def _wrong_mapping(value: dict[object, object], depth: int) -> str:
    for key in value:
        if not isinstance(key, str):
            return f"has the name {key!r}, which is no text; put it in quotes"
        if unstorable(key):
            return f"has the name {key[:40]!r}, which {unstorable(key)}"
    return _too_deep(depth)


def _too_deep(depth: int) -> str:
    return f"is nested more than {_DEEPEST} levels deep; make it flatter" if depth >= _DEEPEST else ""


def unstorable(text: str) -> str:
    """Why a text cannot be kept or sent, "" when it can."""
    if "\0" in text:
        return "holds a NUL character, which cannot be stored; take it out"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which is no character; take it out"
    return ""
