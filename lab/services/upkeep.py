"""What somebody must look after once a second, so that no run stays where it is for ever."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connections

from lab.engine.errors import LabError
from lab.engine.sandboxes import docker_use
from lab.models import Draft, Run
from lab.services import (
    budgets,
    experiment_asks,
    heartbeats,
    interchange,
    isolation,
    judging,
    leftovers,
    otlp,
    preflights,
    queue,
    sign_in,
    space,
)
from lab.services.messages import ring_for_imports, ring_for_judges, ring_for_preflights, ring_workers

REAP_SECONDS = 10.0
LEFTOVERS_SECONDS = 3600.0
TRACES_SECONDS = 2.0
# A lease thread looks twice a second; one that has not heard a cancel for so long does not answer.
DEAF_SECONDS = 1.5
# How long the last bytes of a full disk are kept for the ends that workers write.
FULL_SECONDS = 60.0
FIRST_RING_SECONDS = 2.0
LONGEST_RING_SECONDS = 30.0

_log = logging.getLogger(__name__)


class Upkeep:
    """One watcher of the whole lab; several at once do no harm."""

    def __init__(self, *, is_dead: Callable[[str], bool], is_frozen: Callable[[str], bool]) -> None:
        self._is_dead, self._is_frozen = is_dead, is_frozen
        # Attempts whose cancel nobody has heard, and when that was noticed first.
        self._unheard: dict[int, float] = {}
        self._last_tick = 0.0
        self._full_since: float | None = None
        self._next_reap = self._next_leftovers = 0.0
        self._ring_at: float | None = None
        self._ring_wait = FIRST_RING_SECONDS
        self._ring_for_preflights_at = self._ring_for_imports_at = self._ring_for_traces_at = 0.0
        self._ring_for_judges_at = 0.0
        self._containers = ContainerReaper()

    def tick(self) -> None:
        """Settle expired leases, remove orphaned sandboxes, ring again for runs whose message was lost.

        Raises:
            DatabaseError, OSError: the database or the data folder cannot be used just now.
        """
        heartbeats.beat(name="tick")
        try:
            settled = self._take_back() if queue.anything_goes_on() else []
        except (DatabaseError, OSError) as error:
            self._make_room(error)
            self._tidy_up(now=False)
            raise
        self._full_since = None
        for run_id in settled:
            _log.warning("run %s was taken back from a worker that is gone", run_id)
        self._tidy_up(now=bool(settled))
        self._look_after_experiments()
        self._ring_for_lost_messages()
        self._look_after_preflights()
        self._look_after_imports()
        self._look_after_judges()

    def _take_back(self) -> list[int]:
        """Settle the runs whose workers are gone or do not answer; returns them."""
        queue.expire_leases_of(is_dead=self._is_dead)
        return [*self._cancel_for_the_deaf(), *queue.settle_abandoned()]

    def _make_room(self, error: Exception) -> None:
        """Workers may write the ends of their runs first; then the reserve is for taking back the others."""
        if not space.is_full(error):
            return
        self._full_since = self._full_since or time.monotonic()
        if time.monotonic() - self._full_since > FULL_SECONDS:
            space.give_up_reserve()

    def _tidy_up(self, *, now: bool) -> None:
        """Every few seconds, and at once after a run was taken from its worker: that may still act in it."""
        if not now and time.monotonic() < self._next_reap:
            return
        self._next_reap = time.monotonic() + REAP_SECONDS
        _reap(isolation.ISOLATED, isolation.PLAIN)
        self._containers.begin()
        space.keep_reserve()
        heartbeats.remove_old()
        Draft.objects.filter(run__status=Run.Status.ENDED).delete()
        sign_in.forget_old()
        if time.monotonic() >= self._next_leftovers:
            self._next_leftovers = time.monotonic() + LEFTOVERS_SECONDS
            leftovers.remove()
            interchange.forget_old()

    def _cancel_for_the_deaf(self) -> list[int]:
        """End cancelled runs whose worker does not answer: frozen, or cut off from the database."""
        now, last = time.monotonic(), self._last_tick
        self._last_tick = now
        if now - last > 2 * DEAF_SECONDS:
            # Who could not look for so long does not know whether others could.
            self._unheard = {}
        found = queue.held_though_cancelled()
        unheard = {one.attempt_id: self._unheard.get(one.attempt_id, now) for one in found if not one.heard}
        self._unheard = unheard
        settled = []
        for one in found:
            silent = now - unheard.get(one.attempt_id, now) > DEAF_SECONDS
            if (silent or self._is_frozen(one.worker)) and queue.take_away(
                attempt_id=one.attempt_id, lease_token=one.lease_token
            ):
                settled.append(one.run_id)
        return settled

    def _ring_for_lost_messages(self) -> None:
        """Runs that could start and do not: their message was lost, or every worker is busy or gone.

        Waiting longer each time keeps the queue short while no worker is there to empty it.
        """
        startable = queue.startable_runs()
        now = time.monotonic()
        if not startable:
            self._ring_at, self._ring_wait = None, FIRST_RING_SECONDS
        elif self._ring_at is None:
            self._ring_at = now + self._ring_wait
        elif now >= self._ring_at:
            ring_workers(runs=startable)
            self._ring_wait = min(self._ring_wait * 2, LONGEST_RING_SECONDS)
            self._ring_at = now + self._ring_wait

    def _look_after_experiments(self) -> None:
        """Pause those whose time is used up, and go on with those that are being cancelled."""
        for number in budgets.enforce_all():
            _log.warning("experiment %s has reached a budget and is paused", number)
        experiment_asks.go_on_cancelling()

    def _look_after_preflights(self) -> None:
        """End those whose worker is gone, and ring again for those whose message was lost."""
        if not preflights.anything_goes_on():
            return
        for number in preflights.settle_abandoned(is_dead=self._is_dead):
            _log.warning("preflight %s was taken from a worker that is gone", number)
        if preflights.waits_too_long() and time.monotonic() >= self._ring_for_preflights_at:
            self._ring_for_preflights_at = time.monotonic() + LONGEST_RING_SECONDS
            ring_for_preflights()

    def _look_after_imports(self) -> None:
        """Queue those whose reader is gone; ring for those whose message was lost, and for traces."""
        if time.monotonic() >= self._ring_for_traces_at and otlp.anything_due():
            self._ring_for_traces_at = time.monotonic() + TRACES_SECONDS
            ring_for_imports()
        if not interchange.anything_goes_on():
            return
        for number in interchange.settle_abandoned(is_dead=self._is_dead):
            _log.warning("import %s was taken from a process that is gone", number)
        if interchange.waits_too_long() and time.monotonic() >= self._ring_for_imports_at:
            self._ring_for_imports_at = time.monotonic() + LONGEST_RING_SECONDS
            ring_for_imports()

    def _look_after_judges(self) -> None:
        """Queue again the readings whose worker is gone; ring for those whose message was lost."""
        if not judging.anything_goes_on():
            return
        for number in judging.settle_abandoned():
            _log.warning("reading %s by a judge was taken from a worker that is gone", number)
        if judging.waits_too_long() and time.monotonic() >= self._ring_for_judges_at:
            self._ring_for_judges_at = time.monotonic() + LONGEST_RING_SECONDS
            ring_for_judges()


class ContainerReaper:
    """Reaps beside the tick: a docker daemon that hangs must keep no lease waiting."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._trouble = ""

    def begin(self) -> threading.Thread | None:
        """Look once, on a thread of its own, which is returned; None: not now.

        That is while the last look still waits for an answer, and where this lab never used docker.
        """
        looks = self._thread is not None and self._thread.is_alive()
        if looks or not docker_use.is_noted(Path(settings.LAB_DATA_DIR)):
            return None
        self._thread = threading.Thread(target=self._look, name="containers", daemon=True)
        self._thread.start()
        return self._thread

    def _look(self) -> None:
        trouble = ""
        try:
            for label in _reap(isolation.DOCKER):
                _log.warning("docker: the sandbox %s was left by nobody who lives, and is removed", label)
        except (LabError, DatabaseError, OSError) as error:
            trouble = str(error)
        finally:
            connections.close_all()
        # Said once, however long a daemon stays away.
        if trouble and trouble != self._trouble:
            _log.warning("docker: left sandboxes cannot be looked for (%s)", trouble)
        self._trouble = trouble


def reap_sandboxes(*, all_of_them: bool = False) -> list[str]:
    """Kill and remove the sandboxes that nobody needs any more; returns their labels.

    A run's is needed while a lease covers its attempt; `all_of_them` is for a lab that has stopped, where
    none does. That of a check or of the engine's command line is needed while the process lives that
    started it.

    Raises:
        SandboxLostError: docker was used and does not answer; everything else is removed by then.
    """
    removed = _reap(isolation.ISOLATED, isolation.PLAIN, all_of_them=all_of_them)
    if docker_use.is_noted(Path(settings.LAB_DATA_DIR)):
        removed += _reap(isolation.DOCKER, all_of_them=all_of_them)
    return removed


def _reap(*kinds: str, all_of_them: bool = False) -> list[str]:
    scratch = Path(settings.LAB_DATA_DIR) / "sandboxes"

    def is_orphan(label: str, starter_lives: bool) -> bool:
        if not queue.is_run_label(label):
            return not starter_lives
        return all_of_them or label not in queue.live_labels()

    removed: list[str] = []
    for kind in kinds:
        if scratch.is_dir() or kind == isolation.DOCKER:
            removed += isolation.provider(kind).reap(scratch, is_orphan)
    return removed
