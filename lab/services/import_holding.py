"""Keeps the lease of an import while it is read, and hears when somebody cancels it."""

from __future__ import annotations

import logging
import threading

from django.conf import settings
from django.db import DatabaseError, connections

from lab.engine.errors import LabError, LeaseLostError
from lab.engine.stop import StopSignal
from lab.models import Import
from lab.services import interchange

LOOK_SECONDS = 0.5

_log = logging.getLogger(__name__)


class ReadingStoppedError(LabError):
    """The reading was cancelled, or its process is to stop."""


class Holding:
    """Keeps the lease of an import on a thread of its own, and looks whether somebody cancelled it."""

    def __init__(self, imported: Import, stop: StopSignal) -> None:
        self.imported, self.stop = imported, stop
        # Set for the last part of the work, which is done also when it is to stop.
        self.deaf = False
        self.cancelled = self.lost = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"import-{imported.pk}", daemon=True)

    def __enter__(self) -> Holding:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def check(self) -> None:
        """Between two trajectories.

        Raises:
            LeaseLostError: somebody else holds it now.
            ReadingStoppedError: cancelled, or this process is to stop.
        """
        if self.lost:
            raise LeaseLostError(f"{self.imported} is read by somebody else now, or was ended")
        if not self.deaf and (self.cancelled or self.stop.is_set()):
            raise ReadingStoppedError("cancelled" if self.cancelled else "stopped")

    def _keep(self) -> None:
        renew_every, waited = settings.LAB_LEASE_SECONDS / 5, 0.0
        try:
            while not self._done.wait(LOOK_SECONDS):
                waited += LOOK_SECONDS
                try:
                    self._look(renew=waited >= renew_every)
                except DatabaseError as error:
                    connections.close_all()
                    _log.warning("%s: its lease cannot be kept yet (%s)", self.imported, error)
                    continue
                waited = 0.0 if waited >= renew_every else waited
        finally:
            connections.close_all()

    def _look(self, *, renew: bool) -> None:
        held = interchange.held_by(self.imported)
        if renew:
            held.update(lease_until=interchange.lease_end())
        found = held.values_list("cancel_asked", flat=True).first()
        if found is None:
            self.lost = True
        elif found:
            self.cancelled = True
