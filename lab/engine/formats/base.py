"""What a format is: how it is told from its content, and how it is read.

Everything is read from files on the local disk: archives are unpacked before (`archives`). A reader yields
what it finds one by one, holds one trajectory in memory at a time, and never stops at a part that is broken:
that is a `Problem` with its place, and the next part is read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from lab.engine.errors import LabError
from lab.engine.formats.trajectory import Found
from lab.engine.llm.base import JSONObject

# A JSON document is parsed whole; what is longer is no trajectory that a person could look at.
MOST_DOCUMENT_BYTES = 512 * 1024 * 1024
# One line of a JSONL file, which is parsed by itself.
MOST_LINE_BYTES = 256 * 1024 * 1024
LINES_PROBED = 40


class FormatError(LabError):
    """A document cannot be read at all; the text names the file, what is wrong, and the way out."""


@dataclass(frozen=True)
class Document:
    """One file of what was given. `path` is its place there, with `/` between folders, for people and
    for siblings; `local` where it lies now."""

    path: str
    local: Path

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    @property
    def folder(self) -> str:
        """The path of the folder it stands in, "" at the top."""
        return self.path.rpartition("/")[0]

    def size(self) -> int:
        return self.local.stat().st_size

    def sha256(self) -> str:
        with self.local.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class Probe:
    """What detection looks at, made once for each document.

    `kind`: `json` with the whole `value`; `jsonl` with the objects of its first lines in `lines`; `zip` with
    `members`, the names inside; `csv`, `yaml` or `binary` are told by nobody here.
    """

    kind: Literal["json", "jsonl", "zip", "other"]
    value: Any = None
    lines: tuple[Any, ...] = ()
    members: tuple[str, ...] = ()

    @property
    def root(self) -> JSONObject:
        """The document's object; empty where it is none."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def objects(self) -> tuple[JSONObject, ...]:
        """The first lines that are objects."""
        return tuple(line for line in self.lines if isinstance(line, dict))


class Format(Protocol):
    """One importer. `name` is what pages and commands call it, `title` a few words for people."""

    name: str
    title: str

    def recognises(self, probe: Probe) -> bool:
        """Whether the content is of this format: never the file's name."""

    def grouping(self, document: Document, probe: Probe) -> str:
        """Documents with the same key are read together (a session, its subagents)."""

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """Everything in these documents, in a stable order.

        Raises:
            FormatError: nothing of it can be read.
        """


def parsed(text: str) -> Any:
    """A JSON text's value; NaN and the infinities, which are no JSON, as texts of these names.

    A number that is too large for a float, or has more digits than Python converts, is a text as well.

    Raises:
        json.JSONDecodeError: no JSON.
        RecursionError: nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=str, parse_float=_fraction)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, parse_constant=str, parse_float=_fraction, parse_int=_whole_number)


def _fraction(digits: str) -> float | str:
    found = float(digits)
    return found if math.isfinite(found) else digits


def _whole_number(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits


def load_json(document: Document) -> Any:
    """
    Raises:
        FormatError: not JSON, not UTF-8, nested too deeply, or too long to be parsed at once.
    """
    size = document.size()
    if size > MOST_DOCUMENT_BYTES:
        raise FormatError(
            f"{document.path} is {size:,} bytes, more than the {MOST_DOCUMENT_BYTES:,} of one JSON document; "
            "split it, or give it as JSON lines"
        )
    try:
        return parsed(document.local.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FormatError(f"{document.path} is not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"{document.path}, line {error.lineno}, is not JSON: {error.msg}") from None
    except RecursionError:
        raise FormatError(f"{document.path} is nested too deeply to be read") from None


@dataclass(frozen=True)
class Line:
    """A line of a JSONL file, counted from 1. `value` None where `problem` says why there is none."""

    number: int
    value: Any
    problem: str
    sha256: str

    @property
    def place(self) -> str:
        return f"line {self.number}"


def json_lines(document: Document) -> Iterator[Line]:
    """Each line that is not blank, parsed by itself: one that is broken is a line with a problem."""
    with document.local.open("rb") as stream:
        number = 0
        while raw := stream.readline(MOST_LINE_BYTES + 1):
            number += 1
            if len(raw) > MOST_LINE_BYTES:
                _skip_rest_of_line(stream)
                yield Line(number, None, f"is longer than {MOST_LINE_BYTES:,} bytes", "")
                continue
            text = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if text.strip():
                yield _line(number, text)


def _skip_rest_of_line(stream: Any) -> None:
    while (more := stream.readline(MOST_LINE_BYTES)) and not more.endswith(b"\n"):
        pass


def _line(number: int, raw: bytes) -> Line:
    digest = hashlib.sha256(raw.strip()).hexdigest()
    try:
        return Line(number, parsed(raw.decode()), "", digest)
    except UnicodeDecodeError as error:
        return Line(number, None, f"is not UTF-8 (byte {error.start})", digest)
    except json.JSONDecodeError as error:
        return Line(number, None, f"is not JSON: {error.msg} (column {error.colno})", digest)
    except RecursionError:
        return Line(number, None, "is nested too deeply", digest)
