"""An imported trajectory becomes a log as one of the lab's own: same kinds, same order, nothing made up."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from lab.engine.errors import ExitReason
from lab.engine.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    ModelCallFinished,
    PatchCaptured,
    RunEnded,
    SourceKept,
    ToolCallFinished,
    ToolCallStarted,
    TrajectoryImported,
    VerificationFinished,
)
from lab.engine.formats.to_events import Standing, to_events
from lab.engine.formats.trajectory import (
    Call,
    FailedRequest,
    Grading,
    HarnessUsed,
    Item,
    Message,
    ModelUsed,
    Note,
    Origin,
    Rewritten,
    Totals,
    Trajectory,
    Turn,
)
from lab.engine.llm.base import Cost, Usage
from lab.engine.verify.base import Outcome, TestOutcome, TestStatus

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
STANDING = Standing(
    task={"id": "click-1"}, harness={"name": "mini"}, model={"name": "m"}, seed=1, lab_version="1"
)


def priced(usage: Usage, model: str, at: dt.datetime | None) -> Cost:
    return Cost() if usage.total is None else Cost(amount=Decimal(usage.total) / 1000, basis="table")


def turn(number: int, **changes: Any) -> Turn:
    call = Call(
        id=f"call_{number}",
        name="bash",
        arguments={"command": f"echo {number}"},
        raw_arguments=f'{{"command": "echo {number}"}}',
        observation=f"{number}\n",
        message={"role": "tool", "tool_call_id": f"call_{number}", "content": f"{number}\n"},
    )
    message = {"role": "assistant", "content": f"turn {number}", "tool_calls": [{"id": call.id}]}
    usage = Usage(input_total=100, output_total=10, source="provider")
    return replace(Turn(message=message, calls=(call,), usage=usage), **changes)


def trajectory(*items: Item, **changes: Any) -> Trajectory:
    return replace(
        Trajectory(
            origin=Origin(format="mini-swe-agent-1.1", file="a.json", sha256="0" * 64),
            harness=HarnessUsed(name="mini"),
            model=ModelUsed(name="qwen"),
            instance_id="click-1",
            opening=({"role": "system", "content": "be good"}, {"role": "user", "content": "mend it"}),
            items=items,
            exit_reason=ExitReason.AGENT,
            native_reason="Submitted",
            patch="",
        ),
        **changes,
    )


def events_of(found: Trajectory) -> list[Event]:
    return [event for _, event in to_events(found, STANDING, price=priced, imported_at=NOW)]


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def the(events: list[Event], kind: str) -> Any:
    (found,) = [event for event in events if event.kind == kind]
    return found


def test_a_run_has_the_same_kinds_of_events_as_one_of_the_labs_own() -> None:
    grading = Grading(rule="swe-bench", outcome=Outcome.RESOLVED)
    assert kinds(events_of(trajectory(turn(1), gradings=(grading,)))) == [
        "attempt_started",
        "trajectory_imported",
        "model_call_started",
        "model_call_finished",
        "tool_call_started",
        "tool_call_finished",
        "patch_captured",
        "verification_started",
        "verification_finished",
        "attempt_ended",
        "run_ended",
    ]


def test_what_is_not_recorded_is_nowhere_a_zero() -> None:
    bare = turn(1, usage=Usage())
    events = events_of(trajectory(bare, patch=None, exit_reason=None, native_reason=""))
    finished: ModelCallFinished = the(events, "model_call_finished")
    assert (finished.reply.seconds, finished.reply.usage.input_total, finished.cost.amount) == (None,) * 3
    assert the(events, "tool_call_finished").seconds is None
    ended: AttemptEnded = the(events, "attempt_ended")
    assert (ended.exit_reason, ended.wall_seconds, ended.agent_seconds) == ("", None, None)
    assert the(events, "trajectory_imported").times == "not_recorded"
    assert "patch_captured" not in kinds(events)
    assert the(events, "run_ended") == RunEnded(exit_reason="", verdict=None)


def test_recorded_times_order_the_log_and_give_the_duration() -> None:
    begun = dt.datetime(2025, 6, 1, tzinfo=dt.UTC)
    timed = turn(1, started_at=begun, ended_at=begun + dt.timedelta(seconds=7))
    late = turn(2, started_at=begun + dt.timedelta(seconds=10), seconds=5.0)
    found = list(to_events(trajectory(timed, late), STANDING, price=priced, imported_at=NOW))
    times = [at for at, _ in found]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (begun, begun + dt.timedelta(seconds=15))
    assert the([event for _, event in found], "attempt_ended").agent_seconds == 15.0


def test_a_time_that_runs_backwards_does_not_turn_the_log_around() -> None:
    begun = dt.datetime(2025, 6, 1, tzinfo=dt.UTC)
    items = [turn(1, started_at=begun), turn(2, started_at=begun - dt.timedelta(days=1))]
    times = [at for at, _ in to_events(trajectory(*items), STANDING, price=priced, imported_at=NOW)]
    assert times == sorted(times)


def test_the_recorded_cost_stands_beside_the_labs_own() -> None:
    cost = the(events_of(trajectory(turn(1, cost_reported=Decimal("0.5")))), "model_call_finished").cost
    assert (cost.amount, cost.basis, cost.reported) == (Decimal("0.11"), "table", Decimal("0.5"))


def test_a_copied_turn_costs_nothing_here_and_counts_no_tokens() -> None:
    finished = the(events_of(trajectory(turn(1, copied=True))), "model_call_finished")
    assert finished.cost.amount == 0
    assert finished.reply.usage.total == 0


def test_a_call_that_was_not_understood_has_no_executor() -> None:
    broken = replace(turn(1).calls[0], malformed="no JSON", arguments={}, raw_arguments="{")
    events = events_of(trajectory(turn(1, calls=(broken,))))
    started: ToolCallStarted = the(events, "tool_call_started")
    assert (started.executor, started.malformed, started.raw_arguments) == ("", "no JSON", "{")


def test_a_call_without_a_recorded_result_is_interrupted_unless_it_may_still_come() -> None:
    open_call = replace(turn(1).calls[0], observation=None)
    assert "tool_call_interrupted" in kinds(events_of(trajectory(turn(1, calls=(open_call,)))))
    assert kinds(events_of(trajectory(turn(1, calls=(open_call,)), partial=True)))[-1] == "tool_call_started"


def test_a_failed_request_belongs_to_the_step_that_answers_in_the_end() -> None:
    events = events_of(trajectory(FailedRequest(error="rate_limit", message="429"), turn(1), turn(2)))
    numbers = [(event.step, event.request) for event in events if event.kind == "model_call_started"]
    assert numbers == [(1, 1), (1, 2), (2, 1)]


def test_messages_between_turns_keep_who_spoke() -> None:
    fault = Message(message={"role": "user", "content": "no call"}, reason="no_call")
    notice = Message(message={"role": "user", "content": "5 steps left"})
    person = Message(message={"role": "user", "content": "go on"}, by="person")
    events = events_of(trajectory(turn(1), fault, turn(2), notice, person, turn(3)))
    said = [(event.step, event.reason) for event in events if event.kind == "harness_message"]
    assert said == [(1, "no_call"), (2, "notice")]
    assert the(events, "message_sent").message["content"] == "go on"


def test_a_rewritten_history_stands_before_the_step_that_is_asked_with_it() -> None:
    rewritten = Rewritten(reason="compaction", messages=({"role": "user", "content": "summary"},))
    events = events_of(trajectory(turn(1), rewritten, turn(2)))
    assert the(events, "history_rewritten").step == 2
    counts = [event.message_count for event in events if event.kind == "model_call_started"]
    assert counts == [2, 1]


def test_what_the_lab_has_no_place_for_stays_at_its_place() -> None:
    kept = turn(1, kept={"extra": {"temperature": 1}})
    found = trajectory(
        kept, kept={"mini_version": "2"}, totals=Totals(calls=1), notes=(Note(kind="lost", field="x"),)
    )
    events = events_of(found)
    source: SourceKept = the(events, "source_kept")
    assert (source.step, source.about, json.loads(source.kept)) == (1, "model_call", kept.kept)
    imported: TrajectoryImported = the(events, "trajectory_imported")
    assert json.loads(imported.kept) == {"mini_version": "2"}
    assert imported.totals == {"calls": 1}
    assert [(note.kind, note.field) for note in imported.notes] == [("lost", "x")]


def test_rewards_and_tests_of_a_recorded_verdict_are_in_the_log() -> None:
    test = TestOutcome(test_id="t", group="fail_to_pass", status=TestStatus.PASSED)
    grading = Grading(rule="harbor", outcome=Outcome.RESOLVED, tests=(test,), rewards={"reward": 0.5})
    finished: VerificationFinished = the(
        events_of(trajectory(turn(1), gradings=(grading,))), "verification_finished"
    )
    assert (finished.rewards, finished.tests, finished.seconds) == ({"reward": 0.5}, [test], None)


def test_a_patch_is_listed_by_file_and_one_that_is_no_diff_is_kept_as_it_is() -> None:
    diff = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n"
    captured: PatchCaptured = the(events_of(trajectory(turn(1), patch=diff)), "patch_captured")
    assert [(file.path, file.added, file.removed) for file in captured.files] == [("x.py", 1, 1)]
    odd: PatchCaptured = the(events_of(trajectory(turn(1), patch="no diff")), "patch_captured")
    assert (odd.patch, odd.files) == ("no diff", [])


def test_text_that_no_database_can_hold_is_made_storable() -> None:
    odd = replace(turn(1).calls[0], observation="a\ud800b")
    finished: ToolCallFinished = the(events_of(trajectory(turn(1, calls=(odd,)))), "tool_call_finished")
    assert finished.observation == "a\ufffdb"


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_a_file_that_has_grown_gives_the_events_of_before_and_more(length: int) -> None:
    items = [turn(1), FailedRequest(error="server", message="500"), turn(2), turn(3)]
    short = events_of(trajectory(*items[:length], partial=True))
    assert events_of(trajectory(*items, partial=True))[: len(short)] == short


def test_the_conversation_before_the_first_call_is_the_opening() -> None:
    started: AttemptStarted = the(events_of(trajectory(turn(1))), "attempt_started")
    assert [message["role"] for message in started.messages] == ["system", "user"]


def test_a_call_is_priced_when_it_ended_where_only_that_is_recorded() -> None:
    asked: list[dt.datetime | None] = []

    def price(usage: Usage, model: str, at: dt.datetime | None) -> Cost:
        asked.append(at)
        return Cost()

    ended = dt.datetime(2025, 6, 1, tzinfo=dt.UTC)
    list(to_events(trajectory(turn(1, ended_at=ended)), STANDING, price=price, imported_at=NOW))
    assert asked == [ended]


def test_an_answer_that_did_not_join_the_conversation_does_not_lengthen_it() -> None:
    fault = Message(message={"role": "user", "content": "no call"}, reason="no_call")
    events = events_of(trajectory(turn(1, message={}, calls=()), fault, turn(2)))
    assert [event.message_count for event in events if event.kind == "model_call_started"] == [2, 3]


def test_arguments_that_no_database_can_hold_are_made_storable() -> None:
    odd = replace(turn(1).calls[0], raw_arguments="", arguments={"command": "a\ud800"})
    for event in events_of(trajectory(turn(1, calls=(odd,)))):
        event.model_dump_json()
