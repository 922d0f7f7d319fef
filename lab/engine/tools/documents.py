"""Text files as editors take them: lines that end with a line feed, and every byte back as it was.

Bytes that are no UTF-8 are kept as lone surrogates while a text is worked on. A file whose lines all end with
CR LF is worked on without the CR, so that what a model writes gets the file's own line ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lab.engine.sandboxes.base import OUTPUT_HEAD_BYTES
from lab.engine.tools.base import ToolContext

# Larger files are for commands, not for an editor that keeps the whole text.
LARGEST_BYTES = 10_000_000
# Lines shown around an edit, above and below.
AROUND = 4
# Places of an ambiguous text that are named.
PLACES = 20


class EditorError(Exception):
    """What the model is told instead of what it asked an editor for."""


class BrokenOffError(Exception):
    """The lab stopped a command of the tool's own: its output is no answer."""


@dataclass(frozen=True)
class Document:
    """A text file: `data` as it is, `text` as it is worked on."""

    data: bytes
    text: str
    carriage_returns: bool

    @property
    def lines(self) -> list[str]:
        return lines_of(self.text)

    def encoded(self, text: str) -> bytes:
        """`text` as the bytes of this file."""
        if self.carriage_returns:
            text = text.replace("\n", "\r\n")
        return text.encode("utf-8", "surrogateescape")


class Edit(NamedTuple):
    """A changed text, and the numbers (from 0) of the first and last line that are new."""

    text: str
    first: int
    last: int


def kind_of(context: ToolContext, path: str) -> Literal["folder", "file", "missing"]:
    """What stands at `path`: a folder, anything else, or nothing.

    Raises:
        OSError: a folder above it is closed, or links go round in a circle.
    """
    try:
        context.sandbox.read(path, limit=0)
    except IsADirectoryError:
        return "folder"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except ValueError:
        return "file"
    return "file"


def read_document(context: ToolContext, path: str, shown: str) -> Document:
    """The text file at `path`.

    Raises:
        EditorError: it is binary, larger than 10 MB, or no regular file.
        OSError: it cannot be read.
    """
    try:
        data = context.sandbox.read(path, limit=LARGEST_BYTES)
    except ValueError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise EditorError(f"{shown} {reason}; use a command to look into it.") from None
    if b"\0" in data:
        raise EditorError(f"{shown} is a binary file; use a command to look into it.")
    return document_of(data)


def document_of(data: bytes) -> Document:
    ends = data.count(b"\r\n")
    carriage_returns = ends > 0 and ends == data.count(b"\n")
    text = data.decode("utf-8", "surrogateescape")
    return Document(data, text.replace("\r\n", "\n") if carriage_returns else text, carriage_returns)


def lines_of(text: str) -> list[str]:
    """The lines without their ends; an end of line at the very end begins no further one."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def written(text: str) -> str:
    """What a model wrote, as text that can stand in a file: a lone surrogate would be no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def displayed(text: str) -> str:
    """A text, or a part of one, as it is shown."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Occurrences(NamedTuple):
    """A text as a file writes it, how often it is there, and the first places (characters from 0)."""

    text: str
    times: int
    places: list[int]


def occurrences(document: Document, old: str) -> Occurrences:
    """Where `old` stands in the file; it must not be empty."""
    if document.carriage_returns:
        old = old.replace("\r\n", "\n")
    if old not in document.text and "\r\n" in document.text:
        # Line ends are mixed, and they are not shown: those around here may be the other ones.
        old = old.replace("\r\n", "\n").replace("\n", "\r\n")
    places: list[int] = []
    at = document.text.find(old)
    while at >= 0 and len(places) < PLACES:
        places.append(at)
        at = document.text.find(old, at + len(old))
    return Occurrences(old, document.text.count(old), places)


def replaced(document: Document, found: Occurrences, new: str) -> Edit:
    """The text with `new` in the first place of what was found."""
    old, place = found.text, found.places[0]
    if document.carriage_returns or "\r\n" in old:
        new = new.replace("\r\n", "\n")
    if not document.carriage_returns and "\r\n" in old:
        new = new.replace("\n", "\r\n")
    first = document.text.count("\n", 0, place)
    text = document.text[:place] + new + document.text[place + len(old) :]
    return Edit(text, first, first + new.count("\n"))


def inserted(document: Document, new: str, after: int) -> Edit:
    """The text with `new` as lines of its own after so many lines. A line end at the end of `new` is a
    further, empty line."""
    if document.carriage_returns:
        new = new.replace("\r\n", "\n")
    lines, added = document.text.split("\n"), new.split("\n")
    text = "\n".join([*lines[:after], *added, *lines[after:]])
    return Edit(text, after, after + len(added) - 1)


def numbered(lines: Sequence[str], first: int = 1, *, separator: str = "\t") -> str:
    """The lines with their numbers, as `cat -n` writes them. No more than are kept of an observation: a file
    of nothing but line ends has millions."""
    rows: list[str] = []
    room = OUTPUT_HEAD_BYTES
    for number, line in enumerate(lines, start=first):
        rows.append(f"{number:6}{separator}{displayed(line.removesuffix(chr(13)))}")
        room -= len(rows[-1])
        if room < 0 and len(rows) < len(lines):
            rows.append(f"[{len(lines) - len(rows)} more lines]")
            break
    return "\n".join(rows)


def snippet(edit: Edit) -> str:
    """The numbered lines of an edit, and four above and below."""
    first = max(edit.first - AROUND, 0)
    return numbered(lines_of(edit.text)[first : edit.last + AROUND + 1], first + 1)
