"""Codex: rollouts, whose counts close an answer, and the events of `exec --json`."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, FormatError
from lab.engine.formats.codex import CodexRollout
from lab.engine.formats.codex_exec import CodexExec
from lab.engine.formats.detection import probe
from lab.engine.formats.trajectory import FailedRequest, Message, Problem, Rewritten, Trajectory
from tests.engine.formats.mutations import found_by, lines_of, mutated, only, survives

ROLLOUT, EXEC = CodexRollout(), CodexExec()


def line(kind: str, payload: dict[str, Any], second: int = 0) -> dict[str, Any]:
    return {"timestamp": f"2026-01-01T00:00:{second % 60:02}Z", "type": kind, "payload": payload}


def item(kind: str, **more: Any) -> dict[str, Any]:
    return line("response_item", {"type": kind, **more})


def said(role: str, content: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": content}])


def event(kind: str, **more: Any) -> dict[str, Any]:
    return line("event_msg", {"type": kind, **more})


def counted(last: int, total: int, output: int = 10) -> dict[str, Any]:
    usage = {
        "input_tokens": last,
        "cached_input_tokens": 4,
        "output_tokens": output,
        "reasoning_output_tokens": 3,
    }
    info = {"last_token_usage": usage, "total_token_usage": {**usage, "input_tokens": total}}
    return event("token_count", info=info, rate_limits={})


def rollout() -> list[dict[str, Any]]:
    patch = "*** Begin Patch"
    return [
        line("session_meta", {"id": "s", "cli_version": "0.99", "cwd": "/w", "model_provider": "openai"}),
        said("developer", "Be careful."),
        said("user", "<environment_context>linux</environment_context>"),
        line("turn_context", {"model": "gpt-x", "approval_policy": "never", "cwd": "/w"}),
        event("task_started"),
        said("user", "Mend it."),
        event("user_message", message="Mend it."),
        item("reasoning", summary=[{"type": "summary_text", "text": "Look."}], encrypted_content="e"),
        said("assistant", "Looking."),
        item("function_call", name="shell", arguments='{"command": ["ls"]}', call_id="c1"),
        item("function_call", name="shell", arguments="{broken", call_id="c2"),
        counted(100, 100),
        item(
            "function_call_output", call_id="c1",
            output='{"output": "a.txt", "metadata": {"exit_code": 2, "duration_seconds": 0.5}}',
        ),
        item("function_call_output", call_id="c2", output={"content": "no such", "success": False}),
        event("token_count", info=None, rate_limits={"primary": 1}),
        item("custom_tool_call", name="apply_patch", input=patch, call_id="c3"),
        item("custom_tool_call_output", call_id="c3", output="Done"),
        counted(150, 250, 20),
        said("assistant", "Mended."),
        counted(160, 410),
        event("task_complete", last_agent_message="Mended."),
    ]  # fmt: skip


def read(tmp_path: Path, lines: list[Any]) -> Trajectory:
    return only(found_by(ROLLOUT, lines_of(tmp_path, lines)))


def test_counts_close_an_answer_and_results_join_their_calls(tmp_path: Path) -> None:
    document = lines_of(tmp_path, rollout())
    assert ROLLOUT.recognises(probe(document))
    assert not EXEC.recognises(probe(document))
    found = only(found_by(ROLLOUT, document))
    first, second, third = found.turns
    assert [turn.usage.input_total for turn in found.turns] == [100, 150, 160]
    assert (first.usage.cache_read, first.usage.output_total, first.usage.reasoning) == (4, 10, 3)
    assert (first.message["content"], first.reasoning, first.model) == ("Looking.", "Look.", "gpt-x")
    assert first.kept["items"][0]["encrypted_content"] == "e"
    looked, broken = first.calls
    assert (looked.arguments, looked.exit_code, looked.seconds) == ({"command": ["ls"]}, 2, 0.5)
    assert (broken.arguments, broken.raw_arguments, broken.observation) == ({}, "{broken", "no such")
    assert (bool(broken.malformed), broken.failed) == (True, True)
    assert (second.calls[0].name, second.calls[0].arguments) == ("apply_patch", {"input": "*** Begin Patch"})
    assert second.calls[0].observation == "Done"
    assert third.message == {"role": "assistant", "content": "Mended."}
    assert [message["role"] for message in found.opening] == ["developer", "user", "user"]
    assert (found.statement, found.final_message) == ("Mend it.", "Mended.")
    assert (found.exit_reason, found.native_reason) == (ExitReason.AGENT, "task_complete")
    assert (found.harness.version, found.model.provider) == ("0.99", "openai")
    # The running total is the whole session's and nobody's usage.
    assert (found.totals.input_tokens, found.totals.output_tokens) == (410, 10)


def test_what_people_say_later_compactions_and_interruptions_are_there(tmp_path: Path) -> None:
    history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Shorter."}]}]
    lines = [
        *rollout(),
        said("user", "Once more."),
        line("compacted", {"message": "", "replacement_history": history}),
        said("assistant", "Well."),
        event("stream_error", message="lost"),
        event("turn_aborted", reason="interrupted"),
    ]
    found = read(tmp_path, lines)
    (message,) = [one for one in found.items if isinstance(one, Message)]
    assert (message.by, message.message["content"]) == ("person", "Once more.")
    (rewriting,) = [one for one in found.items if isinstance(one, Rewritten)]
    assert rewriting.messages == ({"role": "user", "content": "Shorter."},)
    (failure,) = [one for one in found.items if isinstance(one, FailedRequest)]
    assert failure.message == "lost"
    assert (found.exit_reason, found.native_reason) == (ExitReason.CANCELLED, "interrupted")


def test_a_session_that_stops_midway_has_no_exit_reason(tmp_path: Path) -> None:
    found = read(tmp_path, rollout()[:11])
    assert (found.exit_reason, found.turns[0].calls[0].observation) == (None, None)
    assert "task_complete" in [note.field for note in found.notes]


def test_a_broken_line_is_a_problem_and_no_session_at_all_is_refused(tmp_path: Path) -> None:
    problem, found = found_by(ROLLOUT, lines_of(tmp_path, [*rollout()[:6], "{cut", *rollout()[6:]]))
    assert isinstance(problem, Problem)
    assert problem.place == "line 7"
    assert isinstance(found, Trajectory)
    assert len(found.turns) == 3
    with pytest.raises(FormatError, match="holds no line of a session of Codex"):
        found_by(ROLLOUT, lines_of(tmp_path, [{"type": "else"}]))


def thread() -> list[dict[str, Any]]:
    command = {"id": "i1", "type": "command_execution", "command": "ls", "status": "in_progress"}
    mcp = {
        "id": "i3", "type": "mcp_tool_call", "server": "docs", "tool": "search", "arguments": {"q": "x"},
        "result": {"content": [{"type": "text", "text": "hit"}]}, "status": "completed",
    }  # fmt: skip
    return [
        {"type": "thread.started", "thread_id": "t"},
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "i0", "type": "reasoning", "text": "Look."}},
        {"type": "item.started", "item": command},
        {
            "type": "item.completed",
            "item": {**command, "aggregated_output": "a\n", "exit_code": 1, "status": "failed"},
        },
        {"type": "item.completed", "item": mcp},
        {"type": "item.completed", "item": {"id": "i4", "type": "agent_message", "text": "Done."}},
        {
            "type": "turn.completed",
            "usage": {"input_tokens": 20, "cached_input_tokens": 5, "output_tokens": 3},
        },
    ]


def test_the_events_of_a_thread_are_answers_and_calls(tmp_path: Path) -> None:
    document = lines_of(tmp_path, thread())
    assert EXEC.recognises(probe(document))
    found = only(found_by(EXEC, document))
    first, second, third = found.turns
    assert (first.reasoning, first.calls[0].name, first.calls[0].arguments) == (
        "Look.",
        "shell",
        {"command": "ls"},
    )
    assert (first.calls[0].observation, first.calls[0].exit_code, first.calls[0].failed) == ("a\n", 1, True)
    assert (second.calls[0].name, second.calls[0].observation) == ("search", "hit")
    assert third.message["content"] == found.final_message == "Done."
    assert (found.totals.input_tokens, found.totals.cached_tokens, found.totals.output_tokens) == (20, 5, 3)
    assert all(turn.usage.total is None for turn in found.turns)
    assert (found.exit_reason, found.native_reason) == (ExitReason.AGENT, "turn.completed")


def test_a_thread_that_failed_says_so_once(tmp_path: Path) -> None:
    words = {"message": "quota"}
    lines = [*thread()[:4], {"type": "error", **words}, {"type": "turn.failed", "error": words}]
    found = only(found_by(EXEC, lines_of(tmp_path, lines)))
    assert len([one for one in found.items if isinstance(one, FailedRequest)]) == 1
    assert (found.exit_reason, found.error) == (ExitReason.LLM_QUERY_ERROR, "quota")
    assert found.turns[0].calls[0].observation is None


def as_lines(values: list[Any]) -> list[str]:
    return [json.dumps(value) for value in values]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.dictionaries(TEXTS, TEXTS | st.integers(), max_size=3)


@given(
    st.lists(
        st.tuples(TEXTS, VALUES, TEXTS, st.integers(4, 10**6)),
        min_size=1,
        max_size=6,
    )
)
def test_what_is_written_is_read_back(rounds: list[tuple[str, dict[str, Any], str, int]]) -> None:
    lines, total = [said("user", "Go.")], 0
    for number, (content, values, observation, tokens) in enumerate(rounds):
        total += tokens
        lines += [
            said("assistant", content),
            item("function_call", name="tool", arguments=json.dumps(values), call_id=f"c{number}"),
            counted(tokens, total),
            item("function_call_output", call_id=f"c{number}", output=observation),
        ]
    with tempfile.TemporaryDirectory() as folder:
        found = read(Path(folder), lines)
    assert [
        (turn.message["content"], turn.calls[0].arguments, turn.calls[0].observation, turn.usage.input_total)
        for turn in found.turns
    ] == rounds


@given(mutated(rollout()).map(as_lines))
def test_broken_rollouts_are_never_an_unexpected_error(lines: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert survives(ROLLOUT, lines_of(Path(folder), lines))


@given(mutated(thread()).map(as_lines))
def test_broken_threads_are_never_an_unexpected_error(lines: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert survives(EXEC, lines_of(Path(folder), lines))


def test_real_counts_are_those_of_the_last_call_and_not_the_running_total() -> None:
    folder = Path(os.environ.get("LAB_TEST_DATA", ""), "trajectories/codex")
    if not os.environ.get("LAB_TEST_DATA") or not folder.is_dir():
        pytest.skip("absent data: set LAB_TEST_DATA to a folder with trajectories/codex")
    (path,) = folder.glob("*.jsonl")
    found = only(found_by(ROLLOUT, Document(path.name, path)))
    assert [(turn.model, turn.usage.input_total, turn.usage.cache_read) for turn in found.turns] == [
        ("gpt-5.2-codex", 1000, 250),
        ("gpt-5.3-codex", 2500, 500),
    ]
    assert found.totals.input_tokens == 3500


def test_sessions_of_one_configuration_have_one_harness_wherever_and_whenever_they_were(
    tmp_path: Path,
) -> None:
    def session(folder: str, day: str) -> Trajectory:
        lines = rollout()
        sandbox = {"type": "workspace-write", "network_access": False, "writable_roots": [folder]}
        lines[3]["payload"] |= {"cwd": folder, "turn_id": day, "current_date": day, "sandbox_policy": sandbox}
        lines[3]["payload"] |= {"user_instructions": f"The rules of {folder}."}
        return only(found_by(ROLLOUT, lines_of(tmp_path, lines)))

    first, second = session("/a", "2026-01-01"), session("/b", "2026-01-02")
    assert first.harness == second.harness
    assert first.harness.config["approval_policy"] == "never"
    assert first.kept["turn_context"] == {
        "cwd": "/a",
        "turn_id": "2026-01-01",
        "current_date": "2026-01-01",
        "user_instructions": "The rules of /a.",
        "sandbox_policy": {"writable_roots": ["/a"]},
    }
