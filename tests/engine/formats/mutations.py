"""Documents for the readers' tests: written to disk, and broken at random."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from lab.engine.formats.base import Document, Format, FormatError
from lab.engine.formats.trajectory import Found, FoundGrading, Problem, Trajectory

# What stands where something else should: other types, empty ones, and what no database or clock holds.
JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "no such thing",
    "\ud800",
    "\0",
    "2026-02-30T25:00:00",
    [],
    [None],
    [[]],
    {},
    {"": None},
    {"content": [1, "two", {"type": "text"}]},
)


def document_of(folder: Path, value: Any, name: str = "document.json") -> Document:
    """A document that holds one JSON value."""
    local = folder / name
    local.write_text(json.dumps(value))
    return Document(name, local)


def lines_of(folder: Path, values: Sequence[Any], name: str = "document.jsonl") -> Document:
    """A document with one JSON value a line; a text is a line as it stands."""
    local = folder / name
    lines = (value if isinstance(value, str) else json.dumps(value) for value in values)
    local.write_bytes("".join(f"{line}\n" for line in lines).encode(errors="surrogatepass"))
    return Document(name, local)


def found_by(reader: Format, *documents: Document) -> list[Found]:
    return list(reader.read(documents))


def only(found: list[Found]) -> Trajectory:
    """The one trajectory that was found, and nothing else."""
    (trajectory,) = found
    assert isinstance(trajectory, Trajectory)
    return trajectory


def survives(reader: Format, *documents: Document) -> bool:
    """Whether a reader takes documents that may be broken as the contract says: no other exception."""
    try:
        found = list(reader.read(documents))
    except FormatError:
        return True
    return all(isinstance(one, Trajectory | FoundGrading | Problem) for one in found)


def _places(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [before] if before else []
    if isinstance(value, dict):
        for name, inner in value.items():
            found += _places(inner, (*before, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += _places(inner, (*before, index))
    return found


@st.composite
def mutated(draw: st.DrawFn, value: Any) -> Any:
    """The value with one to six of its nodes deleted, replaced by junk, or doubled."""
    found = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 6))):
        places = _places(found)
        if not places:
            break
        *way, last = draw(st.sampled_from(places))
        holder = found
        for step in way:
            holder = holder[step]
        action = draw(st.sampled_from(("delete", "replace", "replace", "double")))
        if action == "delete":
            del holder[last]
        elif action == "replace":
            holder[last] = copy.deepcopy(draw(st.sampled_from(JUNK)))
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(holder[last]))
    return found
