"""The sink of a worker child: numbers events at once and writes them in batches."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import DatabaseError, connections

from lab.engine.errors import InfrastructureError, LeaseLostError
from lab.engine.events import Event, Record
from lab.engine.sinks import now
from lab.models import Run, RunFacts
from lab.services import blobs, log, queue, space

# A quiet run's first event is written at once; what follows within this time shares a transaction.
BATCH_SECONDS = 0.04
DRAFT_SECONDS = 0.15
MAX_WAITING = 1000
# How long the database may refuse before the attempt ends, how long a full disk may, and how long the
# attempt's end may be refused after that.
RETRY_SECONDS = 60.0
FULL_DISK_SECONDS = 30.0
LAST_WORDS_SECONDS = 60.0
_LONGEST_WAIT_SECONDS = 5.0
_STARTS = frozenset({"model_call_started", "tool_call_started", "verification_started"})
# A verification is followed by the attempt's end, which costs nothing.
_ENDS = frozenset(
    {
        "model_call_finished",
        "model_call_failed",
        "model_call_interrupted",
        "tool_call_finished",
        "tool_call_interrupted",
        "attempt_ended",
    }
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Draft:
    step: int
    content: str
    reasoning: str
    calls: str
    characters: int


class _Patience:
    """Waits longer and longer between tries, so many seconds in all; fewer when the disk is full."""

    def __init__(self, *, otherwise: float, full_disk: float) -> None:
        self._began = time.monotonic()
        self._otherwise, self._full_disk = otherwise, full_disk
        self._next = 0.2

    def is_left(self, error: BaseException) -> bool:
        seconds = self._full_disk if space.is_full(error) else self._otherwise
        return time.monotonic() - self._began < seconds

    def wait(self) -> None:
        time.sleep(self._next)
        self._next = min(self._next * 2, _LONGEST_WAIT_SECONDS)


def _patience() -> _Patience:
    return _Patience(otherwise=RETRY_SECONDS, full_disk=FULL_DISK_SECONDS)


def _broken(what: str, error: BaseException) -> InfrastructureError:
    """What ends the attempt. On a disk that stays full the next one would end like that, and cost as much."""
    if not space.is_full(error):
        return InfrastructureError(f"{what}: {error}")
    way_out = f"make room on the disk of LAB_DATA_DIR ({settings.LAB_DATA_DIR}), then start another attempt"
    return InfrastructureError(f"{what}: {error}; {way_out}", retryable=False)


class DatabaseSink:
    """Appends one attempt's events to the database under its lease. A context manager: leaving it flushes.

    One thread writes; `append`, `draft` and `flush` may be called from any. `on_unstorable` is called once
    when the database or the disk has refused events for a minute: from then on only the attempt's end is
    taken, and storing is tried for another minute. `may_ask` says whether another request may start, and is
    asked once all requests before it are stored, where `ask_before_requests` says so.
    """

    def __init__(
        self,
        *,
        run_id: int,
        attempt: int,
        lease_token: int,
        after_seq: int,
        on_unstorable: Callable[[], None] | None = None,
        may_ask: Callable[[], bool] = lambda: True,
    ) -> None:
        self._may_ask, self._asks_first = may_ask, False
        self._run_id, self._attempt, self._lease_token = run_id, attempt, lease_token
        self._on_unstorable = on_unstorable
        # Guards everything below: the run's thread and the lease thread append, the writer takes.
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._hurry = threading.Condition(self._lock)
        self._written = threading.Condition(self._lock)
        self._settled = threading.Condition(self._lock)
        self._waiting: list[Record] = []
        self._draft: _Draft | None = None
        self._next_draft = 0.0
        self._last_seq = self._durable_seq = after_seq
        self._wanted_seq = after_seq
        # Why nothing more is taken, and why nothing but the attempt's end is.
        self._error: Exception | None = None
        self._unstorable: InfrastructureError | None = None
        self._has_ended = False
        # Until when the lease is known to last, by `queue.clock`.
        self._leased_until = math.inf
        # Something was started whose outcome is not here yet; whether nothing new may start.
        self._in_flight = self._stops = False
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
        ends = any(event.kind == "attempt_ended" for event in events)
        if self._asks_first and any(event.kind == "model_call_started" for event in events):
            self._refuse_unless_allowed()
        with self._lock:
            while not ends and self._must_wait():
                self._written.wait(0.5)
            self._raise_error(ends=ends)
            self._refuse_once_stopped()
            self._refuse_asks_once_ended(events)
            at = now()
            numbered = enumerate(events, start=self._last_seq + 1)
            records = [Record(seq=seq, attempt=self._attempt, at=at, event=event) for seq, event in numbered]
            self._last_seq += len(records)
            was_quiet = not self._waiting
            self._waiting += records
            self._draft = None
            self._has_ended = self._has_ended or ends
            self._note_flight(events)
            if was_quiet and records:
                self._work.notify()
        return records

    def ask_before_requests(self, on: bool) -> None:
        """Let each request be allowed by `may_ask` before it starts, or not."""
        self._asks_first = on

    def _refuse_unless_allowed(self) -> None:
        """What is stored is counted: the request that reaches a budget lets no other one start.

        Raises:
            LeaseLostError: it may not start.
        """
        self.flush()
        patience = _patience()
        while True:
            try:
                if self._may_ask():
                    return
            except DatabaseError as error:
                connections.close_all()
                if not patience.is_left(error):
                    raise _broken("it cannot be known whether another request may start", error) from error
                patience.wait()
            else:
                raise LeaseLostError("the experiment is paused")

    def _must_wait(self) -> bool:
        """Whether the run may not act now: too much is not stored, or the lease may be somebody else's."""
        if self._error is not None or self._unstorable is not None:
            return False
        return len(self._waiting) >= MAX_WAITING or queue.clock() > self._leased_until

    def _refuse_once_stopped(self) -> None:
        if self._stops and not self._in_flight:
            raise LeaseLostError("the worker stops")

    def _refuse_asks_once_ended(self, events: Sequence[Event]) -> None:
        """What is asked of an ended attempt is written when the run is settled, under no lease.

        In a batch of its own, after the end, the log would refuse it and take the lease for lost.
        """
        if self._has_ended and any(event.kind == "control_asked" for event in events):
            raise LeaseLostError("the attempt has ended")

    def _note_flight(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind in _STARTS:
                self._in_flight = True
            elif event.kind in _ENDS:
                self._in_flight = False
        if not self._in_flight:
            self._settled.notify_all()

    def keep_until(self, moment: float) -> None:
        """The lease lasts until then, by `queue.clock`; afterwards nothing is taken until it is renewed."""
        with self._lock:
            self._leased_until = moment
            self._written.notify_all()

    def stop_at_next_event(self, *, within: float = math.inf) -> None:
        """Let what is in flight end, and take nothing after it; returns when that is so.

        After `within` seconds nothing is taken any more though something is still in flight. What was taken
        is stored all the same.
        """
        self.begin_stop()
        self.wait_for_stop(within=within)

    def begin_stop(self) -> None:
        """As `stop_at_next_event`, at once: `wait_for_stop` waits for the rest."""
        with self._lock:
            self._stops = True

    def wait_for_stop(self, *, within: float = math.inf) -> None:
        """Returns when nothing is in flight any more, after `within` seconds, or when `go_on` is called."""
        until = time.monotonic() + within
        with self._lock:
            while self._stops and self._in_flight and self._error is None and not self._closing:
                if (left := until - time.monotonic()) <= 0:
                    break
                self._settled.wait(min(1.0, left))
            if self._stops:
                self._in_flight = False
            self._written.notify_all()

    def go_on(self) -> None:
        """Take back a stop: everything is taken again."""
        with self._lock:
            self._stops = False
            self._settled.notify_all()

    def is_durable(self, seq: int, *, within: float) -> bool:
        """Whether the event with this number is in the database; waits up to `within` seconds for it."""
        until = time.monotonic() + within
        with self._lock:
            while self._durable_seq < seq and self._error is None and time.monotonic() < until:
                self._written.wait(until - time.monotonic())
            return self._durable_seq >= seq

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
        patience = _patience()
        while True:
            try:
                return blobs.put(data=data)
            except (DatabaseError, OSError) as error:
                connections.close_all()
                with self._lock:
                    self._raise_error()
                    self._refuse_once_stopped()
                if not patience.is_left(error):
                    raise _broken("the workspace's changes cannot be stored", error) from error
                patience.wait()

    def flush(self) -> None:
        with self._lock:
            self._wanted_seq = target = self._last_seq
            self._hurry.notify()
            while self._durable_seq < target and (self._unstorable is None or self._has_ended):
                if self._error is not None:
                    break
                self._written.wait(1.0)
            self._raise_error(ends=self._has_ended)

    def abandon(self, error: Exception) -> None:
        """Write nothing more; every later call raises `error`."""
        with self._lock:
            if self._error is None:
                self._error = error
            self._waiting.clear()
            self._draft = None
            for condition in (self._work, self._hurry, self._written, self._settled):
                condition.notify_all()

    @property
    def error(self) -> Exception | None:
        return self._error

    def _raise_error(self, *, ends: bool = False) -> None:
        if self._error is not None:
            raise self._error
        if self._unstorable is not None and not ends:
            raise self._unstorable

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
        """Append the batch; what refuses to take it is tried again.

        Raises:
            LeaseLostError: somebody else owns the attempt.
            InfrastructureError: the database or the disk would not take it, not even with the attempt's end.
        """
        patience = _patience()
        uncertain = False
        while True:
            try:
                if not (uncertain and self._already_there(batch[-1].seq)):
                    self._append(batch)
                return
            except (DatabaseError, OSError) as error:
                uncertain = True
                connections.close_all()
                _log.warning("run %s: its events cannot be stored yet (%s)", self._run_id, error)
                if self._has_ended and space.is_full(error):
                    # Its sandbox is gone by now, and the end of a run is worth the last bytes there are.
                    space.give_up_reserve()
                if not patience.is_left(error):
                    broken = _broken("events cannot be stored", error)
                    if self._unstorable is not None:
                        raise broken from error
                    self._refuse_all_but_the_end(broken)
                    patience = _Patience(otherwise=LAST_WORDS_SECONDS, full_disk=LAST_WORDS_SECONDS)
                patience.wait()

    def _refuse_all_but_the_end(self, error: InfrastructureError) -> None:
        with self._lock:
            self._unstorable = error
            self._written.notify_all()
        if self._on_unstorable is not None:
            self._on_unstorable()

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
        """Whether a commit whose answer was lost took effect: nobody else numbers events under this lease.

        Raises:
            DatabaseError: no answer; to append without knowing would look like a lost lease.
        """
        held = {"attempts__n": self._attempt, "attempts__lease_token": self._lease_token}
        return Run.objects.filter(pk=self._run_id, last_seq=seq, **held).exists()

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
