"""The worker's one task for runs: claim, run, return. Everything it decides with stands in the database."""

from __future__ import annotations

import os
import signal
import socket
import threading
from types import FrameType
from typing import Any

import structlog
from celery import signals  # type: ignore[import-untyped] # has no types
from django.db import close_old_connections, connections

from lab.celery import app
from lab.services import heartbeats, queue
from lab.worker.execution import Execution
from lab.worker.processes import die_with_parent, process_identity

BEAT_SECONDS = 2.0

_log = structlog.get_logger(__name__)
_stopping = threading.Event()
_current: Execution | None = None


@app.task(name="lab.worker.claim_and_run", ignore_result=True)  # type: ignore[untyped-decorator]
def claim_and_run() -> None:
    """Claim the next run that may start and run one attempt of it."""
    global _current
    close_old_connections()
    if _stopping.is_set():
        return
    claim = queue.claim_next(worker=process_identity())
    if claim is None:
        return
    _current = Execution(claim)
    try:
        _current.run()
    finally:
        _current = None


@signals.worker_process_init.connect  # type: ignore[untyped-decorator]
def _child_starts(**_: Any) -> None:
    """A pool child: it dies with the worker, and hands its run over when it is told to stop."""
    die_with_parent()
    # The parent's connection must not be shared across the fork.
    connections.close_all()
    signal.signal(signal.SIGTERM, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    _stopping.set()
    execution = _current
    if execution is None:
        raise SystemExit(0)
    # On a thread of its own: the interrupted one may hold the very locks that stopping needs.
    threading.Thread(target=execution.hand_over, name="hand-over", daemon=True).start()


@signals.worker_ready.connect  # type: ignore[untyped-decorator]
def _worker_is_ready(sender: Any, **_: Any) -> None:
    """Say that this worker is alive, for the first page and /readyz."""
    queues = sorted(sender.app.amqp.queues.consume_from)
    name = f"{queues[0]}@{socket.gethostname()}-{os.getpid()}"
    threading.Thread(target=_beat, args=(name,), name="heartbeat", daemon=True).start()


def _beat(name: str) -> None:
    while True:
        try:
            heartbeats.beat(name=name)
        except OSError as error:
            _log.warning("the heartbeat cannot be written", error=str(error))
        if _stopping.wait(BEAT_SECONDS):
            return
