"""What people ask of an attempt that is going on: pause, resume, another limit, a message."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

from lab.engine.llm.base import JSONObject


@dataclass(frozen=True)
class Ask:
    """One thing a person asked for. `number` and `value` are those of its `ControlAsked`."""

    control: Literal["pause", "resume", "limit", "message"]
    person: str
    number: int = 0
    value: JSONObject = field(default_factory=dict)


class Steering:
    """A mailbox between whoever hears people and the attempt, which looks into it between two events.

    An ask is put in once its `ControlAsked` is in the log. Safe from any thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asks: list[Ask] = []
        self._closed = False

    def put(self, ask: Ask) -> None:
        with self._changed:
            self._asks.append(ask)
            self._changed.notify_all()

    def take(self) -> list[Ask]:
        """Everything asked since the last call, in order."""
        with self._changed:
            asks, self._asks = self._asks, []
            return asks

    def wait(self, seconds: float) -> None:
        """Sleep until something is asked, `close` is called or `seconds` have passed."""
        with self._changed:
            if not self._asks and not self._closed:
                self._changed.wait(seconds)

    def close(self) -> None:
        """Nobody waits any longer: the attempt is being stopped or handed over."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
