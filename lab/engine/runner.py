"""One attempt at a run: prepare a sandbox, drive the harness, keep the patch, verify it, say how it ended.

Everything that happens becomes an event in the sink, in order. Nothing but a lost lease leaves `run_attempt`
as an exception: whatever breaks is an exit reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Literal

from lab.engine.errors import ExitReason
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject, ModelConfig
from lab.engine.sandboxes.base import SandboxLimits, SandboxProvider
from lab.engine.sinks import Sink
from lab.engine.stop import StopSignal
from lab.engine.tasks.spec import TaskSpec
from lab.engine.verify.base import Outcome

Phase = Literal["preparing", "running", "verifying"]


@dataclass(frozen=True)
class AttemptSpec:
    """Everything one attempt needs; nothing else is read from anywhere.

    `limits` are the effective ones. `data_folder` is the lab's folder: sandboxes are made under
    `<data_folder>/sandboxes`, the practice environment lies there too. `label` names run and attempt and finds
    an orphaned sandbox again. `facts` is merged into the task, harness and model of `AttemptStarted`
    ("task" -> {"set": "practice"}, …), for names and versions that only a database knows.
    `spent_usd_before` is what earlier attempts of the run have cost. `secrets` (name -> value) are replaced
    wherever they appear; `api_key`, the value of `key_variable`, always is. `retry_seconds` bounds how long a
    model call is tried again.
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


BeforeStep = Callable[[], None]
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
        LeaseLostError: another worker child owns the attempt; its sandbox is stopped, nothing more is written.
    """
    from lab.engine.attempt import Attempt

    return Attempt(spec, sink, stop, before_step=before_step, on_phase=on_phase).run()
