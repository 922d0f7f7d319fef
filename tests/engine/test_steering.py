"""What people ask of a running attempt takes effect between two events, once, and survives a crash."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lab.engine import registry
from lab.engine.attempt import AttemptSpec
from lab.engine.errors import ExitReason, HandedOverError
from lab.engine.events import (
    AttemptEnded,
    ControlAsked,
    Event,
    LimitChanged,
    LimitReached,
    MessageSent,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    PatchCaptured,
    Paused,
    Record,
    Resumed,
    ToolCallFinished,
    ToolCallInterrupted,
    ToolCallStarted,
)
from lab.engine.harnesses.conversation import rebuild_inputs
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import JSONObject, ModelConfig, Price
from lab.engine.sinks import ListSink
from lab.engine.steering import Ask, Control, Steering
from lab.engine.stop import StopSignal
from lab.engine.tasks.spec import TaskSpec
from tests.engine.conftest import MakeTask
from tests.engine.continuing import MakeSpec, Told, require_same, tell
from tests.engine.harnesses.driving import bash, calls
from tests.fakes.openai_server import FakeOpenAI, plain, says
from tests.timing import SOON

MEND = "sed -i s/1/2/ thing.py"
SCRIPT = [[calls(bash("true"), bash(MEND))], [calls(bash("cat thing.py"))], [says("done")], [says("heard")]]
BUSY = plain({"error": {"message": "busy"}}, status=503)


class AskingSink(ListSink):
    """Hears each event and asks, as a lease thread does: first in the log, then in the mailbox."""

    def __init__(self, steering: Steering, hear: Callable[[AskingSink, Record], None]) -> None:
        super().__init__()
        self.steering, self._hear = steering, hear
        self.asked = 0

    def append_all(self, events: Sequence[Event]) -> list[Record]:
        records = super().append_all(events)
        for record in records:
            if not isinstance(record.event, ControlAsked):
                self._hear(self, record)
        return records

    def ask(self, control: Control, person: str = "Ada", **value: object) -> None:
        self.asked += 1
        super().append(ControlAsked(control=control, person=person, value=value, ask=self.asked))
        self.steering.put(Ask(control, person, self.asked, value))


def asking(hear: Callable[[AskingSink, Record], None]) -> JSONObject:
    """Keywords of `tell` for an attempt that is steered."""
    steering = Steering()
    return {"steering": steering, "sink": AskingSink(steering, hear)}


def at(kind: type[Event], step: int, act: Callable[[AskingSink], None]) -> JSONObject:  # type: ignore[valid-type]
    """Act at the first event of this kind in this step."""
    done = list[int]()

    def hear(sink: AskingSink, record: Record) -> None:
        if isinstance(record.event, kind) and getattr(record.event, "step", 0) == step and not done:
            done.append(record.seq)
            act(sink)

    return asking(hear)


def paused_at(
    kind: type[Event],  # type: ignore[valid-type]
    step: int,
    act: Callable[[AskingSink], None],
    *,
    after: float = 0.5,
) -> JSONObject:
    """Ask to pause at the first event of this kind in this step, and act `after` seconds of the pause."""

    def hear(sink: AskingSink, record: Record) -> None:
        if isinstance(record.event, kind) and getattr(record.event, "step", 0) == step and not sink.asked:
            sink.ask("pause")
        if isinstance(record.event, Paused):
            threading.Timer(after, act, [sink]).start()

    return asking(hear)


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("steering-data")


@pytest.fixture
def task(make_task: MakeTask) -> TaskSpec:
    return make_task(
        {"thing.py": "def f():\n    return 1\n"},
        command=("python", "-c", "import thing; assert thing.f() == 2"),
        runner="unittest",
        fail_to_pass=("test",),
    )


@pytest.fixture
def make(data_folder: Path, task: TaskSpec) -> MakeSpec:
    def make_spec(server: FakeOpenAI) -> AttemptSpec:
        harness = load_preset("leaf-compatible")
        return AttemptSpec(
            task=task,
            harness=harness,
            model=ModelConfig(
                name="fake", model_id="fake", base_url=server.base_url, price=Price(basis="unknown")
            ),
            limits=harness.limits,
            provider=registry.provider("process"),
            data_folder=data_folder,
            label="run-7-1",
            retry_seconds=20.0,
        )

    return make_spec


@pytest.fixture
def whole(make: MakeSpec) -> Told:
    return tell(make, SCRIPT)


def rebuilds(told: Told) -> bool:
    rebuilt = list(rebuild_inputs(told.records))
    return bool(rebuilt) and all(one.sha256_expected == one.sha256_actual for one in rebuilt)


class TestPausing:
    @pytest.mark.parametrize("seed", [1, 2, 3, 4])
    def test_an_attempt_paused_anywhere_comes_to_the_same_end(
        self, make: MakeSpec, whole: Told, seed: int
    ) -> None:
        chance = random.Random(seed)
        last = whole.kinds.index("patch_captured")
        places = set(chance.sample(range(1, last), 3))

        def hear(sink: AskingSink, record: Record) -> None:
            if record.seq in places:
                sink.ask("pause", "Ada")
            if isinstance(record.event, Paused):
                threading.Timer(chance.random() / 2, sink.ask, ["resume", "Ben"]).start()

        told = tell(make, SCRIPT, **asking(hear))
        pauses, ends = told.of(Paused), told.of(Resumed)
        assert len(pauses) == len(ends) >= 1
        assert {event.person for event in pauses} == {"Ada"}
        assert {event.person for event in ends} == {"Ben"}
        assert told.result == whole.result
        assert told.patch == whole.patch
        assert [event.body_sha256 for event in told.of(ModelCallStarted)] == [
            event.body_sha256 for event in whole.of(ModelCallStarted)
        ]

    def test_nothing_starts_between_a_pause_and_its_end(self, make: MakeSpec) -> None:
        told = tell(make, SCRIPT, **paused_at(ToolCallStarted, 1, lambda sink: sink.ask("resume")))
        begin = told.kinds.index("paused")
        assert told.kinds[begin - 1 : begin + 4] == [
            "tool_call_finished",
            "paused",
            "control_asked",
            "resumed",
            "tool_call_started",
        ]
        assert [event.ask for event in (*told.of(Paused), *told.of(Resumed))] == [1, 2]

    def test_two_people_who_pause_and_resume_at_once_pause_it_once(self, make: MakeSpec) -> None:
        def hear(sink: AskingSink, record: Record) -> None:
            if isinstance(record.event, ToolCallFinished) and record.event.step == 1 and not sink.asked:
                for person in ("Ada", "Ben"):
                    sink.ask("pause", person)
            if isinstance(record.event, Paused):
                for person in ("Ben", "Ada"):
                    threading.Timer(0.3, sink.ask, ["resume", person]).start()

        told = tell(make, SCRIPT, **asking(hear))
        assert [event.person for event in told.of(Paused)] == ["Ada"]
        assert len(told.of(Resumed)) == 1
        assert told.result.exit_reason is ExitReason.AGENT

    def test_a_pause_does_not_count_as_wall_time_nor_does_the_time_of_a_retry(self, make: MakeSpec) -> None:
        script = [[BUSY, calls(bash("true"))], [says("done")]]

        paused = paused_at(ModelCallFailed, 1, lambda sink: sink.ask("resume"), after=9.0)
        limits = load_preset("leaf-compatible").limits.changed("max_total_time_sec", 8.0)
        told = tell(make, script, **paused, limits=limits, retry_seconds=8.0)
        assert told.result.exit_reason is ExitReason.AGENT
        (ended,) = told.of(AttemptEnded)
        assert ended.agent_seconds is not None
        assert ended.agent_seconds < 8.0 < ended.wall_seconds
        kinds = told.kinds
        assert kinds.index("model_call_failed") < kinds.index("paused") < kinds.index("resumed")

    def test_a_cancel_ends_a_pause_and_the_patch_is_kept(self, make: MakeSpec) -> None:
        stop = StopSignal()

        cancelled = paused_at(ModelCallStarted, 2, lambda sink: stop.set(ExitReason.CANCELLED))
        told = tell(make, SCRIPT, **cancelled, stop=stop)
        assert told.result.exit_reason is ExitReason.CANCELLED
        assert told.kinds[-3:] == ["paused", "patch_captured", "attempt_ended"]
        assert "+    return 2" in told.patch

    def test_a_pause_during_the_last_answer_holds_the_patch_back(self, make: MakeSpec) -> None:
        told = tell(make, SCRIPT, **paused_at(ModelCallStarted, 3, lambda sink: sink.ask("resume")))
        kinds = told.kinds
        assert kinds.index("resumed") < kinds.index("patch_captured")
        assert told.result.exit_reason is ExitReason.AGENT

    def test_a_paused_attempt_is_handed_over_at_once_and_stays_paused(
        self, make: MakeSpec, whole: Told
    ) -> None:
        closed = list[float]()

        def close(sink: AskingSink) -> None:
            closed.append(time.monotonic())
            sink.steering.close()

        told = paused_at(ToolCallFinished, 1, close)
        with pytest.raises(HandedOverError):
            tell(make, SCRIPT, **told)
        assert time.monotonic() - closed[0] < SOON
        sink = told["sink"]
        assert sink.records[-1].event.kind == "paused"
        before = Told(whole.result, sink.records, sink.blobs)

        steering = Steering()
        threading.Timer(1.0, steering.put, [Ask("resume", "Ben", 9)]).start()
        after = tell(
            make, SCRIPT, before=before, cut=len(sink.records), steering=steering, continued_orderly=True
        )
        require_same(after, whole, cut=len(sink.records))
        assert [event.person for event in after.of(Resumed)] == ["Ben"]
        assert "tool_call_started" not in after.kinds[len(sink.records) : after.kinds.index("resumed")]

    def test_a_handed_over_attempt_ends_what_is_in_flight_and_starts_nothing(
        self, make: MakeSpec, whole: Told
    ) -> None:
        told = at(ToolCallStarted, 2, lambda sink: sink.steering.close())
        with pytest.raises(HandedOverError):
            tell(make, SCRIPT, **told)
        sink = told["sink"]
        assert sink.records[-1].event.kind == "tool_call_finished"
        cut = len(sink.records)
        after = tell(make, SCRIPT, before=Told(whole.result, sink.records, sink.blobs), cut=cut)
        require_same(after, whole, cut=cut)
        assert "tool_call_interrupted" not in after.kinds

    def test_a_pause_that_was_asked_for_before_a_crash_still_happens(
        self, make: MakeSpec, whole: Told
    ) -> None:
        told = tell(make, SCRIPT, **at(ToolCallStarted, 1, lambda sink: sink.ask("pause", "Ada")), **_soon())
        cut = told.kinds.index("control_asked") + 1
        steering = Steering()
        # The same wish may come in twice, from the log and from whoever reads wishes.
        steering.put(Ask("pause", "Ada", 1))
        threading.Timer(0.5, steering.put, [Ask("resume", "Ben", 2)]).start()
        after = tell(make, SCRIPT, before=told, cut=cut, steering=steering)
        assert [event.ask for event in after.of(Paused)] == [1]
        assert after.patch == whole.patch

    def test_a_pause_that_was_over_before_a_crash_does_not_happen_again(self, make: MakeSpec) -> None:
        def act(sink: AskingSink) -> None:
            sink.ask("pause", "Ada")
            sink.ask("pause", "Ben")
            sink.ask("resume", "Ada")

        told = tell(make, SCRIPT, **at(ToolCallStarted, 1, act))
        after = tell(make, SCRIPT, before=told, cut=told.kinds.index("resumed") + 3)
        assert len(after.of(Paused)) == 1
        assert after.result.exit_reason is ExitReason.AGENT


def _soon() -> JSONObject:
    """A cancel a second from now, for an attempt that would wait for ever."""
    stop = StopSignal()
    threading.Timer(2.0, stop.set, [ExitReason.CANCELLED]).start()
    return {"stop": stop}


class TestMessages:
    def test_a_message_joins_the_conversation_after_the_results_of_all_calls(self, make: MakeSpec) -> None:
        told = tell(
            make, SCRIPT, **at(ToolCallStarted, 1, lambda sink: sink.ask("message", text="Look at f."))
        )
        (sent,) = told.of(MessageSent)
        assert (sent.person, sent.ask) == ("Ada", 1)
        assert sent.message == {"role": "user", "content": "Look at f."}
        place = told.kinds.index("message_sent")
        assert told.kinds[place + 1] == "model_call_started"
        inputs = list(rebuild_inputs(told.records))
        roles = [message["role"] for message in inputs[1].body["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
        assert rebuilds(told)

    def test_an_agent_that_would_end_hears_a_message_first(self, make: MakeSpec) -> None:
        told = tell(
            make, SCRIPT, **at(ModelCallStarted, 3, lambda sink: sink.ask("message", text="Not yet."))
        )
        assert [event.message["content"] for event in told.of(ModelCallFinished)][-2:] == ["done", "heard"]
        (captured,) = told.of(PatchCaptured)
        assert (captured.exit_reason, captured.final_message) == ("agent", "heard")
        assert rebuilds(told)

    def test_an_agent_that_ends_with_nothing_left_to_answer_by_ends(self, make: MakeSpec) -> None:
        limits = load_preset("leaf-compatible").limits.changed("max_steps", 3)
        told = tell(
            make,
            SCRIPT,
            **at(ModelCallStarted, 3, lambda sink: sink.ask("message", text="Not yet.")),
            limits=limits,
        )
        assert told.result.exit_reason is ExitReason.AGENT
        assert told.of(MessageSent) == []

    def test_a_message_from_before_a_crash_is_delivered_once(self, make: MakeSpec) -> None:
        told = tell(make, SCRIPT, **at(ToolCallStarted, 1, lambda sink: sink.ask("message", text="Hello")))
        for cut in (told.kinds.index("control_asked") + 1, told.kinds.index("message_sent") + 1):
            after = tell(make, SCRIPT, before=told, cut=cut)
            assert [event.message["content"] for event in after.of(MessageSent)] == ["Hello"]
            assert after.patch == told.patch
            assert rebuilds(after)

    def test_an_agent_that_was_spoken_to_at_its_end_answers_after_a_crash(self, make: MakeSpec) -> None:
        told = tell(
            make, SCRIPT, **at(ModelCallStarted, 3, lambda sink: sink.ask("message", text="Not yet."))
        )
        after = tell(make, SCRIPT, before=told, cut=told.kinds.index("message_sent") + 1)
        assert [event.message["content"] for event in after.of(MessageSent)] == ["Not yet."]
        (captured,) = after.of(PatchCaptured)
        assert (captured.exit_reason, captured.final_message) == ("agent", "heard")
        assert rebuilds(after)


class TestLimits:
    def test_a_limit_is_raised_above_the_arms_while_it_runs(self, make: MakeSpec) -> None:
        limits = load_preset("leaf-compatible").limits.changed("max_steps", 1)
        told = tell(
            make,
            SCRIPT,
            **at(ToolCallStarted, 1, lambda sink: sink.ask("limit", limit="max_steps", after=200)),
            limits=limits,
        )
        (changed,) = told.of(LimitChanged)
        assert (changed.limit, changed.before, changed.after) == ("max_steps", 1, 200)
        assert (changed.person, changed.ask) == ("Ada", 1)
        assert (told.result.exit_reason, told.result.steps) == (ExitReason.AGENT, 3)

    def test_a_limit_lowered_below_what_is_used_ends_the_run_at_the_next_look(self, make: MakeSpec) -> None:
        told = tell(
            make,
            SCRIPT,
            **at(ToolCallStarted, 2, lambda sink: sink.ask("limit", limit="max_steps", after=1)),
        )
        assert told.result.exit_reason is ExitReason.MAX_TURNS
        (reached,) = told.of(LimitReached)
        assert (reached.limit, reached.used, reached.allowed) == ("max_steps", 2, 1)
        assert "+    return 2" in told.patch
        assert told.of(ToolCallFinished)[-1].step == 2

    def test_a_lower_cap_of_a_turn_is_what_the_next_request_says(self, make: MakeSpec) -> None:
        told = tell(
            make,
            SCRIPT,
            **at(ToolCallStarted, 1, lambda sink: sink.ask("limit", limit="max_tokens_per_turn", after=77)),
        )
        caps = [event.max_tokens for event in told.of(ModelCallStarted)]
        assert caps[1:] == [77, 77]
        assert caps[0] != 77
        assert rebuilds(told)

    def test_a_wall_time_that_is_lowered_below_what_is_used_ends_the_run_soon(self, make: MakeSpec) -> None:
        script = [[calls(bash("sleep 1"))], [calls(bash("sleep 60"))], [says("never")]]
        told = tell(
            make,
            script,
            **at(ToolCallStarted, 1, lambda sink: sink.ask("limit", limit="max_total_time_sec", after=0.5)),
        )
        assert told.result.exit_reason is ExitReason.MAX_TIME
        assert told.of(LimitReached)[0].allowed == pytest.approx(0.5)
        assert told.result.steps == 1

    @pytest.mark.parametrize("slow", ["command", "reply"])
    @pytest.mark.parametrize("after", [60.0, None])
    def test_a_wall_time_that_is_raised_in_the_middle_of_a_call_does_not_break_it_off(
        self, make: MakeSpec, slow: str, after: float | None
    ) -> None:
        script = [[calls(bash("sleep 7"))], [says("a b c d", pause=1.5)]]
        kind, step = (ToolCallStarted, 1) if slow == "command" else (ModelCallStarted, 2)
        limits = load_preset("leaf-compatible").limits.changed("max_total_time_sec", 6.0)
        if slow == "reply":
            script[0] = [calls(bash("true"))]
        told = tell(
            make,
            script,
            **at(kind, step, lambda sink: sink.ask("limit", limit="max_total_time_sec", after=after)),
            limits=limits,
        )
        assert told.result.exit_reason is ExitReason.AGENT
        assert told.of(ToolCallInterrupted) == []

    def test_a_wall_time_that_was_raised_in_time_does_not_pass_when_the_worker_goes(
        self, make: MakeSpec
    ) -> None:
        script = [[calls(bash("sleep 1"))], [calls(bash("sleep 1"))], [says("done")]]

        def act(sink: AskingSink) -> None:
            sink.ask("pause")
            sink.ask("limit", limit="max_total_time_sec", after=600)
            sink.ask("resume")

        told = tell(make, script, **at(ToolCallStarted, 1, act))
        limits = load_preset("leaf-compatible").limits.changed("max_total_time_sec", 0.5)
        cut = told.kinds.index("tool_call_finished") + 1
        assert "limit_changed" not in told.kinds[:cut]
        # Its log takes its time, as one on a disk does.
        slow = AskingSink(Steering(), lambda sink, record: time.sleep(0.2))
        slow._next = cut + 1
        after = tell(make, script, before=told, cut=cut, limits=limits, sink=slow, continued_orderly=True)
        assert after.result.exit_reason is ExitReason.AGENT
        assert [event.after for event in after.of(LimitChanged)] == [600]

    def test_a_limit_set_where_there_was_none_interrupts_what_is_running(self, make: MakeSpec) -> None:
        script = [[calls(bash("true"))], [calls(bash("sleep 150"))]]
        limits = load_preset("leaf-compatible").limits.changed("max_total_time_sec", None)
        started = time.monotonic()
        told = tell(
            make,
            script,
            **at(ToolCallStarted, 1, lambda sink: sink.ask("limit", limit="max_total_time_sec", after=10)),
            limits=limits,
        )
        assert told.result.exit_reason is ExitReason.MAX_TIME
        assert [event.reason for event in told.of(ToolCallInterrupted)] == ["max_time"]
        assert time.monotonic() - started < 100

    def test_limits_changed_before_a_crash_hold_after_it(self, make: MakeSpec) -> None:
        limits = load_preset("leaf-compatible").limits.changed("max_steps", 1)
        told = tell(
            make,
            SCRIPT,
            **at(ToolCallStarted, 1, lambda sink: sink.ask("limit", limit="max_steps", after=2)),
            limits=limits,
        )
        assert told.result.exit_reason is ExitReason.MAX_TURNS
        for cut in (told.kinds.index("control_asked") + 1, told.kinds.index("limit_changed") + 1):
            after = tell(make, SCRIPT, before=told, cut=cut, limits=limits)
            assert len(after.of(LimitChanged)) == 1
            assert (after.result.exit_reason, after.result.steps) == (ExitReason.MAX_TURNS, 2)

    def test_what_is_no_limit_changes_nothing(self, make: MakeSpec) -> None:
        def act(sink: AskingSink) -> None:
            sink.ask("limit", limit="max_steps", after="many")
            sink.ask("limit", limit="max_wishes", after=3)

        told = tell(make, SCRIPT, **at(ToolCallStarted, 1, act))
        assert told.of(LimitChanged) == []
        assert told.result.exit_reason is ExitReason.AGENT


def test_a_cancel_from_before_a_crash_keeps_the_patch_and_asks_nothing_more(
    make: MakeSpec, whole: Told
) -> None:
    cut = whole.kinds.index("model_call_started", 4)
    asked = whole.records[cut].model_copy(
        update={"event": ControlAsked(control="cancel", person="Ada", ask=1)}
    )
    before = Told(whole.result, [*whole.records[:cut], asked], whole.blobs)
    after = tell(make, SCRIPT, before=before, cut=cut + 1)
    assert (after.result.exit_reason, after.result.verdict) == (ExitReason.CANCELLED, None)
    assert after.kinds[cut + 1 :] == [
        "attempt_continued",
        "sandbox_started",
        "patch_captured",
        "attempt_ended",
    ]
    assert "+    return 2" in after.patch
