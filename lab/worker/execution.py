"""One claimed attempt from its rows to its end: what the engine needs is loaded, run, and settled."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from decimal import Decimal
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connections
from django.db.models import Sum

from lab.engine import registry
from lab.engine.errors import ExitReason, LabError, LeaseLostError
from lab.engine.events import AttemptEnded
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.harnesses.presets import load_preset, preset_names
from lab.engine.limits import Limits
from lab.engine.pricing import load_prices
from lab.engine.runner import AttemptResult, AttemptSpec, run_attempt
from lab.engine.stop import StopSignal
from lab.models import Call, Run
from lab.services import endpoints, isolation, queue, tasks
from lab.services.known_secrets import known_secrets
from lab.services.queue import Claim
from lab.worker.lease import LeaseKeeper
from lab.worker.sink import DatabaseSink

# How long the thread that stores events may keep the interpreter from the run's own, which waits for pipes
# and sockets all the time; with Python's 5 ms a step took a third longer.
_SWITCH_SECONDS = 0.001

_log = logging.getLogger(__name__)


class Execution:
    """A claimed attempt being run by this process. `hand_over` may be called from any thread."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._stop = StopSignal()
        self._sink = DatabaseSink(
            run_id=claim.run.pk,
            attempt=claim.attempt.n,
            lease_token=claim.lease_token,
            after_seq=claim.run.last_seq,
        )
        self._keeper = LeaseKeeper(claim, sink=self._sink, stop=self._stop)
        self._handed_over = threading.Event()
        self._orderly = False

    def run(self) -> None:
        """Run the attempt to its end and settle what follows.

        Raises nothing: what this process cannot settle, the tick does once the lease has run out.
        """
        claim = self._claim
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            with self._sink, self._keeper:
                result = self._attempt()
                self._sink.flush()
        except LeaseLostError as lost:
            _log.info("run %s: attempt %s was given up (%s)", claim.run.pk, claim.attempt.n, lost)
            if self._handed_over.is_set():
                self._release(handed_over=self._orderly)
        except Exception:
            # The event log could not be written to its end.
            _log.exception("run %s: attempt %s broke off", claim.run.pk, claim.attempt.n)
            self._release()
        else:
            self._settle(result)

    def hand_over(self, *, orderly: bool = True) -> None:
        """Stop at once because this process goes away; the run gets another attempt.

        `orderly`: somebody stops the lab, and the attempt is none of those the run may have. Otherwise the
        worker has died.
        """
        self._orderly = orderly
        self._handed_over.set()
        self._keeper.give_up("the worker stops")
        if orderly:
            # At once: the stop may not wait until the sandbox is gone.
            self._note_hand_over()

    def _settle(self, result: AttemptResult) -> None:
        verdict = result.verdict.value if result.verdict else None
        try:
            queue.settle(
                claim=self._claim, retryable=result.retryable, reason=result.exit_reason, verdict=verdict
            )
        except DatabaseError as error:
            _log.warning("run %s: it cannot be settled yet (%s)", self._claim.run.pk, error)

    def _note_hand_over(self) -> None:
        try:
            queue.note_hand_over(claim=self._claim)
        except DatabaseError as error:
            _log.warning("run %s: its hand-over cannot be noted yet (%s)", self._claim.run.pk, error)

    def _release(self, *, handed_over: bool = False) -> None:
        try:
            queue.release(claim=self._claim, handed_over=handed_over)
        except DatabaseError as error:
            _log.warning("run %s: its lease cannot be ended yet (%s)", self._claim.run.pk, error)

    def _attempt(self) -> AttemptResult:
        try:
            spec = attempt_spec(self._claim)
        except LeaseLostError:
            raise
        except LabError as error:
            return self._refused(error)
        return run_attempt(spec, self._sink, self._stop)

    def _refused(self, error: LabError) -> AttemptResult:
        """The attempt cannot even start: a key that is not set, no isolation. Trying again would not help."""
        reason = self._stop.reason or ExitReason.INFRASTRUCTURE_ERROR
        self._sink.append(
            AttemptEnded(
                exit_reason=reason.value, error=str(error), retryable=False, steps=0, wall_seconds=0.0
            )
        )
        return AttemptResult(exit_reason=reason, verdict=None, retryable=False, error=str(error), steps=0)


def warm_up() -> None:
    """Load and find out now what the first attempt would have to."""
    sandbox = isolation.isolation()
    if not sandbox.reason:
        isolation.provider(sandbox.kind).available()
    for config in map(load_preset, preset_names()):
        registry.family(config.family).opening(config, "")
    for name in registry.EXECUTORS:
        registry.executor(name)
    tasks.prepare_practice_environment()
    load_prices()
    connections.close_all()
    # What is loaded by now stays: the pool children share it, and collections look at a run's own objects
    # only, so that what a step leaves behind in cycles is found soon.
    gc.collect()
    gc.freeze()


def attempt_spec(claim: Claim) -> AttemptSpec:
    """What the engine needs for the claimed attempt.

    Raises:
        InvalidValueError: the endpoint's key is not set.
        IsolationMissingError: no isolation here, and nobody agreed to do without.
    """
    run = (
        Run.objects.for_rows()
        .defer(None)
        .select_related("task__task_set", "task__hidden", "experiment__task_set")
        .get(pk=claim.run.pk)
    )
    arm, task = run.arm, run.task
    model, endpoint = arm.model, arm.model.endpoint
    commands_are_ours = model.scripted and tasks.is_practice(task.task_set)
    version = arm.harness_version
    return AttemptSpec(
        task=tasks.task_spec(task),
        harness=HarnessConfig.model_validate(version.config),
        model=endpoints.model_config(model),
        limits=Limits.model_validate(arm.limits),
        provider=isolation.provider(isolation.sandbox_kind(lab_commands_only=commands_are_ours)),
        data_folder=Path(settings.LAB_DATA_DIR),
        label=queue.sandbox_label(run.pk, claim.attempt.n),
        seed=run.seed,
        attempt=claim.attempt.n,
        api_key=endpoints.key_for(endpoint),
        key_variable=endpoint.key_variable,
        retry_seconds=settings.LAB_RETRY_SECONDS,
        chunk_seconds=settings.LAB_SCRIPTED_CHUNK_SECONDS,
        spent_usd_before=Call.objects.filter(run=run).aggregate(usd=Sum("cost"))["usd"] or Decimal(0),
        secrets=known_secrets(),
        facts={
            "task": {"set": task.task_set.name, "set_version": task.task_set.version},
            "harness": {"version": version.version, "name": version.harness.name},
            "model": {"version": model.version, "endpoint": endpoint.name},
        },
    )
