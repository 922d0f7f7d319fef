"""Which process started a sandbox, in words that still tell it apart when it is gone."""

from __future__ import annotations

import os
from pathlib import Path

from lab.engine.sandboxes.processes import entry, is_running


def boot_identifier() -> str:
    """Changes with every start of the machine; "" where the kernel does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def own_mark() -> str:
    """This process: its number, when it was started, and in which run of the machine."""
    own = entry(os.getpid())
    return f"{own.pid}:{own.start}:{boot_identifier()}" if own is not None else ""


def mark_lives(mark: str) -> bool:
    """Whether the process of a mark still runs; False for what is no mark."""
    number, _, rest = mark.partition(":")
    start, _, boot = rest.partition(":")
    if not (number.isdecimal() and start.isdecimal() and boot == boot_identifier()):
        return False
    return is_running(int(number), int(start))
