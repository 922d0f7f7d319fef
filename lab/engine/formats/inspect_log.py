"""Logs of Inspect, `.eval` and JSON: a trajectory for each sample and epoch.

A `.eval` is a ZIP file with one member a sample, so that a log of any length is read a sample at a time.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

from lab.engine.formats import zip_members
from lab.engine.formats.archive_streams import is_inspect_log
from lab.engine.formats.base import MOST_DOCUMENT_BYTES, Document, FormatError, Probe, load_json, parsed
from lab.engine.formats.inspect_sample import EvalRead, read_eval, read_sample
from lab.engine.formats.reading import items, mapping
from lab.engine.formats.trajectory import Found, Origin, Problem
from lab.engine.llm.base import JSONObject

_VERSIONS = (1, 2)
_HEADERS = ("header.json", "_journal/start.json")


class InspectLog:
    """The importer. A log that is still being written holds its finished samples."""

    name = "inspect"
    title = "Inspect log (.eval, JSON)"

    def recognises(self, probe: Probe) -> bool:
        if probe.kind == "zip":
            return is_inspect_log(probe.members)
        root = probe.root
        return root.get("version") in _VERSIONS and "status" in root and isinstance(root.get("eval"), dict)

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: damaged, without a header, or no log of Inspect.
        """
        for document in documents:
            with document.local.open("rb") as stream:
                packed = stream.read(4) == b"PK\x03\x04"
            yield from _read_zip(document) if packed else _read_json(document)


def _read_json(document: Document) -> Iterator[Found]:
    root = mapping(load_json(document))
    header = read_eval(root)
    if header is None:
        raise FormatError(f"{document.path} is no log of Inspect: it has no object “eval”")
    for number, sample in enumerate(items(root.get("samples")), start=1):
        place = f"sample {number}"
        if not isinstance(sample, dict):
            yield Problem(
                file=document.path, place=place, message=f"is a {type(sample).__name__} and no sample"
            )
            continue
        yield _sample(header, sample, document, place, _digest(sample))


def _digest(sample: JSONObject) -> str:
    try:
        return hashlib.sha256(json.dumps(sample, sort_keys=True).encode()).hexdigest()
    except RecursionError:
        return ""


def _read_zip(document: Document) -> Iterator[Found]:
    try:
        with zip_members.opened(document.local) as archive:
            members: dict[str, zipfile.ZipInfo] = {}
            for member in archive.infolist():
                if member.filename in members and _is_sample(member.filename):
                    yield Problem(
                        file=document.path,
                        place=member.filename,
                        message="stands there twice: the last one is read",
                    )
                members[member.filename] = member
            yield from _read_members(archive, members, document)
    except zip_members.BrokenZipError as error:
        raise FormatError(f"{document.path} cannot be read: {error}; copy it again") from None


def _is_sample(name: str) -> bool:
    return name.startswith("samples/") and name.endswith(".json")


def _read_members(
    archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], document: Document
) -> Iterator[Found]:
    header = None
    for name in _HEADERS:
        if header is None and name in members:
            value = _value(archive, members[name], document)
            if isinstance(value, Problem):
                yield value
            else:
                header = read_eval(mapping(value[0]))
    if header is None:
        raise FormatError(
            f"{document.path} has neither a readable header.json nor _journal/start.json, which say what was "
            "run; “inspect log recover” may make a whole log of it"
        )
    for name, member in members.items():
        if not _is_sample(name):
            continue
        value = _value(archive, member, document)
        if isinstance(value, Problem):
            yield value
        elif not isinstance(value[0], dict):
            yield Problem(
                file=document.path, place=name, message=f"is a {type(value[0]).__name__} and no sample"
            )
        else:
            yield _sample(header, value[0], document, name, value[1])


def _value(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, document: Document
) -> tuple[Any, str] | Problem:
    """A member's JSON value and the digest of its bytes."""
    try:
        data = zip_members.content(archive, member, most=MOST_DOCUMENT_BYTES)
        return parsed(data.decode()), hashlib.sha256(data).hexdigest()
    except zip_members.BrokenZipError as error:
        return Problem(file=document.path, place=member.filename, message=str(error))
    except UnicodeDecodeError as error:
        return Problem(
            file=document.path, place=member.filename, message=f"is not UTF-8 (byte {error.start})"
        )
    except RecursionError:
        return Problem(file=document.path, place=member.filename, message="is nested too deeply")
    except ValueError as error:
        return Problem(file=document.path, place=member.filename, message=f"is not JSON: {error}")


def _sample(header: EvalRead, sample: JSONObject, document: Document, place: str, digest: str) -> Found:
    origin = Origin(format=header.format, file=document.path, place=place, sha256=digest)
    try:
        return read_sample(header, sample, origin)
    except RecursionError:
        return Problem(file=document.path, place=place, message="is nested too deeply")
