"""A sandbox whose commands write what a recording says, in order, without running anything."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.base import (
    OUTPUT_HEAD_BYTES,
    OUTPUT_TAIL_BYTES,
    READ_LIMIT_BYTES,
    ExecResult,
    Output,
    ResourceUsage,
    SandboxFacts,
)
from lab.engine.stop import StopSignal

_NOTHING = Output(b"", b"", 0, hashlib.sha256(b"").hexdigest())


class Recorded(NamedTuple):
    """What a command wrote and returned; `exit_code` None: it was stopped by its time-out."""

    output: str
    exit_code: int | None = 0


class RecordedSandbox:
    """Answers each command with the next recording; `commands` are those it was asked for."""

    facts = SandboxFacts("recorded", "none", "recorded", "/testbed", network=False)
    host_workspace: Path | None = None

    def __init__(self, recordings: Sequence[Recorded]) -> None:
        self._left = list(reversed(recordings))
        self.commands: list[str] = []

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
        self.commands.append(argv[-1])
        if not self._left:
            raise SandboxLostError("the recording has ended")
        recorded = self._left.pop()
        written = recorded.output.encode()
        head, rest = written[:output_limit], written[output_limit:]
        tail = rest[-OUTPUT_TAIL_BYTES:]
        output = Output(head, tail, len(written), hashlib.sha256(written).hexdigest())
        is_stopped = recorded.exit_code is None
        return ExecResult(recorded.exit_code, output, _NOTHING, is_stopped, False, False, 0.01)

    def read(self, path: str, *, limit: int = READ_LIMIT_BYTES) -> bytes:
        raise FileNotFoundError(2, "No such file or directory", path)

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        raise PermissionError(13, "Permission denied", path)

    def usage(self) -> ResourceUsage:
        return ResourceUsage(None, None, 0.0, "")

    def stop(self) -> ResourceUsage:
        return self.usage()
