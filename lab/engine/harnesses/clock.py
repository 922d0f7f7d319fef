"""The wall time of an attempt: from its first model call, retry waits included, pauses not."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from lab.engine.errors import ExitReason
from lab.engine.stop import StopSignal

_SHORTEST_WAIT = 0.02
_LONGEST_WAIT = 60.0
_LIFTED_SOON_WAIT = 0.5


class WallClock:
    """Sets the stop signal with `max_time` when the limit has passed, in the middle of whatever is running.

    `limit` in seconds, None: no limit. `allowed` gives what it will be once a wish takes effect that is asked
    for already: in the middle of a command, a limit that was raised in time does not pass. `used` are the
    seconds that an earlier worker child counted already. Close it when the agent has ended.
    """

    def __init__(
        self,
        limit: float | None,
        stop: StopSignal,
        *,
        used: float = 0.0,
        allowed: Callable[[float], float | None] = float,
    ) -> None:
        self._stop = stop
        self._allowed = allowed
        # Guards everything below: the run's thread writes, the watching thread reads.
        self._changed = threading.Condition()
        self._limit = limit
        self._used = used
        self._started: float | None = None
        self._paused_at: float | None = None
        self._paused_seconds = 0.0
        self._ended: float | None = None
        self._is_watched = False

    def start(self) -> None:
        """Start counting; a second call does nothing."""
        with self._changed:
            if self._started is None:
                self._started = time.monotonic()
                self._watch_if_needed()

    @property
    def limit(self) -> float | None:
        return self._limit

    def set_limit(self, limit: float | None) -> None:
        """Another limit holds from now on."""
        with self._changed:
            self._limit = limit
            self._watch_if_needed()
            self._changed.notify_all()

    @property
    def elapsed(self) -> float:
        """Seconds counted so far; before the start those of earlier worker children."""
        with self._changed:
            if self._started is None:
                return self._used
            until = self._ended or self._paused_at or time.monotonic()
            return self._used + until - self._started - self._paused_seconds

    @property
    def remaining(self) -> float | None:
        """Seconds left, None without a limit."""
        limit = None if self._limit is None else self._allowed(self._limit)
        return None if limit is None else limit - self.elapsed

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time inside the block does not count, and no limit passes."""
        with self._changed:
            self._paused_at = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                if self._started is not None:
                    self._paused_seconds += time.monotonic() - max(self._paused_at, self._started)
                self._paused_at = None
                self._changed.notify_all()

    def close(self) -> None:
        """Stop counting and watching; a second call does nothing."""
        with self._changed:
            if self._ended is None:
                self._ended = time.monotonic()
            self._changed.notify_all()

    def _watch_if_needed(self) -> None:
        if self._limit is not None and self._started is not None and not self._is_watched:
            self._is_watched = True
            threading.Thread(target=self._watch, name="wall-clock", daemon=True).start()

    def _watch(self) -> None:
        with self._changed:
            while self._ended is None:
                remaining = self.remaining
                if self._limit is None or self._paused_at is not None:
                    self._changed.wait(_LONGEST_WAIT)
                elif remaining is None:
                    self._changed.wait(_LIFTED_SOON_WAIT)
                elif remaining > 0:
                    self._changed.wait(min(max(remaining, _SHORTEST_WAIT), _LONGEST_WAIT))
                else:
                    break
            else:
                return
        self._stop.set(ExitReason.MAX_TIME)
