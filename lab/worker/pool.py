"""Celery's pool of processes, made to outlive the death of any of its children.

With a broker that has no event loop, as the built-in one, all children read one pipe under one lock.
Billiard's lock is a semaphore: a child that is killed while it waits for work takes it along, and no other
child ever gets a task again. The kernel gives this lock back.
"""

from __future__ import annotations

import fcntl
import tempfile
import time
from typing import Any

from billiard.pool import Pool  # type: ignore[import-untyped] # has no types
from celery.concurrency import prefork  # type: ignore[import-untyped] # has no types

_LOOK_SECONDS = 0.05


class KernelLock:
    """Excludes a process and its forks from each other, not the threads of one; dies with its holder."""

    def __init__(self) -> None:
        # Never closed while the process lives: closing any of a file's descriptors drops its locks.
        self._file = tempfile.TemporaryFile()  # noqa: SIM115

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Take it; False when it is somebody else's and `block` is off or `timeout` seconds have passed."""
        if block and timeout is None:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            return True
        until = time.monotonic() + (timeout or 0.0 if block else 0.0)
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                if time.monotonic() >= until:
                    return False
                time.sleep(_LOOK_SECONDS)
            else:
                return True

    def release(self) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN)

    def __enter__(self) -> KernelLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class LastingPool(Pool):  # type: ignore[misc] # has no types
    """Billiard's pool with locks that a killed child cannot keep."""

    def _setup_queues(self) -> None:
        super()._setup_queues()
        for queue in (self._inqueue, self._outqueue):
            queue._rlock, queue._wlock = KernelLock(), KernelLock()


class TaskPool(prefork.TaskPool):  # type: ignore[misc] # has no types
    """Celery's prefork pool over `LastingPool`; with an event loop each child has a pipe of its own."""

    BlockingPool: Any = LastingPool
