"""The sink of a worker child: numbers events at once and writes them in batches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import DatabaseError, connections

from lab.engine.errors import InfrastructureError, LeaseLostError
from lab.engine.events import Event, Record
from lab.engine.sinks import now
from lab.models import Run, RunFacts
from lab.services import blobs, log

# A quiet run's first event is written at once; what follows within this time shares a transaction.
BATCH_SECONDS = 0.04
DRAFT_SECONDS = 0.15
MAX_WAITING = 1000
RETRY_SECONDS = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Draft:
    step: int
    content: str
    reasoning: str
    calls: str
    characters: int


class DatabaseSink:
    """Appends one attempt's events to the database under its lease. A context manager: leaving it flushes.

    One thread writes; `append`, `draft` and `flush` may be called from any.
    """

    def __init__(self, *, run_id: int, attempt: int, lease_token: int, after_seq: int) -> None:
        self._run_id, self._attempt, self._lease_token = run_id, attempt, lease_token
        # Guards everything below: the run's thread and the lease thread append, the writer takes.
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._hurry = threading.Condition(self._lock)
        self._written = threading.Condition(self._lock)
        self._waiting: list[Record] = []
        self._draft: _Draft | None = None
        self._next_draft = 0.0
        self._last_seq = self._durable_seq = after_seq
        self._wanted_seq = after_seq
        self._error: Exception | None = None
        # The writer's own: the roll-up after the last stored event, None when it must be read anew.
        self._facts: RunFacts | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._write_on, name=f"sink-{run_id}", daemon=True)

    def __enter__(self) -> DatabaseSink:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closing = True
            self._work.notify_all()
            self._hurry.notify_all()
        self._thread.join()

    def append(self, event: Event) -> Record:
        return self.append_all([event])[0]

    def append_all(self, events: Sequence[Event]) -> list[Record]:
        # The writer takes everything that waits into one transaction, so these are never parted.
        with self._lock:
            while len(self._waiting) >= MAX_WAITING and self._error is None:
                self._written.wait(1.0)
            self._raise_error()
            at = now()
            numbered = enumerate(events, start=self._last_seq + 1)
            records = [Record(seq=seq, attempt=self._attempt, at=at, event=event) for seq, event in numbered]
            self._last_seq += len(records)
            was_quiet = not self._waiting
            self._waiting += records
            self._draft = None
            if was_quiet and records:
                self._work.notify()
        return records

    def draft(self, *, step: int, content: str, reasoning: str, calls: str, characters: int) -> None:
        with self._lock:
            self._raise_error()
            first = self._draft is None
            self._draft = _Draft(step, content, reasoning, calls, characters)
            if first:
                self._work.notify()

    def put_blob(self, data: bytes) -> str:
        with self._lock:
            self._raise_error()
        return blobs.put(data=data)

    def flush(self) -> None:
        with self._lock:
            self._wanted_seq = target = self._last_seq
            self._hurry.notify()
            while self._durable_seq < target and self._error is None:
                self._written.wait(1.0)
            self._raise_error()

    def abandon(self, error: Exception) -> None:
        """Write nothing more; every later call raises `error`."""
        with self._lock:
            if self._error is None:
                self._error = error
            self._waiting.clear()
            self._draft = None
            for condition in (self._work, self._hurry, self._written):
                condition.notify_all()

    @property
    def error(self) -> Exception | None:
        return self._error

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _write_on(self) -> None:
        try:
            while self._wait_for_work():
                self._write_waiting()
        finally:
            connections.close_all()

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to write; False when everything is written and the sink closes."""
        with self._lock:
            while not self._waiting:
                if self._closing or self._error is not None:
                    return False
                timeout = None if self._draft is None else self._next_draft - time.monotonic()
                if timeout is not None and timeout <= 0:
                    return True
                self._work.wait(timeout)
            return True

    def _write_waiting(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
            draft = None if batch else self._draft
            if draft is not None:
                self._draft = None
                self._next_draft = time.monotonic() + DRAFT_SECONDS
        try:
            if batch:
                self._store(batch)
            elif draft is not None:
                self._store_draft(draft)
        except Exception as error:
            self.abandon(error)
            return
        with self._lock:
            if batch:
                self._durable_seq = batch[-1].seq
            self._written.notify_all()
            if batch and self._wanted_seq <= self._durable_seq and not self._closing:
                self._hurry.wait(BATCH_SECONDS)

    def _store(self, batch: list[Record]) -> None:
        """Append the batch; a database that cannot be written is tried again for a minute.

        Raises:
            LeaseLostError: somebody else owns the attempt.
            InfrastructureError: the database or the disk would not take it.
        """
        until = time.monotonic() + RETRY_SECONDS
        wait = 0.2
        while True:
            try:
                self._append(batch)
                return
            except (DatabaseError, OSError) as error:
                connections.close_all()
                if time.monotonic() + wait > until:
                    raise InfrastructureError(f"events cannot be stored: {error}") from error
                _log.warning("run %s: its events cannot be stored yet (%s)", self._run_id, error)
                time.sleep(wait)
                wait = min(wait * 2, 5.0)
            if self._already_there(batch[-1].seq):
                return

    def _append(self, batch: list[Record]) -> None:
        facts, self._facts = self._facts, None
        facts = facts or RunFacts.objects.filter(pk=self._run_id).first()
        log.append(
            run_id=self._run_id,
            attempt=self._attempt,
            lease_token=self._lease_token,
            events=[(record.at, record.event) for record in batch],
            after_seq=batch[0].seq - 1,
            facts=facts,
        )
        self._facts = facts

    def _already_there(self, seq: int) -> bool:
        """Whether a commit whose answer was lost took effect: nobody else numbers events under this lease."""
        try:
            return Run.objects.filter(pk=self._run_id, last_seq=seq).exists()
        except DatabaseError:
            return False

    def _store_draft(self, draft: _Draft) -> None:
        try:
            log.store_draft(
                run_id=self._run_id,
                attempt=self._attempt,
                lease_token=self._lease_token,
                after_seq=self._durable_seq,
                step=draft.step,
                content=draft.content,
                reasoning=draft.reasoning,
                calls=draft.calls,
                characters=draft.characters,
            )
        except LeaseLostError:
            raise
        except DatabaseError as error:
            # A draft is a convenience: the whole text follows as an event.
            _log.warning("run %s: a draft was not stored (%s)", self._run_id, error)
