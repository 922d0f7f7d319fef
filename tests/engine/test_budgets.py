"""Each budget counts every request, failed, retried and interrupted ones too, over all worker children."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from lab.engine import registry
from lab.engine.attempt import AttemptSpec
from lab.engine.errors import ExitReason
from lab.engine.events import (
    Event,
    LimitReached,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallInterrupted,
    ModelCallStarted,
    PatchCaptured,
    Record,
    ToolCallInterrupted,
    VerificationFinished,
)
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import JSONObject, ModelConfig, Price
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal
from lab.engine.tasks.spec import TaskSpec
from tests.engine.conftest import MakeTask
from tests.engine.continuing import MakeSpec, Script, Told, tell
from tests.engine.harnesses.driving import bash, calls
from tests.fakes.openai_server import Answer, FakeOpenAI, delta, event, plain, says, stream, usage_chunk

MEND = "sed -i s/1/2/ thing.py"
BUSY = plain({"error": {"message": "busy"}}, status=503, headers={"retry-after-ms": "10"})
# A server that bills what it breaks off.
BILLED = stream(
    delta(content="half"),
    delta(finish="abort"),
    usage_chunk(prompt_tokens=400_000, completion_tokens=10, total_tokens=400_010),
)


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("budget-data")


@pytest.fixture
def task(make_task: MakeTask) -> TaskSpec:
    return make_task(
        {"thing.py": "def f():\n    return 1\n"},
        command=("python", "-m", "unittest", "-v", "test_thing"),
        runner="unittest",
        test_files={
            "test_thing.py": "import unittest\nfrom thing import f\n\n\nclass T(unittest.TestCase):\n"
            "    def test_f(self):\n        self.assertEqual(f(), 2)\n"
        },
        fail_to_pass=("test_thing.T.test_f",),
    )


@pytest.fixture
def make(data_folder: Path, task: TaskSpec) -> MakeSpec:
    def make_spec(server: FakeOpenAI) -> AttemptSpec:
        harness = load_preset("leaf-compatible")
        return AttemptSpec(
            task=task,
            harness=harness,
            model=ModelConfig(
                name="fake",
                model_id="gpt-4o",
                base_url=server.base_url,
                price=Price(basis="table", provider="openai", model="gpt-4o"),
            ),
            limits=harness.limits,
            provider=registry.provider("process"),
            data_folder=data_folder,
            label="run-7-1",
            retry_seconds=60.0,
        )

    return make_spec


def limited(make: MakeSpec, script: Script, limits: JSONObject, **options: object) -> Told:
    effective = load_preset("leaf-compatible").limits.model_copy(update=limits)
    return tell(make, script, limits=effective, **options)  # type: ignore[arg-type]


def require_ended_at(told: Told, reason: ExitReason, limit: str) -> LimitReached:
    """The run ended at its limit: the event of the limit, a patch, a verification."""
    assert told.result.exit_reason is reason
    (reached,) = told.of(LimitReached)
    assert reached.limit == limit
    assert reached.used >= reached.allowed
    (captured,) = told.of(PatchCaptured)
    assert captured.exit_reason == reason.value
    assert told.of(VerificationFinished) != []
    assert told.result.verdict is not None
    return reached


def test_tokens_of_failed_tries_count_and_no_further_try_is_made(make: MakeSpec) -> None:
    told = limited(make, [[calls(bash(MEND))], [BILLED]], {"max_tokens_total": 1_000_000})
    reached = require_ended_at(told, ExitReason.MAX_TOKENS_TOTAL, "max_tokens_total")
    assert [failed.usage.total for failed in told.of(ModelCallFailed)] == [400_010] * 3
    assert reached.used == 120 + 3 * 400_010
    assert told.result.verdict == "resolved"


def test_money_of_failed_tries_counts_and_stops_the_run_near_the_cap(make: MakeSpec) -> None:
    told = limited(make, [[calls(bash(MEND))], [BILLED]], {"max_cost_usd": Decimal("2.5")})
    reached = require_ended_at(told, ExitReason.MAX_COST, "max_cost_usd")
    costs = [failed.cost.amount for failed in told.of(ModelCallFailed)]
    assert costs == [costs[0]] * 3
    assert costs[0] is not None
    assert reached.used - costs[0] < Decimal("2.5") <= reached.used


def test_what_was_spent_before_a_crash_is_counted_once(make: MakeSpec) -> None:
    big = calls(bash("true"), prompt=100_000, completion=1_000)
    script = [[big], [BUSY, big], [big], [says("done")]]
    free = limited(make, script, {})
    cost = free.of(ModelCallFinished)[0].cost.amount
    assert cost is not None
    limits = {"max_cost_usd": cost * Decimal("2.5"), "max_tokens_total": None}
    whole = limited(make, script, limits, spent_usd_before=cost / 4)
    require_ended_at(whole, ExitReason.MAX_COST, "max_cost_usd")
    for cut in (whole.kinds.index("model_call_failed") + 1, whole.kinds.index("tool_call_finished") + 1):
        told = limited(make, script, limits, before=whole, cut=cut, spent_usd_before=cost / 4)
        reached = require_ended_at(told, ExitReason.MAX_COST, "max_cost_usd")
        assert reached == whole.of(LimitReached)[0]


def test_a_limit_that_is_reached_at_a_crash_is_told_once(make: MakeSpec) -> None:
    script = [[calls(bash(MEND), prompt=900, completion=200)], [says("never")]]
    whole = limited(make, script, {"max_tokens_total": 1_000})
    require_ended_at(whole, ExitReason.MAX_TOKENS_TOTAL, "max_tokens_total")
    for cut in range(whole.kinds.index("workspace_changed") + 1, len(whole.records)):
        told = limited(make, script, {"max_tokens_total": 1_000}, before=whole, cut=cut)
        require_ended_at(told, ExitReason.MAX_TOKENS_TOTAL, "max_tokens_total")
        assert told.patch == whole.patch
        assert len(told.of(ModelCallStarted)) == 1


def test_an_overflow_that_is_in_the_log_is_not_asked_for_again(make: MakeSpec) -> None:
    overflow = plain({"error": {"message": "maximum context length is 9"}}, status=400)
    whole = limited(make, [[calls(bash(MEND))], [overflow]], {})
    assert whole.result.exit_reason is ExitReason.MAX_CONTEXT_LEN
    cut = whole.kinds.index("model_call_failed") + 1
    told = limited(make, [[calls(bash(MEND))], [says("never")]], {}, before=whole, cut=cut)
    assert told.result == whole.result
    assert told.of(PatchCaptured)[0].detail == whole.of(PatchCaptured)[0].detail
    assert len(told.of(ModelCallStarted)) == 2


class Stopping(ListSink):
    """Cancels a moment after the first request was sent."""

    def __init__(self, stop: StopSignal) -> None:
        super().__init__()
        self.stop = stop

    def append_all(self, events: Sequence[Event]) -> list[Record]:
        if any(isinstance(event, ModelCallStarted) for event in events):
            threading.Timer(1.0, self.stop.set, [ExitReason.CANCELLED]).start()
        return super().append_all(events)


def test_what_a_server_had_counted_when_a_request_was_broken_off_is_paid_for(make: MakeSpec) -> None:
    counted = delta(content="a word ", usage={"prompt_tokens": 900, "completion_tokens": 7})
    endless = Answer(pieces=[event(counted)] * 2_000, pause=0.02)
    stop = StopSignal()
    told = limited(make, [[endless]], {}, sink=Stopping(stop), stop=stop)
    (interrupted,) = told.of(ModelCallInterrupted)
    assert (interrupted.usage.input_total, interrupted.usage.output_total) == (900, 7)
    assert interrupted.cost.amount
    assert told.result.exit_reason is ExitReason.CANCELLED


def test_a_request_that_was_broken_off_uncounted_is_unknown_and_not_nothing(make: MakeSpec) -> None:
    stop = StopSignal()
    told = limited(make, [[says("late", delay=30)]], {}, sink=Stopping(stop), stop=stop)
    (interrupted,) = told.of(ModelCallInterrupted)
    assert (interrupted.usage.total, interrupted.cost.amount) == (None, None)


@pytest.mark.parametrize(
    "slow",
    [
        calls(bash(f"{MEND}; trap '' TERM; sleep 300")),
        says("late", delay=300),
        Answer(pieces=[event(delta(content="word "))] * 20_000, pause=0.05),
        BUSY,
    ],
    ids=["command", "silent model", "endless reply", "busy endpoint"],
)
def test_the_wall_time_ends_a_run_within_seconds_whatever_is_going_on(make: MakeSpec, slow: Answer) -> None:
    started = time.monotonic()
    told = limited(make, [[slow]], {"max_total_time_sec": 2.0})
    require_ended_at(told, ExitReason.MAX_TIME, "max_total_time_sec")
    assert time.monotonic() - started < 50
    broken = [*told.of(ModelCallInterrupted), *told.of(ToolCallInterrupted)]
    assert all(event.reason == "max_time" for event in broken)


def test_wall_time_counts_over_worker_children_and_not_between_them(make: MakeSpec) -> None:
    script = [[calls(bash("sleep 6"))], [calls(bash("sleep 150"))]]
    whole = limited(make, script, {"max_total_time_sec": 12.0})
    assert whole.result.exit_reason is ExitReason.MAX_TIME
    cut = whole.kinds.index("tool_call_finished") + 1
    # The former worker child died an hour ago.
    before = dataclasses.replace(
        whole,
        records=[
            record.model_copy(update={"at": record.at.replace(year=record.at.year - 1)})
            for record in whole.records
        ],
    )
    started = time.monotonic()
    told = limited(make, script, {"max_total_time_sec": 12.0}, before=before, cut=cut)
    reached = require_ended_at(told, ExitReason.MAX_TIME, "max_total_time_sec")
    assert 12 <= reached.used < 40
    (broken,) = told.of(ToolCallInterrupted)
    assert broken.seconds is not None
    # Six seconds are left; if those before the death did not count, twelve would be.
    assert broken.seconds < 10.5
    assert time.monotonic() - started < 100
