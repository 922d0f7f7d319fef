"""What people ask of an attempt that is going on: pause, resume, another limit, a message."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from lab.engine.llm.base import JSONObject
from lab.engine.stop import StopSignal

Control = Literal["pause", "resume", "limit", "message"]


@dataclass(frozen=True)
class Ask:
    """One thing a person asked for. `number` and `value` are those of its `ControlAsked`."""

    control: Control
    person: str
    number: int = 0
    value: JSONObject = field(default_factory=dict)


class Steering:
    """A mailbox between whoever hears people and the attempt, which looks into it between two events.

    An ask is put in once its `ControlAsked` is in the log; one that is put in twice takes effect once. Safe
    from any thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asks: list[Ask] = []
        self._closed = False

    def put(self, ask: Ask) -> None:
        with self._changed:
            self._asks.append(ask)
            self._changed.notify_all()

    def put_first(self, asks: Iterable[Ask]) -> None:
        """Put these before all that is there: what a former worker child heard and left."""
        with self._changed:
            self._asks[:0] = asks
            self._changed.notify_all()

    def pending(self) -> list[Ask]:
        """Everything that has no effect yet, oldest first."""
        with self._changed:
            return list(self._asks)

    def drop_oldest(self) -> None:
        """Take the oldest away, once its effect holds; only the attempt itself does."""
        with self._changed:
            del self._asks[:1]

    def wait(self, seconds: float, stop: StopSignal | None = None) -> None:
        """Sleep until something is asked, `stop` is set, `close` is called or `seconds` have passed."""

        def is_over() -> bool:
            return bool(self._asks) or self._closed or (stop is not None and stop.is_set())

        with contextlib.nullcontext() if stop is None else stop.on_set(self._wake), self._changed:
            self._changed.wait_for(is_over, seconds)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Hand the attempt over: it stops at its next event, at once while it waits.

        `run_attempt` then raises `HandedOverError`, and another worker child continues from the log.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
