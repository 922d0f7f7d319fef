"""Pool children that somebody has frozen (SIGSTOP) are ended after a while.

Their runs are taken over when their leases run out, but a pool has so many places, and one that was frozen
while it waited for work holds the lock of all that wait.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time

from lab.services.processes import children_of, is_stopped

FROZEN_SECONDS = 45.0
# Whoever did not look for so long was frozen as well, and knows nothing of the others.
_LONGEST_GAP_SECONDS = 10.0

_log = logging.getLogger(__name__)


class FrozenChildren:
    """Remembers since when the children of this process are frozen, and ends them in time."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._looked = time.monotonic()

    def look(self) -> None:
        """To be called every few seconds."""
        now, gap = time.monotonic(), time.monotonic() - self._looked
        self._looked = now
        known = {} if gap > _LONGEST_GAP_SECONDS else self._since
        frozen = [pid for pid in children_of(os.getpid()) if is_stopped(pid)]
        self._since = {pid: known.get(pid, now) for pid in frozen}
        for pid, since in self._since.items():
            if now - since > FROZEN_SECONDS:
                _log.warning("pool child %s has been frozen for %.0f s and is ended", pid, now - since)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
