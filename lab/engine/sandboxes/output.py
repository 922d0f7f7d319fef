"""Collects what a command writes in bounded memory: head, tail, true size and hash."""

from __future__ import annotations

import hashlib

from lab.engine.sandboxes.base import OUTPUT_TAIL_BYTES, Output


class OutputCollector:
    """Takes chunks of one stream; keeps the first `limit` bytes and a ring of the last ones after them."""

    def __init__(self, limit: int) -> None:
        self._limit = max(limit, 0)
        self._head = bytearray()
        self._tail = bytearray()
        self._digest = hashlib.sha256()
        self.total = 0

    def feed(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        self.total += len(chunk)
        room = self._limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self._tail += chunk[-OUTPUT_TAIL_BYTES:]
            if len(self._tail) > 4 * OUTPUT_TAIL_BYTES:
                del self._tail[:-OUTPUT_TAIL_BYTES]

    def result(self) -> Output:
        """What was collected so far."""
        tail = bytes(self._tail[-OUTPUT_TAIL_BYTES:])
        return Output(bytes(self._head), tail, self.total, self._digest.hexdigest())
