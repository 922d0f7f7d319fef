"""What a reader leaves of an object: the part to keep raw, and never a key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from lab.engine.formats.trajectory import Note, NoteKind
from lab.engine.llm.base import JSONObject

_CREDENTIALS = (
    "api_key",
    "apikey",
    "access_key",
    "secret_key",
    "client_secret",
    "access_token",
    "auth_token",
    "password",
    "authorization",
    "secret_registry",
)
# What is nested deeper than this is no configuration.
_DEEPEST = 40


def unread(source: Mapping[str, Any], taken: Mapping[str, type | tuple[type, ...]]) -> JSONObject:
    """What is left of an object once the fields in `taken` are read.

    A field whose value is not of the type that is read there stays as well, so that it is shown as it stood.
    """
    return {
        name: value
        for name, value in source.items()
        if name not in taken or not (value is None or isinstance(value, taken[name]))
    }


def parted(config: Mapping[str, Any], of_the_run: Collection[str]) -> tuple[JSONObject, JSONObject]:
    """A configuration in two: what is the same in all its runs, and the fields that say something of one run.

    Runs of one configuration are runs of one harness, whatever they were called and wherever they worked.
    """
    shared = {name: value for name, value in config.items() if name not in of_the_run}
    return shared, {name: value for name, value in config.items() if name in of_the_run}


def without_credentials(value: Any, depth: int = 0) -> Any:
    """A configuration without the values of its keys and passwords, also where they are masked already."""
    if depth > _DEEPEST:
        return None
    if isinstance(value, dict):
        return {
            name: without_credentials(inner, depth + 1)
            for name, inner in value.items()
            if not name.lower().endswith(_CREDENTIALS)
        }
    if isinstance(value, list):
        return [without_credentials(inner, depth + 1) for inner in value]
    return value


def collapsed(notes: Iterable[Note]) -> tuple[Note, ...]:
    """The same remark on the same field of many places as one, at the first, with how many there are."""
    places: dict[tuple[NoteKind, str, str], list[str]] = {}
    for note in notes:
        field = re.sub(r"\d+", "*", note.field)
        places.setdefault((note.kind, note.detail, field), []).append(note.field)
    return tuple(
        Note(
            kind=kind,
            field=fields[0],
            detail=f"{detail} ({len(fields)} times)".strip() if len(fields) > 1 else detail,
        )
        for (kind, detail, _), fields in places.items()
    )
