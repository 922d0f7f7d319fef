"""The contract between the engine and the place where an agent's commands run.

A provider gives five primitives: start, exec, read, write, stop. Tools are built on them alone, so nothing
needs to be installed inside a sandbox but a POSIX shell and coreutils. Two kinds of bad news stay apart: a
command that failed is an `ExecResult`; a sandbox that broke is a `SandboxLostError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from lab.engine.stop import StopSignal

OUTPUT_HEAD_BYTES = 1_000_000
OUTPUT_TAIL_BYTES = 64_000
READ_LIMIT_BYTES = 50_000_000


class Output(NamedTuple):
    """What one stream of a command wrote, in bounded memory.

    `head` holds the first bytes up to the limit, `tail` the last bytes of what did not fit (empty when
    nothing was dropped), `total` the true size in bytes. `sha256` covers all bytes, dropped ones included.
    """

    head: bytes
    tail: bytes
    total: int
    sha256: str

    @property
    def truncated(self) -> bool:
        return self.total > len(self.head)

    @property
    def dropped(self) -> int:
        """How many bytes between head and tail are not kept."""
        return max(0, self.total - len(self.head) - len(self.tail))

    def text(self) -> str:
        """The kept bytes as UTF-8 with replacement; a marked gap stands where bytes were dropped."""
        return self.joined(self.head.decode("utf-8", "replace"), self.tail.decode("utf-8", "replace"))

    def joined(self, head: str, tail: str) -> str:
        """The texts of head and tail with the mark of the gap between them, if there is one."""
        mark = f"\n[{self.dropped} bytes of output were dropped here]\n" if self.dropped else ""
        return head + mark + tail


class ExecResult(NamedTuple):
    """How a command ended. `exit_code` is None when it was killed by time-out or interruption."""

    exit_code: int | None
    stdout: Output
    stderr: Output
    timed_out: bool
    interrupted: bool
    out_of_memory: bool
    seconds: float


class ResourceUsage(NamedTuple):
    """What a sandbox used from start to stop; `source` says how it was measured, None that it was not."""

    peak_memory_bytes: int | None
    cpu_seconds: float | None
    wall_seconds: float
    source: str


@dataclass(frozen=True)
class SandboxLimits:
    """Limits for the whole tree of processes; best effort where cgroups are not writable. None: no limit.

    `disk_bytes` bounds what is written to the sandbox's own file system; a provider that cannot hold it says
    so in its notes.
    """

    memory_bytes: int | None = 2 * 1024**3
    processes: int | None = 512
    cpu_cores: float | None = None
    network: bool = False
    disk_bytes: int | None = None


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox is started from.

    `workspace` is the path the agent sees as its working directory. `environment` is the whole environment:
    nothing is inherited from the lab. `read_only_paths` are host folders made readable inside at the same
    path (interpreters, the practice environment). `hidden_paths` are folders below those, or below the
    system's own, that are empty inside, where the isolation can do that. `path_prefix` stands first on PATH,
    in login shells too. `label` names run and attempt, for finding orphans.

    `image` is what the sandbox's file system is made from, where a provider takes one: a reference such as
    `registry/name:tag` or `name@sha256:…`. `build` is a folder with a Dockerfile that makes it instead, which
    reaches the network when `build_network` says so; `image` then is the name it gets, which must stand for
    the folder's content ("" leaves that to the provider). `user` is whom commands run as inside ("" leaves it
    to the image or the provider). Providers without images use the host's own system.
    """

    label: str
    scratch: Path
    workspace: str = "/workspace"
    environment: Mapping[str, str] = field(default_factory=dict)
    read_only_paths: Sequence[Path] = ()
    hidden_paths: Sequence[Path] = ()
    path_prefix: Sequence[str] = ()
    limits: SandboxLimits = SandboxLimits()
    image: str = ""
    build: Path | None = None
    build_network: bool = False
    user: str = ""


class Image(NamedTuple):
    """What a sandbox's file system is made from: the name asked for and what it stood for.

    `identifier` is the content's own (`sha256:…` of the image's configuration), `digest` the registry's
    (`name@sha256:…`), "" where the image came from none. `size_bytes` is None where nobody says.
    """

    reference: str
    identifier: str
    digest: str = ""
    size_bytes: int | None = None


class SandboxFacts(NamedTuple):
    """What is said of a running sandbox in the log and on the page.

    `limits` are those that hold there; in place of one that was asked for and does not hold stands None, and
    the notes say so.
    """

    kind: str
    isolation: str
    identifier: str
    workspace: str
    network: bool
    notes: tuple[str, ...] = ()
    image: Image | None = None
    limits: SandboxLimits | None = None


class Sandbox(Protocol):
    """A running sandbox. Safe to use from one thread; `stop` may be called from any, any number of times."""

    facts: SandboxFacts
    host_workspace: Path | None
    """Where the workspace lies on this machine, for looking at names, sizes and times; None: out of reach.

    The agent owns what is in it: never follow a link below it, and read and write through the sandbox only.
    """

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
        """Run a command to its end and return what it wrote.

        `timeout` is in seconds; when it passes, or when `stop` is set, the command and everything it started
        is killed within 2 seconds, daemonised children included, and what was written so far is returned.
        `environment` is added to the sandbox's own. `output_limit` bounds the kept head of each stream.

        Raises:
            SandboxLostError: the sandbox is gone or does not answer. Never raised for a failing command.
        """

    def read(self, path: str, *, limit: int = READ_LIMIT_BYTES) -> bytes:
        """The content of a file. Relative paths start at the workspace; links resolve inside the sandbox.

        Raises:
            FileNotFoundError, IsADirectoryError, PermissionError, NotADirectoryError: as for a local file.
            ValueError: the file is larger than `limit` bytes, or no regular file.
            SandboxLostError: the sandbox is gone.
        """

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Create or overwrite a file, with its parents. `mode` such as 0o755; None keeps or uses 0o644.

        Raises: as `read`, and OSError for a full disk.
        """

    def usage(self) -> ResourceUsage:
        """What was used so far. Cheap; callable after `stop` too."""

    def stop(self) -> ResourceUsage:
        """Kill everything, remove everything, return what was used. Repeating it does nothing more."""


# Told what is done before a sandbox can start ("pulling python:3.13"), and bytes done and in all where known.
Progress = Callable[[str, int | None, int | None], None]

# Asked of each sandbox that was found: its label, and whether the process that started it still lives.
IsOrphan = Callable[[str, bool], bool]


class SandboxProvider(Protocol):
    """Starts sandboxes of one kind."""

    kind: str

    def available(self) -> str | None:
        """None when this machine can run such sandboxes, else what is missing and the way out."""

    def workspace(self, spec: SandboxSpec) -> str:
        """Where the workspace of such a sandbox lies for the agent, before it starts; "." where that is only
        known later: commands begin there."""

    def prepare(
        self, spec: SandboxSpec, *, progress: Progress | None = None, stop: StopSignal | None = None
    ) -> Image | None:
        """Get what a sandbox is made from onto this machine, pulled or built; None where it needs no image.

        Cheap when it is there already, and only then is `progress` never called. `stop` breaks it off.

        Raises:
            SandboxLostError: it cannot be had; the text says why and what to do.
        """

    def start(self, spec: SandboxSpec) -> Sandbox:
        """Start an empty sandbox whose workspace exists and is empty.

        Raises:
            SandboxLostError: it could not be started; the text says why and what to do.
        """

    def reap(self, scratch_root: Path, is_orphan: IsOrphan) -> list[str]:
        """Remove the sandboxes under `scratch_root` that `is_orphan`; return their labels, sorted."""
