"""Appends to one run's log: `python -m tests.services.writer DATABASE RUN TOKEN STEPS`."""

from __future__ import annotations

import sys

import django

if __name__ == "__main__":
    django.setup()

    from django.db import connections

    from lab.services import log
    from tests.services import events as ev

    database, run_id, token, steps = sys.argv[1:]
    connections.databases["default"]["NAME"] = database
    for step in range(1, int(steps) + 1):
        log.append(
            run_id=int(run_id),
            attempt=1,
            lease_token=int(token),
            events=[ev.call_started(step), ev.call_finished(step)],
        )
