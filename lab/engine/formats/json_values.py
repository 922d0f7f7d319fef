"""Documents that hold one JSON value each, or one a line, read the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lab.engine.formats.base import MOST_LINE_BYTES, Document, FormatError, Line, json_lines, load_json
from lab.engine.formats.trajectory import Found, Problem


@dataclass(frozen=True)
class Value:
    """`place` is "" where it is all of the document. `value` None where `problem` says why there is none."""

    value: Any
    place: str
    sha256: str
    problem: str = ""


def values_in(document: Document) -> Iterator[Value]:
    """
    Raises:
        FormatError: the document is no JSON value, and none of its lines is one.
    """
    if _has_lines(document):
        yield from _line_values(document)
        return
    try:
        value = load_json(document)
    except FormatError:
        if not any(isinstance(line.value, dict) for line in json_lines(document)):
            raise
        yield from _line_values(document)
        return
    yield Value(value, "", document.sha256())


def _has_lines(document: Document) -> bool:
    """Whether the first line is an object by itself and another line follows."""
    with document.local.open("rb") as stream:
        first = stream.readline(MOST_LINE_BYTES + 1)
        if not first.endswith(b"\n") or not stream.read(1024).strip():
            return False
    line = next(json_lines(document), None)
    return line is not None and isinstance(line.value, dict)


def _line_values(document: Document) -> Iterator[Value]:
    for line in json_lines(document):
        yield _line_value(line)


def _line_value(line: Line) -> Value:
    return Value(line.value, line.place, line.sha256, line.problem)


def found_in(
    documents: Sequence[Document],
    wanted: Callable[[Any], bool],
    make: Callable[[Document, Value], Found],
    *,
    otherwise: str,
) -> Iterator[Found]:
    """What `make` reads from each value that is wanted; the others are problems that say `otherwise`.

    Raises:
        FormatError: a document holds no JSON at all.
    """
    for document in documents:
        for value in values_in(document):
            if value.problem or not wanted(value.value):
                yield Problem(file=document.path, place=value.place, message=value.problem or otherwise)
                continue
            try:
                yield make(document, value)
            except RecursionError:
                yield Problem(file=document.path, place=value.place, message="is nested too deeply")
