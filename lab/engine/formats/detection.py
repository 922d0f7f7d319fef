"""Tells a document's format from its content. The order matters: the more particular comes first."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Sequence
from typing import Any

from lab.engine.formats.base import (
    LINES_PROBED,
    MOST_DOCUMENT_BYTES,
    Document,
    Format,
    FormatError,
    Probe,
    load_json,
    parsed,
)

_HEAD_BYTES = 8 * 1024 * 1024
# How JSON of objects and lists begins, and a log's "[INFO]" does not.
_BEGINS_AS_JSON = re.compile(rb"(\xef\xbb\xbf)?\s*(\{\s*\"|\[\s*[\[{])")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def probe(document: Document) -> Probe:
    """What the content is, before it is known whose.

    Raises:
        OSError: the file cannot be read.
    """
    with document.local.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if head.startswith(b"PK\x03\x04"):
        return _zip_probe(document)
    stripped = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if stripped[:1] not in (b"{", b"["):
        return Probe("other")
    lines = _first_lines(stripped, whole=document.size() <= _HEAD_BYTES)
    # Two values in a row are lines; one value may be a document or the only line of a file.
    if len(lines) > 1 and all(isinstance(line, (dict, list)) for line in lines):
        return Probe("jsonl", lines=tuple(lines))
    if document.size() > MOST_DOCUMENT_BYTES:
        return Probe("jsonl", lines=tuple(lines)) if lines else Probe("other")
    try:
        value = load_json(document)
    except FormatError:
        return Probe("jsonl", lines=tuple(lines)) if lines else Probe("other")
    return Probe("json", value=value, lines=tuple(lines))


def why_unreadable(document: Document) -> str:
    """What is wrong with a file of no format that was surely meant to be one; "" where that cannot be said.

    Raises:
        OSError: the file cannot be read.
    """
    with document.local.open("rb") as stream:
        head = stream.read(4096)
    if not head:
        return "is empty"
    if head.startswith(_UTF16):
        return "is UTF-16 text; save it as UTF-8 and import it again"
    if not _BEGINS_AS_JSON.match(head):
        return ""
    try:
        load_json(document)
    except FormatError as error:
        return str(error).removeprefix(document.path).lstrip(", ")
    return ""


def _zip_probe(document: Document) -> Probe:
    try:
        with zipfile.ZipFile(document.local) as archive:
            return Probe("zip", members=tuple(archive.namelist()))
    except (zipfile.BadZipFile, OSError, RuntimeError):
        return Probe("other")


def _first_lines(head: bytes, *, whole: bool) -> list[Any]:
    """The values of the first lines, if most are values by themselves: broken ones are passed over."""
    found: list[Any] = []
    broken = 0
    lines = head.split(b"\n")
    for line in lines if whole else lines[:-1]:
        if not line.strip():
            continue
        if len(found) + broken >= LINES_PROBED:
            break
        try:
            value = parsed(line.decode())
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            broken += 1
            continue
        found.append(value)
    # Of an indented document hardly any line is a value.
    return found if len(found) > broken else []


def recognise(formats: Sequence[Format], found: Probe) -> Format | None:
    """The first format that knows this content, None for none."""
    return next((one for one in formats if one.recognises(found)), None)
