"""One claimed attempt from its rows to its end: what the engine needs is loaded, run, and settled."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connections
from django.db.models import Sum

from lab.engine import registry
from lab.engine.errors import ExitReason, LabError, LeaseLostError
from lab.engine.events import AttemptEnded
from lab.engine.harnesses.base import HarnessConfig, PromptFacts
from lab.engine.harnesses.presets import load_preset, preset_names
from lab.engine.pricing import load_prices
from lab.engine.runner import AttemptResult, AttemptSpec, Phase, run_attempt
from lab.engine.sandboxes import docker_use
from lab.engine.steering import Steering
from lab.engine.stop import StopSignal
from lab.models import Call, Run
from lab.services import blobs, endpoints, inherited, isolation, log, queue, replays, runs, tasks
from lab.services.blobs import BodyMissingError
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
        self._stop, self._steering = StopSignal(), Steering()
        self._asked = inherited.asked_of(run_id=claim.run.pk, attempt=claim.attempt.n)
        self._sink = DatabaseSink(
            run_id=claim.run.pk,
            attempt=claim.attempt.n,
            lease_token=claim.lease_token,
            after_seq=claim.run.last_seq,
            on_unstorable=lambda: self._stop.set(ExitReason.INFRASTRUCTURE_ERROR),
            may_ask=self._may_ask,
        )
        self._keeper = LeaseKeeper(
            claim,
            sink=self._sink,
            stop=self._stop,
            steering=self._steering,
            heard=self._asked.heard,
            let_go=self._let_go,
            take_back=self._take_back,
        )
        self._handed_over = threading.Event()
        self._orderly = False
        # Guards the two below: the run can still be taken back, and it was.
        self._turning = threading.RLock()
        self._lets_go = self._is_taken_back = False

    def run(self) -> None:
        """Run the attempt to its end and settle what follows.

        Raises nothing: what this process cannot settle, the tick does once the lease has run out.
        """
        claim = self._claim
        sys.setswitchinterval(_SWITCH_SECONDS)
        for ask in self._asked.left:
            self._steering.put(ask)
        try:
            with self._sink, self._keeper:
                result = self._attempt()
                self._sink.flush()
        except LeaseLostError as lost:
            _log.info("run %s: attempt %s was given up (%s)", claim.run.pk, claim.attempt.n, lost)
            if self._handed_over.is_set() or self._is_taken_back:
                orderly = self._orderly or self._is_taken_back
                self._settle_later(self._hand_back if orderly else self._release)
        except Exception:
            # The event log could not be written to its end.
            _log.exception("run %s: attempt %s broke off", claim.run.pk, claim.attempt.n)
            self._settle_later(self._release)
        else:
            self._settle_later(lambda: self._settle(result))

    def hand_over(self, *, orderly: bool = True) -> None:
        """Stop because this process goes away; another worker child continues the attempt.

        `orderly`: somebody stops the lab. What is in flight may end, within `LAB_STOP_SECONDS`, and nothing
        new starts. Otherwise the worker has died, and so does all of it.
        """
        with self._turning:
            self._lets_go = self._is_taken_back = False
            self._orderly = orderly
            self._handed_over.set()
        if not orderly:
            self._keeper.give_up("the worker died")
            return
        noted = threading.Thread(target=self._settle_later, args=(self._note_hand_over,), daemon=True)
        # Beside the waiting: a stop that is killed before its end was orderly all the same.
        noted.start()
        self._steering.close()
        self._sink.stop_at_next_event(within=settings.LAB_STOP_SECONDS)
        self._stop.set(ExitReason.INFRASTRUCTURE_ERROR)
        noted.join()

    def _let_go(self) -> None:
        """Hand the run back because its experiment is paused: what is in flight ends, however long it takes.

        Returns at once: the lease is kept meanwhile, and a cancel heard.
        """
        with self._turning:
            if self._handed_over.is_set() or self._is_taken_back:
                return
            self._lets_go = self._orderly = True
            self._handed_over.set()
            self._sink.begin_stop()
        self._steering.close()
        threading.Thread(target=self._stop_at_next_event, daemon=True).start()

    def _stop_at_next_event(self) -> None:
        self._sink.wait_for_stop()
        with self._turning:
            if not self._lets_go:
                return
            self._lets_go = False
        self._stop.set(ExitReason.INFRASTRUCTURE_ERROR)

    def _take_back(self) -> None:
        """The run is cancelled: it ends here, with its patch, though its experiment is paused.

        What has stopped already is handed back, and ends without one.
        """
        with self._turning:
            if self._handed_over.is_set() and not self._lets_go:
                return
            self._is_taken_back = True
            if self._lets_go:
                self._lets_go = self._orderly = False
                self._handed_over.clear()
                self._sink.go_on()

    def _may_ask(self) -> bool:
        if self._is_taken_back or queue.may_ask(claim=self._claim):
            return True
        self._let_go()
        return False

    def _settle(self, result: AttemptResult) -> None:
        verdict = result.verdict.value if result.verdict else None
        queue.settle(
            claim=self._claim, retryable=result.retryable, reason=result.exit_reason, verdict=verdict
        )

    def _hand_back(self) -> None:
        queue.hand_back(claim=self._claim)

    def _note_hand_over(self) -> None:
        queue.note_hand_over(claim=self._claim)

    def _release(self) -> None:
        queue.release(claim=self._claim)

    def _settle_later(self, act: Callable[[], None]) -> None:
        """Do it now, once more over a new connection, or leave it to the tick."""
        try:
            for is_last in (False, True):
                try:
                    return act()
                except (DatabaseError, OSError) as error:
                    connections.close_all()
                    if is_last:
                        _log.warning("run %s: it cannot be settled yet (%s)", self._claim.run.pk, error)
        finally:
            if threading.current_thread() is not threading.main_thread():
                connections.close_all()

    def _attempt(self) -> AttemptResult:
        try:
            spec = attempt_spec(self._claim)
        except LeaseLostError:
            raise
        except LabError as error:
            return self._refused(error)
        return run_attempt(
            spec, self._sink, self._stop, steering=self._steering, on_phase=self._hear_before_the_agent
        )

    def _hear_before_the_agent(self, phase: Phase) -> None:
        """What was asked while the run waited or its sandbox started holds from the agent's first request."""
        if phase == "running":
            self._keeper.look()

    def _refused(self, error: LabError) -> AttemptResult:
        """The attempt cannot even start or go on.

        A key that is not set and an isolation that is missing will be so the next time too; an attempt whose
        log lost a text cannot be continued, but another one can begin.
        """
        reason = self._stop.reason or ExitReason.INFRASTRUCTURE_ERROR
        retryable = isinstance(error, BodyMissingError) and reason is not ExitReason.CANCELLED
        self._sink.append(
            AttemptEnded(
                exit_reason=reason.value, error=str(error), retryable=retryable, steps=0, wall_seconds=0.0
            )
        )
        return AttemptResult(exit_reason=reason, verdict=None, retryable=retryable, error=str(error), steps=0)


def warm_up() -> None:
    """Load and find out now what the first attempt would have to."""
    sandbox = isolation.isolation()
    if not sandbox.reason:
        isolation.provider(sandbox.kind).available()
    if docker_use.is_noted(Path(settings.LAB_DATA_DIR)):
        # Its client library takes as long to load as a sandbox to start.
        isolation.provider(isolation.DOCKER)
    for config in map(load_preset, preset_names()):
        registry.family(config.family).opening(config, PromptFacts(""), config.limits)
    for name in registry.EXECUTORS:
        registry.executor(name)
    try:
        tasks.prepare_practice_environment()
    except LabError as error:
        # Runs that need it end by saying so; the others need the rest of this.
        _log.warning("%s", error)
    load_prices()
    connections.close_all()
    # What is loaded by now stays: the pool children share it, and collections look at a run's own objects
    # only, so that what a step leaves behind in cycles is found soon.
    gc.collect()
    gc.freeze()


def attempt_spec(claim: Claim) -> AttemptSpec:
    """What the engine needs for the claimed attempt.

    Raises:
        BodyMissingError: a text of the attempt's log is gone, so that it cannot be continued.
        InvalidValueError: the endpoint's key is not set, or what a replay would serve is gone.
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
    commands_are_ours = model.lab_written and tasks.is_practice(task.task_set)
    kind = isolation.sandbox_kind(lab_commands_only=commands_are_ours, brings_image=task.brings_image)
    return AttemptSpec(
        task=tasks.task_spec(task),
        harness=HarnessConfig.model_validate(arm.harness_version.config),
        model=endpoints.model_config(model),
        limits=inherited.limits_before(run=run, attempt=claim.attempt.n),
        provider=isolation.provider(kind),
        sandbox_limits=isolation.limits(kind),
        practice_image=settings.LAB_PRACTICE_IMAGE,
        data_folder=Path(settings.LAB_DATA_DIR),
        label=queue.sandbox_label(run.pk, claim.attempt.n, claim.lease_token),
        seed=run.seed,
        attempt=claim.attempt.n,
        api_key=endpoints.key_for(endpoint),
        key_variable=endpoint.key_variable,
        retry_seconds=settings.LAB_RETRY_SECONDS,
        chunk_seconds=settings.LAB_SCRIPTED_CHUNK_SECONDS,
        spent_usd_before=_spent_before(run, claim.attempt.n),
        secrets=known_secrets(),
        facts=runs.facts_of(run),
        replay=replays.recording_for(run) if model.replay else None,
        history=log.read_history(run_id=run.pk, attempt=claim.attempt.n) if claim.continues else (),
        read_blob=_stored,
        continued_orderly=claim.orderly,
        continued_because=_why_continued(claim),
    )


def _spent_before(run: Run, attempt: int) -> Decimal:
    """What the run's other attempts have cost, in dollars; the engine counts this one's calls itself."""
    calls = Call.objects.filter(run=run).exclude(attempt=attempt)
    return calls.aggregate(usd=Sum("cost"))["usd"] or Decimal(0)


def _stored(sha256: str) -> bytes:
    """
    Raises:
        OSError: the blob is gone or no longer what it was.
    """
    try:
        return blobs.blob_bytes(sha256=sha256)
    except BodyMissingError as error:
        raise OSError(str(error)) from error


def _why_continued(claim: Claim) -> str:
    stopped = "its worker was stopped, or its experiment was paused"
    return stopped if claim.orderly else "its worker died or stopped answering"
