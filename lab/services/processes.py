"""Who a worker process is, and whether another one is still there."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# Where the kernel's line about a process, counted from its state on, has the time of its start.
_START = 19


def process_identity() -> str:
    """`host/pid/start`: the start time tells this process from a later one with its number."""
    pid = os.getpid()
    return f"{socket.gethostname()}/{pid}/{_start_of(pid) or 0}"


def is_dead(identity: str) -> bool:
    """True when `identity` is a process of this machine that is gone. Of other machines nothing is known."""
    host, _, rest = identity.partition("/")
    pid, _, start = rest.partition("/")
    if host != socket.gethostname() or not pid.isdecimal() or not Path("/proc/self/stat").exists():
        return False
    return str(_start_of(int(pid)) or "gone") != start


def is_frozen(identity: str) -> bool:
    """True when `identity` is a process of this machine that somebody has stopped (SIGSTOP) just now."""
    host, _, rest = identity.partition("/")
    pid, _, start = rest.partition("/")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    fields = _stat_of(int(pid))
    return fields is not None and fields[0] == "T" and fields[_START] == start


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped this process (SIGSTOP) and not yet continued it."""
    fields = _stat_of(pid)
    return fields is not None and fields[0] == "T"


def children_of(pid: int) -> list[int]:
    """The processes that this one has started and that are there; none where the kernel does not tell."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            found += map(int, file.read_text().split())
    return found


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when the one that started it dies. Linux only."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _start_of(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is none, or only a zombie."""
    fields = _stat_of(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[_START])


def _stat_of(pid: int) -> list[str] | None:
    """The fields of the kernel's line about a process from its state on; None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name stands in brackets and may hold anything; what follows its last bracket is fixed.
    return stat.rpartition(")")[2].split()
