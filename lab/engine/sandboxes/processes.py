"""Finds and kills whole trees of processes by what /proc says, without help from the processes themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import NamedTuple

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessEntry(NamedTuple):
    """One line of the process table. `start`: ticks since boot; `cpu_ticks`: with waited-for children."""

    pid: int
    parent: int
    start: int
    state: str
    cpu_ticks: int


Table = dict[int, ProcessEntry]


def entry(pid: int) -> ProcessEntry | None:
    """The table's line for one process; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 (hot: read for every process of the machine)
            text = file.read()
    except OSError:
        return None
    # The name stands in parentheses and may hold anything, parentheses and spaces too.
    fields = text[text.rindex(b")") + 2 :].split()
    cpu_ticks = sum(int(value) for value in fields[11:15])
    return ProcessEntry(pid, int(fields[1]), int(fields[19]), fields[0].decode(), cpu_ticks)


def snapshot() -> Table:
    """All processes this process can see."""
    found = (entry(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {one.pid: one for one in found if one is not None}


def descendants(table: Table, roots: Iterable[int]) -> set[int]:
    """All processes below `roots`, the roots themselves left out."""
    children: dict[int, list[int]] = {}
    for one in table.values():
        children.setdefault(one.parent, []).append(one.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def inner_pid(pid: int) -> int | None:
    """The number a process has in its own PID namespace."""
    try:
        for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
            if line.startswith(b"NSpid:"):
                return int(line.split()[-1])
    except OSError:
        return None
    return pid


def boot_ticks() -> int:
    """Now, in the unit of `ProcessEntry.start`."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * CLOCK_TICKS)


def is_running(pid: int, start: int) -> bool:
    """True while the process that had this number at that start time lives (a zombie does not)."""
    one = entry(pid)
    return one is not None and one.start == start and one.state not in "ZX"


def send(pids: Collection[int], signal_number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)


def kill_selected(select: Callable[[Table], set[int]], *, seconds: float = 2.0) -> bool:
    """Kill everything `select` picks from the table until it picks nothing more; True when that was reached.

    Everything is stopped before anything is killed: a fork bomb whose members are killed one by one uses the
    freed places for new ones, while stopped members neither fork nor free a place.
    """
    deadline = time.monotonic() + seconds
    while True:
        stopped: set[int] = set()
        while True:
            table = snapshot()
            victims = {pid for pid in select(table) if table[pid].state not in "ZX"}
            if not victims:
                return True
            fresh = victims - stopped
            if not fresh or time.monotonic() > deadline:
                break
            send(fresh, signal.SIGSTOP)
            stopped |= fresh
        send(victims, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
