"""Events as a run has them, for tests of the log."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from lab.engine.events import (
    AttemptEnded,
    AttemptStarted,
    FileChange,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallInterrupted,
    ModelCallStarted,
    PatchCaptured,
    RunEnded,
    SandboxStarted,
    StreamFacts,
    ToolCallFinished,
    ToolCallInterrupted,
    ToolCallStarted,
    VerificationFinished,
    VerificationStarted,
)
from lab.engine.llm.base import Cost, Reply, Usage
from lab.engine.verify.base import TestOutcome, TestStatus


def attempt_started(**changes: Any) -> AttemptStarted:
    values: dict[str, Any] = {
        "task": {"id": "t"},
        "harness": {"name": "h"},
        "model": {"name": "m"},
        "limits": {},
        "seed": 1,
        "messages": [{"role": "user", "content": "mend it"}],
        "parameters": {"model": "m"},
        "lab_version": "0",
    }
    return AttemptStarted(**(values | changes))


def sandbox_started(purpose: str = "agent") -> SandboxStarted:
    return SandboxStarted.model_validate(
        {
            "purpose": purpose,
            "sandbox": "process",
            "isolation": "none",
            "identifier": "x",
            "workspace": "/w",
            "network": True,
            "seconds": 0.1,
        }
    )


def call_started(step: int, request: int = 1) -> ModelCallStarted:
    return ModelCallStarted(step=step, request=request, body_sha256="0" * 64, message_count=1)


def call_finished(step: int, *, usage: Usage | None = None, cost: Cost | None = None) -> ModelCallFinished:
    known = Usage(
        input_total=100, input_uncached=60, cache_read=40, output_total=20, reasoning=5, source="provider"
    )
    return ModelCallFinished(
        step=step,
        request=1,
        reply=Reply(content="hello", model="m-1", usage=usage or known, seconds=0.5, first_token_seconds=0.1),
        message={"role": "assistant", "content": "hello"},
        cost=cost or Cost(amount=Decimal("0.001"), basis="table"),
        context_tokens=120,
    )


def call_failed(step: int, retry_in: float | None = 2.0) -> ModelCallFailed:
    return ModelCallFailed(
        step=step, request=1, error="server", message="503", seconds=0.2, retry_in=retry_in
    )


def call_interrupted(step: int) -> ModelCallInterrupted:
    return ModelCallInterrupted(step=step, request=1, reason="cancelled", seconds=0.2)


def tool_started(step: int, command: str = "ls -l\nsecond line") -> ToolCallStarted:
    return ToolCallStarted(
        step=step,
        index=1,
        call_id="c1",
        tool="bash",
        executor="bash",
        arguments={"command": command},
        raw_arguments="{}",
        timeout=120,
    )


def tool_finished(step: int, output: str = "fine") -> ToolCallFinished:
    stream = StreamFacts(text=output, total_bytes=len(output), sha256="0" * 64, truncated=False)
    return ToolCallFinished(
        step=step,
        index=1,
        call_id="c1",
        observation=output,
        message={"role": "tool", "content": output},
        exit_code=0,
        stdout=stream,
        seconds=0.1,
    )


def tool_interrupted(step: int) -> ToolCallInterrupted:
    return ToolCallInterrupted(step=step, index=1, call_id="c1", reason="cancelled")


def patch_captured(patch: str = "diff") -> PatchCaptured:
    return PatchCaptured(
        exit_reason="agent",
        patch=patch,
        files=[FileChange(path="a.py", change="modified", added=1, removed=2)],
    )


def verification_started() -> VerificationStarted:
    return VerificationStarted(rule="swe-bench", fail_to_pass=1, pass_to_pass=2)


def verification_finished(outcome: str = "resolved", log: str = "1 passed") -> VerificationFinished:
    tests = [
        TestOutcome(test_id="t::a", group="fail_to_pass", status=TestStatus.PASSED, log=log),
        TestOutcome(test_id="t::b", group="pass_to_pass", status=TestStatus.PASSED),
        TestOutcome(test_id="t::c", group="pass_to_pass", status=TestStatus.FAILED, assertion="1 != 2"),
    ]
    return VerificationFinished(
        rule="swe-bench", outcome=outcome, tests=tests, exit_code=1, log=log, seconds=1.5
    )


def attempt_ended(reason: str = "agent", *, steps: int = 1, retryable: bool = False) -> AttemptEnded:
    return AttemptEnded(
        exit_reason=reason,
        retryable=retryable,
        steps=steps,
        peak_memory_bytes=1000,
        cpu_seconds=0.5,
        wall_seconds=2.0,
        agent_seconds=1.5,
    )


def run_ended(reason: str = "agent", verdict: str | None = "resolved") -> RunEnded:
    return RunEnded(exit_reason=reason, verdict=verdict)


def whole_run() -> list[Any]:
    """One attempt of two steps that was verified."""
    return [
        attempt_started(),
        sandbox_started(),
        call_started(1),
        call_finished(1),
        tool_started(1),
        tool_finished(1),
        call_started(2),
        call_failed(2),
        call_started(2, request=2),
        call_finished(2),
        patch_captured(),
        verification_started(),
        sandbox_started("verification"),
        verification_finished(),
        attempt_ended(steps=2),
        run_ended(),
    ]
