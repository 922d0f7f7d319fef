"""One signal that a run should stop, heard in the middle of a streaming reply or a running command."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from lab.engine.errors import ExitReason


class StopSignal:
    """Set once, from any thread; whoever waits on network or process registers a callback to break off.

    The first reason wins. Callbacks run in the thread that sets the signal, must be quick and must not raise.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        # Guards _callbacks and _reason: set() comes from the lease thread or a timer, registration from the
        # run's own thread.
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next_key = 0
        self._reason: ExitReason | None = None

    @property
    def reason(self) -> ExitReason | None:
        return self._reason

    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self, reason: ExitReason) -> None:
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            callbacks = list(self._callbacks.values())
        self._event.set()
        for callback in callbacks:
            callback()

    def wait(self, seconds: float) -> bool:
        """Sleep up to `seconds`; True as soon as the signal is set."""
        return self._event.wait(seconds)

    @contextlib.contextmanager
    def on_set(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call `callback` when the signal is set while the block runs; at once when it is set already."""
        with self._lock:
            key = self._next_key
            self._next_key += 1
            self._callbacks[key] = callback
            already = self._reason is not None
        try:
            if already:
                callback()
            yield
        finally:
            with self._lock:
                self._callbacks.pop(key, None)


@contextlib.contextmanager
def deadline(seconds: float, stop: StopSignal | None = None) -> Iterator[StopSignal]:
    """A signal that is set when the seconds are over, or when `stop` is, while the block runs.

    For a whole request: a time-out of each read would let a drip go on.
    """
    both, other = StopSignal(), stop or StopSignal()
    timer = threading.Timer(seconds, both.set, args=(ExitReason.MAX_TIME,))
    timer.daemon = True
    timer.start()
    try:
        with other.on_set(lambda: both.set(other.reason or ExitReason.CANCELLED)):
            yield both
    finally:
        timer.cancel()
