"""A few bytes kept back on the data folder's disk, for the end of a run when it is full."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from django.conf import settings

RESERVE_BYTES = 1_000_000
# So much must be left beside the reserve before it is taken: it is not to be what fills the disk.
_LEFT_BYTES = 3_000_000


def is_full(error: BaseException) -> bool:
    """Whether a database or a file could not be written because nothing more fits."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "disk is full" in str(error) or "No space left" in str(error)


def keep_reserve() -> None:
    """Take the reserve again, if it is gone and there is room. Failing to is no error."""
    reserve = _reserve()
    if reserve.exists() or shutil.disk_usage(reserve.parent).free < RESERVE_BYTES + _LEFT_BYTES:
        return
    beside = reserve.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        # Random bytes: a file system that compresses would keep nothing of zeros.
        beside.write_bytes(os.urandom(RESERVE_BYTES))
        beside.rename(reserve)
    beside.unlink(missing_ok=True)


def give_up_reserve() -> None:
    """Let whoever has something important to write have the reserve."""
    with contextlib.suppress(OSError):
        _reserve().unlink(missing_ok=True)


def _reserve() -> Path:
    return Path(settings.LAB_DATA_DIR) / "reserve"
