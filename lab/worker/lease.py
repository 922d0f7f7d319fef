"""Keeps the lease of an attempt and listens to people, on a thread and a database connection of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import cast, get_args

from django.conf import settings
from django.db import DatabaseError, connections
from django.utils import timezone

from lab.engine.errors import ExitReason, LabError, LeaseLostError
from lab.engine.events import ControlAsked
from lab.engine.steering import Ask, Steering
from lab.engine.steering import Control as Steered
from lab.engine.stop import StopSignal
from lab.models import Control
from lab.services import queue
from lab.services.queue import Claim
from lab.worker.sink import DatabaseSink

# Asked for by a person who waits: a cancel is heard within half a second.
LOOK_SECONDS = 0.5
# How long the lease thread waits for what was asked to be in the database, before it looks again.
_STORED_SECONDS = 0.3

_log = logging.getLogger(__name__)


def _left(claim: Claim) -> float:
    until = claim.attempt.lease_until
    return 0.0 if until is None else (until - timezone.now()).total_seconds()


class LeaseKeeper:
    """Renews the lease of a claim, passes on what people ask, and shuts the sink when the lease is lost.

    Cancels go to `stop`, all else to `steering`. `heard` are the numbers of what earlier holders have written
    into the log already. `let_go` is called when the run is to be handed back because its experiment is
    paused, `take_back` when it is cancelled all the same. A context manager around the attempt.

    While the database cannot be reached the lease is neither renewed nor given up: once it would have run
    out, the sink takes nothing, and the run waits until it is known whose it is.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        sink: DatabaseSink,
        stop: StopSignal,
        steering: Steering,
        heard: Collection[int] = (),
        let_go: Callable[[], None] = lambda: None,
        take_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._let_go, self._take_back = let_go, take_back
        self._claim, self._sink, self._stop, self._steering = claim, sink, stop, steering
        self._done = threading.Event()
        # The lease thread looks, and before the agent's first request the run's own.
        self._looking = threading.Lock()
        self._lease_seconds = float(settings.LAB_LEASE_SECONDS)
        # When the lease was made to last so many seconds: that may be a while ago.
        self._renewed = queue.clock() + min(0.0, _left(claim) - self._lease_seconds)
        self._is_cut_off = False
        # What was asked -> the number of its event; 0 where the log had it before this holder.
        self._written = dict.fromkeys(heard, 0)
        self._thread = threading.Thread(target=self._keep, name=f"lease-{claim.run.pk}", daemon=True)

    def __enter__(self) -> LeaseKeeper:
        self._sink.keep_until(self._renewed + self._lease_seconds)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def give_up(self, why: str) -> None:
        """Stop the attempt and write nothing more: the lease is somebody else's, or the worker has died."""
        self._done.set()
        self._sink.abandon(LeaseLostError(why))
        self._stop.set(ExitReason.INFRASTRUCTURE_ERROR)

    def _keep(self) -> None:
        try:
            while not self._done.wait(LOOK_SECONDS):
                try:
                    self.look()
                except Exception:
                    # Whatever it is, a run is not to lose its lease by it.
                    _log.exception("run %s: its lease thread looks again", self._claim.run.pk)
                    connections.close_all()
        finally:
            connections.close_all()

    def look(self) -> None:
        """Renew the lease if that is due, and pass on what is asked by now. From any thread."""
        with self._looking:
            self._look()

    def _look(self) -> None:
        asked_at = queue.clock()
        try:
            due = asked_at - self._renewed > self._lease_seconds / 5
            renewal = queue.renew(claim=self._claim) if due else queue.look(claim=self._claim)
            if due and renewal.held:
                self._renewed = asked_at
                self._sink.keep_until(asked_at + self._lease_seconds)
            self._sink.ask_before_requests(renewal.counted)
            if renewal.controls:
                self._hear(renewal.controls)
        except DatabaseError as error:
            connections.close_all()
            if not self._is_cut_off:
                _log.warning("run %s: its lease cannot be kept yet (%s)", self._claim.run.pk, error)
            self._is_cut_off = True
            return
        self._is_cut_off = False
        if renewal.let_go:
            self._let_go()
        if not renewal.held:
            self.give_up(f"run {self._claim.run.pk}: another worker owns the attempt now, or it is settled")

    def _hear(self, controls: tuple[Control, ...]) -> None:
        """Write down what was asked, pass it on, and say that it was seen once it is in the log."""
        for control in controls:
            if control.pk not in self._written and not self._pass_on(control):
                return
        newest = max(self._written[control.pk] for control in controls)
        self._sink.is_durable(newest, within=_STORED_SECONDS)
        stored = [one for one in controls if self._sink.is_durable(self._written[one.pk], within=0.0)]
        queue.controls_seen(controls=tuple(stored))

    def _pass_on(self, control: Control) -> bool:
        """False when the log takes nothing any more."""
        person = control.asked_by.get_username()
        asked = ControlAsked(control=control.kind, person=person, value=control.value, ask=control.pk)
        if control.kind == Control.Kind.CANCEL:
            # Before it is written: a sink that stops might not take it.
            self._take_back()
        try:
            self._written[control.pk] = self._sink.append(asked).seq
        except LabError:
            return False
        if control.kind == Control.Kind.CANCEL:
            self._stop.set(ExitReason.CANCELLED)
        elif control.kind in get_args(Steered):
            kind = cast(Steered, control.kind)
            self._steering.put(Ask(control=kind, person=person, number=control.pk, value=control.value))
        return True
