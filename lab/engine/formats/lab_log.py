"""The lab's own format: runs' logs as they are, a line a record, for another lab or for keeping.

A line `{"format": "trajectory-lab", …}` begins the file, a line `{"run": {…}}` each run: what the lab calls
its parts and the log does not say, and how many records follow. Texts are whole and within their records.
Numbers of rows, which differ from lab to lab, are not there, so that what was taken over is written the same
again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from pydantic import ValidationError

from lab.engine.events import SCHEMA_VERSION, Record, read_record
from lab.engine.formats.base import Document, Line, Probe, json_lines
from lab.engine.formats.exported import Shape, written
from lab.engine.formats.from_events import LAB_FORMAT
from lab.engine.formats.reading import mapping, text
from lab.engine.formats.trajectory import Found, Origin, Problem, RecordedLog
from lab.engine.llm.base import JSONObject, canonical_sha256

VERSION = 1
HEADER: JSONObject = {"format": LAB_FORMAT, "version": VERSION, "event_schema": SCHEMA_VERSION}


class LabLog:
    """Reads and writes logs as they are."""

    name = LAB_FORMAT
    title = "Trajectory Lab log"
    shape: Shape = "one"
    ending = ".lab.jsonl"
    lost = (
        "the contents of changed files are not there, only which changed: a run that was taken over from "
        "here is complete to look at, and cannot be gone on with",
        "what looks like a key is masked, and what operators alone may see is there only in what they export",
    )

    def pieces(self, logs: Iterable[tuple[JSONObject, Iterable[Record]]]) -> Iterator[bytes]:
        """The file in pieces. Each log is what the lab calls the run's parts (`records`: how many follow)."""
        yield _line(HEADER | {"notes": list(self.lost)})
        for facts, records in logs:
            yield _line({"run": facts})
            for record in records:
                # A lone surrogate, which is no UTF-8, as the escape that JSON has for it.
                yield (record.to_line() + "\n").encode("utf-8", "backslashreplace")

    def recognises(self, probe: Probe) -> bool:
        first = probe.objects[:1] or (probe.root,)
        return text(first[0].get("format")) == LAB_FORMAT

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """One log a run, as it was written; one with a broken line is a problem, and the next is read."""
        for document in documents:
            yield from _Reader(document).read()


def _line(fields: JSONObject) -> bytes:
    return (written(fields) + "\n").encode()


class _Reader:
    """One file, run by run: the records of one are in memory."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def read(self) -> Iterator[Found]:
        lines = json_lines(self._document)
        header = next(lines, None)
        if header is None:
            return
        version = mapping(header.value).get("version")
        if version != VERSION:
            message = f"is of version {version!r}; this lab reads {VERSION}: use a newer release of it"
            yield self._problem(header, message)
            return
        begun: Line | None = None
        following: list[Line] = []
        for line in lines:
            if "run" in mapping(line.value):
                if begun is not None:
                    yield self._log(begun, following)
                begun, following = line, []
            elif begun is None:
                yield self._problem(line, "stands before the first line of a run")
            else:
                following.append(line)
        if begun is not None:
            yield self._log(begun, following)

    def _log(self, begun: Line, lines: list[Line]) -> Found:
        facts = mapping(mapping(begun.value).get("run"))
        if facts.get("records") != len(lines):
            wanted = f"has {len(lines)} of {facts.get('records')!r} records"
            return self._problem(begun, f"{wanted}: the file is not whole; export the run again")
        records: list[Record] = []
        for number, line in enumerate(lines, start=1):
            if line.problem:
                return self._problem(line, line.problem)
            try:
                record = read_record(mapping(line.value))
            except (ValidationError, KeyError, TypeError) as error:
                return self._problem(line, f"is no record of a log: {_first(error)}")
            if record.seq != number:
                return self._problem(line, f"is record {record.seq} where {number} belongs")
            records.append(record)
        return RecordedLog(
            origin=Origin(
                format=f"{LAB_FORMAT}-{VERSION}",
                file=self._document.path,
                place=begun.place,
                sha256=canonical_sha256([line.sha256 for line in itertools.chain([begun], lines)]),
            ),
            facts=facts,
            records=tuple(records),
        )

    def _problem(self, line: Line, message: str) -> Problem:
        return Problem(file=self._document.path, place=line.place, message=message)


def _first(error: Exception) -> str:
    """The first line of what is wrong."""
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{'.'.join(map(str, found['loc']))}: {found['msg']}"
    return str(error)
