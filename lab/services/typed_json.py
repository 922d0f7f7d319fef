"""JSON that people type: strictly what requests and the database can hold."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from lab.engine.llm.base import JSONObject

# The database refuses what is nested far deeper; nothing that is typed needs as much.
_DEEPEST = 100


def read(text: str) -> Any:
    """What the JSON says, each name of an object once, each number finite.

    Raises:
        ValueError: it is none, in words; `json.JSONDecodeError` where a place in it can be named.
    """
    try:
        found = json.loads(
            text, object_pairs_hook=_once_each, parse_constant=_no_constant, parse_float=_finite
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    _check_depth(found)
    return found


def _once_each(pairs: Sequence[tuple[str, Any]]) -> JSONObject:
    found: JSONObject = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"it has the name “{name[:40]}” twice; keep one")
        found[name] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON; write one")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large; write a smaller one")
    return number


def _check_depth(found: Any) -> None:
    level = [found]
    for _ in range(_DEEPEST):
        level = [part for value in level for part in _parts(value)]
        if not level:
            return
    raise ValueError("it is nested too deep")


def _parts(value: Any) -> list[Any]:
    """What is in an object or a list; nothing in a plain value."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
