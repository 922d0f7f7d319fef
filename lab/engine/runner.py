"""One attempt at a run: prepare a sandbox, drive the harness, keep the patch, verify it, say how it ended.

Everything that happens becomes an event in the sink, in order. Nothing but a lost lease leaves `run_attempt`
as an exception: whatever breaks is an exit reason. An attempt with a history goes on where that ends.
"""

from __future__ import annotations

import functools
import time
import traceback

import lab
from lab.engine import registry
from lab.engine.agent_sandbox import AgentSandbox, stored_changes
from lab.engine.answering import answering_for
from lab.engine.attempt import AttemptResult, AttemptSpec, OnPhase, Phase
from lab.engine.checkpoint import Checkpoint, wall_time_allowed
from lab.engine.environments import sandbox_spec_for
from lab.engine.errors import (
    AttemptStoppedError,
    ExitOrigin,
    ExitReason,
    HandedOverError,
    InfrastructureError,
    InvalidValueError,
    LeaseLostError,
    SandboxLostError,
)
from lab.engine.events import (
    AttemptContinued,
    AttemptEnded,
    AttemptStarted,
    Event,
    ModelCallStarted,
    PatchCaptured,
    Record,
    SandboxLost,
)
from lab.engine.facts import harness_facts, model_facts, task_facts
from lab.engine.followed_log import FollowedLog
from lab.engine.harnesses.base import Ending, Session
from lab.engine.harnesses.clock import WallClock
from lab.engine.harnesses.conversation import Conversation
from lab.engine.harnesses.first_request import prompt_facts
from lab.engine.harnesses.spending import Spending
from lab.engine.image_wait import shown_as_draft
from lab.engine.llm.base import JSONObject, ModelConfig
from lab.engine.llm.client import ModelClient
from lab.engine.redact import RedactingSink, Redactor
from lab.engine.resume import (
    InFlight,
    in_flight_after,
    interrupted,
    limits_after,
    require_same_input,
    where_it_stands,
)
from lab.engine.sandboxes.base import SandboxSpec
from lab.engine.sinks import Sink
from lab.engine.steering import Steering
from lab.engine.stop import StopSignal
from lab.engine.verify.base import Outcome
from lab.engine.verify.run import verify

__all__ = ["AttemptResult", "AttemptSpec", "OnPhase", "Phase", "run_attempt"]

# The end of a traceback says most.
_TRACEBACK_CHARACTERS = 20_000


def run_attempt(
    spec: AttemptSpec,
    sink: Sink,
    stop: StopSignal,
    *,
    steering: Steering | None = None,
    on_phase: OnPhase | None = None,
) -> AttemptResult:
    """Run one attempt to its end and verify its patch when a model or a limit ended it.

    `stop` cancels at any moment; the patch is kept, not verified. `steering` brings what people ask for,
    which takes effect between two events; pauses do not count as wall time. `on_phase` hears "preparing",
    "running" and "verifying". `AttemptStarted` is the first event, `AttemptEnded` the last; the caller
    decides whether the run goes on and appends `RunEnded`.

    With `spec.history` the attempt goes on where that ends: `AttemptContinued` is the first new event, what
    is in the log is not done again, the workspace is made again from its stored changes.

    Raises:
        LeaseLostError: another worker child owns the attempt; its sandbox is stopped, no event follows.
        HandedOverError: the same, because `steering` was closed.
        Whatever `sink` raises when not even the attempt's end can be written.
    """
    attempt = _Attempt(spec, sink, stop, steering or Steering(), on_phase or _no_phase)
    return attempt.run()


def _no_phase(phase: Phase) -> None:
    return


class _Attempt:
    """The state of one attempt."""

    def __init__(
        self, spec: AttemptSpec, sink: Sink, stop: StopSignal, steering: Steering, on_phase: OnPhase
    ) -> None:
        self.spec = spec
        self.stop = stop
        self.steering = steering
        self.on_phase = on_phase
        key_name = spec.key_variable or "the endpoint's key"
        self.redactor = Redactor({**spec.secrets, key_name: spec.api_key})
        self.sink = RedactingSink(sink, self.redactor)
        self.family = registry.family(spec.harness.family)
        self.standing = where_it_stands(spec.history)
        self.log = FollowedLog(self.sink, spec.history)
        self.emit = self.log.emit
        self.conversation = Conversation()
        self.log.follow(self.conversation.apply)
        self.spending = Spending(spec.spent_usd_before)
        self.log.follow(self.spending.apply)
        self.steps = 0
        self.in_flight: InFlight | None = None
        self.log.follow(self._keep_count)
        self.limits = limits_after(spec.limits, (record.event for record in spec.history))
        # Cancel and wall time end the agent; a verification after the wall time must still be able to run.
        self.agent_stop = StopSignal()
        self.clock = WallClock(
            self.limits.max_total_time_sec,
            self.agent_stop,
            used=self.standing.agent_seconds,
            allowed=functools.partial(wall_time_allowed, steering),
        )
        self.sandbox: AgentSandbox | None = None
        self.is_driving = False
        self.started = time.monotonic()
        self.ending = Ending(ExitReason.UNKNOWN)
        self.verdict: Outcome | None = None

    def _keep_count(self, event: Event) -> None:
        self.in_flight = in_flight_after(self.in_flight, event)
        if isinstance(event, ModelCallStarted):
            self.steps = event.step

    def run(self) -> AttemptResult:
        if self.standing.end is not None:
            return self._ended_before(self.standing.end)
        error, retryable = "", False
        try:
            with self.stop.on_set(lambda: self.agent_stop.set(self.stop.reason or ExitReason.CANCELLED)):
                self._go()
        except LeaseLostError:
            raise
        except AttemptStoppedError as stopped:
            self.ending = Ending(stopped.reason, stopped.native_reason, stopped.detail)
        except InfrastructureError as broken:
            self._broken(broken)
            error, retryable = self.redactor.text(str(broken)), broken.retryable
        except InvalidValueError as invalid:
            self.ending = Ending(ExitReason.INFRASTRUCTURE_ERROR)
            error = self.redactor.text(str(invalid))
        except Exception as unexpected:
            self.ending = Ending(ExitReason.INTERNAL_ERROR)
            trace = "".join(traceback.format_exception(unexpected))
            error = self.redactor.text(trace)[-_TRACEBACK_CHARACTERS:]
            retryable = True
        finally:
            self.clock.close()
            if self.sandbox is not None:
                self.sandbox.stop()
        if self._is_cancelled_and_broken():
            self.ending = Ending(ExitReason.CANCELLED, self.ending.native_reason)
            retryable = False
        self._end(error, retryable)
        return AttemptResult(
            exit_reason=self.ending.reason,
            verdict=self.verdict,
            retryable=retryable,
            error=error,
            steps=self.steps,
        )

    def _ended_before(self, end: AttemptEnded) -> AttemptResult:
        reason, graded = ExitReason(end.exit_reason), self.standing.verification
        verdict = Outcome(graded.outcome) if graded and reason.origin is ExitOrigin.MODEL_OR_LIMIT else None
        return AttemptResult(reason, verdict, end.retryable, end.error, end.steps)

    def _is_cancelled_and_broken(self) -> bool:
        """Whether something broke while a person's cancel took effect: the cancel holds all the same."""
        broken = self.ending.reason.origin is ExitOrigin.INFRASTRUCTURE
        return broken and self.stop.reason is ExitReason.CANCELLED

    def _go(self) -> None:
        standing = self.standing
        if standing.started is None:
            self._start()
        else:
            self._continue()
        captured = standing.patch
        patch = self._work() if captured is None else self._captured_before(captured)
        if self.ending.reason.origin is ExitOrigin.MODEL_OR_LIMIT:
            self._verify(patch)

    def _work(self) -> str:
        """The agent's part, up to its patch."""
        self.on_phase("preparing")
        self._check_stop()
        archives = None
        if self.standing.has_had_sandbox:
            archives = stored_changes(self.standing.changes, self.spec.read_blob)
        self.sandbox = AgentSandbox(
            self.spec.task, self._sandbox_spec, emit=self.emit, put_blob=self.sink.put_blob
        )
        self.sandbox.start(
            self.spec.provider,
            archives,
            image=self.standing.image,
            show=self._show_image,
            # One that is made again for a patch that was cancelled already is made to its end.
            stop=None if self.agent_stop.is_set() else self.agent_stop,
        )
        self._check_stop()
        self.on_phase("running")
        self.ending = self._drive(self.sandbox)
        self.clock.close()
        patch = self._capture(self.sandbox)
        self.sandbox.stop()
        return patch

    def _show_image(self, text: str) -> None:
        # Images take minutes, and a worker that is asked to end must not wait for them.
        self._hand_over_if_asked()
        shown_as_draft(self.sink.draft)(text)

    @functools.cached_property
    def _sandbox_spec(self) -> SandboxSpec:
        spec = self.spec
        return sandbox_spec_for(
            spec.task,
            data_folder=spec.data_folder,
            label=spec.label,
            limits=spec.sandbox_limits,
            kind=spec.provider.kind,
            practice_image=spec.practice_image,
        )

    def _start(self) -> None:
        """The attempt's fixed facts, first of all; a harness that cannot even open says so right after."""
        spec = self.spec
        broken: InvalidValueError | None = None
        messages: list[JSONObject] = []
        try:
            messages = self._opening()
        except InvalidValueError as error:
            broken = error
        self.emit(
            AttemptStarted(
                task=task_facts(spec.task) | dict(spec.facts.get("task", {})),
                harness=harness_facts(spec.harness) | dict(spec.facts.get("harness", {})),
                model=model_facts(spec.model) | dict(spec.facts.get("model", {})),
                limits=self.limits.model_dump(mode="json") | {"digest": self.limits.digest},
                seed=spec.seed,
                messages=messages,
                parameters=self.family.parameters(spec.harness, spec.model, self.limits),
                lab_version=lab.__version__,
            )
        )
        if broken is not None:
            raise broken

    def _opening(self) -> list[JSONObject]:
        spec = self.spec
        facts = prompt_facts(spec.task.statement, provider=spec.provider, sandbox=self._sandbox_spec)
        return self.family.opening(spec.harness, facts, self.limits)

    def _continue(self) -> None:
        """Mark what was in flight, if nobody did, and say that the attempt goes on; then look at the log.

        Raises:
            InfrastructureError: it cannot be continued exactly from what the log and the task are now.
            InvalidValueError: the harness could not open the conversation.
        """
        spec, standing = self.spec, self.standing
        reason = spec.continued_because or "the worker child died; the outcome is unknown"
        found = standing.interrupted(reason)
        self.emit(
            *found,
            AttemptContinued(
                continuation=standing.continuations + 1,
                orderly=spec.continued_orderly,
                reason=spec.continued_because,
            ),
        )
        if found:
            self.standing = where_it_stands([*spec.history, *self._as_records(found)])
        if standing.is_cancelled:
            self.stop.set(ExitReason.CANCELLED)
        if standing.step == 0:
            # A prompt that could not be rendered cannot be now.
            self._opening()
        digest = standing.started.task.get("repository_digest") if standing.started else None
        if digest not in (None, spec.task.repository_digest):
            raise InfrastructureError(
                "the task's repository is no longer the one the attempt began from", retryable=False
            )
        if standing.patch is None:
            require_same_input(spec.history)

    def _as_records(self, events: list[Event]) -> list[Record]:
        last = self.spec.history[-1]
        return [
            Record(seq=last.seq + place, attempt=last.attempt, at=last.at, event=event)
            for place, event in enumerate(events, start=1)
        ]

    def _check_stop(self) -> None:
        """Before the agent begins. One that had begun keeps its patch: its sandbox is made again even so."""
        if self.agent_stop.reason is not None and self.standing.step == 0:
            raise AttemptStoppedError(self.agent_stop.reason)
        self._hand_over_if_asked()

    def _hand_over_if_asked(self) -> None:
        if self.steering.is_closed and not self.stop.is_set():
            raise HandedOverError("the attempt was handed over")

    def _drive(self, agent: AgentSandbox) -> Ending:
        spec, standing = self.spec, self.standing
        checkpoint = Checkpoint(
            steering=self.steering,
            stop=self.agent_stop,
            clock=self.clock,
            spending=self.spending,
            limits=self.limits,
            emit=self.emit,
            message_of=lambda text: self.family.person_message(spec.harness, text),
            done=standing.heard - {ask.number for ask in standing.asks},
            is_paused=standing.is_paused,
        )
        self.is_driving = True
        # Before the clock starts: a limit that was raised in time may have been passed since.
        self.steering.put_first(standing.asks)
        if standing.step:
            self.clock.start()
        answering = answering_for(spec, opening=self._opening_length())
        with answering.endpoint() as model, self._client(model, checkpoint) as client:
            session = Session(
                config=spec.harness,
                model=model,
                client=client,
                sandbox=agent.sandbox,
                emit=self.emit,
                follow=self.log.follow,
                stop=self.agent_stop,
                clock=self.clock,
                conversation=self.conversation,
                redactor=self.redactor,
                checkpoint=checkpoint,
                changed=agent.changed,
                spending=self.spending,
                standing=standing,
            )
            ending = self.family.drive(session)
        if met := answering.difference:
            ending.detail = "; ".join(filter(None, (ending.detail, met)))
        return ending

    def _opening_length(self) -> int:
        """How many messages the conversation had before the model's first turn."""
        started = self.standing.started
        return len(started.messages if started is not None else self.conversation.messages)

    def _client(self, model: ModelConfig, checkpoint: Checkpoint) -> ModelClient:
        return ModelClient(
            model,
            api_key=self.spec.api_key,
            emit=self.emit,
            draft=self.sink.draft,
            stop=self.agent_stop,
            retry_seconds=self.spec.retry_seconds,
            redact=self.redactor,
            key_variable=self.spec.key_variable,
            gate=checkpoint,
        )

    def _capture(self, agent: AgentSandbox) -> str:
        captured = agent.patch()
        self.emit(
            PatchCaptured(
                exit_reason=self.ending.reason.value,
                native_reason=self.ending.native_reason,
                detail=self.ending.detail,
                patch=captured.patch,
                files=captured.files,
                commits=captured.commits,
                left_out=captured.left_out,
                final_message=self.ending.final_message,
            )
        )
        return captured.patch

    def _captured_before(self, captured: PatchCaptured) -> str:
        if captured.files and not captured.patch.startswith("diff --git "):
            raise InfrastructureError("the captured patch cannot be read from the log any more")
        self.ending = Ending(
            ExitReason(captured.exit_reason), captured.native_reason, captured.detail, captured.final_message
        )
        return captured.patch

    def _verify(self, patch: str) -> None:
        if self.stop.is_set():
            self._cancelled_while_verifying()
            return
        graded = self.standing.verification
        if graded is not None:
            self.verdict = Outcome(graded.outcome)
            return
        self._hand_over_if_asked()
        self.on_phase("verifying")
        result = verify(
            self.spec.task,
            patch,
            provider=self.spec.provider,
            sandbox_spec=self._sandbox_spec,
            emit=self.emit,
            stop=self.stop,
            redactor=self.redactor,
            show=self._show_image,
        )
        self.verdict = result.outcome
        if self.stop.is_set():
            self._cancelled_while_verifying()

    def _cancelled_while_verifying(self) -> None:
        """A person's cancel wins over a verdict that is not there yet; the agent's own reason is kept."""
        own = self.ending.reason.value
        self.verdict = None
        self.ending = Ending(
            ExitReason.CANCELLED, own, f"cancelled before the verdict; the agent ended: {own}"
        )

    def _broken(self, broken: InfrastructureError) -> None:
        """The ending for something that broke: never the model's fault."""
        lost = isinstance(broken, SandboxLostError)
        # Leaf calls a sandbox that is lost under a tool a tool error.
        in_a_tool = self.is_driving and self.steps > 0 and self.ending.reason is ExitReason.UNKNOWN
        native = "tool_error" if lost and in_a_tool else broken.exit_reason.value
        self.ending = Ending(broken.exit_reason, native)
        # One that could not be started is the attempt's error alone.
        if lost and self.sandbox is not None and self.sandbox.was_started:
            self.emit(SandboxLost(message=self.redactor.text(str(broken))))

    def _end(self, error: str, retryable: bool) -> None:
        # What a sandbox used that died with its worker child nobody knows, and a part is not the whole.
        is_whole = not self.standing.has_had_sandbox
        usage = self.sandbox.usage if self.sandbox is not None and is_whole else None
        self.emit(
            *interrupted(self.in_flight, self.ending.reason.value),
            AttemptEnded(
                exit_reason=self.ending.reason.value,
                native_reason=self.ending.native_reason,
                error=error,
                retryable=retryable,
                steps=self.steps,
                peak_memory_bytes=usage.peak_memory_bytes if usage else None,
                cpu_seconds=usage.cpu_seconds if usage else None,
                wall_seconds=self.standing.seconds + time.monotonic() - self.started,
                agent_seconds=self.clock.elapsed if self.steps else None,
                measured_by=usage.source if usage else "",
            ),
        )
        self.sink.flush()
