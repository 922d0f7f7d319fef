"""Keeps the lease of an attempt and listens to people, on a thread and a database connection of its own."""

from __future__ import annotations

import logging
import threading
import time

from django.conf import settings
from django.db import DatabaseError, connections

from lab.engine.errors import ExitReason, LabError, LeaseLostError
from lab.engine.events import ControlAsked
from lab.engine.stop import StopSignal
from lab.models import Control
from lab.services import queue
from lab.services.queue import Claim
from lab.worker.sink import DatabaseSink

# Asked for by a person who waits: a cancel is heard within half a second.
LOOK_SECONDS = 0.5

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """Renews the lease of a claim, passes cancels on to `stop`, and shuts the sink when the lease is lost.

    A context manager around the attempt.
    """

    def __init__(self, claim: Claim, *, sink: DatabaseSink, stop: StopSignal) -> None:
        self._claim, self._sink, self._stop = claim, sink, stop
        self._done = threading.Event()
        self._lease_seconds = float(settings.LAB_LEASE_SECONDS)
        self._renewed = time.monotonic()
        self._written: set[int] = set()
        self._thread = threading.Thread(target=self._keep, name=f"lease-{claim.run.pk}", daemon=True)

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def give_up(self, why: str) -> None:
        """Stop the attempt and write nothing more: the lease is somebody else's, or this worker goes away."""
        self._done.set()
        self._sink.abandon(LeaseLostError(why))
        self._stop.set(ExitReason.INFRASTRUCTURE_ERROR)

    def _keep(self) -> None:
        try:
            while not self._done.wait(LOOK_SECONDS):
                self._look()
        finally:
            connections.close_all()

    def _look(self) -> None:
        try:
            due = time.monotonic() - self._renewed > self._lease_seconds / 5
            renewal = queue.renew(claim=self._claim) if due else queue.look(claim=self._claim)
            if due and renewal.held:
                self._renewed = time.monotonic()
            if renewal.controls:
                self._obey(renewal.controls)
        except DatabaseError as error:
            connections.close_all()
            _log.warning("run %s: its lease cannot be kept yet (%s)", self._claim.run.pk, error)
            if time.monotonic() - self._renewed > self._lease_seconds:
                self.give_up("the lease ran out while the database could not be reached")
            return
        if not renewal.held:
            self.give_up(f"run {self._claim.run.pk}: another worker owns the attempt now, or it is settled")

    def _obey(self, controls: tuple[Control, ...]) -> None:
        """Write down what was asked, obey, and say that it was seen; what fails is done at the next look."""
        for control in controls:
            if control.pk in self._written:
                continue
            asked = ControlAsked(
                control=control.kind, person=control.asked_by.get_username(), value=control.value
            )
            try:
                self._sink.append(asked)
            except LabError:
                return
            self._written.add(control.pk)
            if control.kind == Control.Kind.CANCEL:
                self._stop.set(ExitReason.CANCELLED)
        queue.controls_seen(controls=controls)
