"""Splits the bytes of a server-sent-events stream into the payloads of its data lines."""

from __future__ import annotations

DONE = b"[DONE]"

_KEPT_GARBAGE = 20


class DataLines:
    """Feed bytes as they arrive; get each event's data once it is complete.

    Data on several lines is joined by newlines. A data line that looks like a whole object (`{…}`) is given
    out at once: servers exist that leave the blank line out.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._searched = 0
        self._open: list[bytes] = []
        self.garbage: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        self._rest += data
        payloads: list[bytes] = []
        start = 0
        while (end := self._rest.find(b"\n", max(start, self._searched))) >= 0:
            payloads += self._take_line(bytes(self._rest[start:end]).rstrip(b"\r"))
            start = end + 1
        del self._rest[:start]
        # What has been looked through for a line end is not looked through again: a line may be 10 MB long.
        self._searched = len(self._rest)
        return payloads

    def finish(self) -> list[bytes]:
        """What stands at the end of the stream without a line end."""
        line = bytes(self._rest).rstrip(b"\r")
        self._rest.clear()
        return (self._take_line(line) if line else []) + self._take_line(b"")

    def _take_line(self, line: bytes) -> list[bytes]:
        if line.startswith(b"data:"):
            payload = line[5:].strip()
            if not self._open and (payload == DONE or (payload.startswith(b"{") and payload.endswith(b"}"))):
                return [payload]
            if payload:
                self._open.append(payload)
        elif not line:
            return self._close()
        elif not line.startswith((b":", b"event:", b"id:", b"retry:")) and len(self.garbage) < _KEPT_GARBAGE:
            self.garbage.append(line[:500])
        return []

    def _close(self) -> list[bytes]:
        if not self._open:
            return []
        payload, self._open = b"\n".join(self._open), []
        return [payload]
