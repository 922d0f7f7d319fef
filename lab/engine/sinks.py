"""Where a run's events go. The runner knows this protocol; the database's sink lives with the worker."""

from __future__ import annotations

import datetime as dt
import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from lab.engine.errors import InvalidValueError
from lab.engine.events import Event, Record, read_record


class Sink(Protocol):
    """Takes events in order. What `append` returned may still be in a batch; `flush` makes it durable.

    Raises:
        LeaseLostError: from any method, when another worker child owns the attempt; nothing was written.
    """

    def append(self, event: Event) -> Record:
        """Give the event the next number and keep it."""

    def append_all(self, events: Sequence[Event]) -> list[Record]:
        """As `append` for each; after a crash either all of them are in the log or none."""

    def draft(self, *, step: int, content: str, reasoning: str, calls: str, characters: int) -> None:
        """Show text that is still streaming. Overwritten by the next draft, gone with the next event.

        `calls` is what has arrived of tool calls; `characters` counts everything received for this turn.
        Cheap to call for each delta: the sink decides how often it writes.
        """

    def put_blob(self, data: bytes) -> str:
        """Keep bytes beside the log; returns their SHA-256."""

    def flush(self) -> None:
        """Return when everything appended is durable."""


class Emit(Protocol):
    """Appends events to the run's log. Several at once are one group: after a crash all are there or none."""

    def __call__(self, *events: Event) -> object: ...


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class ListSink:
    """Keeps records in memory: for tests and for reading a run back."""

    def __init__(
        self, *, attempt: int = 1, first_seq: int = 1, clock: Callable[[], dt.datetime] = now
    ) -> None:
        self.records: list[Record] = []
        self.blobs: dict[str, bytes] = {}
        self.drafts: list[str] = []
        self._attempt = attempt
        self._next = first_seq
        self._clock = clock

    def append(self, event: Event) -> Record:
        record = Record(seq=self._next, attempt=self._attempt, at=self._clock(), event=event)
        self._next += 1
        self.records.append(record)
        return record

    def append_all(self, events: Sequence[Event]) -> list[Record]:
        return [self.append(event) for event in events]

    def emit(self, *events: Event) -> list[Record]:
        """`append_all`, in the form of `Emit`."""
        return self.append_all(events)

    def draft(self, *, step: int, content: str, reasoning: str, calls: str, characters: int) -> None:
        self.drafts.append(content)

    def put_blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    def flush(self) -> None:
        return

    @property
    def events(self) -> list[Event]:
        return [record.event for record in self.records]


class JSONLSink(ListSink):
    """Writes one line a record to a file, each group at once, and blobs into a folder beside it.

    `first_seq` is the number of the first new record, for a log that is continued.

    Raises:
        OSError: the file cannot be written, or another process is writing it (BlockingIOError).
    """

    def __init__(self, path: Path, *, attempt: int = 1, first_seq: int = 1) -> None:
        super().__init__(attempt=attempt, first_seq=first_seq)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: a group is one write to the system, which the death of this process cannot part.
        self._file = path.open("ab", buffering=0)
        # Dropped by the system when this process ends, however it ends.
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._blob_folder = blob_folder(path)

    def append(self, event: Event) -> Record:
        return self.append_all([event])[0]

    def append_all(self, events: Sequence[Event]) -> list[Record]:
        records = [super(JSONLSink, self).append(event) for event in events]
        # Text is cleaned where it enters the lab; a surrogate that came through must not end the run here.
        lines = "".join(f"{record.to_line()}\n" for record in records).encode("utf-8", "replace")
        size = self._file.seek(0, os.SEEK_END)
        try:
            written = self._file.write(lines)
            if written != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)
        except OSError:
            # The disk is full: half a group is none.
            self._file.truncate(size)
            del self.records[-len(records) :]
            self._next -= len(records)
            raise
        return records

    def put_blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self._blob_folder.mkdir(exist_ok=True)
        target = self._blob_folder / digest
        if not target.exists():
            partial = target.with_suffix(".part")
            partial.write_bytes(data)
            partial.replace(target)
        return digest

    def close(self) -> None:
        self._file.close()


def blob_folder(path: Path) -> Path:
    """Where the blobs of the log at `path` are."""
    return path.parent / (path.name + ".blobs")


def read_log(path: Path) -> list[Record]:
    """The records of a JSON lines log. A last line that was not written to its end is left out.

    Raises:
        InvalidValueError: the file cannot be read, or a line of it is no record.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InvalidValueError("log", str(path), f"cannot be read: {error.strerror}") from None
    records = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            records.append(read_record(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            reason = f"is no event log: line {number}: {error}"
            raise InvalidValueError("log", str(path), reason) from None
    return records


def drop_torn_line(path: Path) -> None:
    """Cut a last line that was not written to its end, so that the log can be appended to."""
    with path.open("r+b") as file:
        data = file.read()
        file.truncate(data.rfind(b"\n") + 1)
