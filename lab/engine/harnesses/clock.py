"""The wall time of an attempt: from its first model call, retry waits included, pauses not."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from lab.engine.errors import ExitReason
from lab.engine.stop import StopSignal

_SHORTEST_WAIT = 0.02
_LONGEST_WAIT = 60.0


class WallClock:
    """Sets the stop signal with `max_time` when the limit has passed, in the middle of whatever is running.

    `limit` in seconds, None: no limit. Close it when the agent has ended.
    """

    def __init__(self, limit: float | None, stop: StopSignal) -> None:
        self.limit = limit
        self._stop = stop
        self._closed = threading.Event()
        # Guards the four times below: the run's thread writes them, the watching thread reads them.
        self._lock = threading.Lock()
        self._started: float | None = None
        self._paused_at: float | None = None
        self._paused_seconds = 0.0
        self._ended: float | None = None

    def start(self) -> None:
        """Start counting; a second call does nothing."""
        with self._lock:
            if self._started is not None:
                return
            self._started = time.monotonic()
        if self.limit is not None:
            threading.Thread(target=self._watch, name="wall-clock", daemon=True).start()

    @property
    def elapsed(self) -> float:
        """Seconds counted so far; 0 before the start."""
        with self._lock:
            if self._started is None:
                return 0.0
            until = self._ended or self._paused_at or time.monotonic()
            return until - self._started - self._paused_seconds

    @property
    def remaining(self) -> float | None:
        """Seconds left, None without a limit."""
        return None if self.limit is None else self.limit - self.elapsed

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time inside the block does not count."""
        with self._lock:
            self._paused_at = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                if self._started is not None:
                    self._paused_seconds += time.monotonic() - self._paused_at
                self._paused_at = None

    def close(self) -> None:
        """Stop counting and watching; a second call does nothing."""
        with self._lock:
            if self._ended is None:
                self._ended = time.monotonic()
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.is_set():
            remaining = self.remaining
            if remaining is None:
                return
            if remaining <= 0:
                self._stop.set(ExitReason.MAX_TIME)
                return
            # A pause makes the remaining time stand still, hence the bounds.
            self._closed.wait(min(max(remaining, _SHORTEST_WAIT), _LONGEST_WAIT))
