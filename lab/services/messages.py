"""Telling the workers that there is something to claim. Messages may be lost or doubled without harm."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import transaction

CLAIM_TASK = "lab.worker.claim_and_run"

_log = logging.getLogger(__name__)


def ring_workers(*, runs: int = 1) -> None:
    """Queue one message for each of `runs` runs once the transaction is committed, at most one a slot."""
    count = min(runs, settings.LAB_RUN_SLOTS)
    transaction.on_commit(lambda: _send(count))


def _send(count: int) -> None:
    # Imported late: the web process is up before Celery is loaded, and most pages never need it.
    from lab.celery import RUNS_QUEUE, app

    try:
        for _ in range(count):
            app.send_task(CLAIM_TASK, queue=RUNS_QUEUE, ignore_result=True, retry=False)
    except (OSError, app.connection_for_write().connection_errors) as error:
        # The runs are in the database: the tick rings again as soon as the queue can be reached.
        _log.warning("the queue cannot be reached (%s); the tick tries again", error)
