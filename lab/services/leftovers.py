"""Files that a process was writing when it was killed. Each is complete somewhere else, or nobody's."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from django.conf import settings

# Nobody writes one file for so long.
OLD_SECONDS = 3600.0
_PATTERNS = ("blobs/*/.*", "reserve.*", "queue/incoming/*", "queue/taken/*")


def remove() -> int:
    """Remove what lies there for longer than an hour; returns how many files."""
    folder, count = Path(settings.LAB_DATA_DIR), 0
    for pattern in _PATTERNS:
        for file in folder.glob(pattern):
            # Somebody else may look after the same folder.
            with contextlib.suppress(OSError):
                if time.time() - file.stat().st_mtime > OLD_SECONDS:
                    file.unlink()
                    count += 1
    return count
