"""How one command of a kept shell ended, and the result the contract makes of it."""

from __future__ import annotations

import contextlib
import hashlib
import re
import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from lab.engine.sandboxes.base import ExecResult, Output
from lab.engine.stop import StopSignal

# Codes of a command that could not be started, and where the kept shell says that it reports this.
_NOT_STARTED = (126, 127)
_SHELL_PREFIX = re.compile(rb"(/proc/self/fd/\d+/next|lab): (line )?\d+: |lab: (?=exec: )")
_KILLED = 128 + signal.SIGKILL


class Ended(NamedTuple):
    """How one command of the kept shell ended. `code` is None when it was killed or lost its shell."""

    code: int | None
    stdout: Output
    stderr: Output
    timed_out: bool
    interrupted: bool
    shell_restarted: bool
    seconds: float


class Interruptible(Protocol):
    """A command that is followed; whoever follows it looks at this when it is woken."""

    interrupt_asked: bool


@contextlib.contextmanager
def interrupted_by(
    stop: StopSignal | None, command: Interruptible, wake: Callable[[], None]
) -> Iterator[None]:
    """While inside, `stop` asks for the command's end and wakes who follows it."""
    if stop is None:
        yield
        return

    def interrupt() -> None:
        command.interrupt_asked = True
        wake()

    with stop.on_set(interrupt):
        yield


def result_of(ended: Ended, out_of_memory: bool) -> ExecResult:
    """The result of a command; what its shell had to say of itself is told or taken out."""
    code, stderr = ended.code, ended.stderr
    if code in _NOT_STARTED and not stderr.truncated and (found := _SHELL_PREFIX.match(stderr.head)):
        stderr = whole(stderr.head[found.end() :])
    if code is None and not ended.timed_out and not ended.interrupted:
        code = _KILLED
        stderr = _with_note(stderr, "the command ended the shell that ran it; a new one was started")
    return ExecResult(
        code, ended.stdout, stderr, ended.timed_out, ended.interrupted, out_of_memory, ended.seconds
    )


def refused(reason: str) -> ExecResult:
    """The result of a command that cannot be started at all."""
    return ExecResult(126, whole(b""), whole(f"{reason}\n".encode()), False, False, False, 0.0)


def whole(text: bytes) -> Output:
    """A stream of which nothing was dropped."""
    return Output(text, b"", len(text), hashlib.sha256(text).hexdigest())


def _with_note(output: Output, note: str) -> Output:
    """The stream followed by a sentence of the sandbox's own; the hash stays that of the command's bytes."""
    text = f"[{note}]\n".encode()
    if output.truncated:
        return output._replace(tail=output.tail + text, total=output.total + len(text))
    return output._replace(head=output.head + text, total=output.total + len(text))
