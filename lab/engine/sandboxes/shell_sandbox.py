"""What every sandbox does over a kept shell: checks what it is given, runs commands, reads and writes."""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from lab.engine.sandboxes.base import OUTPUT_HEAD_BYTES, READ_LIMIT_BYTES, ExecResult, SandboxFacts
from lab.engine.sandboxes.ending import Ended, refused, result_of
from lab.engine.sandboxes.file_access import raise_for, read_body
from lab.engine.stop import StopSignal

FILE_SECONDS = 60.0


class ShellSandbox(ABC):
    """See `lab.engine.sandboxes.base.Sandbox`; `start` and `stop` are the providers'."""

    facts: SandboxFacts

    def __init__(self, unexportable: Mapping[str, str]) -> None:
        """`unexportable` are variables of the environment that the kept shell cannot hold."""
        self._unexportable = unexportable

    def exec(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        stdin: bytes = b"",
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        output_limit: int = OUTPUT_HEAD_BYTES,
        stop: StopSignal | None = None,
    ) -> ExecResult:
        if not argv:
            raise ValueError("argv: [] names no command; give the program's name first")
        extra = {**self._unexportable, **(environment or {})}
        folder = posixpath.join(self.facts.workspace, cwd or "")
        if any("\0" in text for text in (*argv, folder, *extra.keys(), *extra.values())):
            self._raise_if_lost()
            return refused("the command holds a NUL byte, which no program can be given")
        kills = self._memory_kills()
        ended = self._run_command(argv, folder, extra, stdin, timeout, output_limit, stop)
        if isinstance(ended, ExecResult):
            return ended
        return result_of(ended, self._memory_kills() > kills)

    def read(self, path: str, *, limit: int = READ_LIMIT_BYTES) -> bytes:
        _refuse_nul(path)
        ended = self._run_body(read_body(self.facts.workspace, path, limit), max(limit + 1, 4096))
        _raise_if_stuck(ended, path)
        raise_for(ended.code, ended.stderr.head, path)
        if ended.stdout.total > limit:
            raise ValueError(f"{path}: is larger than {limit} bytes")
        return ended.stdout.head

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        _refuse_nul(path)
        ended = self._write(path, data, mode)
        _raise_if_stuck(ended, path)
        raise_for(ended.code, ended.stderr.head, path)

    @abstractmethod
    def _raise_if_lost(self) -> None:
        """Raises: SandboxLostError when the sandbox is known to be gone."""

    @abstractmethod
    def _memory_kills(self) -> int:
        """How many processes the kernel has killed for memory, as far as is known."""

    @abstractmethod
    def _run_command(
        self,
        argv: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        stdin: bytes,
        timeout: float,
        output_limit: int,
        stop: StopSignal | None,
    ) -> Ended | ExecResult:
        """Run a checked command; an `ExecResult` says that it could not even be given to the shell."""

    @abstractmethod
    def _run_body(self, body: bytes, output_limit: int) -> Ended:
        """Run shell text of the sandbox's own."""

    @abstractmethod
    def _write(self, path: str, data: bytes, mode: int | None) -> Ended:
        """Put data into a file by shell text."""


def _refuse_nul(path: str) -> None:
    if "\0" in path:
        raise ValueError(f"{path!r}: holds a NUL byte")


def _raise_if_stuck(ended: Ended, path: str) -> None:
    if ended.timed_out or ended.shell_restarted:
        # A FIFO put there between check and opening is the only way to get here with a healthy sandbox.
        raise ValueError(f"{path}: is no regular file, or its file system does not answer")
