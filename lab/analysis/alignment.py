"""Steps of several runs in rows: what the runs did alike stands in one row, whatever the numbers of the steps.

Pure and deterministic. A step is an `Action`; how a tool call becomes one is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import NamedTuple


class Sign(StrEnum):
    """How two steps in one row relate."""

    EQUAL = "="
    ALIKE = "≈"
    OTHER = "≠"


class Action(NamedTuple):
    """One step as it is aligned; all texts are in a normal form, so that equality means "the same".

    `kind`: read, edit, test, shell or final. `subject`: what is done to what, such as "edit src/a.py" or
    "pytest tests"; the same subject is the same action. `arguments`: everything that was asked, whole or as a
    digest. `result`: a digest of what came of it, "" while nobody knows. `reads` and `edits`: paths of files.
    """

    kind: str
    subject: str
    arguments: str
    result: str = ""
    reads: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()


class Alignment(NamedTuple):
    """Rows in order; a row has for each run the place of its step, counted from 0, or None for a gap.

    `places`: of a projection, where each row stood in the alignment it was taken from; else empty.
    """

    rows: tuple[tuple[int | None, ...], ...]
    places: tuple[int, ...] = ()


def align(runs: Sequence[Sequence[Action]]) -> Alignment:
    """The steps of `runs` in rows: what was done alike stands in one row."""
    return by_number([len(run) for run in runs])


def by_number(lengths: Sequence[int]) -> Alignment:
    """Steps of equal number in one row, for runs of `lengths` steps."""
    return Alignment(tuple(zip_longest(*(range(length) for length in lengths))))


def sign(a: Action, b: Action) -> Sign | None:
    """How two steps relate; None: they have nothing in common and never share a row."""
    if a.kind != b.kind:
        return None
    if a.subject != b.subject:
        return Sign.OTHER
    known = bool(a.result) or a.kind == "final"
    return Sign.EQUAL if known and (a.arguments, a.result) == (b.arguments, b.result) else Sign.ALIKE


def why(a: Action, b: Action) -> str:
    """What is the same and what is other in two steps, in a few words such as "same command, other output"."""
    found = sign(a, b)
    if found is None:
        return "different actions"
    if found is Sign.OTHER:
        return f"both {a.kind}, other target"
    return "same action"


def project(alignment: Alignment, columns: Sequence[int]) -> Alignment:
    """The rows as they are for `columns` alone: rows where none of them has a step are left out."""
    kept = [
        (place, tuple(row[column] for column in columns))
        for place, row in enumerate(alignment.rows)
        if any(row[column] is not None for column in columns)
    ]
    return Alignment(tuple(row for _, row in kept), tuple(place for place, _ in kept))
