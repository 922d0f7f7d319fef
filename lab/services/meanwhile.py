"""Two people who edit one thing: who saves second is told once what the first changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lab.engine.limits import as_typed
from lab.services.errors import FieldErrors

FIELD = "meanwhile"


def stamp(values: Mapping[str, object]) -> str:
    """What a form holds of these values while it is open, so that `check` knows what was seen in it."""
    return json.dumps(values, sort_keys=True, default=str)


def check(
    seen: str,
    now: Mapping[str, object],
    wanted: Mapping[str, object],
    *,
    secret: frozenset[str] = frozenset(),
) -> None:
    """Refuse to undo what was changed since `seen`, a `stamp`; "" is none, and checks nothing.

    `wanted` are the values to be stored; `secret` names those that are not to be shown.

    Raises:
        FieldErrors: "meanwhile": each value that would be undone, with what it is now.
    """
    before = _read(seen)
    current, new = _read(stamp(now)), _read(stamp(wanted))
    undone = [
        name
        for name, value in before.items()
        if name in new and name in current and value != current[name] != new[name]
    ]
    if undone:
        told = "; ".join(_told(name, before[name], current[name], name in secret) for name in undone)
        text = f"This was changed elsewhere since it was opened here: {told}. What is written below is kept: "
        raise FieldErrors({FIELD: f"{text}take over what shall stay, and save again"})


def _told(name: str, before: object, now: object, secret: bool) -> str:
    words = name.replace("_", " ")
    return f"{words} changed" if secret else f"{words} is {_shown(now)} now, and was {_shown(before)}"


def _shown(value: object) -> str:
    if value is None or value == "" or value == {}:
        return "empty"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"“{as_typed(text)}”"


def _read(seen: str) -> dict[str, Any]:
    try:
        found = json.loads(seen) if seen else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
