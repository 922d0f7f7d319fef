"""A sandbox on this machine: a kept shell, a control group, folders; common to process and bubblewrap."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.base import ResourceUsage, SandboxFacts
from lab.engine.sandboxes.cgroup import ControlGroup
from lab.engine.sandboxes.ending import Ended
from lab.engine.sandboxes.file_access import write_body
from lab.engine.sandboxes.folders import SandboxFolders
from lab.engine.sandboxes.kept_shell import KeptShell
from lab.engine.sandboxes.processes import (
    CLOCK_TICKS,
    ProcessEntry,
    Table,
    descendants,
    entry,
    inner_pid,
    is_running,
    kill_selected,
    send,
)
from lab.engine.sandboxes.shell_program import command_body
from lab.engine.sandboxes.shell_sandbox import FILE_SECONDS, ShellSandbox
from lab.engine.stop import StopSignal


class Parts(NamedTuple):
    """What a provider has started.

    `first` is the process the lab started. All processes of the sandbox stand below `root`: the sandbox's
    process 1, or the supervisor. `own_numbers` says that the sandbox numbers its processes itself.
    `unexportable` are variables of the environment that the kept shell cannot hold.
    """

    folders: SandboxFolders
    shell: KeptShell
    group: ControlGroup | None
    first: subprocess.Popen[bytes]
    root: int
    own_numbers: bool
    unexportable: Mapping[str, str]


class LocalSandbox(ShellSandbox):
    """See `lab.engine.sandboxes.base.Sandbox`."""

    def __init__(self, facts: SandboxFacts, parts: Parts) -> None:
        super().__init__(parts.unexportable)
        self.facts = facts
        self.host_workspace: Path | None = parts.folders.workspace
        self._parts = parts
        self._shell = parts.shell
        self._group = parts.group
        # With its start time, so that a number used again for another process is not mistaken for it.
        self._root = entry(parts.root)
        self._started = time.monotonic()
        self._final: ResourceUsage | None = None
        # stop() may come from the run, the lease thread and the reaper at once.
        self._stopping = threading.Lock()

    def _raise_if_lost(self) -> None:
        self._shell.raise_if_lost()

    def _memory_kills(self) -> int:
        return self._group.memory_kills() if self._group is not None else 0

    def _run_command(
        self,
        argv: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        stdin: bytes,
        timeout: float,
        output_limit: int,
        stop: StopSignal | None,
    ) -> Ended:
        self._make_room()
        return self._shell.run(
            command_body(argv, folder, environment),
            timeout=timeout,
            output_limit=output_limit,
            killer=self._kill_command,
            stdin=stdin,
            stop=stop,
        )

    def _run_body(self, body: bytes, output_limit: int, stdin: bytes = b"") -> Ended:
        return self._shell.run(
            body, timeout=FILE_SECONDS, output_limit=output_limit, killer=self._kill_command, stdin=stdin
        )

    def _write(self, path: str, data: bytes, mode: int | None) -> Ended:
        return self._run_body(write_body(self.facts.workspace, path, mode), 4096, data)

    def usage(self) -> ResourceUsage:
        if self._final is not None:
            return self._final
        peak, cpu, source = None, None, "process table"
        if self._group is not None:
            peak, cpu = self._group.counters()
            source = f"cgroup v{self._group.version}"
        if cpu is None:
            found = entry(self._parts.root)
            cpu = found.cpu_ticks / CLOCK_TICKS if found is not None else None
        return ResourceUsage(peak, cpu, time.monotonic() - self._started, source)

    def stop(self) -> ResourceUsage:
        with self._stopping:
            if self._final is None:
                self._shell.abandon("The sandbox was stopped.")
                self._final = self._end()
            return self._final

    def _end(self) -> ResourceUsage:
        parts = self._parts
        if parts.own_numbers:
            # The kernel ends every process of a namespace with its process 1.
            if self._root is not None and is_running(parts.root, self._root.start):
                send([parts.root], signal.SIGKILL)
        else:
            send([parts.root], signal.SIGSTOP)
            kill_selected(lambda table: self._members(table) - {parts.root})
            send([parts.root], signal.SIGKILL)
        peak, cpu = _wait(parts.first)
        used = self.usage()
        if used.peak_memory_bytes is None:
            used = used._replace(peak_memory_bytes=peak, source=f"{used.source}, largest process")
        if used.cpu_seconds is None:
            used = used._replace(cpu_seconds=cpu)
        self._shell.close()
        if self._group is not None:
            self._group.remove()
        parts.folders.remove()
        return used

    def _members(self, table: Table) -> set[int]:
        found = descendants(table, [self._parts.root])
        if self._group is not None:
            found |= self._group.members() & table.keys()
        return found

    def _make_room(self) -> None:
        """Where commands before left so many processes that none can be added, those go."""
        if self._group is not None and self._group.is_full():
            self._kill_command(None, 0)

    def _kill_command(self, leader: int | None, began: int) -> None:
        """Kill what a command started, daemons included; spare what earlier commands left running.

        A process belongs to the command when it is not older than its leader (or, when that is unknown, than
        the command itself) and no older process of the sandbox stands above it. Without a leader the shell
        could not even fork: then everything goes.
        """
        root = self._parts.root
        kept = {root}
        if leader is not None:
            kept.add(root if self._parts.own_numbers else self._shell.pid or root)
        first: ProcessEntry | None = None

        def chosen(table: Table) -> set[int]:
            nonlocal first
            members = self._members(table) - kept
            if leader is None:
                return members
            first = first or self._find_leader(table, leader)
            oldest = (first.start, first.pid) if first is not None else (began, 0)
            return {pid for pid in members if _is_younger(table, pid, oldest, kept)}

        kill_selected(chosen)

    def _find_leader(self, table: Table, leader: int) -> ProcessEntry | None:
        if not self._parts.own_numbers:
            return table.get(leader)
        for one in table.values():
            if one.parent == self._parts.root and inner_pid(one.pid) == leader:
                return one
        return None


def _is_younger(table: Table, pid: int, oldest: tuple[int, int], kept: set[int]) -> bool:
    """True when the process and all above it, up to a kept one, are not older than `oldest`."""
    while pid not in kept:
        one = table.get(pid)
        if one is None or pid == 1:
            return True
        if (one.start, one.pid) < oldest:
            return False
        pid = one.parent
    return True


def _wait(process: subprocess.Popen[bytes]) -> tuple[int | None, float | None]:
    """Collect the first process: peak memory in bytes of its largest descendant, CPU seconds, if known."""
    deadline = time.monotonic() + 2.0
    while process.returncode is None:
        try:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
        except ChildProcessError:
            process.returncode = -signal.SIGKILL
            return None, None
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return used.ru_maxrss * 1024, used.ru_utime + used.ru_stime
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.001)
    return None, None


def lost(what: str, error: BaseException, log: bytes = b"") -> SandboxLostError:
    """The error of a start that failed, with what the program that failed had to say."""
    said = log.decode("utf-8", "replace").strip()[-500:]
    return SandboxLostError(f"{what}: {said or error}")
