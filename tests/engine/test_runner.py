"""One attempt, whole: a real server on loopback, real sandboxes, a real verification."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lab.engine import registry
from lab.engine.errors import ExitReason, LeaseLostError
from lab.engine.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    LimitReached,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    PatchCaptured,
    Record,
    SandboxStarted,
    ToolCallFinished,
    ToolCallInterrupted,
    ToolCallStarted,
    VerificationFinished,
    VerificationStarted,
    WorkspaceChanged,
    read_record,
)
from lab.engine.harnesses.conversation import rebuild_inputs
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import ModelConfig, Price
from lab.engine.runner import AttemptResult, AttemptSpec, run_attempt
from lab.engine.sandboxes.base import Image, IsOrphan, Progress, Sandbox, SandboxProvider, SandboxSpec
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal
from lab.engine.tasks.loader import load_task, practice_folder
from lab.engine.tasks.spec import TaskSpec
from lab.engine.verify.base import Outcome
from lab.engine.workspace_archive import read_tar
from tests.engine.conftest import MakeTask
from tests.engine.harnesses.driving import bash, call, calls
from tests.fakes.openai_server import Answer, FakeOpenAI, delta, plain, says, stream, usage_chunk
from tests.timing import SOON

E = TypeVar("E")
KEY = "sk-test-0123456789abcdef"
HIDDEN = "from thing import f\n\n\ndef test_f():\n    assert f() == 2\n"
MEND = "sed -i s/1/2/ thing.py"
SCRIPTED = ModelConfig(
    name="scripted/solver",
    model_id="scripted/solver",
    base_url="",
    scripted=True,
    price=Price(basis="scripted"),
)


class WatchingSink(ListSink):
    """Calls back after each event."""

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        super().__init__()
        self._on_event = on_event

    def append(self, event: Event) -> Record:
        record = super().append(event)
        self._on_event(event)
        return record


class WatchedProvider:
    """A real provider that remembers what it started."""

    def __init__(self, inner: SandboxProvider) -> None:
        self.inner = inner
        self.kind = inner.kind
        self.started: list[Sandbox] = []

    def available(self) -> str | None:
        return self.inner.available()

    def workspace(self, spec: SandboxSpec) -> str:
        return self.inner.workspace(spec)

    def prepare(
        self, spec: SandboxSpec, *, progress: Progress | None = None, stop: StopSignal | None = None
    ) -> Image | None:
        return self.inner.prepare(spec, progress=progress, stop=stop)

    def start(self, spec: SandboxSpec) -> Sandbox:
        self.started.append(self.inner.start(spec))
        return self.started[-1]

    def reap(self, scratch_root: Path, is_orphan: IsOrphan) -> list[str]:
        return self.inner.reap(scratch_root, is_orphan)


@pytest.fixture(scope="session")
def engine_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine-data")


@pytest.fixture
def task(make_task: MakeTask) -> TaskSpec:
    return make_task(
        {"thing.py": "def f():\n    return 1\n"},
        command=("python", "-m", "pytest", "test_thing.py"),
        test_files={"test_thing.py": HIDDEN},
        fail_to_pass=("test_thing.py::test_f",),
    )


Make = Callable[..., AttemptSpec]


@pytest.fixture
def make(engine_folder: Path, task: TaskSpec) -> Make:
    """A specification for a fake server; keywords replace fields, `limits` are put over the preset's."""

    def make_spec(server: FakeOpenAI | None = None, **fields: Any) -> AttemptSpec:
        harness = load_preset("leaf-compatible")
        base_url = server.base_url if server is not None else "http://127.0.0.1:9/v1"
        return AttemptSpec(
            **{
                "task": task,
                "harness": harness,
                "model": ModelConfig(
                    name="fake", model_id="fake", base_url=base_url, price=Price(basis="unknown")
                ),
                "provider": registry.provider("process"),
                "data_folder": engine_folder,
                "label": "run-7-1",
                "api_key": KEY,
                "key_variable": "FAKE_KEY",
                "retry_seconds": 1.0,
                "chunk_seconds": 0.0,
                **fields,
                "limits": harness.limits.model_copy(update=fields.get("limits", {})),
            }
        )

    return make_spec


def of(sink: ListSink, kind: type[E]) -> list[E]:
    return [event for event in sink.events if isinstance(event, kind)]


def one(sink: ListSink, kind: type[E]) -> E:
    (event,) = of(sink, kind)
    return event


def kinds(sink: ListSink) -> list[str]:
    return [event.kind for event in sink.events]


def attempt(
    make: Make, *answers: Answer, sink: ListSink | None = None, stop: StopSignal | None = None, **fields: Any
) -> tuple[AttemptResult, ListSink]:
    sink = sink if sink is not None else ListSink()
    hooks = {name: fields.pop(name) for name in ("steering", "on_phase") if name in fields}
    with FakeOpenAI(*answers) as server:
        result = run_attempt(make(server, **fields), sink, stop or StopSignal(), **hooks)
    return result, sink


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "sandboxes").glob("*"))


def test_a_scripted_solver_resolves_a_practice_task_in_every_kind_of_sandbox(
    make: Make, provider: SandboxProvider, engine_folder: Path
) -> None:
    sink, phases = ListSink(), list[str]()
    spec = make(
        task=load_task(practice_folder() / "parse-duration"), model=SCRIPTED, provider=provider, api_key=""
    )
    result = run_attempt(spec, sink, StopSignal(), on_phase=phases.append)
    assert result == AttemptResult(ExitReason.AGENT, Outcome.RESOLVED, False, "", result.steps)
    assert phases == ["preparing", "running", "verifying"]
    order = kinds(sink)
    assert order[:3] == ["attempt_started", "sandbox_started", "model_call_started"]
    assert order[-5:] == [
        "patch_captured",
        "verification_started",
        "sandbox_started",
        "verification_finished",
        "attempt_ended",
    ]
    assert [record.seq for record in sink.records] == list(range(1, len(order) + 1))
    ended = one(sink, AttemptEnded)
    assert (ended.exit_reason, ended.native_reason, ended.steps) == ("agent", "agent", result.steps)
    assert ended.peak_memory_bytes
    assert ended.cpu_seconds is not None
    assert ended.measured_by
    assert ended.agent_seconds is not None
    assert 0 < ended.agent_seconds <= ended.wall_seconds
    assert [event.purpose for event in of(sink, SandboxStarted)] == ["agent", "verification"]
    assert all(event.cost.amount == 0 for event in of(sink, ModelCallFinished))
    assert leftovers(engine_folder) == []


def test_the_same_seed_writes_the_same_run_again(make: Make) -> None:
    def told() -> list[Any]:
        sink = ListSink()
        spec = make(task=load_task(practice_folder() / "parse-duration"), model=SCRIPTED, api_key="")
        run_attempt(spec, sink, StopSignal())
        calls = [(event.message, event.reply.usage) for event in of(sink, ModelCallFinished)]
        return [calls, one(sink, PatchCaptured).patch, kinds(sink)]

    assert told() == told()


def test_a_scripted_model_without_a_plan_says_so_and_stops(make: Make, task: TaskSpec) -> None:
    sink = ListSink()
    result = run_attempt(make(model=SCRIPTED), sink, StopSignal())
    assert "no plan" in one(sink, PatchCaptured).final_message
    assert (result.exit_reason, result.verdict) == (ExitReason.AGENT, Outcome.UNRESOLVED)


def test_every_tool_call_that_changed_the_workspace_stores_the_change(make: Make) -> None:
    _, sink = attempt(make, calls(bash(MEND), bash("cat thing.py")), says("done"))
    changed = one(sink, WorkspaceChanged)
    assert (changed.step, changed.index) == (1, 1)
    assert [(change.path, change.change, change.added) for change in changed.changes] == [
        ("thing.py", "modified", 1)
    ]
    assert changed.archive in sink.blobs


def test_what_the_agent_committed_is_in_the_patch(make: Make) -> None:
    result, sink = attempt(make, calls(bash(f"{MEND} && git commit -qam mended")), says("done"))
    captured = one(sink, PatchCaptured)
    assert "+    return 2" in captured.patch
    assert captured.commits == 1
    assert result.verdict is Outcome.RESOLVED


def test_hidden_tests_and_the_key_are_nowhere_before_the_agent_has_ended(make: Make) -> None:
    _, sink = attempt(make, calls(bash("env; ls -a; cat /proc/*/environ; echo $FAKE_KEY")), says("done"))
    text = "\n".join(record.to_line() for record in sink.records)
    assert KEY not in text
    before = text[: text.index('"kind": "patch_captured"')]
    assert "test_thing" not in before
    assert "assert f()" not in before


def test_a_key_that_a_server_repeats_reaches_neither_the_log_nor_the_next_request(make: Make) -> None:
    with FakeOpenAI(
        calls(bash(f"echo {KEY}"), content=f"the key is {KEY}", reasoning=f"so {KEY}"), says(f"done {KEY}")
    ) as server:
        sink = ListSink()
        result = run_attempt(make(server), sink, StopSignal())
        second = json.dumps(server.calls[1].body)
    assert result.exit_reason is ExitReason.AGENT
    assert KEY not in second
    assert KEY not in "".join(record.to_line() for record in sink.records)
    assert "[redacted: FAKE_KEY]" in one(sink, PatchCaptured).final_message
    stored = [read_record(json.loads(record.to_line())) for record in sink.records]
    assert all(found.sha256_actual == found.sha256_expected for found in rebuild_inputs(stored))


def test_a_key_that_a_command_puts_together_reaches_neither_the_log_nor_the_next_request(make: Make) -> None:
    with FakeOpenAI(calls(bash("printf 'sk-test-%s' 0123456789abcdef")), says("done")) as server:
        sink = ListSink()
        run_attempt(make(server), sink, StopSignal())
        second = json.dumps(server.calls[1].body)
    assert KEY not in second
    assert "[redacted: FAKE_KEY]" in second
    assert KEY not in "".join(record.to_line() for record in sink.records)


def test_a_stored_change_that_held_a_known_secret_is_still_an_archive_and_says_what_is_missing(
    make: Make,
) -> None:
    with FakeOpenAI(
        calls(bash("printf 'a sk-test-%s b' 0123456789abcdef > kept; echo last > zz")), says("done")
    ) as server:
        sink = ListSink()
        run_attempt(make(server), sink, StopSignal())
    changed = one(sink, WorkspaceChanged)
    assert changed.archive is not None
    files = {path: item.content for path, item in read_tar(sink.blobs[changed.archive]).items()}
    assert files[b"files/kept"] == b"a " + b"*" * len(KEY) + b" b"
    assert files[b"files/zz"] == b"last\n"
    assert "secret" in changed.problem


def test_a_cancelled_attempt_stays_cancelled_when_its_sandbox_breaks_too(make: Make) -> None:
    provider, stop = WatchedProvider(registry.provider("process")), StopSignal()

    def both(event: Event) -> None:
        if isinstance(event, ModelCallFinished):
            stop.set(ExitReason.CANCELLED)
            provider.started[0].stop()

    result, sink = attempt(make, calls(bash("true")), sink=WatchingSink(both), stop=stop, provider=provider)
    assert (result.exit_reason, result.retryable) == (ExitReason.CANCELLED, False)
    assert one(sink, AttemptEnded).exit_reason == "cancelled"
    assert one(sink, AttemptEnded).error


def test_a_cancel_raised_before_a_step_is_not_verified_either(make: Make) -> None:
    stop = StopSignal()

    def cancel(phase: str) -> None:
        if phase == "running":
            stop.set(ExitReason.CANCELLED)

    result, sink = attempt(make, says("never"), stop=stop, on_phase=cancel)
    assert (result.exit_reason, result.verdict) == (ExitReason.CANCELLED, None)
    assert one(sink, PatchCaptured).exit_reason == "cancelled"
    assert of(sink, VerificationStarted) == []


def test_the_opening_event_holds_the_facts_and_what_the_caller_adds(make: Make) -> None:
    _, sink = attempt(
        make,
        says("done"),
        facts={"task": {"set": "practice"}, "harness": {"version": 3}},
        seed=4,
    )
    started = sink.events[0]
    assert isinstance(started, AttemptStarted)
    assert (started.task["id"], started.task["set"], started.seed) == ("task", "practice", 4)
    assert (started.harness["name"], started.harness["version"]) == ("leaf-compatible", 3)
    assert started.harness["digest"] == load_preset("leaf-compatible").digest
    assert started.limits["max_steps"] == 150
    assert started.messages[1]["content"] == "Mend it."
    assert "messages" not in started.parameters


def test_a_limit_in_the_middle_of_a_step_keeps_what_there_is_and_is_verified(make: Make) -> None:
    result, sink = attempt(
        make, calls(bash(f"{MEND}; echo mended; sleep 60")), limits={"max_total_time_sec": 8.0}
    )
    assert (result.exit_reason, result.verdict) == (ExitReason.MAX_TIME, Outcome.RESOLVED)
    interrupted = one(sink, ToolCallInterrupted)
    assert interrupted.stdout is not None
    assert interrupted.stdout.text == "mended\n"
    assert one(sink, ModelCallFinished).reply.usage.total == 120
    assert one(sink, LimitReached).limit == "max_total_time_sec"
    captured = one(sink, PatchCaptured)
    assert captured.exit_reason == "max_time"
    assert "+    return 2" in captured.patch
    assert [change.path for event in of(sink, WorkspaceChanged) for change in event.changes] == ["thing.py"]


@pytest.mark.parametrize(
    "answer",
    [
        calls(bash(f"{MEND}; sleep 60")),
        Answer(pieces=[f"data: {json.dumps(delta(content='word '))}\n\n".encode()] * 3000, pause=0.02),
    ],
    ids=["command", "reply"],
)
def test_a_cancel_keeps_the_patch_and_does_not_verify_it(
    make: Make, engine_folder: Path, answer: Answer
) -> None:
    stop = StopSignal()
    asked = list[float]()

    def cancel() -> None:
        asked.append(time.monotonic())
        stop.set(ExitReason.CANCELLED)

    def soon(event: Event) -> None:
        if isinstance(event, ModelCallStarted):
            threading.Timer(1.0, cancel).start()

    result, sink = attempt(make, answer, sink=WatchingSink(soon), stop=stop)
    assert time.monotonic() - asked[0] < SOON
    assert result == AttemptResult(ExitReason.CANCELLED, None, False, "", 1)
    assert one(sink, PatchCaptured).exit_reason == "cancelled"
    assert of(sink, VerificationStarted) == []
    assert leftovers(engine_folder) == []


def test_a_cancel_before_anything_started_ends_the_attempt_at_once(make: Make) -> None:
    stop = StopSignal()
    stop.set(ExitReason.CANCELLED)
    result, sink = attempt(make, says("never"), stop=stop)
    assert kinds(sink) == ["attempt_started", "attempt_ended"]
    assert result.exit_reason is ExitReason.CANCELLED


def test_a_cancel_while_verifying_wins_and_the_agents_own_reason_is_kept(make: Make, task: TaskSpec) -> None:
    slow = task.model_copy(
        update={"verification": task.verification.model_copy(update={"command": ("sleep", "60")})}
    )
    stop = StopSignal()

    def soon(event: Event) -> None:
        if isinstance(event, VerificationStarted):
            threading.Timer(1.0, lambda: stop.set(ExitReason.CANCELLED)).start()

    result, sink = attempt(make, says("done"), sink=WatchingSink(soon), stop=stop, task=slow)
    assert (result.exit_reason, result.verdict) == (ExitReason.CANCELLED, None)
    assert one(sink, PatchCaptured).exit_reason == "agent"
    assert one(sink, AttemptEnded).native_reason == "agent"


def test_a_sandbox_that_dies_ends_the_run_within_one_step_as_infrastructure(
    make: Make, engine_folder: Path
) -> None:
    provider = WatchedProvider(registry.provider("process"))

    def kill(event: Event) -> None:
        if isinstance(event, ToolCallStarted) and event.step == 2:
            threading.Timer(0.5, provider.started[0].stop).start()

    with FakeOpenAI(calls(bash("true")), calls(bash("sleep 60"))) as server:
        sink = WatchingSink(kill)
        result = run_attempt(make(server, provider=provider), sink, StopSignal())
        assert len(server.calls) == 2
    assert (result.exit_reason, result.verdict, result.retryable) == (
        ExitReason.INFRASTRUCTURE_ERROR,
        None,
        True,
    )
    assert kinds(sink)[-3:] == ["tool_call_interrupted", "sandbox_lost", "attempt_ended"]
    assert one(sink, AttemptEnded).native_reason == "tool_error"
    assert of(sink, PatchCaptured) == []
    assert leftovers(engine_folder) == []


def test_a_sandbox_that_cannot_start_is_infrastructure(make: Make, tmp_path: Path) -> None:
    class Broken(WatchedProvider):
        def start(self, spec: SandboxSpec) -> Sandbox:
            from lab.engine.errors import SandboxLostError

            raise SandboxLostError("no room left for a sandbox")

    result, sink = attempt(make, says("never"), provider=Broken(registry.provider("process")))
    assert (result.exit_reason, result.retryable) == (ExitReason.INFRASTRUCTURE_ERROR, True)
    # Nothing was lost where nothing was started.
    assert kinds(sink) == ["attempt_started", "attempt_ended"]
    assert "no room left" in one(sink, AttemptEnded).error
    assert "no room left" in result.error


def test_a_missing_repository_is_named_and_not_tried_again(make: Make, task: TaskSpec) -> None:
    gone = task.model_copy(update={"repository": Path("/nowhere/repository")})
    result, sink = attempt(make, says("never"), task=gone)
    assert result.exit_reason is ExitReason.INFRASTRUCTURE_ERROR
    assert "/nowhere/repository" in result.error
    assert not result.retryable
    assert one(sink, AttemptEnded).error == result.error


@pytest.mark.parametrize(
    ("answer", "retryable"),
    [
        (plain({"error": {"message": "no such key"}}, status=401), False),
        (plain({"error": {"message": "down"}}, status=503), True),
    ],
)
def test_an_endpoint_that_fails_for_good_is_not_verified(make: Make, answer: Answer, retryable: bool) -> None:
    result, sink = attempt(make, answer)
    assert (result.exit_reason, result.verdict) == (ExitReason.LLM_QUERY_ERROR, None)
    assert result.retryable is retryable
    assert of(sink, VerificationStarted) == []
    ended = one(sink, AttemptEnded)
    assert (ended.exit_reason, ended.retryable) == ("llm_query_error", retryable)
    assert ended.error


def test_an_unexpected_error_is_internal_and_its_text_holds_no_key(make: Make, engine_folder: Path) -> None:
    def explode(phase: str) -> None:
        raise RuntimeError(f"boom with {KEY}")

    result, sink = attempt(make, says("never"), on_phase=explode)
    assert (result.exit_reason, result.retryable) == (ExitReason.INTERNAL_ERROR, True)
    assert "boom with [redacted: FAKE_KEY]" in result.error
    assert "Traceback" in one(sink, AttemptEnded).error
    assert KEY not in result.error
    assert leftovers(engine_folder) == []


def test_what_was_in_flight_at_an_unexpected_error_has_an_end_in_the_log(make: Make) -> None:
    class Mistaken(ListSink):
        def put_blob(self, data: bytes) -> str:
            raise RuntimeError("a mistake of the lab's own")

    result, sink = attempt(make, calls(bash("echo 1 > new.txt")), sink=Mistaken())
    assert result.exit_reason is ExitReason.INTERNAL_ERROR
    assert kinds(sink)[-3:] == ["tool_call_started", "tool_call_interrupted", "attempt_ended"]
    assert one(sink, ToolCallInterrupted).reason == "internal_error"


def test_a_lost_lease_leaves_at_once_writes_nothing_more_and_stops_the_sandbox(
    make: Make, engine_folder: Path
) -> None:
    refused = list[str]()

    class Fenced(ListSink):
        def append(self, event: Event) -> Record:
            if refused or isinstance(event, ToolCallFinished):
                refused.append(event.kind)
                raise LeaseLostError("another child owns the attempt")
            return super().append(event)

    sink = Fenced()
    with pytest.raises(LeaseLostError):
        attempt(make, calls(bash("true")), sink=sink)
    assert kinds(sink)[-1] == "tool_call_started"
    assert refused == ["tool_call_finished"]
    assert leftovers(engine_folder) == []


def test_an_agent_that_closes_its_workspace_goes_on_in_it_and_is_graded(
    make: Make, provider: SandboxProvider
) -> None:
    closing = calls(bash("chmod -R 000 .; ls"), bash("cat thing.py"), bash(f"chmod -R u+rwx . && {MEND}"))
    result, sink = attempt(make, closing, calls(bash("chmod -R 000 .")), says("done"), provider=provider)
    assert (result.exit_reason, result.verdict, result.error) == (ExitReason.AGENT, Outcome.RESOLVED, "")
    assert [finished.exit_code for finished in of(sink, ToolCallFinished)][1:3] == [0, 0]


def test_a_patch_that_fails_the_tests_is_a_verdict_and_no_error(make: Make) -> None:
    result, sink = attempt(make, calls(bash("echo 'def f(): return 3' > thing.py")), says("done"))
    assert (result.exit_reason, result.verdict, result.error) == (
        ExitReason.AGENT,
        Outcome.UNRESOLVED,
        "",
    )
    finished = one(sink, VerificationFinished)
    assert finished.outcome == "unresolved"
    assert finished.wall_seconds is not None
    assert finished.measured_by


def test_calls_of_every_tool_come_from_the_log_to_the_letter(make: Make) -> None:
    _, sink = attempt(
        make,
        calls(call("Read", {"file_path": "thing.py"}), call("Glob", {"pattern": "*.py"})),
        calls(call("Edit", {"file_path": "thing.py", "old_string": "1", "new_string": "2"})),
        says("done"),
    )
    assert [event.observation for event in of(sink, ToolCallFinished)] == [
        "thing.py\n1. def f():\n2.     return 1",
        "thing.py",
        "Edited thing.py: 1 replacement",
    ]


def test_a_server_that_bills_failed_tries_too_is_not_asked_again_once_the_money_is_gone(make: Make) -> None:
    usage = usage_chunk(prompt_tokens=400_000, completion_tokens=10, total_tokens=400_010)
    billed = stream(delta(content="half"), delta(finish="abort"), usage)
    with FakeOpenAI(billed) as server:
        sink = ListSink()
        model = ModelConfig(
            name="fake",
            model_id="gpt-4o",
            base_url=server.base_url,
            price=Price(basis="table", provider="openai", model="gpt-4o"),
        )
        spec = make(server, model=model, limits={"max_cost_usd": Decimal("1.5")}, retry_seconds=60.0)
        result = run_attempt(spec, sink, StopSignal())
        asked = len(server.calls)
    failed = of(sink, ModelCallFailed)
    costs = [event.cost.amount for event in failed]
    assert costs == [costs[0]] * asked
    assert costs[0] is not None
    assert costs[0] * (asked - 1) < Decimal("1.5") <= costs[0] * asked
    assert (result.exit_reason, result.verdict) == (ExitReason.MAX_COST, Outcome.UNRESOLVED)
    reached = one(sink, LimitReached)
    assert (reached.limit, reached.used) == ("max_cost_usd", costs[0] * asked)
