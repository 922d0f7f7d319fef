"""What in a harness's texts a reader would not see, or a model may not be told as it stands."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.problems import Problem, path_of, warning

# Unicode's bidirectional controls: they show nothing.
_CONTROL = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MOST_WARNINGS = 20
# Of a JSON Schema: what holds data, and no schema.
_DATA = frozenset({"const", "default", "enum", "example", "examples"})

_Place = tuple[int | str, ...]


def text_warnings(config: HarnessConfig) -> list[Problem]:
    """Control characters of direction by name and position, at most 20 texts that hold some, and references
    in the schemas of tools."""
    raw = config.model_dump(mode="json", exclude={"source"})
    hidden = [
        warning(path_of(place, raw), _around(text), f"holds {_named(text)}{_CONSEQUENCE}")
        for place, text in _texts(raw, ())
        if _CONTROL.search(text)
    ]
    return [*hidden[:_MOST_WARNINGS], *_references(config)]


_CONSEQUENCE = (
    ": it shows nothing and turns the text around it, so people may read another text than a model is sent; "
    "take it out unless it is meant"
)


def _texts(value: object, place: _Place) -> Iterator[tuple[_Place, str]]:
    """Every text with its place, names of a mapping's entries at that of the mapping."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield place, key
            yield from _texts(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*place, index))


def _named(text: str) -> str:
    """The first control character with its name and place, and how many follow."""
    found = list(_CONTROL.finditer(text))
    first = found[0]
    line = text.count("\n", 0, first.start()) + 1
    column = first.start() - text.rfind("\n", 0, first.start())
    place = f"line {line}, character {column}" if "\n" in text else f"character {column}"
    more = f" and {len(found) - 1:,} more such" if len(found) > 1 else ""
    return f"{unicodedata.name(first[0])} (U+{ord(first[0]):04X}) at {place}{more}"


def _around(text: str) -> str:
    """What stands around the first control character, which an excerpt writes as an escape."""
    first = _CONTROL.search(text)
    at = first.start() if first else 0
    return text[max(0, at - 20) : at + 20]


def _references(config: HarnessConfig) -> Iterator[Problem]:
    for tool in config.tools:
        for place, target in _referred(tool.parameters, ()):
            yield warning(
                ".".join(["tools", tool.name, "parameters", *map(str, place)]),
                target,
                "is a reference, which is sent as it stands; many servers and models do not follow one, so "
                "write out what it refers to",
            )
            # One is enough to know.
            break


def _referred(schema: object, place: _Place) -> Iterator[tuple[_Place, str]]:
    """The references in a schema; a property of that name is none."""
    if isinstance(schema, dict):
        for key, inner in schema.items():
            if key == "$ref" and isinstance(inner, str):
                yield (*place, key), inner
            elif key not in _DATA:
                yield from _referred(inner, (*place, key))
    elif isinstance(schema, list):
        for index, inner in enumerate(schema, start=1):
            yield from _referred(inner, (*place, index))
