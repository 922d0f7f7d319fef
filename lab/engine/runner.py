"""One attempt at a run: prepare a sandbox, drive the harness, keep the patch, verify it, say how it ended.

Everything that happens becomes an event in the sink, in order. Nothing but a lost lease leaves `run_attempt`
as an exception: whatever breaks is an exit reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Literal

import lab
from lab.engine import registry
from lab.engine.environments import sandbox_spec_for
from lab.engine.errors import (
    AttemptStoppedError,
    ExitOrigin,
    ExitReason,
    InfrastructureError,
    InvalidValueError,
    LeaseLostError,
    SandboxLostError,
)
from lab.engine.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    ModelCallFailed,
    ModelCallStarted,
    PatchCaptured,
    Record,
    SandboxLost,
    SandboxStarted,
    WorkspaceChanged,
)
from lab.engine.facts import harness_facts, model_facts, task_facts
from lab.engine.harnesses.base import BeforeStep, Ending, HarnessConfig, Session
from lab.engine.harnesses.clock import WallClock
from lab.engine.harnesses.conversation import Conversation
from lab.engine.harnesses.spending import Spending
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject, ModelConfig
from lab.engine.llm.client import ModelClient
from lab.engine.llm.scripted import ScriptedServer
from lab.engine.patches import capture_patch
from lab.engine.redact import RedactingSink, Redactor
from lab.engine.sandboxes.base import ResourceUsage, Sandbox, SandboxLimits, SandboxProvider, SandboxSpec
from lab.engine.sinks import Sink
from lab.engine.stop import StopSignal
from lab.engine.tasks.spec import TaskSpec
from lab.engine.verify.base import Outcome
from lab.engine.verify.run import verify
from lab.engine.workspace import WorkspaceDelta, WorkspaceTracker, prepare_workspace

Phase = Literal["preparing", "running", "verifying"]

# The end of a traceback says most.
_TRACEBACK_CHARACTERS = 20_000


@dataclass(frozen=True)
class AttemptSpec:
    """Everything one attempt needs; nothing else is read from anywhere.

    `limits` are the effective ones. `data_folder` is the lab's folder: sandboxes are made under
    `<data_folder>/sandboxes`, the practice environment lies there too. `label` names run and attempt and
    finds an orphaned sandbox again. `facts` is merged into the task, harness and model of `AttemptStarted`
    ("task" -> {"set": "practice"}, …), for names and versions that only a database knows.
    `spent_usd_before` is what earlier attempts of the run have cost. `secrets` (name -> value) are replaced
    wherever they appear; `api_key`, the value of `key_variable`, always is. `retry_seconds` bounds how long a
    model call is tried again. `chunk_seconds` is the pause of a scripted model after each streamed piece.
    """

    task: TaskSpec
    harness: HarnessConfig
    model: ModelConfig
    limits: Limits
    provider: SandboxProvider
    data_folder: Path
    label: str
    seed: int = 1
    attempt: int = 1
    api_key: str = ""
    key_variable: str = ""
    retry_seconds: float = 900.0
    chunk_seconds: float = 0.015
    spent_usd_before: Decimal = Decimal(0)
    secrets: Mapping[str, str] = field(default_factory=dict)
    sandbox_limits: SandboxLimits = SandboxLimits()
    facts: Mapping[str, JSONObject] = field(default_factory=dict)


@dataclass(frozen=True)
class AttemptResult:
    """How an attempt ended. `verdict` is None when nothing was graded; `error` is text for people."""

    exit_reason: ExitReason
    verdict: Outcome | None
    retryable: bool
    error: str
    steps: int


OnPhase = Callable[[Phase], None]


def run_attempt(
    spec: AttemptSpec,
    sink: Sink,
    stop: StopSignal,
    *,
    before_step: BeforeStep | None = None,
    on_phase: OnPhase | None = None,
) -> AttemptResult:
    """Run one attempt to its end and verify its patch when a model or a limit ended it.

    `stop` cancels at any moment; the patch is kept, not verified. `before_step` is called before each model
    call, its time does not count as wall time; it may raise `AttemptStoppedError`. `on_phase` hears
    "preparing", "running" and "verifying". `AttemptStarted` is the first event, `AttemptEnded` the last; the
    caller decides whether the run goes on and appends `RunEnded`.

    Raises:
        LeaseLostError: another worker child owns the attempt; its sandbox is stopped, no event follows.
        Whatever `sink` raises when not even the attempt's end can be written.
    """
    return _Attempt(spec, sink, stop, before_step or _nothing, on_phase or _no_phase).run()


def _nothing() -> None:
    return


def _no_phase(phase: Phase) -> None:
    return


class _Attempt:
    """The state of one attempt."""

    def __init__(
        self, spec: AttemptSpec, sink: Sink, stop: StopSignal, before_step: BeforeStep, on_phase: OnPhase
    ) -> None:
        self.spec = spec
        self.stop = stop
        self.before_step = before_step
        self.on_phase = on_phase
        key_name = spec.key_variable or "the endpoint's key"
        self.redactor = Redactor({**spec.secrets, key_name: spec.api_key})
        self.sink = RedactingSink(sink, self.redactor)
        self.family = registry.family(spec.harness.family)
        self.conversation = Conversation()
        self.spending = Spending(spec.spent_usd_before)
        # Cancel and wall time end the agent; a verification after the wall time must still be able to run.
        self.agent_stop = StopSignal()
        self.clock = WallClock(spec.limits.max_total_time_sec, self.agent_stop)
        self.sandbox: Sandbox | None = None
        self.usage: ResourceUsage | None = None
        self.started = time.monotonic()
        self.steps = 0
        self.ending = Ending(ExitReason.UNKNOWN)
        self.verdict: Outcome | None = None

    def run(self) -> AttemptResult:
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
            self._stop_sandbox()
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

    def _is_cancelled_and_broken(self) -> bool:
        """Whether something broke while a person's cancel took effect: the cancel holds all the same."""
        broken = self.ending.reason.origin is ExitOrigin.INFRASTRUCTURE
        return broken and self.stop.reason is ExitReason.CANCELLED

    def emit(self, event: Event) -> Record:
        """Append an event and take what was stored into the folds that the next request is made from."""
        record = self.sink.append(event)
        self.conversation.apply(record.event)
        self.spending.apply(record.event)
        if isinstance(event, ModelCallStarted):
            self.steps = event.step
        limit = self.spec.limits.max_cost_usd
        if isinstance(event, ModelCallFailed) and limit is not None and self.spending.usd >= limit:
            # Failed tries may be billed too: no further one once the money is gone.
            self.agent_stop.set(ExitReason.MAX_COST)
        return record

    def _go(self) -> None:
        self._start()
        self.on_phase("preparing")
        self._check_stop()
        sandbox_spec = sandbox_spec_for(
            self.spec.task,
            data_folder=self.spec.data_folder,
            label=self.spec.label,
            limits=self.spec.sandbox_limits,
        )
        sandbox = self._start_sandbox(sandbox_spec)
        base_commit = prepare_workspace(sandbox, self.spec.task)
        tracker = WorkspaceTracker(sandbox, self.spec.task)
        tracker.baseline()
        self._check_stop()
        self.on_phase("running")
        self.ending = self._drive(sandbox, tracker)
        self.clock.close()
        patch = self._capture(sandbox, base_commit)
        self._stop_sandbox()
        if self.ending.reason.origin is ExitOrigin.MODEL_OR_LIMIT:
            self._verify(patch, sandbox_spec)

    def _start(self) -> None:
        """The attempt's fixed facts, first of all; a harness that cannot even open says so right after."""
        spec = self.spec
        broken: InvalidValueError | None = None
        messages: list[JSONObject] = []
        try:
            messages = self.family.opening(spec.harness, spec.task.statement)
        except InvalidValueError as error:
            broken = error
        self.emit(
            AttemptStarted(
                task=task_facts(spec.task) | dict(spec.facts.get("task", {})),
                harness=harness_facts(spec.harness) | dict(spec.facts.get("harness", {})),
                model=model_facts(spec.model) | dict(spec.facts.get("model", {})),
                limits=spec.limits.model_dump(mode="json") | {"digest": spec.limits.digest},
                seed=spec.seed,
                messages=messages,
                parameters=self.family.parameters(spec.harness, spec.model, spec.limits),
                lab_version=lab.__version__,
            )
        )
        if broken is not None:
            raise broken

    def _check_stop(self) -> None:
        if self.agent_stop.reason is not None:
            raise AttemptStoppedError(self.agent_stop.reason)

    def _start_sandbox(self, spec: SandboxSpec) -> Sandbox:
        started = time.monotonic()
        self.sandbox = self.spec.provider.start(spec)
        facts = self.sandbox.facts
        self.emit(
            SandboxStarted(
                sandbox=facts.kind,
                isolation=facts.isolation,
                identifier=facts.identifier,
                workspace=facts.workspace,
                network=facts.network,
                notes=list(facts.notes),
                seconds=time.monotonic() - started,
            )
        )
        return self.sandbox

    def _drive(self, sandbox: Sandbox, tracker: WorkspaceTracker) -> Ending:
        spec = self.spec

        def after_tool(*, step: int, index: int, call_id: str) -> None:
            delta = tracker.changes()
            if delta.changes or delta.archive is not None or delta.problem:
                self.emit(self._changed(delta, step=step, index=index, call_id=call_id))

        with _endpoint(spec) as model, self._client(model) as client:
            session = Session(
                config=spec.harness,
                model=model,
                client=client,
                sandbox=sandbox,
                limits=spec.limits,
                emit=self.emit,
                stop=self.agent_stop,
                clock=self.clock,
                conversation=self.conversation,
                redactor=self.redactor,
                before_step=self.before_step,
                after_tool=after_tool,
                spending=self.spending,
            )
            return self.family.drive(session)

    def _changed(self, delta: WorkspaceDelta, *, step: int, index: int, call_id: str) -> WorkspaceChanged:
        """The event of a change, its archive stored."""
        archive, problems = None, [delta.problem] if delta.problem else []
        if delta.archive is not None:
            archive = self.sink.put_blob(delta.archive)
            if archive != hashlib.sha256(delta.archive).hexdigest():
                problems.append("a known secret in what changed was replaced by stars")
        return WorkspaceChanged(
            step=step,
            index=index,
            call_id=call_id,
            changes=delta.changes,
            archive=archive,
            problem="; ".join(problems),
        )

    def _client(self, model: ModelConfig) -> ModelClient:
        return ModelClient(
            model,
            api_key=self.spec.api_key,
            emit=self.emit,
            draft=self.sink.draft,
            stop=self.agent_stop,
            retry_seconds=self.spec.retry_seconds,
            redact=self.redactor,
            key_variable=self.spec.key_variable,
        )

    def _capture(self, sandbox: Sandbox, base_commit: str) -> str:
        captured = capture_patch(sandbox, base_commit, task=self.spec.task)
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

    def _verify(self, patch: str, sandbox_spec: SandboxSpec) -> None:
        if self.stop.is_set():
            self._cancelled_while_verifying()
            return
        self.on_phase("verifying")
        result = verify(
            self.spec.task,
            patch,
            provider=self.spec.provider,
            sandbox_spec=sandbox_spec,
            emit=self.emit,
            stop=self.stop,
            redactor=self.redactor,
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
        in_a_tool = lost and self.steps > 0 and self.ending.reason is ExitReason.UNKNOWN
        native = "tool_error" if in_a_tool else broken.exit_reason.value
        self.ending = Ending(broken.exit_reason, native)
        if lost:
            self.emit(SandboxLost(message=self.redactor.text(str(broken))))

    def _stop_sandbox(self) -> None:
        if self.sandbox is None:
            return
        sandbox, self.sandbox = self.sandbox, None
        self.usage = sandbox.stop()

    def _end(self, error: str, retryable: bool) -> None:
        usage = self.usage
        self.emit(
            AttemptEnded(
                exit_reason=self.ending.reason.value,
                native_reason=self.ending.native_reason,
                error=error,
                retryable=retryable,
                steps=self.steps,
                peak_memory_bytes=usage.peak_memory_bytes if usage else None,
                cpu_seconds=usage.cpu_seconds if usage else None,
                wall_seconds=time.monotonic() - self.started,
                agent_seconds=self.clock.elapsed if self.steps else None,
                measured_by=usage.source if usage else "",
            )
        )
        self.sink.flush()


@contextlib.contextmanager
def _endpoint(spec: AttemptSpec) -> Iterator[ModelConfig]:
    """The model to ask; a scripted one gets a server of its own while the block runs."""
    if not spec.model.scripted:
        yield spec.model
        return
    with ScriptedServer(spec.task.plans, seed=spec.seed, chunk_seconds=spec.chunk_seconds) as server:
        yield spec.model.model_copy(update={"base_url": server.base_url})
