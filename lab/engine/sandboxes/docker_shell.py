"""The shells kept inside a container: which of them runs the next command, and how its tree is killed.

The container's first process is one of them; nothing inside can kill it. It runs the commands of root, over
the connection it was started with. A command may leave a process running that writes to that shell's own
output: the next ones then go to another shell, started beside it with an output of its own. The same holds,
from the beginning, where commands run as another user.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.docker_connection import Exchange, Stream
from lab.engine.sandboxes.docker_program import command_line, message, receiving_line
from lab.engine.sandboxes.ending import Ended, interrupted_by
from lab.engine.stop import StopSignal

# How long a shell may take to answer what it does at once.
_ANSWER_SECONDS = 20.0
# How long the guard of a command, and then a killer from outside, may take until the shell tells its end.
_GUARD_SECONDS = 1.5
_KILLER_SECONDS = 15.0
# A shell beside the first can be killed by what it runs; how often that is looked for.
_LOOK_SECONDS = 1.0
# Output of processes left running is read and dropped, so that they do not block on a full pipe; up to here.
_LEFT_STREAMS = 16
_LEFT_BYTES = 16 * 1024 * 1024
_PURGES = 3

# Makes the line for a shell out of a token, and whether that shell is bash.
Line = Callable[[bytes, bool], bytes]


class Outside(NamedTuple):
    """What is done through the daemon and not over the connection of a shell."""

    # Starts a further shell, which is ready for commands.
    another: Callable[[], Stream]
    # Kills all processes but the first, from outside.
    kill_all: Callable[[], None]
    # Explains an end nobody asked for.
    why_lost: Callable[[], str]


class ContainerShells:
    """The lab's end of them. One command at a time; `abandon` may be called from any thread."""

    def __init__(self, first: Stream, outside: Outside, *, runs_commands: bool) -> None:
        """`runs_commands` says whether the first shell may: it is root's."""
        self._first = first
        self._runs_commands = runs_commands
        self._outside = outside
        self._current: Stream | None = first if runs_commands else None
        self._left: list[Stream] = []
        self._lost: str | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Held by the thread that runs a command, so that `close` from another one closes nothing in use.
        self._busy = threading.Lock()
        # How many processes the kernel had killed for memory when the last command ended.
        self.memory_kills = 0

    def abandon(self, reason: str) -> None:
        """Let the running and each later command fail with this reason. Quick; from any thread."""
        if self._lost is None:
            self._lost = reason
        self._awake()

    def hang_up(self) -> None:
        """End the connections, from any thread; whoever uses one sees its end. `abandon` first."""
        for stream in self._streams():
            stream.hang_up()

    def close(self) -> None:
        """Close everything, once the thread that runs a command has left. `abandon` first."""
        with self._busy:
            for stream in self._streams():
                stream.close()
            self._left.clear()
            if self._wake >= 0:
                os.close(self._wake)
                self._wake = -1

    def raise_if_lost(self) -> None:
        if self._lost is not None:
            raise SandboxLostError(self._lost)

    def run(
        self,
        body: bytes,
        *,
        timeout: float,
        output_limit: int,
        source: bytes = b"/dev/null",
        stop: StopSignal | None = None,
    ) -> Ended:
        """Run shell text in a fork of a kept shell and follow it to its end; it reads the file `source`.

        Raises:
            SandboxLostError: the sandbox is gone, does not answer, or was abandoned.
        """

        def line(token: bytes, bash: bool) -> bytes:
            return command_line(token, source, body, bash=bash)

        return self._run(line, b"", timeout, output_limit, stop)

    def receive(self, body: bytes, data: bytes, *, timeout: float) -> Ended:
        """Run shell text that reads exactly `data` from descriptor 3.

        Raises: as `run`.
        """

        def line(token: bytes, bash: bool) -> bytes:
            return receiving_line(token, body, bash=bash)

        return self._run(line, data, timeout, 4096, None)

    def _run(
        self, line: Line, following: bytes, timeout: float, output_limit: int, stop: StopSignal | None
    ) -> Ended:
        with self._busy:
            for _ in range(_PURGES):
                self.raise_if_lost()
                stream = self._clean()
                if stream is None:
                    self._purge()
                    continue
                asked = Exchange(output_limit)
                text = line(asked.token, stream.bash)
                if stream.told_guard:
                    text, stream.told_guard = b"lab_fresh; " + text, False
                with interrupted_by(stop, asked, self._awake):
                    self._send(stream, message(stream.key, text, following))
                    ended = self._follow(stream, asked, timeout)
                if asked.answer[:1] != [b"F"]:
                    return ended
                self._purge()
            raise SandboxLostError("No process can be started in the sandbox any more.")

    def _purge(self) -> None:
        """Where commands before left so many processes that none can be added, those go."""
        self._ask(self._first, b"lab_purge")

    def _send(self, stream: Stream, data: bytes) -> None:
        """Raises: SandboxLostError: nobody reads it; a shell beside the first is only replaced then."""
        try:
            stream.send(data)
        except SandboxLostError:
            if stream is self._first:
                self._note_end()
                self.raise_if_lost()
            raise

    def _awake(self) -> None:
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wake, 1)

    def _clean(self) -> Stream | None:
        """A shell to whose output nobody else writes; a new one where there is none.

        None: a new one would have no place beside what commands before have left.

        Raises: SandboxLostError.
        """
        candidates = [self._current] if self._current is not None else []
        if self._runs_commands and self._current is not self._first:
            candidates.append(self._first)
        for stream in candidates:
            if not stream.is_open:
                continue
            if stream.held:
                answer = self._ask(stream, b"lab_ask")
                if answer == [b"F"]:
                    return None
                stream.held = answer != [b"C"]
            if not stream.held:
                self._leave(self._current if stream is not self._current else None)
                self._current = stream
                return stream
        self._leave(self._current)
        self._current = None
        self._current = self._outside.another()
        return self._current

    def _leave(self, stream: Stream | None) -> None:
        """Processes left running may go on to write to this shell's output: it is read and dropped."""
        if stream is None or stream is self._first:
            return
        if stream.is_open:
            self._left.append(stream)
        while len(self._left) > _LEFT_STREAMS:
            self._left.pop(0).close()

    def _streams(self) -> list[Stream]:
        found = [self._first, *self._left]
        if self._current is not None and self._current is not self._first:
            found.append(self._current)
        return found

    def _ask(self, stream: Stream, text: bytes, *words: bytes) -> list[bytes]:
        """Let a shell that runs no command do something it does at once; the words of its answer.

        Raises: SandboxLostError.
        """
        asked = Exchange()
        self._send(stream, message(stream.key, b" ".join([text, asked.token, *words])))
        deadline = time.monotonic() + _ANSWER_SECONDS
        while not asked.is_over():
            self._take(stream, asked, deadline - time.monotonic(), alone=True)
            if not stream.is_open and not asked.is_over():
                if stream is self._first:
                    self._note_end()
                return []
            if time.monotonic() > deadline:
                self.abandon("The sandbox's control shell does not answer any more.")
            self.raise_if_lost()
        return asked.answer

    def _follow(self, stream: Stream, asked: Exchange, timeout: float) -> Ended:
        deadline = asked.began + timeout
        timed_out = interrupted = restarted = False
        looked = asked.began
        while not asked.is_over():
            left = deadline - time.monotonic()
            self._take(stream, asked, left if stream is self._first else min(left, _LOOK_SECONDS))
            if asked.is_over():
                break
            self.raise_if_lost()
            restarted = not stream.is_open
            if stream is not self._first and time.monotonic() - looked >= _LOOK_SECONDS:
                restarted = restarted or self._has_ended(stream)
                looked = time.monotonic()
            interrupted = asked.interrupt_asked
            timed_out = not interrupted and time.monotonic() >= deadline
            if timed_out or interrupted or restarted:
                self._kill(stream, asked, restarted)
                break
        asked.flush()
        code = None
        answer = asked.answer
        if answer[:1] == [b"E"]:
            stream.held = answer[2] == b"H"
            self.memory_kills = int(answer[3])
            code = None if timed_out or interrupted else int(answer[1])
        seconds = time.monotonic() - asked.began
        out, error = asked.stdout.result(), asked.stderr.result()
        return Ended(code, out, error, timed_out, interrupted, restarted, seconds)

    def _take(self, stream: Stream, asked: Exchange, seconds: float, *, alone: bool = False) -> None:
        """Wait for news up to `seconds` and take in what came; of other shells too, unless `alone`."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        watched = [stream] if alone else self._streams()
        by_number = {one.fileno(): one for one in watched if one.is_open}
        for number in by_number:
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(max(0.0, min(seconds, 3600.0)) * 1000 + 0.5):
            if number == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            elif by_number[number] is stream:
                stream.receive(asked.take)
            else:
                self._drop(by_number[number])
        if not self._first.is_open:
            self._note_end()

    def _drop(self, stream: Stream) -> None:
        def count(_: int, content: bytes) -> None:
            stream.dropped += len(content)

        stream.receive(count)
        if stream.dropped > _LEFT_BYTES:
            stream.dropped = 0
            if stream is self._first:
                self._ask(stream, b"lab_cut")
            else:
                stream.close()
        if stream in self._left and not stream.is_open:
            self._left.remove(stream)

    def _note_end(self) -> None:
        if self._lost is None:
            self.abandon(self._outside.why_lost())

    def _has_ended(self, stream: Stream) -> bool:
        """Whether a shell beside the first is gone; one that was stopped is continued.

        Raises: SandboxLostError.
        """
        return self._ask(self._first, b"lab_look", b"%d" % stream.pid) in ([b"-"], [b"Z"], [b"X"])

    def _kill(self, stream: Stream, asked: Exchange, restarted: bool) -> None:
        """Kill the command's tree and wait for the shell to say so; kill everything when it does not.

        Raises: SandboxLostError.
        """
        if restarted:
            # The guard, if it lives, does it once its input ends.
            stream.close()
            return
        stream.told_guard = True
        stream.send(stream.key + b" end\n")
        if self._is_over_within(_GUARD_SECONDS, stream, asked):
            return
        # The guard was killed, or does not find what runs.
        self._outside.kill_all()
        if self._is_over_within(_KILLER_SECONDS, stream, asked) or stream is not self._first:
            return
        self.abandon("The sandbox's control shell does not answer any more.")
        self.raise_if_lost()

    def _is_over_within(self, seconds: float, stream: Stream, asked: Exchange) -> bool:
        deadline = time.monotonic() + seconds
        while not asked.is_over() and stream.is_open and time.monotonic() < deadline:
            self._take(stream, asked, deadline - time.monotonic())
            self.raise_if_lost()
        return asked.is_over()


def greet(stream: Stream, texts: Sequence[Callable[[bytes], bytes]]) -> list[Exchange]:
    """Give a new shell its key and things to do; the shell may still have to be started.

    Raises: SandboxLostError.
    """
    return tell(stream, texts, before=stream.key + b"\n")


def tell(stream: Stream, texts: Sequence[Callable[[bytes], bytes]], *, before: bytes = b"") -> list[Exchange]:
    """Give a shell that waits things to do, one after the other.

    Raises: SandboxLostError.
    """
    asked = [Exchange() for _ in texts]
    lines = [message(stream.key, text(one.token)) for text, one in zip(texts, asked, strict=True)]
    stream.send(before + b"".join(lines))
    return asked


def await_answers(stream: Stream, asked: Sequence[Exchange], seconds: float) -> bool:
    """Wait for the answers of a shell that was told so, the last of which says that it is ready for commands.

    Returns False when it ended or did not answer in time.
    """

    def take(kind: int, content: bytes) -> None:
        for one in asked:
            one.take(kind, content)

    deadline = time.monotonic() + seconds
    poll = select.poll()
    poll.register(stream.fileno(), select.POLLIN)
    while not asked[-1].is_over() and stream.is_open and time.monotonic() < deadline:
        if poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            stream.receive(take)
    for one in asked:
        one.flush()
    if asked[-1].is_over():
        _, number, kind = asked[-1].answer
        stream.pid, stream.bash = int(number), kind == b"bash"
    return asked[-1].is_over()
