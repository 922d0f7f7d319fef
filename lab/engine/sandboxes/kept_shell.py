"""One control shell kept inside a sandbox, which starts every command as a process group of its own.

A command costs one fork instead of a new sandbox. The shell and the lab share a control folder that only the
shell can reach, through a descriptor commands do not inherit: the command to run stands in the file `next`,
its streams are FIFOs made for it alone. The shell tells begin and end of a command on a pipe, with a random
token for each; commands see neither the pipe nor the token.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import select
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.ending import Ended, interrupted_by
from lab.engine.sandboxes.output import OutputCollector
from lab.engine.sandboxes.processes import boot_ticks
from lab.engine.sandboxes.shell_program import Descriptors, begin_file, control_program, next_file
from lab.engine.stop import StopSignal

_CHUNK = 256 * 1024
_WIDE_PIPE = 1024 * 1024
# After the end of a command: how long a stream someone else still holds may be silent, and may go on at all.
_QUIET_SECONDS = 0.1
_DRAIN_SECONDS = 1.0
# How long the shell may take to tell the end of a command whose processes were killed.
_ANSWER_SECONDS = 10.0
_FORK_SECONDS = 0.3
_START_SECONDS = 20.0
_INPUT = "input"
# Output of processes left running is read and dropped, so that they do not block on a full pipe; up to here.
_ABANDONED_STREAMS = 16
_ABANDONED_BYTES = 16 * 1024 * 1024

# Kills the processes of a command: leader (as numbered inside; None: unknown) and time it began, in ticks.
Killer = Callable[[int | None, int], None]


class KeptShell:
    """The lab's end of the control shell. One command at a time; `abandon` may be called from any thread."""

    def __init__(self, folder: Path, *, owner: int | None) -> None:
        """Make the control folder's files. `owner` is the uid of commands when it is not the lab's own."""
        self._owner = owner
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._next = self._create("next")
        commands_read, self._commands = os.pipe()
        self._status, status_write = os.pipe()
        # A pipe of its own, read only when something must be killed: on the status pipe it would wake the lab
        # in the middle of every start.
        self._leaders, leaders_write = os.pipe()
        os.set_blocking(self._status, False)
        os.set_blocking(self._leaders, False)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.inherited = Descriptors(commands_read, status_write, leaders_write, self._folder)
        self._ends = [commands_read, status_write, leaders_write]
        # FIFOs nobody writes to any more, to be used again: name and the end for reading.
        self._free: list[tuple[str, int]] = []
        self._lines = b""
        # The shell's number as it sees itself; None until it has answered.
        self.pid: int | None = None
        self._lost: str | None = None
        self._abandoned: dict[int, int] = {}
        self._poll = select.poll()
        self._poll.register(self._status, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        # Held by the thread that runs a command, so that `close` from another one closes nothing in use.
        self._busy = threading.Lock()

    def program(self, environment: Mapping[str, str]) -> str:
        """The text for `bash -c`; `environment` is what every command gets."""
        descriptor = self._create("begin")
        with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor, no path)
            file.write(begin_file(environment, self.inherited))
        return control_program(self.inherited)

    def started(self) -> None:
        """Give up the shell's ends and wait until it answers.

        Raises:
            SandboxLostError: it ended or did not answer in time.
        """
        self._give_up_ends()
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            self._poll.poll(1000 * (deadline - time.monotonic()))
            self.read_status()
            if self.pid is not None:
                return
            self.raise_if_lost()
        raise SandboxLostError(
            f"The control shell did not answer within {_START_SECONDS:.0f} s of its start."
        )

    def release(self) -> None:
        """Close everything after a start that failed."""
        self.abandon("The sandbox could not be started.")
        self._give_up_ends()
        self.close()

    def _give_up_ends(self) -> None:
        while self._ends:
            os.close(self._ends.pop())

    def abandon(self, reason: str) -> None:
        """Let the running and each later command fail with this reason. Quick; from any thread."""
        if self._lost is None:
            self._lost = reason
        self._awake()

    def close(self) -> None:
        """Close everything, once the thread that runs a command has left. `abandon` first."""
        with self._busy:
            for descriptor in self._descriptors():
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            for descriptor in (*self._abandoned, *(reader for _, reader in self._free)):
                os.close(descriptor)
            self._abandoned.clear()
            self._free.clear()
            self._commands = self._status = self._leaders = self._wake = self._next = self._folder = -1

    def _descriptors(self) -> tuple[int, ...]:
        return (self._commands, self._status, self._leaders, self._wake, self._next, self._folder)

    def raise_if_lost(self) -> None:
        if self._lost is not None:
            raise SandboxLostError(self._lost)

    def run(
        self,
        body: bytes,
        *,
        timeout: float,
        output_limit: int,
        killer: Killer,
        stdin: bytes = b"",
        stop: StopSignal | None = None,
    ) -> Ended:
        """Run shell text in a fork of the control shell and follow it to its end.

        Raises:
            SandboxLostError: the shell is gone, does not answer, or was abandoned.
        """
        with self._busy:
            self.raise_if_lost()
            self.read_status()
            self.read_leaders()
            self.raise_if_lost()
            try:
                with (
                    _Command(self, body, stdin, output_limit) as command,
                    interrupted_by(stop, command, self._awake),
                ):
                    return command.follow(timeout, killer)
            except OSError as error:
                self.abandon(f"The sandbox's control folder or pipe broke: {error}")
                raise SandboxLostError(str(self._lost)) from error

    def _awake(self) -> None:
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wake, 1)

    # What follows is for _Command, the other half of this class.

    def send(self, token: bytes, text: bytes) -> None:
        self._put_next(text)
        os.write(self._commands, token + b"\n")

    def forget(self) -> None:
        """A restarted shell must not run what the one before it left unread."""
        self._put_next(b"")

    def _put_next(self, text: bytes) -> None:
        os.pwrite(self._next, text, 0)
        os.ftruncate(self._next, len(text))

    def poll(self, seconds: float) -> list[tuple[int, int]]:
        """Wait for streams; wake-ups and the output of abandoned streams are taken care of here."""
        events = self._poll.poll(max(0, min(seconds, 3600.0)) * 1000 + 0.5)
        streams = []
        for descriptor, event in events:
            if descriptor == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            elif descriptor in self._abandoned:
                self._drop_output(descriptor)
            else:
                streams.append((descriptor, event))
        return streams

    @property
    def status(self) -> int:
        return self._status

    def unwatch(self, descriptor: int) -> None:
        with contextlib.suppress(KeyError):
            self._poll.unregister(descriptor)
        os.close(descriptor)

    def leave_to_background(self, descriptor: int) -> None:
        """A stream that a process left running still holds: keep reading, drop what comes."""
        if len(self._abandoned) >= _ABANDONED_STREAMS:
            self.unwatch(descriptor)
        else:
            self._abandoned[descriptor] = 0

    def _drop_output(self, descriptor: int) -> None:
        chunk = os.read(descriptor, _CHUNK)
        self._abandoned[descriptor] += len(chunk)
        if not chunk or self._abandoned[descriptor] > _ABANDONED_BYTES:
            del self._abandoned[descriptor]
            self.unwatch(descriptor)

    def read_status(self) -> list[bytes]:
        """Whole lines the shell has written; its end is noted as loss."""
        try:
            chunk = os.read(self._status, 4096)
        except BlockingIOError:
            return []
        if not chunk:
            self.abandon("The sandbox ended: its control shell is gone.")
        *lines, self._lines = (self._lines + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"R "):
                self.pid = int(line[2:])
        return lines

    def read_leaders(self) -> list[bytes]:
        """Token and number of every command started since the last look."""
        try:
            return os.read(self._leaders, 4096).splitlines()
        except BlockingIOError:
            return []

    def fifo(self) -> tuple[str, int, int]:
        """A FIFO the command may write to: its name, its end for reading, and one for writing.

        While the lab holds an end for writing, the command's end of it wakes nobody.
        """
        if self._free:
            name, reader = self._free.pop()
        else:
            name = f"stream-{secrets.token_hex(8)}"
            os.mkfifo(name, 0o600, dir_fd=self._folder)
            reader = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
            if self._owner is not None:
                os.chown(name, self._owner, self._owner, dir_fd=self._folder)
        writer = os.open(name, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        self._poll.register(reader, select.POLLIN)
        return name, reader, writer

    def give_back(self, name: str, reader: int) -> None:
        """A FIFO whose end was read: no process holds its other side."""
        self._poll.unregister(reader)
        self._free.append((name, reader))

    def store(self, name: str, data: bytes) -> None:
        with open(self._create(name), "wb") as file:  # noqa: PTH123 (a descriptor, no path)
            file.write(data)

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._folder)  # noqa: PTH108 (relative to a descriptor)

    def path(self, name: str) -> bytes:
        return b"/proc/self/fd/%d/%s" % (self._folder, name.encode())

    def _create(self, name: str) -> int:
        descriptor = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._folder
        )
        if self._owner is not None:
            # Readable by the sandbox's user, who has no right to write it.
            os.fchown(descriptor, -1, self._owner)
        os.fchmod(descriptor, 0o640)
        return descriptor


class _Command:
    """One command on its way: its streams, what the shell said of it, and why it was killed, if it was."""

    def __init__(self, shell: KeptShell, body: bytes, stdin: bytes, output_limit: int) -> None:
        self._shell = shell
        self._began = time.monotonic()
        self._began_ticks = boot_ticks()
        self._token = secrets.token_hex(8).encode()
        self._outputs = (OutputCollector(output_limit), OutputCollector(output_limit))
        self._open: dict[int, tuple[str, OutputCollector]] = {}
        self._writers: list[int] = []
        self._wide: set[int] = set()
        self._code: int | None = None
        self._over = False
        self._shell_restarted = False
        self._timed_out = False
        self._interrupted = False
        self.interrupt_asked = False
        self._body = body
        self._stdin = stdin

    def __enter__(self) -> _Command:
        try:
            self._begin()
        except OSError:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        shell = self._shell
        source = b"/dev/null"
        if self._stdin:
            shell.store(_INPUT, self._stdin)
            source = shell.path(_INPUT)
        words = []
        for collector in self._outputs:
            name, descriptor, writer = shell.fifo()
            self._open[descriptor] = (name, collector)
            self._writers.append(writer)
            words.append(shell.path(name))
        shell.send(
            self._token, next_file(shell.inherited, self._token, (source, words[0], words[1]), self._body)
        )

    def _close_writers(self) -> None:
        while self._writers:
            os.close(self._writers.pop())

    def __exit__(self, *_: object) -> None:
        self._close_writers()
        for descriptor, (name, _collector) in self._open.items():
            if self._over and not self._killed:
                self._shell.leave_to_background(descriptor)
            else:
                self._shell.unwatch(descriptor)
            self._shell.remove(name)
        if self._stdin:
            self._shell.remove(_INPUT)

    @property
    def _killed(self) -> bool:
        return self._timed_out or self._interrupted

    def follow(self, timeout: float, killer: Killer) -> Ended:
        deadline = self._began + timeout
        while not (self._over or self._killed or self._shell_restarted):
            self._take(deadline - time.monotonic())
            if self._must_die(deadline):
                self._kill(killer)
        self._drain()
        stdout, stderr = (collector.result() for collector in self._outputs)
        code = None if self._killed else self._code
        seconds = time.monotonic() - self._began
        return Ended(code, stdout, stderr, self._timed_out, self._interrupted, self._shell_restarted, seconds)

    def _must_die(self, deadline: float) -> bool:
        if self._over:
            return False
        if self.interrupt_asked:
            self._interrupted = True
        elif time.monotonic() >= deadline:
            self._timed_out = True
        return self._killed or self._shell_restarted

    def _take(self, seconds: float) -> bool:
        """Wait for news up to `seconds` and take it in; True when a stream had bytes or ended.

        Raises:
            SandboxLostError: the shell is gone.
        """
        moved = False
        for descriptor, _ in self._shell.poll(seconds):
            if descriptor == self._shell.status:
                self._heed(self._shell.read_status())
            else:
                moved = self._read(descriptor) or moved
        if not self._over:
            self._shell.raise_if_lost()
        return moved

    def _heed(self, lines: list[bytes]) -> None:
        for line in lines:
            kind, _, rest = line.partition(b" ")
            token, _, number = rest.partition(b" ")
            if kind == b"X":
                self._shell_restarted = True
            elif kind == b"L":
                raise SandboxLostError("The sandbox's control shell cannot read its control folder any more.")
            elif token == self._token and kind == b"E":
                self._code = int(number)
                self._over = True

    def _read(self, descriptor: int) -> bool:
        """Take one chunk of a stream; False when there was nothing to take."""
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        name, collector = self._open[descriptor]
        if not chunk:
            del self._open[descriptor]
            self._shell.give_back(name, descriptor)
            return True
        collector.feed(chunk)
        if collector.total > _CHUNK and descriptor not in self._wide:
            self._wide.add(descriptor)
            _widen(descriptor)
        return True

    def _kill(self, killer: Killer) -> None:
        """Kill the command's tree and wait for the shell to say so; kill everything when it does not."""
        for leader in (self._leader(), None):
            killer(leader, self._began_ticks)
            deadline = time.monotonic() + _ANSWER_SECONDS / 2
            while not self._over and not self._shell_restarted and time.monotonic() < deadline:
                self._take(deadline - time.monotonic())
            if self._shell_restarted:
                self._shell.forget()
            if self._over or self._shell_restarted:
                return
        self._shell.abandon("The sandbox's control shell does not answer any more.")
        self._shell.raise_if_lost()

    def _leader(self) -> int | None:
        """The number of the command's first process; waits a moment for a shell that is just forking it."""
        deadline = time.monotonic() + _FORK_SECONDS
        while True:
            for line in self._shell.read_leaders():
                token, _, number = line.partition(b" ")
                if token == self._token:
                    return int(number)
            if self._over or time.monotonic() > deadline:
                return None
            time.sleep(0.005)

    def _drain(self) -> None:
        """Take what is still in the streams; someone else may hold them open for ever."""
        self._close_writers()
        deadline = time.monotonic() + _DRAIN_SECONDS
        for descriptor in list(self._open):
            while descriptor in self._open and self._read(descriptor) and time.monotonic() < deadline:
                pass
        while self._open and time.monotonic() < deadline:
            if not self._take(_QUIET_SECONDS):
                break


def _widen(descriptor: int) -> None:
    """A larger pipe halves the cost of a flood; refused where a user's pipes hold too much already."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _WIDE_PIPE)
