"""A run whose sandbox breaks in the middle ends within one step, as infrastructure, and pays for no more."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.engine.attempt import AttemptResult, AttemptSpec
from lab.engine.errors import ExitReason
from lab.engine.events import (
    Event,
    ModelCallFinished,
    Record,
    SandboxLost,
    SandboxStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import ModelConfig, Price
from lab.engine.runner import run_attempt
from lab.engine.sandboxes.base import Sandbox, SandboxProvider
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal
from lab.engine.tasks.spec import Environment, TaskSpec
from tests.engine.conftest import MakeTask
from tests.engine.harnesses.driving import bash, calls
from tests.engine.sandboxes.conftest import eventually, everything, processes_naming
from tests.engine.sandboxes.places import Place, kill, left_of, take_away
from tests.fakes.openai_server import FakeOpenAI
from tests.timing import SOON, odd_seconds, sleeping

# The harness's tool is bash.
pytestmark = pytest.mark.promises("bash")
STEP = 20
LONG = odd_seconds(0)
AWAY: dict[str, Callable[[Sandbox], None]] = {"killed": kill, "taken away": take_away}


class Started:
    """A provider that remembers what it started."""

    def __init__(self, inner: SandboxProvider) -> None:
        self._inner = inner
        self.sandboxes: list[Sandbox] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def start(self, spec: Any) -> Sandbox:
        self.sandboxes.append(self._inner.start(spec))
        return self.sandboxes[-1]


class Watching(ListSink):
    def __init__(self, on_event: Callable[[Event], None]) -> None:
        super().__init__()
        self._on_event = on_event

    def append(self, event: Event) -> Record:
        record = super().append(event)
        self._on_event(event)
        return record

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def data_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lab-runs-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def task(make_task: MakeTask, place: Place) -> TaskSpec:
    made = make_task(
        {"thing.py": "x = 1\n"},
        command=("python3", "-m", "unittest", "test_thing"),
        test_files={"test_thing.py": "import thing\n"},
        fail_to_pass=("test_thing",),
    )
    if "image" not in place.fields():
        return made
    return made.model_copy(update={"environment": Environment(**place.fields(), verifier_timeout_sec=60.0)})


Attempt = Callable[..., AttemptResult]


@pytest.fixture
def attempt(task: TaskSpec, data_folder: Path) -> Attempt:
    """One attempt with a real sandbox and a server on loopback; keywords replace fields."""

    def run(
        provider: Any, server: FakeOpenAI, sink: ListSink, stop: StopSignal | None = None
    ) -> AttemptResult:
        harness = load_preset("leaf-compatible")
        spec = AttemptSpec(
            task=task,
            harness=harness,
            model=ModelConfig(
                name="fake", model_id="fake", base_url=server.base_url, price=Price(basis="unknown")
            ),
            limits=harness.limits,
            provider=provider,
            data_folder=data_folder,
            label="run-7-1",
            retry_seconds=1.0,
            chunk_seconds=0.0,
        )
        return run_attempt(spec, sink, stop or StopSignal())

    return run


def is_of_step(event: Event, kind: type[Any]) -> bool:
    return isinstance(event, kind) and getattr(event, "step", None) == STEP


@pytest.mark.parametrize("vanish", AWAY.values(), ids=AWAY.keys())
@pytest.mark.parametrize("at", ["in the middle of a command", "between reply and command"])
def test_a_sandbox_that_breaks_at_step_20_ends_the_run_there_with_all_before_kept(
    provider: SandboxProvider, attempt: Attempt, at: str, vanish: Callable[[Sandbox], None]
) -> None:
    watched = Started(provider)
    broken = list[float]()

    def break_it() -> None:
        broken.append(time.monotonic())
        vanish(watched.sandboxes[0])

    def when_running() -> None:
        if eventually(lambda: bool(sleeping(LONG))):
            break_it()

    def look(event: Event) -> None:
        if at == "between reply and command" and is_of_step(event, ModelCallFinished):
            break_it()
        elif at == "in the middle of a command" and is_of_step(event, ToolCallStarted):
            threading.Thread(target=when_running).start()

    steps = [calls(bash(f"echo {number} >> counted")) for number in range(1, STEP)]
    with FakeOpenAI(*steps, calls(bash(f"sleep {LONG}"))) as server:
        sink = Watching(look)
        result = attempt(watched, server, sink)
        assert time.monotonic() - broken[0] < 30 + SOON
        assert len(server.calls) == STEP
    assert result.exit_reason is ExitReason.INFRASTRUCTURE_ERROR
    assert (result.verdict, result.retryable) == (None, True)
    assert [event.step for event in sink.of(ToolCallFinished)] == list(range(1, STEP))
    assert len(sink.of(SandboxLost)) == 1
    assert [event.kind for event in sink.events][-2:] == ["sandbox_lost", "attempt_ended"]
    assert eventually(lambda: not processes_naming(LONG))
    assert [left for sandbox in watched.sandboxes for left in left_of(sandbox)] == []


def test_a_sandbox_that_breaks_while_the_model_answers_costs_that_answer_and_no_more(
    provider: SandboxProvider, attempt: Attempt
) -> None:
    watched = Started(provider)

    def look(event: Event) -> None:
        if event.kind == "model_call_started" and event.step == 3:
            kill(watched.sandboxes[0])

    with FakeOpenAI(calls(bash("true"))) as server:
        sink = Watching(look)
        result = attempt(watched, server, sink)
        assert len(server.calls) <= 3
    assert result.exit_reason is ExitReason.INFRASTRUCTURE_ERROR
    assert len(sink.of(ToolCallFinished)) == 2


def test_a_cancel_in_the_middle_of_a_command_ends_the_run_soon_and_leaves_nothing(
    provider: SandboxProvider, attempt: Attempt, data_folder: Path
) -> None:
    watched, stop = Started(provider), StopSignal()
    cancelled = list[float]()

    def cancel() -> None:
        if eventually(lambda: len(sleeping(LONG)) == 2):
            cancelled.append(time.monotonic())
            stop.set(ExitReason.CANCELLED)
            stop.set(ExitReason.CANCELLED)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with FakeOpenAI(calls(bash(f"(setsid sleep {LONG} &); sleep {LONG}"))) as server:
        result = attempt(watched, server, ListSink(), stop)
        assert len(server.calls) == 1
    assert time.monotonic() - cancelled[0] < SOON
    canceller.join()
    assert result.exit_reason is ExitReason.CANCELLED
    assert processes_naming(LONG) == []
    assert [left for sandbox in watched.sandboxes for left in left_of(sandbox)] == []
    assert provider.reap(data_folder / "sandboxes", everything) == []


def test_the_log_says_which_sandbox_was_used(
    place: Place, provider: SandboxProvider, attempt: Attempt
) -> None:
    stop = StopSignal()

    def end(event: Event) -> None:
        if isinstance(event, ToolCallFinished):
            stop.set(ExitReason.CANCELLED)

    with FakeOpenAI(calls(bash("true"))) as server:
        sink = Watching(end)
        attempt(provider, server, sink, stop)
    (started,) = sink.of(SandboxStarted)
    assert started.sandbox == place.kind
