"""An attempt's log with the folds that follow it: what was stored is what they see."""

from __future__ import annotations

from collections.abc import Callable

from lab.engine.events import Event, Record
from lab.engine.redact import RedactingSink


class FollowedLog:
    """The attempt's log: appends events and takes what was stored into the folds that follow it."""

    def __init__(self, sink: RedactingSink, history: tuple[Record, ...]) -> None:
        self._sink = sink
        self._history = history
        self._folds: list[Callable[[Event], None]] = []

    def emit(self, *events: Event) -> list[Record]:
        records = self._sink.append_all(events)
        for record in records:
            for apply in self._folds:
                apply(record.event)
        return records

    def follow(self, apply: Callable[[Event], None]) -> None:
        """Let a fold take in the history now and each new event when it is stored."""
        for record in self._history:
            apply(record.event)
        self._folds.append(apply)
