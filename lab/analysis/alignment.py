"""Steps of several runs in rows: what the runs did alike stands in one row, whatever the numbers of the steps.

Pure and deterministic. A step is an `Action`; how a tool call becomes one is not known here.
"""

from __future__ import annotations

from enum import StrEnum
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
    """Rows in order; a row has for each run the place of its step, counted from 0, or None for a gap."""

    rows: tuple[tuple[int | None, ...], ...]
