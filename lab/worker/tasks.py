"""The worker's tasks: claim, run or examine, return. Everything they decide with stands in the database."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import select
import signal
import socket
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from celery import signals  # type: ignore[import-untyped] # has no types
from django.conf import settings
from django.db import DatabaseError, close_old_connections, connections

from lab.celery import app
from lab.engine.errors import ExitReason
from lab.engine.stop import StopSignal
from lab.services import heartbeats, interchange, judging, otlp, preflights, queue
from lab.services.messages import (
    EXAMINE_TASK,
    IMPORT_TASK,
    JUDGE_TASK,
    RUNS_QUEUE,
    ring_for_imports,
    ring_for_judges,
    ring_for_preflights,
    ring_workers,
)
from lab.services.processes import die_with_parent, process_identity
from lab.worker.frozen import FrozenChildren

BEAT_SECONDS = 2.0

_log = logging.getLogger(__name__)
# The worker's main process keeps the writing end open for as long as it wants runs to go on. Its pool
# children hear the end of file when it is killed, and before that a byte, which nobody takes out, when it is
# stopped.
_hear, _speak = os.pipe()
# A pool child that is stopped itself, as by a service manager that stops every process, hears it here.
_hear_own, _speak_own = os.pipe()
_TOLD_SECONDS = 0.5
# Beside the time that runs get for a stop: what Celery needs to end.
_CELERY_SECONDS = 10.0


@app.task(name="lab.worker.claim_and_run", ignore_result=True)  # type: ignore[untyped-decorator]
def claim_and_run() -> None:
    """Claim the next run that may start and run one attempt of it."""
    _unless_it_stops(_claim_and_run)


@app.task(name=EXAMINE_TASK, ignore_result=True)  # type: ignore[untyped-decorator]
def examine() -> None:
    """Take the preflight that has waited longest and examine its model."""
    _unless_it_stops(_examine)


@app.task(name=IMPORT_TASK, ignore_result=True)  # type: ignore[untyped-decorator]
def read_import() -> None:
    """Take the import that has waited longest and read it."""
    _unless_it_stops(_read_import)


@app.task(name=JUDGE_TASK, ignore_result=True)  # type: ignore[untyped-decorator]
def judge() -> None:
    """Take the run that has waited longest for a judge, and let it be read."""
    _unless_it_stops(_judge)


def _unless_it_stops(act: Callable[[], None]) -> None:
    close_old_connections()
    # Set for each task: the pool sets its own handler after a child has started.
    before = signal.signal(signal.SIGTERM, lambda *_: os.write(_speak_own, b"s"))
    try:
        if not _stops(within=0.0):
            act()
    finally:
        signal.signal(signal.SIGTERM, before)
    if _waiting(_hear_own):
        # Once the pool has heard that this task is done: it takes a child that ends within one for lost.
        threading.Timer(_TOLD_SECONDS, os._exit, (0,)).start()


def _claim_and_run() -> None:
    claim = queue.claim_next(worker=process_identity())
    if claim is None:
        return
    from lab.worker.execution import Execution

    execution = Execution(claim)
    # A byte is an orderly stop; the end of file alone is the death of the main process.
    with _heard(lambda: execution.hand_over(orderly=_waiting(_hear) or _waiting(_hear_own))):
        execution.run()


def _examine() -> None:
    preflight = preflights.claim_next(worker=process_identity())
    if preflight is None:
        return
    from lab.services import preflight_work

    stop = StopSignal()
    with _heard(lambda: stop.set(ExitReason.INFRASTRUCTURE_ERROR)):
        preflight_work.conduct(preflight=preflight, stop=stop)


def _read_import() -> None:
    traces = otlp.anything_due()
    if not traces and not interchange.anything_goes_on():
        return
    from lab.services import import_reading, otlp_runs

    stop = StopSignal()
    with _heard(lambda: stop.set(ExitReason.INFRASTRUCTURE_ERROR)):
        if traces:
            otlp_runs.assemble(worker=process_identity(), stop=stop)
        import_reading.advance(worker=process_identity(), stop=stop)


def _judge() -> None:
    reading = judging.claim_next()
    if reading is None:
        return
    from lab.services import judge_work

    stop = StopSignal()
    with _heard(lambda: stop.set(ExitReason.INFRASTRUCTURE_ERROR)):
        judge_work.conduct(reading=reading, stop=stop)
    if judging.waiting_count():
        # One message brings one reading: those behind it wait for no tick.
        ring_for_judges()


@contextlib.contextmanager
def _heard(when_it_stops: Callable[[], None]) -> Iterator[None]:
    """Call it when the main process stops or dies, or this one is to stop, while the block runs."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            if _stops(within=0.2):
                when_it_stops()
                connections.close_all()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _stops(*, within: float) -> bool:
    """Whether the main process has stopped or died, or this one is to stop; waits up to `within` seconds."""
    readable, _, _ = select.select([_hear, _hear_own], [], [], within)
    return bool(readable)


def _waiting(pipe: int) -> bool:
    """Whether there are bytes in it."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder) > 0


@signals.worker_init.connect  # type: ignore[untyped-decorator]
def _worker_starts(sender: Any, **_: Any) -> None:
    """Load the engine before pool children are forked: they share it, and the first run starts at once."""
    if RUNS_QUEUE in sender.app.amqp.queues.consume_from:
        from lab.worker.execution import warm_up

        warm_up()


@signals.worker_process_init.connect  # type: ignore[untyped-decorator]
def _child_starts(**_: Any) -> None:
    """A pool child: it dies with the worker, and hears when the worker or this child itself is stopped."""
    global _hear_own, _speak_own  # noqa: PLW0603 - one pair for each process, not one for all of them
    die_with_parent()
    os.close(_speak)
    _hear_own, _speak_own = os.pipe()
    # The parent's connection must not be shared across the fork.
    connections.close_all()


@signals.worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _worker_stops_now(**_: Any) -> None:
    """Hand over what is being run, instead of waiting for its end."""
    with contextlib.suppress(OSError):
        os.write(_speak, b"s")
        os.close(_speak)
    # Celery waits for ever for what a killed child had begun.
    end = threading.Timer(settings.LAB_STOP_SECONDS + _CELERY_SECONDS, os._exit, (0,))
    end.daemon = True
    end.start()


@signals.worker_ready.connect  # type: ignore[untyped-decorator]
def _worker_is_ready(sender: Any, **_: Any) -> None:
    """Say that this worker is alive, for the first page and /readyz, and take up what waits."""
    queues = sorted(sender.app.amqp.queues.consume_from)
    name = f"{queues[0]}@{socket.gethostname()}-{os.getpid()}"
    threading.Thread(target=_beat, args=(name,), name="heartbeat", daemon=True).start()


def _beat(name: str) -> None:
    frozen = FrozenChildren()
    _ring_for_what_waits()
    while True:
        frozen.look()
        try:
            heartbeats.beat(name=name)
        except OSError as error:
            _log.warning("the heartbeat cannot be written (%s)", error)
        time.sleep(BEAT_SECONDS)


def _ring_for_what_waits() -> None:
    """Messages that came while no worker was there may have gone to the one before, which took none."""
    try:
        if waiting := queue.startable_runs():
            ring_workers(runs=waiting)
        if preflights.anything_goes_on():
            ring_for_preflights()
        if interchange.anything_goes_on():
            ring_for_imports()
        if judging.anything_goes_on():
            ring_for_judges()
    except DatabaseError as error:
        _log.warning("the queue cannot be looked at yet (%s); the tick looks later", error)
    finally:
        connections.close_all()
