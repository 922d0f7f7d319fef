"""Telling the workers that there is something to claim. Messages may be lost or doubled without harm."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from django.db import transaction

RUNS_QUEUE = "runs"
# What people wait for while they look: preflights, imports. Runs never take the worker's last
# `SHORT_CHILDREN`.
SHORT_QUEUE = "short"
SHORT_CHILDREN = 2
CLAIM_TASK = "lab.worker.claim_and_run"
EXAMINE_TASK = "lab.worker.examine"
IMPORT_TASK = "lab.worker.read_import"
JUDGE_TASK = "lab.worker.judge"
# A message nobody took for so long is superfluous: the tick has rung again since.
EXPIRES_SECONDS = 120

_log = logging.getLogger(__name__)


def ring_workers(*, runs: int = 1) -> None:
    """Queue one message for each of `runs` runs once the transaction is committed, at most one a slot."""
    transaction.on_commit(lambda: _senders[CLAIM_TASK].send(runs))


def ring_for_preflights() -> None:
    """Queue one message, for one preflight that waits, once the transaction is committed."""
    transaction.on_commit(lambda: _senders[EXAMINE_TASK].send(1))


def ring_for_imports() -> None:
    """Queue one message, for one import that waits, once the transaction is committed."""
    transaction.on_commit(lambda: _senders[IMPORT_TASK].send(1))


def ring_for_judges() -> None:
    """Queue one message, for one reading by a judge that waits, once the transaction is committed."""
    transaction.on_commit(lambda: _senders[JUDGE_TASK].send(1))


class _Sender:
    """Sends on a thread of its own: whoever launches waits neither for a broker that is away nor for Celery,
    which takes half a second to load."""

    def __init__(self, task: str) -> None:
        self._task = task
        # Guards the two fields below: requests and the threads of a run ring at once.
        self._lock = threading.Lock()
        self._due = 0
        self._sends = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ring")

    def send(self, count: int) -> None:
        """Send so many messages soon. While a broker does not answer, those that wait do not pile up."""
        with self._lock:
            self._due = min(self._due + count, settings.LAB_RUN_SLOTS)
            if self._sends:
                return
            self._sends = True
        self._thread.submit(self._send_what_is_due)

    def _send_what_is_due(self) -> None:
        while True:
            with self._lock:
                count, self._due = self._due, 0
                self._sends = count > 0
            if not count:
                return
            if self._task == CLAIM_TASK:
                _send(count)
            else:
                _queue_messages(self._task, SHORT_QUEUE, count)


def _send(count: int) -> None:
    _queue_messages(CLAIM_TASK, RUNS_QUEUE, count)


def _queue_messages(task: str, queue: str, count: int) -> None:
    from lab.celery import app

    try:
        for _ in range(count):
            app.send_task(task, queue=queue, ignore_result=True, retry=False, expires=EXPIRES_SECONDS)
    except Exception as error:
        # Whatever it is, the work is in the database: the tick rings again.
        _log.warning("the queue cannot be reached (%s); the tick tries again", error)


def _begin_anew() -> None:
    _senders.update((task, _Sender(task)) for task in (CLAIM_TASK, EXAMINE_TASK, IMPORT_TASK, JUDGE_TASK))


_senders: dict[str, _Sender] = {}
_begin_anew()
# A fork has no thread of its parent's.
os.register_at_fork(after_in_child=_begin_anew)
