"""A kept shell's connection: two streams in one socket, and where in them the answer to a question ends."""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.output import OutputCollector

_CHUNK = 256 * 1024
_HEADER = struct.Struct(">BxxxL")
_SEND_SECONDS = 25.0
_STDOUT, _STDERR = 1, 2
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Stream:
    """What goes to and comes from one kept shell of a container."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setblocking(False)
        # Said before each line, so that nothing else that is read is taken for one.
        self.key = secrets.token_hex(16).encode()
        # Told by the shell when it is ready: its number inside, and whether it is bash.
        self.pid = 0
        self.bash = False
        # A process that a command left running writes to this shell's own output.
        self.held = False
        # The guard of a command was told to kill: whatever became of it, the next command needs a new one.
        self.told_guard = False
        self.is_open = True
        # Bytes of such processes that were dropped.
        self.dropped = 0
        self._header = b""
        self._kind = _STDOUT
        self._left = 0

    def fileno(self) -> int:
        return self._connection.fileno()

    def close(self) -> None:
        """Close the connection: the shell reads the end of its input, kills what it runs, and ends."""
        self.is_open = False
        self.hang_up()
        self._connection.close()

    def hang_up(self) -> None:
        """End the connection, but not its descriptor, which another thread may be waiting for."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def let_go(self) -> None:
        """Close this process's end of the connection, which another process goes on using."""
        self.is_open = False
        self._connection.close()

    def send(self, data: bytes) -> None:
        """Raises: SandboxLostError when nothing can be sent any more."""
        rest = memoryview(data)
        deadline = time.monotonic() + _SEND_SECONDS
        while rest:
            try:
                rest = rest[self._connection.send(rest) :]
            except _NOT_NOW:
                if self._other_side_ended() or time.monotonic() > deadline:
                    self.is_open = False
                    raise SandboxLostError("The sandbox takes no input any more.") from None
                select.select([], [self._connection], [], 0.25)
            except OSError as error:
                self.is_open = False
                raise SandboxLostError(f"The connection to the sandbox broke: {error}") from error

    def _other_side_ended(self) -> bool:
        """True where the end of what comes can be seen without reading it: nobody reads what is sent then."""
        if isinstance(self._connection, ssl.SSLSocket):
            return False
        try:
            return not self._connection.recv(1, socket.MSG_PEEK)
        except _NOT_NOW:
            return False

    def receive(self, take: Callable[[int, bytes], None]) -> None:
        """Read what is there and give each piece to `take` with the number of its stream.

        `is_open` is False afterwards when the other side has ended.
        """
        try:
            data = self._connection.recv(_CHUNK)
        except _NOT_NOW:
            return
        except OSError:
            data = b""
        if not data:
            self.is_open = False
        while data:
            data = self._piece(data, take)
            # What TLS has decrypted already wakes nobody.
            if not data and isinstance(self._connection, ssl.SSLSocket) and self._connection.pending():
                data = self._connection.recv(_CHUNK)

    def _piece(self, data: bytes, take: Callable[[int, bytes], None]) -> bytes:
        """Take one frame's header or content off the front; returns what follows it."""
        if self._left == 0:
            needed = _HEADER.size - len(self._header)
            self._header += data[:needed]
            if len(self._header) == _HEADER.size:
                self._kind, self._left = _HEADER.unpack(self._header)
                self._header = b""
            return data[needed:]
        content = data[: self._left]
        self._left -= len(content)
        take(self._kind, content)
        return data[len(content) :]


class _Scanner:
    """Collects one stream up to the mark that ends it; the line after the mark is the answer."""

    def __init__(self, mark: bytes, collector: OutputCollector) -> None:
        self.collector = collector
        self.answer: bytes | None = None
        self._mark = mark
        self._line: bytes | None = None
        self._held = b""

    def feed(self, chunk: bytes) -> None:
        if self.answer is not None:
            return
        if self._line is not None:
            self._take_line(self._line + chunk)
            return
        data = self._held + chunk if self._held else chunk
        found = data.find(self._mark)
        if found < 0:
            # What may be the beginning of the mark waits for the rest.
            begin = data.rfind(self._mark[:1], max(0, len(data) - len(self._mark) + 1))
            begin = len(data) if begin < 0 else begin
            self._held = data[begin:]
            self._collect(data[:begin])
        else:
            self._held = b""
            self._collect(data[:found])
            self._take_line(data[found + len(self._mark) :])

    def flush(self) -> None:
        """There will be no more: what looked like the beginning of a mark was none."""
        self._collect(self._held)
        self._held = b""

    def _collect(self, data: bytes) -> None:
        if data:
            self.collector.feed(data)

    def _take_line(self, data: bytes) -> None:
        line, newline, _noise = data.partition(b"\n")
        self._line = line
        if newline:
            self.answer = line


class Exchange:
    """One thing asked of a kept shell, known by a token of its own, and all that comes in answer."""

    def __init__(self, limit: int = 4096) -> None:
        self.token = secrets.token_hex(8).encode()
        mark = b"\0%s " % self.token
        self.began = time.monotonic()
        self._scanners = {number: _Scanner(mark, OutputCollector(limit)) for number in (_STDOUT, _STDERR)}
        self.interrupt_asked = False

    def take(self, kind: int, content: bytes) -> None:
        scanner = self._scanners.get(kind)
        if scanner is not None:
            scanner.feed(content)

    def flush(self) -> None:
        for scanner in self._scanners.values():
            scanner.flush()

    def is_over(self) -> bool:
        return all(scanner.answer is not None for scanner in self._scanners.values())

    @property
    def answer(self) -> list[bytes]:
        """The words of the answer; empty before it is there."""
        return (self._scanners[_STDOUT].answer or b"").split()

    @property
    def stdout(self) -> OutputCollector:
        return self._scanners[_STDOUT].collector

    @property
    def stderr(self) -> OutputCollector:
        return self._scanners[_STDERR].collector
