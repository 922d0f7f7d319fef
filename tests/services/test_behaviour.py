"""How an attempt went about it, counted event by event: hand-counted logs, real ones, and any batches."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.analysis.observations import Behaviour
from lab.engine.events import (
    AttemptContinued,
    AttemptEnded,
    Event,
    ModelCallInterrupted,
    PatchCaptured,
    Paused,
    Resumed,
    ToolCallInterrupted,
    TrajectoryImported,
)
from lab.models import Run, RunFacts
from lab.services import import_reading, log, sample_log
from lab.services.facts import Entry, empty_facts, fold, rebuild_facts
from lab.services.payloads import thin
from tests import builders

STARTED, SANDBOX = builders.opening()
ENDED = AttemptEnded(exit_reason="agent", steps=1, wall_seconds=9.0)


def at(second: float) -> dt.datetime:
    return dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=second)


def entry(when: dt.datetime, event: Event) -> Entry:
    """The event as its row holds it."""
    payload = thin(event.model_dump(mode="json"), keep=lambda data: hashlib.sha256(data).hexdigest())
    return Entry(event.kind, when, payload)


def entries(*events: Event | tuple[float, Event]) -> list[Entry]:
    """Events at given seconds, or one a second."""
    timed = [item if isinstance(item, tuple) else (float(n), item) for n, item in enumerate(events)]
    return [entry(at(second), event) for second, event in timed]


def folded(rows: Sequence[Entry]) -> RunFacts:
    return fold(empty_facts(1), rows)


def behaviour(*events: Event | tuple[float, Event]) -> Behaviour:
    found = folded(entries(STARTED, *events)).behaviour
    assert found is not None
    return Behaviour(**found)


def bash(step: int, command: str, *, index: int = 1, exit_code: int = 0) -> list[Event]:
    called = builders.called(step, "Bash", {"command": command}, index=index)
    return [called, builders.printed(step, "", index=index, exit_code=exit_code)]


def recorded(number: int) -> list[Entry]:
    """One of the sample lab's runs."""
    run = sample_log.read().runs[number].read()
    return [entry(record.at, record.event) for record in run.records]


def counts(row: Behaviour) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if not name.endswith("_seconds")}


def test_an_attempt_without_a_call_has_counted_none() -> None:
    row = behaviour()
    assert counts(row) == {
        "tools": {}, "kinds": {}, "calls": 0, "steps_with_calls": 0, "parallel_steps": 0, "malformed": 0,
        "exit_codes": 0, "failed_commands": None, "tests": 0, "edits": 0, "cycles": 0,
        "tested_after_last_edit": None, "repeats": 0,
    }  # fmt: skip


def test_steps_with_several_calls_are_counted_once() -> None:
    row = behaviour(
        *bash(1, "ls"),
        *bash(2, "ls a"),
        *bash(2, "ls b", index=2),
        *bash(2, "ls c", index=3),
        *bash(3, "ls d"),
    )
    assert (row.calls, row.steps_with_calls, row.parallel_steps) == (5, 3, 1)


def test_a_call_that_was_not_understood_did_nothing_of_any_kind() -> None:
    row = behaviour(
        builders.called(1, "Bash", {}, malformed="no JSON", raw='{"command": "pytest'),
        builders.told(1, "no JSON", failed=True),
        builders.called(2, "Bash", {}, malformed="no JSON", raw='{"command": "ls'),
        builders.told(2, "no JSON", failed=True),
    )
    assert (row.calls, row.malformed, row.tools, row.kinds) == (2, 2, {"Bash": 2}, {})
    # Both have no arguments that were read, and are not the same call.
    assert row.repeats == 0


def test_of_an_endless_name_of_a_tool_only_the_beginning_is_counted() -> None:
    assert behaviour(builders.called(1, "n" * 3_000, {})).tools == {"n" * 100: 1}


def test_commands_that_ended_with_another_code_than_0_are_failed_and_edits_by_shell_are_edits() -> None:
    row = behaviour(*bash(1, "sed -i s/a/b/ x.py"), *bash(2, "make", exit_code=2), *bash(3, "ls"))
    assert (row.failed_commands, row.exit_codes, row.edits) == (1, 3, 1)
    assert row.kinds == {"edit": 1, "shell": 1, "read": 1}


def test_where_no_record_says_an_exit_code_it_is_unknown_how_many_commands_failed() -> None:
    def unsaid(step: int) -> list[Event]:
        called, printed = bash(step, "make")
        return [called, printed.model_copy(update={"exit_code": None})]

    row = behaviour(*unsaid(1), *unsaid(2))
    assert (row.calls, row.exit_codes, row.failed_commands) == (2, 0, None)
    # A tool that runs no command has none among others.
    row = behaviour(*unsaid(1), *bash(2, "make"))
    assert (row.calls, row.exit_codes, row.failed_commands) == (2, 1, 0)


@pytest.mark.parametrize(
    ("calls", "cycles", "tested"),
    [
        ("t", 0, None),
        ("e", 0, False),
        ("te", 0, False),
        ("et", 1, True),
        ("eet", 1, True),
        ("ett", 1, True),
        ("etet", 2, True),
        ("etett e", 2, False),
    ],
)
def test_a_cycle_is_an_edit_and_the_test_run_after_it(calls: str, cycles: int, tested: bool | None) -> None:
    commands = {"e": "echo a > b.py", "t": "python -m pytest -q", " ": "ls"}
    row = behaviour(
        *(event for step, call in enumerate(calls, start=1) for event in bash(step, commands[call]))
    )
    assert (row.cycles, row.tested_after_last_edit) == (cycles, tested)
    assert (row.edits, row.tests) == (calls.count("e"), calls.count("t"))


def test_a_call_is_repeated_where_tool_and_arguments_are_those_of_an_earlier_one() -> None:
    row = behaviour(
        builders.called(1, "Grep", {"pattern": "a", "path": "b"}),
        builders.called(2, "Grep", {"path": "b", "pattern": "a"}),
        builders.called(3, "Glob", {"path": "b", "pattern": "a"}),
        builders.called(4, "Grep", {"pattern": "a", "path": "b "}),
        builders.called(5, "Grep", {"pattern": "a", "path": "b"}),
    )
    assert row.repeats == 2


def test_a_long_command_is_repeated_only_where_all_of_it_is_the_same() -> None:
    beginning = "cat > a.py <<EOF\n" + "x = 1\n" * 2_000
    row = behaviour(*bash(1, beginning + "y"), *bash(2, beginning + "z"), *bash(3, beginning + "y"))
    assert (row.repeats, row.edits) == (1, 3)


def test_a_call_that_is_made_again_after_a_worker_died_is_one_call() -> None:
    call = builders.called(1, "Bash", {"command": "make"})
    row = behaviour(
        call,
        ToolCallInterrupted(step=1, index=1, call_id="call-1-1", reason="the worker died"),
        AttemptContinued(continuation=1),
        SANDBOX,
        call.model_copy(update={"again": True}),
        builders.printed(1, "done\n"),
    )
    assert (row.calls, row.repeats, row.steps_with_calls) == (1, 0, 1)
    assert row.tool_seconds == 0.3


def test_time_is_split_into_the_models_the_tools_and_waiting() -> None:
    row = behaviour(
        (5, SANDBOX),
        (6, builders.asked(1)),
        (7, builders.failed_request(1, retry_in=4.0)),
        (10, builders.asked(1, request=2)),
        (12, builders.answered(1, ("Bash", "{}"), request=2)),
        (13, builders.called(1, "Bash", {"command": "ls"})),
        (14, builders.printed(1, "")),
        (15, Paused(person="mara")),
        (95, Resumed(person="mara")),
        (96, builders.asked(2)),
        (97, ModelCallInterrupted(step=2, request=1, reason="cancelled", seconds=1.0)),
    )
    assert row.model_seconds == pytest.approx(0.3 + 1.4 + 1.0)
    assert row.tool_seconds == pytest.approx(0.3)
    # For its sandbox, for the next try, while it was paused.
    assert row.waiting_seconds == pytest.approx(5 + 3 + 80)


def test_the_time_of_a_dead_worker_is_nobodys() -> None:
    row = behaviour(
        (5, SANDBOX),
        (6, builders.asked(1)),
        (7, builders.failed_request(1, retry_in=4.0)),
        (900, AttemptContinued(continuation=1)),
        (910, SANDBOX.model_copy(update={"rebuilt": True})),
        (911, builders.asked(1, request=2)),
        (999, ModelCallInterrupted(step=1, request=2, reason="the worker died")),
        (1000, AttemptContinued(continuation=2)),
        (1002, SANDBOX.model_copy(update={"rebuilt": True})),
    )
    assert row.waiting_seconds == pytest.approx(5 + 10 + 2)
    assert row.model_seconds == pytest.approx(0.3)


def test_a_wait_for_the_next_try_is_no_longer_than_planned_and_a_pause_ends_with_the_attempt() -> None:
    failed = builders.failed_request(1, retry_in=4.0)
    late = behaviour((0, SANDBOX), (1, builders.asked(1)), (2, failed), (60, ENDED))
    assert late.waiting_seconds == pytest.approx(4)
    paused = behaviour((0, SANDBOX), (1, Paused(person="mara")), (31, ENDED))
    assert paused.waiting_seconds == pytest.approx(30)


def test_another_attempt_begins_anew_and_what_those_before_cost_is_kept() -> None:
    rows = entries(STARTED, SANDBOX, *builders.bash_step(1, "ls", ""), builders.asked(2))
    rows += entries(builders.failed_request(2, retry_in=None), ENDED)
    first = folded(rows)
    assert (first.cost_earlier, first.cost_earlier_unknown) == (0, 0)
    second = folded([*rows, *entries(STARTED, *builders.bash_step(1, "ls", ""))])
    assert (second.behaviour["calls"], second.behaviour["repeats"]) == (1, 0)
    assert (second.cost_earlier, second.cost_earlier_unknown) == (first.cost, 1)
    assert second.cost == 2 * first.cost


def test_nothing_is_remembered_once_the_attempt_has_ended_and_late_events_change_nothing() -> None:
    rows = entries(STARTED, SANDBOX, *bash(1, "ls"), Paused(person="mara"))
    assert folded(rows).behaviour_state["seen"]
    ended = folded([*rows, *entries((60.0, ENDED))])
    assert ended.behaviour_state == {}
    before = dict(ended.behaviour)
    late = [Resumed(person="mara"), AttemptContinued(continuation=1), *bash(2, "ls"), SANDBOX, ENDED]
    fold(ended, entries(*late))
    assert (ended.behaviour, ended.behaviour_state) == (before, {})


def test_a_roll_up_of_an_older_release_says_nothing_until_the_next_attempt() -> None:
    facts = fold(RunFacts(run_id=1, behaviour=None, behaviour_state={}), entries(*bash(3, "ls")))
    assert facts.behaviour is None
    fold(facts, entries(STARTED, *bash(1, "ls")))
    assert facts.behaviour["calls"] == 1


def imported(*, times: str = "not_recorded", steps_recorded: bool = True) -> TrajectoryImported:
    return TrajectoryImported.model_validate(
        {"format": "x", "file": "a", "sha256": "0", "times": times, "steps_recorded": steps_recorded}
    )


def untimed(step: int) -> list[Event]:
    answered = builders.answered(step)
    reply = answered.reply.model_copy(update={"seconds": None})
    ended = builders.printed(step, "").model_copy(update={"seconds": None})
    called = builders.called(step, "Bash", {"command": "ls"})
    return [builders.asked(step), answered.model_copy(update={"reply": reply}), called, ended]


def test_times_that_another_program_did_not_record_are_unknown_and_not_0() -> None:
    def seconds(*events: Event) -> tuple[float | None, ...]:
        row = behaviour(*events)
        return row.model_seconds, row.tool_seconds, row.waiting_seconds

    assert seconds(imported()) == (None, None, None)
    assert seconds(imported(), *untimed(1)) == (None, None, None)
    assert seconds(imported(), *builders.bash_step(1, "ls", "")) == (1.4, 0.3, None)
    assert seconds(imported(times="recorded"), *builders.bash_step(1, "ls", "")) == (1.4, 0.3, None)
    # One that is missing among others makes the sum unknown.
    assert seconds(imported(), *untimed(1), *builders.bash_step(2, "ls", "")) == (None, None, None)


def test_of_a_run_of_which_only_the_verdict_is_recorded_nothing_is_known() -> None:
    assert folded(entries(STARTED, imported(steps_recorded=False), ENDED)).behaviour is None


def test_a_record_without_any_step_says_nothing_of_behaviour() -> None:
    unsaid = ENDED.model_copy(update={"steps": 0})
    facts = folded(entries(STARTED, imported(), PatchCaptured(exit_reason="unknown", patch=""), unsaid))
    assert (facts.behaviour, facts.behaviour_state) == (None, {})
    # Of one with a step, and of a run of the lab's own that did not come to its first, all is known.
    one = [builders.asked(1), builders.answered(1)]
    assert folded(entries(STARTED, imported(), *one, ENDED)).behaviour["calls"] == 0
    assert folded(entries(STARTED, SANDBOX, unsaid)).behaviour["calls"] == 0


def test_two_recorded_runs_of_the_sample_lab_count_as_by_hand() -> None:
    first = folded(recorded(64)).behaviour
    # Five edits; the same check before and after the first of them; two calls in the last step.
    assert counts(Behaviour(**first)) == {
        "tools": {"Bash": 5, "Read": 1, "Edit": 5},
        "kinds": {"shell": 3, "read": 2, "edit": 5, "test": 1},
        "calls": 11, "steps_with_calls": 10, "parallel_steps": 1, "malformed": 0,
        "exit_codes": 5, "failed_commands": 0, "tests": 1, "edits": 5, "cycles": 1,
        "tested_after_last_edit": True, "repeats": 1,
    }  # fmt: skip
    assert first["waiting_seconds"] == pytest.approx(0.431, abs=0.001)
    assert first["model_seconds"] == pytest.approx(3.9838, abs=0.001)
    assert first["tool_seconds"] == pytest.approx(3.1422, abs=0.001)
    second = folded(recorded(91)).behaviour
    # The third call's arguments are broken JSON; the sixth writes a file of its own.
    assert counts(Behaviour(**second)) == {
        "tools": {"Bash": 7},
        "kinds": {"read": 3, "edit": 2, "test": 1},
        "calls": 7, "steps_with_calls": 7, "parallel_steps": 0, "malformed": 1,
        "exit_codes": 6, "failed_commands": 0, "tests": 1, "edits": 2, "cycles": 1,
        "tested_after_last_edit": True, "repeats": 0,
    }  # fmt: skip


ODD: list[tuple[float, Event]] = [
    (0, STARTED),
    (2, SANDBOX),
    (3, builders.asked(1)),
    (4, builders.failed_request(1, retry_in=2.0)),
    (6, builders.asked(1, request=2)),
    (8, builders.answered(1, ("Bash", "{}"), ("Bash", "{}"), request=2)),
    (9, builders.called(1, "Bash", {"command": "sed -i s/a/b/ c.py"})),
    (10, builders.printed(1, "", exit_code=1)),
    (11, builders.called(1, "Bash", {"command": "echo " + "long " * 2_000}, index=2)),
    (12, ToolCallInterrupted(step=1, index=2, call_id="call-1-2", reason="the worker died")),
    (50, AttemptContinued(continuation=1)),
    (52, SANDBOX),
    (53, builders.called(1, "Bash", {"command": "echo " + "long " * 2_000}, index=2)),
    (54, Paused(person="mara")),
    (70, Resumed(person="mara")),
    (71, builders.called(2, "Edit", {"$blob": "x", "file_path": "a"})),
    (72, PatchCaptured(exit_reason="agent", patch="")),
    (73, ENDED),
    (80, STARTED),
    (81, builders.asked(1)),
    (82, builders.answered(1, ("Bash", "{}"))),
    (83, builders.called(1, "Bash", {"command": "pytest"})),
    (84, builders.printed(1, "")),
]


def as_stored(facts: RunFacts) -> RunFacts:
    """What another process reads of a roll-up that was stored in between."""
    kept = {field.attname: getattr(facts, field.attname) for field in RunFacts._meta.concrete_fields}
    texts = {"behaviour", "behaviour_state", "agent_clock", "pending", "unread_forms", "changed_files"}
    return RunFacts(**kept | {name: json.loads(json.dumps(kept[name])) for name in texts})


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_in_batches_of_any_size_the_fold_is_that_of_the_whole_log(data: st.DataObject) -> None:
    rows = data.draw(st.sampled_from([entries(*ODD), _SAMPLES[0], _SAMPLES[1]]), label="log")
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=len(rows)), label="cuts")
    facts, done = empty_facts(1), 0
    for cut in [*sorted(cuts), len(rows)]:
        facts, done = as_stored(fold(facts, rows[done:cut])), cut
    whole = as_stored(folded(rows))
    assert {**vars(facts), "_state": None} == {**vars(whole), "_state": None}


_SAMPLES = [recorded(64), recorded(83)]


@pytest.mark.django_db
@pytest.mark.parametrize("size", [1, 2, 5, len(ODD)])
def test_what_is_appended_in_batches_is_what_a_rebuild_from_the_log_gives(size: int) -> None:
    run = builders.run()
    run.attempts.create(n=1)
    for start in range(0, len(ODD), size):
        stamped = [(at(second), event) for second, event in ODD[start : start + size]]
        log.append(run_id=run.pk, attempt=1, lease_token=None, events=stamped)
    stored = RunFacts.objects.filter(pk=run.pk).values().get()
    RunFacts.objects.filter(pk=run.pk).update(behaviour=None, behaviour_state={}, cost_earlier=None)
    rebuild_facts(run_id=run.pk)
    assert RunFacts.objects.filter(pk=run.pk).values().get() == stored
    assert stored["behaviour"]["tests"] == 1
    assert stored["cost_earlier_unknown"] == 1


def real(path: str) -> Path:
    data = os.environ.get("LAB_TEST_DATA")
    if not data or not Path(data, path).exists():
        pytest.skip(f"absent data: set LAB_TEST_DATA to a folder with {path}")
    return Path(data, path)


def behaviours(path: Path) -> list[dict[str, Any]]:
    row = import_reading.import_now(paths=[path], worker="w/1/1")
    runs = Run.objects.filter(experiment=row.experiment).order_by("pk").select_related("facts")
    stored = [run.facts.behaviour for run in runs]
    assert stored == [rebuild_facts(run_id=run.pk).behaviour for run in runs]
    return stored


@pytest.mark.django_db(transaction=True)
def test_a_real_run_of_swe_agent_counts_as_by_hand() -> None:
    (row,) = behaviours(real("trajectories/swe-agent/marshmallow-1867-function-calling.traj"))
    # The reproduction script is run before and after the edit, and that is no test run by its command.
    assert counts(Behaviour(**row)) == {
        "tools": {"create": 1, "edit": 3, "bash": 4, "find_file": 1, "open": 1, "submit": 1},
        "kinds": {"edit": 4, "shell": 3, "read": 3, "final": 1},
        "calls": 11, "steps_with_calls": 11, "parallel_steps": 0, "malformed": 0, "exit_codes": 0,
        "failed_commands": None, "tests": 0, "edits": 4, "cycles": 0, "tested_after_last_edit": False,
        "repeats": 1,
    }  # fmt: skip
    assert (row["model_seconds"], row["waiting_seconds"]) == (None, None)
    assert row["tool_seconds"] == pytest.approx(4.3394, abs=0.001)


@pytest.mark.django_db(transaction=True)
def test_a_real_run_of_openhands_counts_as_by_hand() -> None:
    row, *others = behaviours(real("trajectories/openhands/multi-swe-bench-output.jsonl"))
    # One file is viewed three times; two edits are made by its editor and two by `echo … >`.
    assert counts(Behaviour(**row)) == {
        "tools": {"execute_bash": 13, "str_replace_editor": 8, "think": 1, "finish": 1},
        "kinds": {"read": 11, "shell": 7, "edit": 4, "final": 1},
        "calls": 23, "steps_with_calls": 23, "parallel_steps": 0, "malformed": 0, "exit_codes": 13,
        "failed_commands": 5, "tests": 0, "edits": 4, "cycles": 0, "tested_after_last_edit": False,
        "repeats": 2,
    }  # fmt: skip
    assert [other["calls"] for other in others] == [33, 49]
