"""Signs of life of the lab's processes: files whose time is new. A row would wake every watcher."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from django.conf import settings

FRESH_SECONDS = 15.0
TICK_SECONDS = 60.0


def beat(*, name: str) -> None:
    """Say that the process `name` (such as `runs@host-123`) is alive.

    Raises:
        OSError: the data folder cannot be written.
    """
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()


def ages(*, prefix: str) -> list[float]:
    """Seconds since each process whose name begins with `prefix` was last heard of, the newest first."""
    now = time.time()
    found = []
    for file in _folder().glob(f"{prefix}*"):
        try:
            found.append(now - file.stat().st_mtime)
        except FileNotFoundError:
            continue
    return sorted(found)


def tick_is_heard() -> bool:
    """Whether somebody looks after leases and sandboxes. A tick may wait a while for a locked database."""
    seconds = ages(prefix="tick")
    return bool(seconds) and seconds[0] < TICK_SECONDS


def remove_old(*, older_than: float = 3600.0) -> None:
    """Forget processes not heard of for so many seconds."""
    for file in _folder().glob("*"):
        # Another lab process may remove it at the same time.
        with contextlib.suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > older_than:
                file.unlink()


def _folder() -> Path:
    return Path(settings.LAB_DATA_DIR) / "heartbeats"
