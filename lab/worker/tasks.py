"""The worker's one task for runs: claim, run, return. Everything it decides with stands in the database."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import select
import socket
import sys
import termios
import threading
import time
from typing import TYPE_CHECKING, Any

from celery import signals  # type: ignore[import-untyped] # has no types
from django.db import close_old_connections, connections

from lab.celery import RUNS_QUEUE, app
from lab.services import heartbeats, queue
from lab.services.processes import die_with_parent, process_identity

if TYPE_CHECKING:
    from lab.worker.execution import Execution

BEAT_SECONDS = 2.0

_log = logging.getLogger(__name__)
# The worker's main process keeps the writing end open for as long as it wants runs to go on. Its pool
# children hear the end of file when it is killed, and before that a byte, which nobody takes out, when it is
# stopped.
_hear, _speak = os.pipe()


@app.task(name="lab.worker.claim_and_run", ignore_result=True)  # type: ignore[untyped-decorator]
def claim_and_run() -> None:
    """Claim the next run that may start and run one attempt of it."""
    close_old_connections()
    if _worker_stops(within=0.0):
        return
    claim = queue.claim_next(worker=process_identity())
    if claim is None:
        return
    from lab.worker.execution import Execution

    execution = Execution(claim)
    ended = threading.Event()
    watcher = threading.Thread(target=_hand_over_when_the_worker_stops, args=(execution, ended), daemon=True)
    watcher.start()
    try:
        execution.run()
    finally:
        ended.set()
        watcher.join()


def _hand_over_when_the_worker_stops(execution: Execution, ended: threading.Event) -> None:
    while not ended.is_set():
        if _worker_stops(within=0.2):
            execution.hand_over(orderly=_stop_is_orderly())
            connections.close_all()
            return


def _worker_stops(*, within: float) -> bool:
    """Whether the main process has stopped or died; waits up to `within` seconds for it."""
    readable, _, _ = select.select([_hear], [], [], within)
    return bool(readable)


def _stop_is_orderly() -> bool:
    waiting = fcntl.ioctl(_hear, termios.FIONREAD, bytes(4))
    return int.from_bytes(waiting, sys.byteorder) > 0


@signals.worker_init.connect  # type: ignore[untyped-decorator]
def _worker_starts(sender: Any, **_: Any) -> None:
    """Load the engine before pool children are forked: they share it, and the first run starts at once."""
    if RUNS_QUEUE in sender.app.amqp.queues.consume_from:
        from lab.worker.execution import warm_up

        warm_up()


@signals.worker_process_init.connect  # type: ignore[untyped-decorator]
def _child_starts(**_: Any) -> None:
    """A pool child: it dies with the worker, and hears when the worker stops."""
    die_with_parent()
    os.close(_speak)
    # The parent's connection must not be shared across the fork.
    connections.close_all()


@signals.worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _worker_stops_now(**_: Any) -> None:
    """Hand over what is being run, instead of waiting for its end."""
    with contextlib.suppress(OSError):
        os.write(_speak, b"s")
        os.close(_speak)


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
            _log.warning("the heartbeat cannot be written (%s)", error)
        time.sleep(BEAT_SECONDS)
