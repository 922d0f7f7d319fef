"""What an imported log says of its file, as pages show it."""

from __future__ import annotations

import datetime as dt
from typing import Any

from lab.render.fold import LogEvent, step_of
from lab.render.moments import moment_html
from lab.render.steps import step_html

AT = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
IMPORTED: dict[str, Any] = {
    "kind": "trajectory_imported",
    "format": "mini-swe-agent-1.1",
    "file": "a<b>.json",
    "place": "line 3",
    "times": "not_recorded",
    "totals": {"cost_usd": "0.31"},
    "notes": [{"kind": "lost", "field": "info.x", "detail": "<img src=x onerror=alert(1)>"}],
    "kept": '{"mini_version": "2"}',
}


def event(seq: int, payload: dict[str, Any], step: int | None = None) -> LogEvent:
    return LogEvent(seq, 1, step, payload["kind"], AT, payload)


def test_a_run_says_where_it_came_from_what_was_lost_and_that_times_are_not_its_own() -> None:
    html = moment_html(7, event(2, IMPORTED))
    assert "Imported as mini-swe-agent-1.1 from <b>a&lt;b&gt;.json</b>, line 3" in html
    assert "its times are not recorded" in html
    assert "lost: <code>info.x</code> &lt;img" in html
    assert "cost_usd 0.31" in html
    assert "mini_version" in html


def test_what_a_file_holds_besides_stands_folded_in_its_step() -> None:
    kept = {
        "kind": "source_kept",
        "step": 1,
        "about": "tool_call",
        "call_id": "c<1>",
        "kept": '{"odd": "<b>"}',
    }
    html = step_html(
        7, step_of([event(3, {"kind": "model_call_started", "request": 1}, 1), event(4, kept, 1)])
    )
    assert "Recorded besides, of this tool call <code>c&lt;1&gt;</code>" in html
    assert "<b>&quot;" not in html
    assert "odd" in html


def test_a_notice_of_the_harness_is_no_fault_of_the_reply() -> None:
    notice = {
        "kind": "harness_message",
        "step": 1,
        "reason": "notice",
        "message": {"role": "user", "content": "5 steps left"},
    }
    view = step_of([event(3, notice, 1)])
    assert view.told == []
    assert "5 steps left" in step_html(7, view)


def test_an_end_that_is_not_recorded_is_called_so() -> None:
    ended = {"kind": "attempt_ended", "exit_reason": "", "native_reason": "", "error": "", "steps": 3}
    html = moment_html(7, event(9, {**ended, "wall_seconds": None}))
    assert html.count("not recorded") == 2
    assert ">0:00<" not in html


def test_a_command_whose_output_is_what_the_model_saw_counts_its_lines() -> None:
    started = {"kind": "tool_call_started", "step": 1, "index": 1, "call_id": "c", "tool": "bash"}
    started |= {"executor": "bash", "arguments": {"command": "ls"}}
    ended = {"kind": "tool_call_finished", "step": 1, "index": 1, "call_id": "c", "exit_code": 0}
    ended |= {"observation": "a\nb\n", "stdout": None, "stderr": None, "seconds": None}
    html = step_html(7, step_of([event(3, started, 1), event(4, ended, 1)]))
    assert "exit 0" in html
    assert "2 lines" in html
