"""Telling the workers that there is something to claim. Messages may be lost or doubled without harm."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from django.db import transaction

CLAIM_TASK = "lab.worker.claim_and_run"
# A message nobody took for so long is superfluous: the tick has rung again since.
EXPIRES_SECONDS = 120

_log = logging.getLogger(__name__)
# Whoever launches does not wait for the queue: loading Celery takes half a second the first time.
_sender = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ring")


def ring_workers(*, runs: int = 1) -> None:
    """Queue one message for each of `runs` runs once the transaction is committed, at most one a slot."""
    count = min(runs, settings.LAB_RUN_SLOTS)
    transaction.on_commit(lambda: _sender.submit(_send, count))


def _send(count: int) -> None:
    from lab.celery import RUNS_QUEUE, app

    try:
        for _ in range(count):
            app.send_task(
                CLAIM_TASK, queue=RUNS_QUEUE, ignore_result=True, retry=False, expires=EXPIRES_SECONDS
            )
    except Exception as error:
        # Whatever it is, the runs are in the database: the tick rings again.
        _log.warning("the queue cannot be reached (%s); the tick tries again", error)
