"""Runs made of records, without a worker: everything a page or a socket may meet, in the lab's own tables."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from itertools import count
from uuid import uuid4

from django.contrib.auth.models import User

from lab.engine.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    FileChange,
    HarnessMessage,
    LimitReached,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    PatchCaptured,
    RunEnded,
    SandboxBounds,
    SandboxImage,
    SandboxStarted,
    StreamFacts,
    ToolCallFinished,
    ToolCallStarted,
    VerificationFinished,
    VerificationStarted,
    WorkspaceChanged,
)
from lab.engine.harnesses.base import HarnessConfig
from lab.engine.limits import Limits
from lab.engine.llm.base import Cost, Reply, ToolCall, Usage
from lab.engine.verify.base import TestOutcome
from lab.models import (
    Arm,
    Endpoint,
    Experiment,
    Harness,
    HarnessVersion,
    Membership,
    Model,
    Role,
    Run,
    Task,
    TaskSet,
)
from lab.services import log
from lab.services.transitions import transition

# Several processes of a test build in one database, so each begins somewhere else.
_numbers = count(uuid4().int >> 100)
CONFIG = HarnessConfig(
    name="leaf-compatible", family="leaf", system_prompt="You mend programs.", tools=()
).model_dump(mode="json")
PATCH = """diff --git a/tickwell/schedule.py b/tickwell/schedule.py
index 1..2 100644
--- a/tickwell/schedule.py
+++ b/tickwell/schedule.py
@@ -61,5 +61,5 @@ def next_run(candidate, local):
     if candidate <= local:
-        utc = candidate.astimezone(UTC) + timedelta(days=1)
-        return utc
+        candidate = candidate + timedelta(days=1)
+        return _real(candidate).astimezone(UTC)
     return candidate.astimezone(UTC)
diff --git a/tests/test_dst.py b/tests/test_dst.py
new file mode 100644
--- /dev/null
+++ b/tests/test_dst.py
@@ -0,0 +1,2 @@
+def test_spring():
+    assert True
"""


def person(role: Role = Role.OPERATOR, *, name: str = "") -> User:
    """Somebody who belongs to the lab."""
    user = User.objects.create_user(username=name or f"{role.value}-{next(_numbers)}")
    Membership.objects.create(user=user, role=role)
    return user


def run(*, scripted: bool = False, status: str = Run.Status.QUEUED, limits: Limits | None = None) -> Run:
    """A run of an experiment of its own, without an event."""
    number = next(_numbers)
    endpoint = Endpoint.objects.create(name=f"endpoint-{number}", scripted=scripted)
    model = Model.objects.create(endpoint=endpoint, name=f"cedar-{number}", model_id="cedar-large")
    harness = Harness.objects.create(name=f"leaf-compatible-{number}", family="leaf", preset=True)
    version = HarnessVersion.objects.create(harness=harness, version=4, digest=_digest(number), config=CONFIG)
    tasks = TaskSet.objects.create(name=f"set-{number}", version="1", digest=_digest(number), folder="")
    task = Task.objects.create(
        task_set=tasks,
        slug="dst-schedule",
        position=1,
        title="A daily job at 02:30 fires at 03:30 after the spring change",
        statement="The job should **keep** its wall time.\n\n<script>alert(1)</script>",
        digest=_digest(number),
        folder="",
        fail_to_pass_count=3,
        pass_to_pass_count=42,
    )
    experiment = Experiment.objects.create(name=f"experiment {number}", task_set=tasks)
    limits = limits or Limits(max_steps=150, max_context_tokens=131_072, max_cost_usd=Decimal(2))
    arm = Arm.objects.create(
        experiment=experiment,
        harness_version=version,
        model=model,
        limits=limits.model_dump(mode="json"),
        limits_digest=limits.digest,
        letter="A",
    )
    return Run.objects.create(experiment=experiment, arm=arm, task=task, seed=1, status=status)


def in_docker(**changes: object) -> SandboxStarted:
    """A container of python:3.13 with the lab's own limits."""
    fields: dict[str, object] = {
        "sandbox": "docker",
        "isolation": "container",
        "identifier": "c",
        "workspace": "/workspace",
        "network": False,
        "seconds": 0.4,
        "image": image(),
        "limits": SandboxBounds(memory_bytes=2 * 1024**3, processes=512, disk_bytes=10_000_000_000),
    }
    return SandboxStarted.model_validate(fields | changes)


def image(content: str = "a", *, digest: str = "b", reference: str = "python:3.13") -> SandboxImage:
    """An image of 412 MB; `content` and `digest` are the digits of its hashes, "" for no registry."""
    return SandboxImage(
        reference=reference,
        identifier=f"sha256:{content * 64}",
        digest=f"python@sha256:{digest * 64}" if digest else "",
        size_bytes=412_000_000,
    )


def another_run(of: Run, *, seed: int) -> Run:
    """One more run of the same experiment and arm."""
    return Run.objects.create(experiment=of.experiment, arm=of.arm, task=of.task, seed=seed)


def _digest(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def append(run: Run, *events: Event, attempt: int = 1) -> int:
    """Append to the run's log as a service that needs no lease; returns the last number."""
    return log.append(run_id=run.pk, attempt=attempt, lease_token=None, events=events)


def start(run: Run, *, attempt: int = 1) -> int:
    """The run is claimed, its attempt and its sandbox are up."""
    run.attempts.get_or_create(n=attempt)
    transition(run_id=run.pk, to=Run.Status.PREPARING)
    return append(run, *opening(), attempt=attempt)


def opening() -> list[Event]:
    return [
        AttemptStarted(
            task={"id": "dst-schedule"},
            harness={"name": "leaf-compatible", "version": 4},
            model={"name": "cedar-large"},
            limits={},
            seed=1,
            messages=[
                {"role": "system", "content": "You mend programs."},
                {"role": "user", "content": "A daily job at 02:30 fires at 03:30."},
            ],
            parameters={"model": "cedar-large"},
            lab_version="0",
        ),
        SandboxStarted(
            sandbox="bubblewrap",
            isolation="bubblewrap",
            identifier="x",
            workspace="/workspace",
            network=False,
            seconds=0.2,
        ),
    ]


def asked(step: int, *, request: int = 1, max_tokens: int | None = 8192) -> ModelCallStarted:
    return ModelCallStarted(
        step=step, request=request, body_sha256="0" * 64, message_count=2 * step, max_tokens=max_tokens
    )


def answered(
    step: int,
    *calls: tuple[str, str],
    content: str = "",
    reasoning: str = "",
    request: int = 1,
    cost: Cost | None = None,
    finish_reason: str = "",
) -> ModelCallFinished:
    """The model's answer; `calls` are pairs of tool and raw arguments."""
    tool_calls = tuple(
        ToolCall(id=f"call-{step}-{index}", name=name, arguments=arguments)
        for index, (name, arguments) in enumerate(calls, start=1)
    )
    usage = Usage(
        input_total=2000 + 100 * step,
        input_uncached=200 + 100 * step,
        cache_read=1800,
        output_total=318,
        reasoning=120,
        source="provider",
    )
    return ModelCallFinished(
        step=step,
        request=request,
        reply=Reply(
            content=content,
            reasoning=reasoning,
            tool_calls=tool_calls,
            finish_reason=finish_reason or ("tool_calls" if calls else "stop"),
            model="cedar-large",
            usage=usage,
            seconds=1.4,
        ),
        message=message_of(content, tool_calls),
        cost=cost
        or Cost(
            amount=Decimal("0.0058"),
            basis="table",
            unit_prices={"input": Decimal("2.5"), "cache_read": Decimal("0.25"), "output": Decimal(10)},
            matched="openai/cedar-large (genai-prices 0.2.3)",
        ),
        context_tokens=2318 + 100 * step,
    )


def message_of(content: str, calls: tuple[ToolCall, ...] = ()) -> dict[str, object]:
    """A reply as it joins the conversation of a harness that takes all its calls."""
    called = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    return {"role": "assistant", "content": content} | ({"tool_calls": called} if called else {})


def failed_request(step: int, *, request: int = 1, retry_in: float | None = 2.0) -> ModelCallFailed:
    return ModelCallFailed(
        step=step,
        request=request,
        error="rate_limit",
        status=429,
        message="slow down",
        retry_in=retry_in,
        seconds=0.3,
    )


def called(
    step: int,
    tool: str,
    arguments: dict[str, object],
    *,
    index: int = 1,
    malformed: str = "",
    raw: str = "{}",
    timeout: float | None = 120.0,
) -> ToolCallStarted:
    return ToolCallStarted(
        step=step,
        index=index,
        call_id=f"call-{step}-{index}",
        tool=tool,
        executor=tool.lower(),
        arguments=arguments,
        raw_arguments=raw,
        malformed=malformed,
        timeout=timeout if tool == "Bash" else None,
    )


def stream(text: str, *, binary: bool = False, total: int | None = None) -> StreamFacts:
    data = text.encode("utf-8", "surrogatepass")
    return StreamFacts(
        text=text,
        total_bytes=len(data) if total is None else total,
        sha256=hashlib.sha256(data).hexdigest(),
        truncated=False,
        binary=binary,
    )


def printed(
    step: int, stdout: str, *, stderr: str = "", exit_code: int = 0, index: int = 1, seen: int | None = None
) -> ToolCallFinished:
    """A Bash call's end. `seen` is how many characters of the observation the model saw."""
    observation = f"Exit code: {exit_code}\nSTDOUT:\n{stdout}\nSTDERR:\n{stderr}"
    dropped = 0
    whole = None
    if seen is not None and len(observation) > seen:
        dropped = len(observation) - seen
        whole = observation
        observation = f"{observation[:seen]}\n[{dropped} characters truncated]"
    return ToolCallFinished(
        step=step,
        index=index,
        call_id=f"call-{step}-{index}",
        observation=observation,
        observation_dropped=dropped,
        whole=whole,
        message={"role": "tool", "content": observation},
        failed=False,
        exit_code=exit_code,
        stdout=stream(stdout),
        stderr=stream(stderr),
        seconds=0.3,
    )


def told(step: int, observation: str, *, failed: bool = False, index: int = 1) -> ToolCallFinished:
    """The end of a call that runs no command."""
    return ToolCallFinished(
        step=step,
        index=index,
        call_id=f"call-{step}-{index}",
        observation=observation,
        message={"role": "tool", "content": observation},
        failed=failed,
        seconds=0.02,
    )


def bash_step(step: int, command: str, stdout: str, *, exit_code: int = 0) -> list[Event]:
    """One whole step of four events."""
    return [
        asked(step),
        answered(step, ("Bash", "{}"), reasoning="I look. " * 30),
        called(step, "Bash", {"command": command}),
        printed(step, stdout, exit_code=exit_code),
    ]


def edit_step(step: int) -> list[Event]:
    old = "        utc = candidate.astimezone(UTC) + timedelta(days=1)\n        return utc"
    new = "        candidate = candidate + timedelta(days=1)\n        return _real(candidate).astimezone(UTC)"
    return [
        asked(step),
        answered(step, ("Edit", "{}"), content="I keep the wall clock."),
        called(step, "Edit", {"file_path": "tickwell/schedule.py", "old_string": old, "new_string": new}),
        told(step, "tickwell/schedule.py: 1 replacement"),
        WorkspaceChanged(
            step=step,
            index=1,
            call_id=f"call-{step}-1",
            changes=[FileChange(path="tickwell/schedule.py", change="modified", size=9, added=2, removed=2)],
        ),
    ]


def final_step(step: int, text: str = "Done: the job keeps its **wall time**.") -> list[Event]:
    return [asked(step), answered(step, content=text)]


def ending(*, outcome: str = "unresolved", steps: int = 9) -> list[Event]:
    """From the patch to the end of the run."""
    return [
        PatchCaptured(
            exit_reason="agent",
            patch=PATCH,
            files=[FileChange(path="tickwell/schedule.py", change="modified", added=2, removed=2)],
            final_message="Done",
        ),
        VerificationStarted(rule="swe-bench", fail_to_pass=3, pass_to_pass=42),
        VerificationFinished(
            rule="swe-bench",
            outcome=outcome,
            tests=graded(outcome),
            log=FAILED_LOG + "\n1 failed",
            seconds=1.9,
        ),
        AttemptEnded(exit_reason="agent", steps=steps, wall_seconds=171.0, agent_seconds=160.0),
        RunEnded(exit_reason="agent", verdict=outcome),
    ]


# What pytest prints of a failed test: its source, which an agent and a viewer must not see.
FAILED_LOG = "    assert spring_hours() == 2  # hidden source\nE   assert 3 == 2"


def graded(outcome: str) -> list[TestOutcome]:
    good = outcome == "resolved"
    bad = "passed" if good else "failed"
    tests = [
        TestOutcome(
            test_id="tests/test_dst.py::test_spring",
            group="fail_to_pass",
            status=bad,
            assertion="" if good else "assert 3 == 2",
            log="" if good else FAILED_LOG,
        ),
        TestOutcome(test_id="tests/test_dst.py::test_autumn", group="fail_to_pass", status="passed"),
    ]
    tests += [
        TestOutcome(test_id=f"tests/test_zones.py::test_{number}", group="pass_to_pass", status="passed")
        for number in range(3)
    ]
    return tests


def believable(run: Run, *, outcome: str = "unresolved") -> int:
    """A whole run: every sort of step a page has a picture for, and its end."""
    start(run)
    events: list[Event] = [
        asked(1),
        answered(1, ("Glob", "{}"), ("Read", "{}")),
        called(1, "Glob", {"pattern": "**/*.py"}),
        told(1, "a.py\nb.py"),
        called(1, "Read", {"file_path": "tickwell/schedule.py"}, index=2),
        told(1, "tickwell/schedule.py\n1. import os\n2. import sys", index=2),
        *bash_step(2, "python -m pytest -q", "....\n42 passed in 1.20s\n"),
        asked(3),
        failed_request(3),
        asked(3, request=2),
        answered(3, ("Bash", "{"), request=2),
        called(3, "Bash", {}, malformed="no JSON: Expecting property name", raw='{"command": "ls'),
        told(3, "Your arguments were no JSON object.", failed=True),
        *edit_step(4),
        *bash_step(5, "python -m pytest -q", "F...\n1 failed, 41 passed in 1.2s\n", exit_code=1),
        asked(6),
        answered(6, ("Write", "{}")),
        called(
            6, "Write", {"file_path": "tests/test_dst.py", "content": "def test_spring():\n    assert True\n"}
        ),
        told(6, "Wrote tests/test_dst.py"),
        *final_step(7),
        LimitReached(limit="max_steps", used=Decimal(7), allowed=Decimal(7)),
        *ending(outcome=outcome, steps=7),
    ]
    return append(run, *events)


def written_step(
    step: int,
    tool: str,
    executor: str,
    arguments: dict[str, object],
    *,
    markup: str,
    ended: ToolCallFinished,
    said: str = "I look.",
    raw: str = "",
) -> list[Event]:
    """A step whose call stands in the reply's text as `markup`; `raw` is what the harness took, else all."""
    return [
        asked(step),
        answered(step, content=f"{said}\n\n{markup}"),
        ToolCallStarted(
            step=step,
            index=1,
            call_id="xml-1",
            tool=tool,
            executor=executor,
            arguments=arguments,
            raw_arguments=raw or markup,
            timeout=None,
        ),
        ended,
    ]


def unread_step(
    step: int,
    content: str,
    *calls: tuple[str, str],
    reason: str = "no_call",
    detail: str = "there is no call",
    drops: bool = False,
    form: str = "",
) -> list[Event]:
    """A step whose reply the harness could not execute; `drops`: it leaves the reply out."""
    reply = answered(step, *calls, content=content)
    message = {} if drops else message_of(content)
    return [
        asked(step),
        reply.model_copy(update={"message": message, "unread_form": form}),
        HarnessMessage(
            step=step,
            reason=reason,
            detail=detail,
            message={"role": "user", "content": "Every reply makes exactly one call."},
        ),
    ]
