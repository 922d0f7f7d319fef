"""Control groups of a sandbox: limits for its whole tree, and counters nothing inside can falsify.

Version 1 (one hierarchy a controller) and version 2 are used where this process may write them; elsewhere
limits are best effort, which the facts of a sandbox then say.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from lab.engine.sandboxes.base import SandboxLimits

MOUNT = Path("/sys/fs/cgroup")
PARENT = "lab"
_CPU_PERIOD_MICROSECONDS = 100_000
# The control shell and its fork for a command that cannot be started must always find a place.
_SPARE_PROCESSES = 3


class Counters(NamedTuple):
    """What a group used so far. None where the kernel does not count it."""

    peak_memory_bytes: int | None
    cpu_seconds: float | None


class ControlGroup:
    """The group folders of one sandbox, one in each hierarchy in use (a single one under version 2)."""

    def __init__(self, folders: dict[str, Path], version: int, limits: SandboxLimits) -> None:
        self.version = version
        self._folders = folders
        self._most_processes = limits.processes
        self._kill_counter = self._open("memory", "memory.events" if version == 2 else "memory.oom_control")
        self._process_counter = self._open("pids", "pids.current")

    @property
    def folders(self) -> list[Path]:
        return list(dict.fromkeys(self._folders.values()))

    @property
    def controllers(self) -> frozenset[str]:
        return frozenset(self._folders)

    def add(self, pid: int) -> None:
        """Move a process, and with it everything it will start, into the group.

        Raises:
            OSError: the process is gone or the kernel refuses.
        """
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def members(self) -> set[int]:
        """All processes in the group, as this process numbers them."""
        found: set[int] = set()
        for folder in self.folders:
            with contextlib.suppress(OSError, ValueError):
                found.update(int(line) for line in (folder / "cgroup.procs").read_text().split())
        return found

    def memory_kills(self) -> int:
        """How many processes the kernel killed for memory so far; cheap enough for every command."""
        if self._kill_counter is None:
            return 0
        try:
            text = os.pread(self._kill_counter, 512, 0)
        except OSError:
            return 0
        for line in text.splitlines():
            name, _, value = line.partition(b" ")
            if name == b"oom_kill":
                return int(value)
        return 0

    def is_full(self) -> bool:
        """True when hardly any process can be made any more; cheap enough for every command."""
        if self._process_counter is None or self._most_processes is None:
            return False
        try:
            return int(os.pread(self._process_counter, 32, 0)) >= self._most_processes
        except (OSError, ValueError):
            return False

    def counters(self) -> Counters:
        if self.version == 2:
            folder = self.folders[0]
            microseconds = _keyed(folder / "cpu.stat", "usage_usec")
            return Counters(
                _number(folder / "memory.peak"), None if microseconds is None else microseconds / 1e6
            )
        nanoseconds = _number(self._folders.get("cpuacct", Path("/nonexistent")) / "cpuacct.usage")
        peak = _number(self._folders.get("memory", Path("/nonexistent")) / "memory.max_usage_in_bytes")
        return Counters(peak, None if nanoseconds is None else nanoseconds / 1e9)

    def remove(self) -> None:
        """Remove the folders; members must be dead. Waits a moment for the kernel to notice that they are."""
        for descriptor in (self._kill_counter, self._process_counter):
            if descriptor is not None:
                os.close(descriptor)
        self._kill_counter = self._process_counter = None
        remove_folders(self.folders)

    def _open(self, controller: str, name: str) -> int | None:
        folder = self._folders.get(controller)
        if folder is None:
            return None
        try:
            return os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None


def remove_folders(folders: Iterable[Path]) -> None:
    """Remove group folders that may still be draining; gives up silently after a second."""
    for folder in folders:
        deadline = time.monotonic() + 1.0
        while folder.is_dir():
            try:
                folder.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.005)


def create(name: str, limits: SandboxLimits) -> tuple[ControlGroup | None, list[str]]:
    """Make the groups of a sandbox with its limits set.

    Returns the group, or None where none can be written, and sentences about what is not enforced.
    """
    if (MOUNT / "cgroup.controllers").is_file():
        group = _create_version_2(name, limits)
    else:
        group = _create_version_1(name, limits)
    controllers = group.controllers if group is not None else frozenset()
    notes = []
    for controller, wanted, what in (
        ("memory", limits.memory_bytes, "memory"),
        ("pids", limits.processes, "number of processes"),
        ("cpu", limits.cpu_cores, "CPU"),
    ):
        if wanted is not None and controller not in controllers:
            notes.append(f"The limit on {what} is not enforced: its control group is not writable here.")
    return group, notes


def held(group: ControlGroup | None, limits: SandboxLimits) -> SandboxLimits:
    """What of `limits` holds in a sandbox of this group, None in place of what does not; disk never does."""
    controllers = group.controllers if group is not None else frozenset()
    return replace(
        limits,
        memory_bytes=limits.memory_bytes if "memory" in controllers else None,
        processes=limits.processes if "pids" in controllers else None,
        cpu_cores=limits.cpu_cores if "cpu" in controllers else None,
        disk_bytes=None,
    )


def _create_version_1(name: str, limits: SandboxLimits) -> ControlGroup | None:
    folders: dict[str, Path] = {}
    for controller in ("memory", "pids", "cpuacct", "cpu"):
        if controller == "cpu" and limits.cpu_cores is None:
            continue
        hierarchy = MOUNT / controller
        folder = hierarchy / PARENT / name
        try:
            if not (hierarchy / "cgroup.procs").exists():
                continue
            folder.mkdir(parents=True, exist_ok=True)
            _limit_version_1(controller, folder, limits)
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        folders[controller] = folder
    return ControlGroup(folders, 1, limits) if folders else None


def _limit_version_1(controller: str, folder: Path, limits: SandboxLimits) -> None:
    if controller == "memory" and limits.memory_bytes is not None:
        (folder / "memory.limit_in_bytes").write_text(str(limits.memory_bytes))
        # Swap accounting may be off, or no swap may exist; then the first limit is the whole one.
        with contextlib.suppress(OSError):
            (folder / "memory.memsw.limit_in_bytes").write_text(str(limits.memory_bytes))
    elif controller == "pids" and limits.processes is not None:
        (folder / "pids.max").write_text(str(limits.processes + _SPARE_PROCESSES))
    elif controller == "cpu" and limits.cpu_cores is not None:
        (folder / "cpu.cfs_quota_us").write_text(str(int(limits.cpu_cores * _CPU_PERIOD_MICROSECONDS)))


def _create_version_2(name: str, limits: SandboxLimits) -> ControlGroup | None:
    for base in _candidates_version_2():
        parent = base / PARENT
        folder = parent / name
        try:
            _delegate(base)
            parent.mkdir(exist_ok=True)
            _delegate(parent)
            folder.mkdir()
            _limit_version_2(folder, limits)
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        controllers = (folder / "cgroup.controllers").read_text().split()
        return ControlGroup(dict.fromkeys(controllers or ["none"], folder), 2, limits)
    return None


def _candidates_version_2() -> list[Path]:
    """The own group, and the one above it: a group with processes of its own cannot hand controllers down."""
    own = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2]
    base = MOUNT / own.lstrip("/")
    return [base] if base == MOUNT else [base, base.parent]


def _delegate(folder: Path) -> None:
    control = folder / "cgroup.subtree_control"
    enabled = control.read_text().split()
    offered = (folder / "cgroup.controllers").read_text().split()
    missing = [name for name in ("memory", "pids", "cpu") if name in offered and name not in enabled]
    if missing:
        control.write_text(" ".join(f"+{name}" for name in missing))


def _limit_version_2(folder: Path, limits: SandboxLimits) -> None:
    if limits.memory_bytes is not None:
        (folder / "memory.max").write_text(str(limits.memory_bytes))
        with contextlib.suppress(OSError):
            (folder / "memory.swap.max").write_text("0")
    if limits.processes is not None:
        (folder / "pids.max").write_text(str(limits.processes + _SPARE_PROCESSES))
    if limits.cpu_cores is not None:
        quota = int(limits.cpu_cores * _CPU_PERIOD_MICROSECONDS)
        (folder / "cpu.max").write_text(f"{quota} {_CPU_PERIOD_MICROSECONDS}")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _keyed(path: Path, key: str) -> int | None:
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    except (OSError, ValueError):
        return None
    return None
