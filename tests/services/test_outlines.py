"""Outlines of runs: every step of the newest attempt as its page shows it, read once and without a body."""

from __future__ import annotations

import os
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest_django.fixtures import Settings

from lab.engine.events import Event as LogEntry
from lab.engine.events import (
    FileChange,
    HarnessMessage,
    SourceKept,
    ToolCallInterrupted,
    WorkspaceChanged,
)
from lab.engine.llm.base import Cost
from lab.models import Event, Run
from lab.render.fold import group, step_of
from lab.render.results import result_words
from lab.render.steps import argument_words, tool_words
from lab.render.text import one_line
from lab.services import blobs, import_reading, outlines, sample, trajectories
from lab.services.outlines import Outline, StepOutline, outlines_of
from tests import builders

pytestmark = pytest.mark.django_db(transaction=True)
SAMPLES = Path(__file__).parents[1] / "engine" / "formats" / "samples"


def outline(run: Run) -> Outline:
    return outlines_of([run])[0]


def from_scratch(run: Run) -> Outline:
    trajectories.forget_rendered()
    return outline(run)


def begun() -> Run:
    run = builders.run()
    builders.start(run)
    return run


def of(*events: LogEntry) -> tuple[StepOutline, ...]:
    run = begun()
    builders.append(run, *events)
    return outline(run).steps


def agrees_with_its_page(run: Run) -> None:
    """The steps are those of the minimap, their words those of the page where no body is read for them."""
    found = outline(run)
    assert [
        (step.seq, step.number, step.kind, step.icon, step.failed_test)
        for step in trajectories.outline(run_id=run.pk)
    ] == [(step.seq, step.number, step.kind, step.icon, step.failed_test) for step in found.steps]
    rows = Event.objects.filter(run=run, step__isnull=False).order_by("seq")
    columns = rows.values_list("seq", "attempt", "step", "kind", "at", "payload")
    groups = group([trajectories.log_event(*row) for row in columns])
    for step, view in zip(found.steps, map(step_of, groups), strict=True):
        assert step.tool == one_line(tool_words(view), 60)
        assert step.argument == one_line(argument_words(view), 240)
        assert step.at == view.events[0].at
        assert (step.seq, step.last_seq, step.pending) == (view.first_seq, view.last_seq, view.pending)
        if not step.result.endswith((" KB", " bytes", " MB")):
            assert step.result == result_words(view)


def test_a_whole_run_reads_as_its_page_does() -> None:
    run = builders.run()
    builders.believable(run)
    agrees_with_its_page(run)
    first, *_ = found = outline(run).steps
    assert [step.number for step in found] == list(range(1, len(found) + 1))
    assert (first.kind, first.more_calls) == ("read", 1)
    assert " + " in first.action.subject
    assert (first.tokens_in, first.tokens_out, first.context_tokens) == (2100, 318, 2418)
    assert (first.cost, first.cost_missing) == (Decimal("0.0058"), False)
    assert found[-1].action.kind == "final"


def test_the_sample_lab_reads_as_its_pages_do(settings: Settings, tmp_path: Path) -> None:
    settings.LAB_DATA_DIR = tmp_path

    def enough(now: sample.SampleState) -> None:
        if now.loaded == 4:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        sample.play(on_progress=enough)
    runs = list(Run.objects.filter(last_seq__gt=0))
    assert len(runs) == 4
    assert all(found.steps for found in outlines_of(runs))
    for run in runs:
        agrees_with_its_page(run)


def _imported(path: Path) -> list[Run]:
    row = import_reading.import_now(paths=(path,), worker="w/1/1")
    return list(Run.objects.filter(experiment=row.experiment))


@pytest.mark.parametrize("folder", ["mini_swe_agent", "inspect_ai"])
def test_imported_samples_read_as_their_pages_do(folder: str) -> None:
    for file in sorted((SAMPLES / folder).iterdir()):
        for run in _imported(file):
            agrees_with_its_page(run)


def real(path: str) -> Path:
    data = os.environ.get("LAB_TEST_DATA")
    if not data or not Path(data, path).exists():
        pytest.skip(f"absent data: set LAB_TEST_DATA to a folder with {path}")
    return Path(data, path)


@pytest.mark.parametrize("folder", ["atif", "claude-code", "codex", "inspect", "openhands", "swe-agent"])
def test_real_imported_files_read_as_their_pages_do(folder: str) -> None:
    runs = _imported(real(f"trajectories/{folder}"))
    assert runs
    for run in runs:
        agrees_with_its_page(run)


def test_one_task_through_two_interfaces_has_the_same_actions() -> None:
    folder = "trajectories/swe-agent"
    (text,) = _imported(real(f"{folder}/marshmallow-1867-default-thought-action.traj"))
    (calls,) = _imported(real(f"{folder}/marshmallow-1867-function-calling.traj"))
    by_text, by_calls = (
        [
            (step.action.kind, step.action.subject, step.action.arguments, step.action.edits)
            for step in one.steps
        ]
        for one in outlines_of([text, calls])
    )
    # The one by text looks around first, and again after it has seen the fault.
    assert [subject for _, subject, _, _ in by_text[:3]] == ["ls .", "read setup.py", "pip install .[dev]"]
    assert by_text[3:] == by_calls
    assert [subject for _, subject, _, _ in by_calls] == [
        *("write reproduce.py", "edit reproduce.py", "python reproduce.py", "ls .", "find fields.py"),
        *(
            "read src/marshmallow/fields.py",
            "edit src/marshmallow/fields.py",
            "edit src/marshmallow/fields.py",
        ),
        *("python reproduce.py", "rm reproduce.py", "submit"),
    ]


def test_runs_without_steps_have_none() -> None:
    empty, fresh = builders.run(), begun()
    assert [(found.run, found.attempt, found.steps) for found in outlines_of([empty, fresh, empty])] == [
        (empty.pk, 0, ()),
        (fresh.pk, 1, ()),
        (empty.pk, 0, ()),
    ]


def test_only_the_newest_attempt_counts() -> None:
    run = begun()
    builders.append(run, *builders.bash_step(1, "ls", "a\n"), *builders.bash_step(2, "ls", "a\n"))
    assert len(outline(run).steps) == 2
    run.attempts.create(n=2)
    builders.append(run, *builders.opening(), *builders.bash_step(1, "pwd", "b\n"), attempt=2)
    found = outline(run)
    assert (found.attempt, [step.argument for step in found.steps]) == (2, ["pwd"])
    assert found == from_scratch(run)


def test_long_texts_are_known_by_hash_and_size_and_no_body_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_body(*_: object, **__: object) -> bytes:
        raise AssertionError("a body was read")

    run = begun()
    output = "a long line of output\n" * 400
    events = [
        event
        for step, text in ((1, output), (2, output), (3, output + "b"))
        for event in _long_step(step, text)
    ]
    builders.append(run, *events)
    for name in ("beginning_of", "blob_text", "get"):
        monkeypatch.setattr(blobs, name, no_body, raising=False)
    first, second, third = outline(run).steps
    assert first.result == "8.8 KB"
    assert first.action == second.action
    assert (first.action.subject, third.action.subject) == ("write a.py + make", "write a.py + make")
    assert first.action.result != third.action.result
    assert first.action.arguments != third.action.arguments


def _long_step(step: int, text: str) -> Sequence[LogEntry]:
    return [
        builders.asked(step),
        builders.answered(step, ("Write", "{}"), ("Bash", "{}")),
        builders.called(step, "Write", {"file_path": "a.py", "content": text}),
        builders.told(step, text),
        builders.called(step, "Bash", {"command": "make"}, index=2),
        builders.printed(step, text, index=2),
    ]


def test_what_is_going_on_is_pending_and_says_no_result() -> None:
    whole = [*builders.bash_step(1, "ls", "a\nb\n"), *builders.bash_step(2, "sleep 9", "")]
    run = begun()
    seen = []
    for event in whole[4:]:
        builders.append(run, event)
        (step,) = outline(run).steps
        seen.append((step.pending, step.result, step.action.subject, bool(step.action.result)))
    assert seen == [
        (True, "", "pending", False),
        (False, "", "nothing", False),
        (True, "", "sleep 9", False),
        (False, "no output", "sleep 9", True),
    ]


def test_a_request_that_was_tried_again_is_one_step_whose_cost_is_known_in_part() -> None:
    events = builders.bash_step(1, "ls", "a\n")
    (step,) = of(
        builders.asked(1),
        builders.failed_request(1),
        builders.asked(1, request=2),
        builders.answered(1, ("Bash", "{}"), request=2),
        *events[2:],
    )
    assert step.result == "1 line · 1 retry"
    assert (step.cost, step.cost_missing) == (Decimal("0.0058"), True)


def test_unusable_replies_and_malformed_calls_are_said_as_such() -> None:
    message = {"role": "user", "content": "call a tool"}
    told, malformed, noticed = of(
        builders.asked(1),
        builders.answered(1, content="I wait."),
        HarnessMessage(step=1, reason="no_call", detail="no call", message=message),
        builders.asked(2),
        builders.answered(2, ("Bash", "{'")),
        builders.called(2, "Bash", {}, malformed="no JSON", raw="{'"),
        builders.told(2, "could not be read", failed=True),
        *builders.bash_step(3, "ls", "a\n"),
        HarnessMessage(step=3, reason="notice", message=message),
    )
    assert (told.kind, told.icon, told.failed, told.action.subject) == (
        "shell",
        "warning",
        True,
        "not understood",
    )
    assert (malformed.kind, malformed.failed) == ("shell", True)
    assert (malformed.action.subject, malformed.result) == (
        "Bash not understood",
        "not understood, told the model",
    )
    assert (noticed.failed, noticed.action.subject) == (False, "ls .")


def test_edits_count_lines_and_exit_codes_fail() -> None:
    change = FileChange(path="tickwell/schedule.py", change="modified", added=7, removed=1)
    edited, failed, broken = of(
        *builders.edit_step(1)[:-1],
        WorkspaceChanged(step=1, index=1, call_id="call-1-1", changes=[change]),
        *builders.bash_step(2, "python -m pytest", "1 failed, 2 passed in 0.31s\n", exit_code=1),
        *builders.bash_step(3, "make", "")[:3],
        ToolCallInterrupted(step=3, index=1, call_id="call-3-1", reason="cancelled"),
    )
    assert (edited.added, edited.removed, edited.result) == (7, 1, "+7 −1 · 1 replacement")
    assert edited.action.edits == ("tickwell/schedule.py",)
    assert (failed.exit_code, failed.failed, failed.failed_test) == (1, True, True)
    assert failed.result == "1 failed, 2 passed"
    assert (broken.result, broken.pending) == ("interrupted, effect unknown", False)


def test_the_folder_of_the_sandbox_is_left_out_of_paths() -> None:
    run = builders.run()
    builders.append(
        run,
        builders.opening()[0],
        builders.in_docker(workspace="/srv/task/"),
        *builders.bash_step(1, "cat /srv/task/a.py", "x\n"),
    )
    assert outline(run).steps[0].action.reads == ("a.py",)


def test_keys_are_masked_as_the_page_masks_them() -> None:
    key = "sk-ant-api03-" + "a1B2c3D4e5" * 4
    run = begun()
    builders.append(
        run,
        *builders.bash_step(1, f"export KEY={key}; curl {key}", key),
        builders.asked(2),
        builders.answered(2, content=key),
    )
    assert key not in repr(outline(run))
    assert "masked" in outline(run).steps[0].argument
    agrees_with_its_page(run)


def test_several_runs_take_two_queries_and_nothing_new_takes_one() -> None:
    runs = [begun() for _ in range(6)]
    for run in runs:
        builders.append(run, *builders.bash_step(1, "ls", "a\n"), *builders.final_step(2))
    with CaptureQueriesContext(
        connection,
    ) as first:
        found = outlines_of(runs)
    with CaptureQueriesContext(connection) as again:
        assert outlines_of(runs) == found
    assert (len(first), len(again)) == (2, 1)
    builders.append(runs[0], builders.asked(3))
    with CaptureQueriesContext(connection) as grown:
        assert [len(one.steps) for one in outlines_of(runs)] == [3, 2, 2, 2, 2, 2]
    assert len(grown) == 2


MESSAGE = {"role": "user", "content": "x"}
WHOLE: list[LogEntry] = [
    *builders.bash_step(1, "open src/a.py 12", "x\n"),
    SourceKept(step=1, about="tool_call", kept="{}"),
    *builders.bash_step(2, "edit 1:2\nx\nend_of_edit", ""),
    builders.in_docker(workspace="/srv/task"),
    *builders.edit_step(3),
    builders.asked(4),
    builders.failed_request(4),
    builders.asked(4, request=2),
    builders.answered(4, content="Hm", request=2, cost=Cost()),
    HarnessMessage(step=4, reason="no_call", detail="no call", message=MESSAGE),
    *builders.bash_step(5, "edit 3:3\ny\nend_of_edit", "", exit_code=1),
    # Told of a step after the next one had begun.
    SourceKept(step=3, about="tool_call", kept="{}"),
    *builders.final_step(6),
    HarnessMessage(step=5, reason="notice", message=MESSAGE),
]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.integers(1, len(WHOLE) - 1), max_size=6))
def test_an_outline_that_grows_equals_one_from_scratch(cuts: set[int]) -> None:
    run = begun()
    for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), len(WHOLE)], strict=True):
        builders.append(run, *WHOLE[first:last])
        grown = outline(run)
        assert grown == from_scratch(run)
    assert [step.action.subject for step in grown.steps] == [
        *("read src/a.py", "edit src/a.py", "edit tickwell/schedule.py", "not understood", "edit src/a.py"),
        "answer",
    ]


def test_what_was_kept_is_forgotten_with_what_was_rendered_after_a_purge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = begun()
    builders.append(run, *builders.bash_step(1, "echo secret", "a\n"))
    assert outline(run).steps[0].argument == "echo secret"
    row = Event.objects.get(run=run, kind="tool_call_started")
    row.payload["arguments"]["command"] = "echo [purged]"
    Event.objects.filter(pk=row.pk).update(payload=row.payload)
    assert outline(run).steps[0].argument == "echo secret"
    assert from_scratch(run).steps[0].argument == "echo [purged]"
    # What was read before it was forgotten is not kept afterwards either.
    read = outlines._folded

    def forgotten_meanwhile(*arguments: object) -> object:
        trajectories.forget_rendered()
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(outlines, "_folded", forgotten_meanwhile)
    trajectories.forget_rendered()
    outline(run)
    assert outlines._cache.get(run.pk) is None


def test_the_least_used_outlines_are_dropped() -> None:
    runs = [begun() for _ in range(5)]
    for run in runs:
        builders.append(run, *builders.bash_step(1, "ls", "a\n"))
    cache = outlines._Cache(12_000)
    whole = [
        outlines._Reading(run.pk, 1, outline=found)
        for run, found in zip(runs, outlines_of(runs), strict=True)
    ]
    for reading in whole:
        cache.put(reading, cache.generation)
        cache.get(runs[0].pk)
    kept = [run.pk for run in runs if cache.get(run.pk) is not None]
    assert runs[0].pk in kept
    assert runs[-1].pk in kept
    assert len(kept) <= 12_000 // whole[0].characters
