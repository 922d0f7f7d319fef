"""Where a run's events go. The runner knows this protocol; the database's sink lives with the worker."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from lab.engine.events import Event, Record


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
    """Appends one event to the run's log."""

    def __call__(self, event: Event) -> Record: ...


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
    """Writes one line a record to a file, each flushed at once, and blobs into a folder beside it."""

    def __init__(self, path: Path, *, attempt: int = 1, first_seq: int = 1) -> None:
        super().__init__(attempt=attempt, first_seq=first_seq)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Text is cleaned where it enters the lab; a surrogate that came through must not end the run here.
        self._file = path.open("a", encoding="utf-8", errors="replace")
        self._blob_folder = path.parent / (path.name + ".blobs")

    def append(self, event: Event) -> Record:
        record = super().append(event)
        self._file.write(record.to_line() + "\n")
        self._file.flush()
        return record

    def put_blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self._blob_folder.mkdir(exist_ok=True)
        target = self._blob_folder / digest
        if not target.exists():
            target.write_bytes(data)
        return digest

    def close(self) -> None:
        self._file.close()
