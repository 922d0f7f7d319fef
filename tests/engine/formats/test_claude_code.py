"""Sessions of Claude Code: lines of one answer, subagents, compactions, the stream of a command."""

from __future__ import annotations

import json
import os
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, FormatError
from lab.engine.formats.claude_code import ClaudeCode
from lab.engine.formats.detection import probe
from lab.engine.formats.trajectory import Aside, FailedRequest, Message, Problem, Rewritten, Trajectory
from tests.engine.formats.mutations import found_by, lines_of, mutated, only, survives

READER = ClaudeCode()


def line(kind: str, number: int, message: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    said = {"message": message} if message is not None else {}
    return {
        "type": kind, "uuid": f"u{number}", "sessionId": "s1", "version": "2.1.0", "cwd": "/w",
        "timestamp": f"2026-01-01T00:00:{number:02}.000Z", **said, **more,
    }  # fmt: skip


def asked(number: int, content: Any, **more: Any) -> dict[str, Any]:
    return line("user", number, {"role": "user", "content": content}, **more)


def result(number: int, call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return asked(number, [block], **more)


def answered(number: int, identifier: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"id": identifier, "role": "assistant", "model": "claude-x", "content": list(blocks)}
    message |= {name: more.pop(name) for name in ("usage", "stop_reason") if name in more}
    return line("assistant", number, message, **more)


def words(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def use(call_id: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def session() -> list[dict[str, Any]]:
    """One answer on three lines, with two calls, and one that ends the turn."""
    return [
        {"type": "summary", "summary": "Mending", "leafUuid": "x"},
        asked(1, "Mend it."),
        answered(
            2, "m1", {"type": "thinking", "thinking": "Look first.", "signature": "sig"},
            usage={"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 5},
        ),
        answered(3, "m1", words("Looking."), usage={"input_tokens": 10, "output_tokens": 2}),
        answered(4, "m1", use("t1", "Bash", command="ls")),
        result(5, "t1", "a.txt", toolUseResult={"stdout": "a.txt", "stderr": ""}),
        answered(
            6, "m1", use("t2", "Read", file_path="a.txt"), stop_reason="tool_use",
            usage={
                "input_tokens": 10, "output_tokens": 30, "cache_read_input_tokens": 5,
                "cache_creation_input_tokens": 7,
            },
        ),
        result(7, "t2", [words("contents")]),
        answered(8, "m2", words("Done."), stop_reason="end_turn"),
    ]  # fmt: skip


def read(tmp_path: Path, lines: list[Any]) -> Trajectory:
    return only(found_by(READER, lines_of(tmp_path, lines)))


def test_the_lines_of_one_message_are_one_turn_with_its_last_usage(tmp_path: Path) -> None:
    document = lines_of(tmp_path, session())
    assert READER.recognises(probe(document))
    found = only(found_by(READER, document))
    first, second = found.turns
    assert (first.message["content"], first.reasoning) == ("Looking.", "Look first.")
    assert first.kept["thinking"] == [{"type": "thinking", "signature": "sig"}]
    assert [(call.name, call.arguments, call.observation) for call in first.calls] == [
        ("Bash", {"command": "ls"}, "a.txt"),
        ("Read", {"file_path": "a.txt"}, "contents"),
    ]
    assert first.calls[0].kept["toolUseResult"]["stdout"] == "a.txt"
    assert first.calls[0].message == {"role": "tool", "tool_call_id": "t1", "content": "a.txt"}
    usage = first.usage
    assert (usage.input_total, usage.cache_read, usage.cache_write, usage.output_total) == (22, 5, 7, 30)
    assert (first.finish_reason, second.finish_reason, second.usage.total) == ("tool_calls", "stop", None)
    assert (found.statement, found.final_message) == ("Mend it.", "Done.")
    assert found.opening == ({"role": "user", "content": "Mend it."},)
    assert (found.exit_reason, found.native_reason) == (ExitReason.AGENT, "end_turn")
    assert "exit_reason" in [note.field for note in found.notes if note.kind == "guessed"]
    assert (found.harness.name, found.harness.version, found.model.name) == (
        "claude-code",
        "2.1.0",
        "claude-x",
    )
    assert [item.name for item in found.items if isinstance(item, Aside)] == ["summary"]


def test_lines_that_stand_twice_count_once(tmp_path: Path) -> None:
    named = session()[1:]
    assert read(tmp_path, [*named, *named]).items == read(tmp_path, named).items


def test_files_of_one_session_are_read_together_in_order_of_time(tmp_path: Path) -> None:
    main = [
        asked(1, "Explore."),
        answered(2, "m1", use("t1", "Task", prompt="Look around.", subagent_type="Explore")),
        result(8, "t1", "Three folders."),
        answered(9, "m2", words("There are three."), stop_reason="end_turn"),
    ]
    inner = {"isSidechain": True, "agentId": "a7"}
    subagent = [
        {**asked(3, "Look around.", **inner), "uuid": "x3"},
        {**answered(4, "n1", use("i1", "Bash", command="ls"), **inner), "uuid": "x4"},
        {**result(5, "i1", "a b c", **inner), "uuid": "x5"},
        {**answered(6, "n2", words("Three folders."), **inner), "uuid": "x6"},
    ]
    documents = [lines_of(tmp_path, subagent, "b.jsonl"), lines_of(tmp_path, main, "a.jsonl")]
    assert len({READER.grouping(document, probe(document)) for document in documents}) == 1

    found = only(found_by(READER, *documents))

    assert found.origin.file == "a.jsonl"
    assert [(turn.agent, turn.response_id) for turn in found.turns] == [
        ("", "m1"),
        ("Explore", "n1"),
        ("Explore", "n2"),
        ("", "m2"),
    ]
    assert found.turns[1].kept["joined"] == [{"role": "user", "content": "Look around."}]
    assert (found.turns[1].calls[0].observation, found.turns[0].calls[0].observation) == (
        "a b c",
        "Three folders.",
    )
    assert found.opening == ({"role": "user", "content": "Explore."},)
    assert found == only(found_by(READER, *reversed(documents)))

    alone = only(found_by(READER, documents[0]))
    assert [turn.agent for turn in alone.turns] == ["", ""]
    assert "session" in [note.field for note in alone.notes if note.kind == "missing"]


def test_a_compaction_replaces_the_conversation(tmp_path: Path) -> None:
    lines = [
        *session(),
        line("system", 10, subtype="compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 9}),
        asked(11, "Summary: mended.", isCompactSummary=True),
        asked(12, "Go on."),
        answered(13, "m3", words("Gone on.")),
    ]
    found = read(tmp_path, lines)
    (rewriting,) = [item for item in found.items if isinstance(item, Rewritten)]
    assert rewriting.reason == "compaction (auto)"
    assert rewriting.messages == ({"role": "user", "content": "Summary: mended."},)
    (message,) = [item for item in found.items if isinstance(item, Message)]
    assert (message.by, message.message["content"]) == ("person", "Go on.")


def test_errors_of_the_service_are_failed_requests_and_interruptions_end_it(tmp_path: Path) -> None:
    lines = [
        asked(1, "Go."),
        line("system", 2, subtype="api_error", error={"status": 529, "error": {"message": "Overloaded"}}),
        answered(3, "m0", words("API Error: 429"), isApiErrorMessage=True),
        answered(4, "m1", use("t1", "Bash", command="sleep")),
        asked(5, "[Request interrupted by user]"),
    ]
    found = read(tmp_path, lines)
    failures = [item for item in found.items if isinstance(item, FailedRequest)]
    assert [(one.error, one.status, one.message) for one in failures] == [
        ("server", 529, "Overloaded"),
        ("not_recorded", None, "API Error: 429"),
    ]
    assert (len(found.turns), found.turns[0].calls[0].observation) == (1, None)
    assert found.exit_reason is ExitReason.CANCELLED


def stream(subtype: str = "success", **more: Any) -> list[dict[str, Any]]:
    task = use("t1", "Task", prompt="p", subagent_type="Explore")
    done = {"type": "tool_result", "tool_use_id": "t1", "content": "found", "is_error": True}
    return [
        {"type": "system", "subtype": "init", "session_id": "s2", "model": "claude-x", "tools": ["Bash"]},
        {"type": "stream_event", "session_id": "s2", "event": {}},
        {
            "type": "assistant", "session_id": "s2",
            "message": {"id": "m1", "model": "claude-x", "content": [task]},
        },
        {
            "type": "assistant", "session_id": "s2", "parent_tool_use_id": "t1",
            "message": {"id": "n1", "model": "claude-y", "content": [words("found")]},
        },
        {"type": "user", "session_id": "s2", "message": {"role": "user", "content": [done]}},
        {
            "type": "result", "subtype": subtype, "session_id": "s2", "is_error": False, "num_turns": 2,
            "duration_ms": 1500, "total_cost_usd": 0.125, "result": "All good.",
            "usage": {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5}, **more,
        },
    ]  # fmt: skip


def test_the_stream_of_a_command_has_its_totals_and_its_ending(tmp_path: Path) -> None:
    document = lines_of(tmp_path, stream())
    assert READER.recognises(probe(document))
    found = only(found_by(READER, document))
    assert found.origin.format == "claude-code-stream-json"
    assert [(turn.agent, turn.model) for turn in found.turns] == [("", "claude-x"), ("Explore", "claude-y")]
    assert (found.turns[0].calls[0].failed, found.turns[0].calls[0].observation) == (True, "found")
    totals = found.totals
    assert (totals.cost, totals.input_tokens, totals.output_tokens, totals.steps, totals.seconds) == (
        Decimal("0.125"),
        7,
        5,
        2,
        1.5,
    )
    assert (found.exit_reason, found.native_reason, found.final_message) == (
        ExitReason.AGENT,
        "success",
        "All good.",
    )
    assert {note.field for note in found.notes} >= {"prompt", "stream_event"}


@pytest.mark.parametrize(
    ("subtype", "more", "reason"),
    [
        ("error_max_turns", {}, ExitReason.MAX_TURNS),
        ("success", {"is_error": True}, ExitReason.LLM_QUERY_ERROR),
        ("something_new", {}, None),
    ],
)
def test_endings_have_the_labs_names_where_it_has_one(
    subtype: str, more: dict[str, Any], reason: ExitReason | None, tmp_path: Path
) -> None:
    found = read(tmp_path, stream(subtype, **more))
    assert (found.exit_reason, found.native_reason) == (reason, subtype)


def test_a_broken_line_is_a_problem_and_the_rest_is_read(tmp_path: Path) -> None:
    lines: list[Any] = session()
    lines.insert(4, '{"type": "assistant", "cut')
    lines.insert(5, "[1]")
    first, second, found = found_by(READER, lines_of(tmp_path, lines))
    assert isinstance(first, Problem)
    assert isinstance(second, Problem)
    assert (first.place, second.place, second.message) == ("line 5", "line 6", "is a list and no object")
    assert isinstance(found, Trajectory)
    assert len(found.turns) == 2


def test_a_file_without_a_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="holds no line of a session of Claude Code"):
        found_by(READER, lines_of(tmp_path, [{"uuid": "u", "sessionId": "s"}]))


def as_lines(values: list[Any]) -> list[str]:
    return [json.dumps(value) for value in values]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.dictionaries(TEXTS, TEXTS | st.integers(), max_size=3)


@given(
    st.lists(
        st.tuples(TEXTS, VALUES, TEXTS, st.integers(0, 10**6)),
        min_size=1,
        max_size=6,
    )
)
def test_what_is_written_is_read_back(rounds: list[tuple[str, dict[str, Any], str, int]]) -> None:
    lines = [asked(0, "Go.")]
    for number, (content, values, observation, tokens) in enumerate(rounds):
        usage = {"input_tokens": tokens, "output_tokens": 1}
        block = {"type": "tool_use", "id": f"t{number}", "name": "Tool", "input": values}
        lines.append(answered(2 * number + 1, f"m{number}", words(content), block, usage=usage))
        lines.append(result(2 * number + 2, f"t{number}", observation))
    with tempfile.TemporaryDirectory() as folder:
        found = read(Path(folder), lines)
    assert [
        (turn.message["content"], turn.calls[0].arguments, turn.calls[0].observation, turn.usage.input_total)
        for turn in found.turns
    ] == rounds


@given(st.sampled_from([session(), stream()]).flatmap(mutated).map(as_lines))
def test_broken_documents_are_never_an_unexpected_error(lines: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert survives(READER, lines_of(Path(folder), lines))


def real_files() -> dict[str, Document]:
    folder = Path(os.environ.get("LAB_TEST_DATA", ""), "trajectories/claude-code")
    if not os.environ.get("LAB_TEST_DATA") or not folder.is_dir():
        pytest.skip("absent data: set LAB_TEST_DATA to a folder with trajectories/claude-code")
    return {path.stem: Document(path.name, path) for path in folder.iterdir()}


def test_real_sessions_are_read() -> None:
    documents = real_files()
    counts = {
        name: [turn.usage.total for turn in only(found_by(READER, documents[name])).turns]
        for name in ("simple_conversation", "tool_call_conversation", "compaction_session", "sample_session")
    }
    assert counts == {
        "simple_conversation": [120, 180],
        # 200 of the input beside 100 written to the cache and 50 read from it.
        "tool_call_conversation": [400, 290],
        "compaction_session": [115, 105],
        "sample_session": [None, None, None],
    }
    both = only(found_by(READER, documents["agent_session"], documents["agent-atest01"]))
    assert [turn.agent for turn in both.turns] == ["", "Explore", "Explore", ""]
    assert [turn.usage.total for turn in both.turns] == [130, 100, 160, 250]


def test_sessions_of_one_configuration_have_one_harness_wherever_they_were(tmp_path: Path) -> None:
    def worked_in(folder: str) -> Trajectory:
        lines = stream()
        lines[0] |= {"cwd": folder, "uuid": folder, "memory_paths": {"auto": f"{folder}/memory"}}
        return only(found_by(READER, lines_of(tmp_path, lines)))

    first, second = worked_in("/a"), worked_in("/b")
    assert first.harness == second.harness
    assert first.harness.config == {"tools": ["Bash"]}
    assert first.kept["init"] == {"cwd": "/a", "memory_paths": {"auto": "/a/memory"}}
