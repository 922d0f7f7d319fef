"""What processes use, read from outside: their processor time, and their memory without what they share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE_SECONDS = 0.05


class Memory(NamedTuple):
    """Megabytes: what is a process's own, and that with its part of what it shares."""

    private: float
    proportional: float


def tree(root: int) -> list[int]:
    """The process and all that descend from it, by pid."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                children.setdefault(int(_stat(int(folder.name))[1]), []).append(int(folder.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def command(pid: int) -> str:
    """Its command line, "" for a process that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of those children that it has outlived, 0 for one that is gone."""
    with suppress(OSError):
        return sum(map(int, _stat(pid)[11:15])) / _TICKS
    return 0.0


def memory(pid: int) -> Memory:
    """What it holds now, 0 for one that is gone."""
    kilobytes = {"Private_Clean:": 0, "Private_Dirty:": 0, "Pss:": 0}
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, *rest = line.split()
            if name in kilobytes:
                kilobytes[name] = int(rest[0])
    private = kilobytes["Private_Clean:"] + kilobytes["Private_Dirty:"]
    return Memory(private / 1024, kilobytes["Pss:"] / 1024)


@contextmanager
def peak_private(pids: Iterable[int]) -> Iterator[dict[int, float]]:
    """The most megabytes of its own that each process holds during the block; looked at 20 times a second."""
    peaks = {pid: memory(pid).private for pid in pids}
    over = threading.Event()

    def sample() -> None:
        while not over.wait(_SAMPLE_SECONDS):
            for pid in peaks:
                peaks[pid] = max(peaks[pid], memory(pid).private)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield peaks
    finally:
        over.set()
        sampler.join()


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
