"""The reader of mini-swe-agent: runs of the program itself, real ones, and broken ones."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document, FormatError
from lab.engine.formats.detection import probe
from lab.engine.formats.mini_swe_agent import MiniSweAgent
from lab.engine.formats.trajectory import FailedRequest, Message, Problem, Trajectory, Turn
from tests.engine.formats.mutations import document_of, found_by, mutated, only, survives
from tests.owners import environment_with

READER = MiniSweAgent()
PROGRAM = "mini-swe-agent==2.4.6"
SAMPLES = Path(__file__).parent / "samples" / "mini_swe_agent"
MAKER = Path(__file__).parent / "makers" / "mini_swe_agent.py"
RUNS = ("native", "text", "responses", "unread", "limited", "overflowing")
REAL = "trajectories/mini-swe-agent"
ARCHIVE = f"{REAL}/swe-bench-verified-500.tar.zst"
MARKER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def sample(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((SAMPLES / f"{name}.traj.json").read_text())
    return value


def read_sample(name: str) -> Trajectory:
    return only(found_by(READER, Document(name, SAMPLES / f"{name}.traj.json")))


def read(folder: Path, value: Any) -> Trajectory:
    return only(found_by(READER, document_of(folder, value)))


def version_1(*messages: dict[str, Any], **info: Any) -> dict[str, Any]:
    """A file of version 1, whose agent reads commands from the text."""
    agent = {
        "system_template": "You mend.",
        "instance_template": "The task: {{task}}\n\nOne command a reply.\n",
        "timeout_template": "The command <command>{{action['action']}}</command> was stopped.",
        "format_error_template": "One command, please.",
        "action_observation_template": "<returncode>{{output.returncode}}</returncode>",
        "step_limit": 3,
        "cost_limit": 1.0,
    }
    config = {"agent": agent, "model": {"model_name": "some/model", "model_kwargs": {"temperature": 0}}}
    opening = [
        {"role": "system", "content": "You mend."},
        {"role": "user", "content": "The task: Mend it.\n\nOne command a reply."},
    ]
    told = {"exit_status": "Submitted", "submission": "", "mini_version": "1.15.0", "config": config, **info}
    return {
        "info": told,
        "messages": [*opening, *messages],
        "trajectory_format": "mini-swe-agent-1",
        "instance_id": "owner__project-2",
    }


def said(*commands: str, **response: Any) -> dict[str, Any]:
    blocks = "\n\n".join(f"```bash\n{command}\n```" for command in commands)
    extra = {"extra": {"response": response}} if response else {}
    return {"role": "assistant", "content": f"I think.\n\n{blocks}", **extra}


def told(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


# What the program itself wrote.


@pytest.mark.requires("package index")
def test_the_program_still_writes_what_the_samples_hold(tmp_path: Path) -> None:
    python = environment_with(PROGRAM)
    subprocess.run([python, MAKER, tmp_path], check=True, capture_output=True, timeout=300)
    for name in RUNS:
        written = json.loads((tmp_path / f"{name}.traj.json").read_text())
        assert normal(written) == sample(name), name


def normal(trajectory: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from one day and machine to another; times keep their order."""
    times = iter(range(1_800_000_000, 1_800_001_000))
    names = iter(range(1, 1000))

    def of(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: of(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [of(inner) for inner in value]
        if key in ("timestamp", "created") and value is not None:
            return next(times) + (0.5 if key == "timestamp" else 0)
        if key == "id" and str(value).startswith("chatcmpl-"):
            return f"chatcmpl-{next(names)}"
        fixed = {"cwd": "/workspace", "traceback": "Traceback (most recent call last):"}
        return fixed.get(key, value)

    found: dict[str, Any] = of(trajectory)
    return found


@pytest.mark.parametrize("name", RUNS)
def test_what_the_program_writes_is_recognised(name: str) -> None:
    document = Document("anything", SAMPLES / f"{name}.traj.json")
    assert READER.recognises(probe(document))


def test_native_calls_of_one_reply_have_their_results_and_the_last_one_its_submission() -> None:
    found = read_sample("native")
    first, second = found.turns
    assert [(call.id, call.arguments["command"], call.exit_code, call.output) for call in first.calls] == [
        ("call-a", "echo one", 0, "one\n"),
        ("call-b", "exit 3", 3, ""),
    ]
    assert first.calls[0].observation == "<returncode>0</returncode>\n<output>\none\n</output>"
    # Both results were written down after the second command, so the time is that one's alone.
    assert first.calls[0].ended_at is None
    assert first.calls[1].ended_at is not None
    (submitting,) = second.calls
    patch = "diff --git a/a.txt b/a.txt\n"
    assert (submitting.submitted, submitting.observation, submitting.message) == (True, patch, {})
    assert (found.exit_reason, found.native_reason, found.patch) == (ExitReason.AGENT, "Submitted", patch)
    assert (found.instance_id, found.statement) == ("owner__project-1", "Make it one.")
    assert (found.totals.cost, found.totals.calls) == (Decimal("2.0"), 2)
    assert [turn.cost_reported for turn in found.turns] == [Decimal("1.0"), Decimal("1.0")]
    assert (found.harness.name, found.harness.version, found.harness.family) == (
        "mini-swe-agent",
        "2.4.6",
        "mini",
    )
    assert found.limits == {"max_steps": 5, "max_cost_usd": 3, "max_format_errors": 3}


def test_a_command_in_the_text_that_was_stopped_is_told_apart_from_one_that_failed() -> None:
    found = read_sample("text")
    stopped, submitting = (call for turn in found.turns for call in turn.calls)
    assert (stopped.timed_out, stopped.failed, stopped.exit_code) == (True, True, None)
    assert (stopped.id, stopped.synthesised_id) == ("call_1_1", True)
    assert submitting.submitted
    # On a person's own machine an empty submission says nothing of the files.
    assert (found.patch, found.final_message) == (None, "")
    assert [turn.cost_reported for turn in found.turns] == [Decimal("0.25"), Decimal("0.5")]


def test_items_of_the_responses_api_become_chat_messages_and_are_kept_as_they_came() -> None:
    found = read_sample("responses")
    assert found.opening[1] == {"role": "user", "content": "The task:\nMake it one.\n\nWork in steps."}
    first, second = found.turns
    assert first.message["content"] == "Look."
    assert first.message["tool_calls"][0]["function"]["arguments"] == '{"command": "echo two"}'
    (call,) = first.calls
    assert (call.id, call.output, call.exit_code) == ("call-d", "two\n", 0)
    assert (call.message["role"], call.message["tool_call_id"]) == ("tool", "call-d")
    assert second.calls[0].submitted
    assert first.kept["response"]["output"] == sample("responses")["messages"][2]["output"]
    assert "messages[].output" in {note.field for note in found.notes}


def test_a_reply_that_was_not_understood_counts_with_its_usage_and_cost() -> None:
    found = read_sample("unread")
    assert [type(item) for item in found.items] == [Turn, Message] * 3
    turn = found.turns[0]
    assert turn.message == {}
    assert turn.kept["unread_reply"]["content"] == "I would rather talk."
    assert (turn.usage.input_total, turn.usage.output_total) == (10, 20)
    assert turn.cost_reported == Decimal("0.0000135")
    assert {item.reason for item in found.items if isinstance(item, Message)} == {"format_error"}
    assert found.exit_reason is ExitReason.FORMAT_ERRORS
    assert found.totals.calls == 3


def test_which_limit_ended_a_run_is_told_from_its_sums() -> None:
    found = read_sample("limited")
    assert (found.exit_reason, found.native_reason) == (ExitReason.MAX_TURNS, "LimitsExceeded")
    assert all(call.exit_code == 0 for turn in found.turns for call in turn.calls)
    assert found.model.name == "openai/gpt-4o-mini"
    # The server's name, with the provider of the configuration.
    assert found.turns[0].model == "openai/gpt-4o-mini"
    assert found.turns[0].kept["response"]["model"] == "gpt-4o-mini"
    assert found.model.sampling["temperature"] == 0.0
    assert found.harness.complete


def test_a_request_that_ended_the_run_is_a_failed_one() -> None:
    found = read_sample("overflowing")
    (failed,) = found.items
    assert isinstance(failed, FailedRequest)
    assert failed.error == "context_overflow"
    assert failed.message == found.error
    assert found.exit_reason is ExitReason.MAX_CONTEXT_LEN
    assert found.kept["traceback"].startswith("Traceback")


# Version 1, and lists.


def test_version_1_tells_commands_from_the_text_and_return_codes_from_the_observations(
    tmp_path: Path,
) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "cost": 0.25}
    found = read(
        tmp_path,
        version_1(
            said("ls", id="gen-1", model="some/model-0101", created=1_763_509_079, usage=usage),
            told("<returncode>2</returncode>\n<output>\n</output>"),
            said("ls", "pwd"),
            told("One command, please."),
            said("sleep 99"),
            told("The command <command>sleep 99</command> was stopped."),
            said(f"echo {MARKER} && git diff"),
            told("diff --git a/x b/x\n"),
            submission="diff --git a/x b/x\n",
        ),
    )
    first, unread, stopped, last = found.turns
    assert (first.calls[0].exit_code, first.usage.input_total, first.cost_reported) == (
        2,
        100,
        Decimal("0.25"),
    )
    assert (first.response_id, first.model) == ("gen-1", "some/model-0101")
    assert (unread.calls, unread.message["content"].count("```")) == ((), 4)
    assert [item.reason for item in found.items if isinstance(item, Message)] == ["format_error"]
    assert (stopped.calls[0].timed_out, stopped.calls[0].exit_code) == (True, None)
    assert (last.calls[0].submitted, last.calls[0].message) == (True, told("diff --git a/x b/x\n"))
    assert found.patch == "diff --git a/x b/x\n"
    assert found.statement == "Mend it."
    assert found.harness.complete
    assert unread.cost_reported is None
    assert unread.usage.input_total is None


@pytest.mark.parametrize(
    ("expression", "content", "command"),
    [
        (r"<do_it>(.*?)</do_it>", "Now: <do_it>ls</do_it>", "ls"),
        (r"```(?:sh)ell", "```bash\nls\n```", None),
        (r"```run_it\s*\n(.*?)\n```", "```run_it\npwd\n```", "pwd"),
    ],
)
def test_commands_are_found_by_the_tag_that_the_configuration_names(
    tmp_path: Path, expression: str, content: str, command: str | None
) -> None:
    value = version_1({"role": "assistant", "content": content}, told("a b"))
    value["info"]["config"]["agent"]["action_regex"] = expression
    (turn,) = read(tmp_path, value).turns
    assert [call.arguments["command"] for call in turn.calls] == ([command] if command else [])


def test_a_response_that_was_not_understood_is_kept_with_its_usage(tmp_path: Path) -> None:
    value = sample("responses")
    response = {
        "object": "response",
        "id": "resp-1",
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "content": [{"type": "output_text", "text": "I would"}]},
        ],
        "usage": {
            "input_tokens": 40,
            "output_tokens": 9,
            "total_tokens": 49,
            "input_tokens_details": {"cached_tokens": 30},
        },
    }
    value["messages"].insert(
        2,
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "No tool calls found."}],
            "extra": {"interrupt_type": "FormatError", "cost": 0.5, "response": response},
        },
    )
    found = read(tmp_path, value)
    turn, answer = found.items[:2]
    assert isinstance(turn, Turn)
    assert (turn.message, turn.reasoning, turn.finish_reason) == ({}, "Hm.", "length")
    assert turn.kept["unread_reply"] == {"role": "assistant", "content": "I would"}
    assert turn.kept["response"]["output"] == response["output"]
    assert (turn.usage.input_total, turn.usage.cache_read, turn.usage.output_total) == (40, 30, 9)
    assert answer == Message(
        message={"role": "user", "content": "No tool calls found."}, reason="format_error"
    )


def test_the_first_files_name_neither_format_nor_version(tmp_path: Path) -> None:
    whole = version_1(said("ls"), told("a b"))
    info = {"exit_status": "Submitted", "submission": "", "model_stats": {"instance_cost": 0.5}}
    value = {"info": info, "messages": whole["messages"]}
    document = document_of(tmp_path, value)
    assert READER.recognises(probe(document))
    found = only(found_by(READER, document))
    assert (found.exit_reason, found.totals.cost, found.patch) == (ExitReason.AGENT, Decimal("0.5"), None)
    assert [call.arguments["command"] for turn in found.turns for call in turn.calls] == ["ls"]


@pytest.mark.parametrize(
    ("status", "submission", "reason", "patch", "error"),
    [
        ("Submitted", "", ExitReason.AGENT, "", ""),
        ("LimitsExceeded", "", None, "", ""),
        ("RateLimitError", "slow down", ExitReason.LLM_QUERY_ERROR, None, "slow down"),
        ("ZeroDivisionError", "division by zero", None, None, "division by zero"),
    ],
)
def test_an_exception_in_place_of_a_submission_is_an_error_and_no_patch(
    tmp_path: Path, status: str, submission: str, reason: ExitReason | None, patch: str | None, error: str
) -> None:
    value = version_1(said("ls"), told("a b"), exit_status=status, submission=submission)
    found = read(tmp_path, value)
    assert (found.exit_reason, found.native_reason) == (reason, status)
    assert (found.patch, found.error) == (patch, error)


def test_an_exit_status_that_the_lab_has_no_word_for_is_kept_with_a_note(tmp_path: Path) -> None:
    found = read(tmp_path, version_1(exit_status="OutOfCoffee"))
    assert (found.exit_reason, found.native_reason) == (None, "OutOfCoffee")
    assert ("lost", "info.exit_status") in {(note.kind, note.field) for note in found.notes}


def test_a_cost_of_zero_is_unknown(tmp_path: Path) -> None:
    reply = said("ls")
    reply["extra"] = {"cost": 0.0}
    found = read(tmp_path, version_1(reply, told("a"), model_stats={"instance_cost": 0.0, "api_calls": 1}))
    assert found.turns[0].cost_reported is None
    assert found.totals.cost is None
    assert "messages[].extra.cost" in {note.field for note in found.notes}


def test_a_run_without_an_exit_status_is_still_going_on(tmp_path: Path) -> None:
    value = sample("native")
    value["info"]["exit_status"] = value["info"]["submission"] = ""
    value["messages"] = value["messages"][:5]
    found = read(tmp_path, value)
    assert (found.partial, found.exit_reason, found.patch) == (True, None, None)
    assert found.items == read_sample("native").items[:1]
    value["messages"] = sample("native")["messages"][:-1]
    assert read(tmp_path, value).origin.sha256 == found.origin.sha256
    value["messages"][2]["extra"]["timestamp"] += 1
    assert read(tmp_path, value).origin.sha256 != found.origin.sha256


def test_what_a_person_said_is_told_apart_from_the_harness(tmp_path: Path) -> None:
    value = sample("native")
    rejected = {
        "role": "user",
        "content": "Commands not executed.",
        "extra": {"interrupt_type": "UserRejection"},
    }
    command = {
        "role": "user",
        "content": "User command: ls",
        "extra": {"actions": [{"command": "ls"}]},
    }
    value["messages"][5:5] = [rejected, command]
    messages = [item for item in read(tmp_path, value).items if isinstance(item, Message)]
    assert [(one.by, one.reason) for one in messages] == [("person", "UserRejection"), ("person", "")]
    assert messages[1].kept == {"actions": [{"command": "ls"}]}


def test_what_the_labs_own_export_adds_is_understood(tmp_path: Path) -> None:
    value = sample("text")
    value["messages"][2]["extra"]["actions"][0]["tool_call_id"] = "own-1"
    unread = {"role": "assistant", "content": "Hm.", "extra": {"actions": [], "left_out": True}}
    value["messages"].insert(2, unread)
    left_out, called, _ = read(tmp_path, value).turns
    assert (left_out.message, left_out.kept) == (
        {},
        {"unread_reply": {"role": "assistant", "content": "Hm."}},
    )
    assert [(call.id, call.synthesised_id) for call in called.calls] == [("own-1", False)]


def test_keys_in_a_configuration_are_not_taken_over(tmp_path: Path) -> None:
    value = version_1()
    key = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3
    value["info"]["config"]["environment"] = {"env": {"OPENAI_API_KEY": key}}
    value["info"]["config"]["model"]["model_kwargs"]["api_key"] = key
    assert key not in repr(read(tmp_path, value))


def test_the_old_shape_is_a_list_that_speaks_of_the_marker(tmp_path: Path) -> None:
    prompt = told(f"Please solve this issue: Mend it.\n\nYou can execute bash commands; `echo {MARKER}`")
    talk = [{"role": "system", "content": "You mend."}, prompt, said("ls"), told("a b")]
    assert READER.recognises(probe(document_of(tmp_path, talk)))
    assert not READER.recognises(probe(document_of(tmp_path, [told("Hello"), said("ls")])))
    found = read(tmp_path, talk)
    assert (found.statement, found.exit_reason, found.native_reason) == ("Mend it.", None, "")
    assert found.origin.format == "mini-swe-agent-list"


def test_a_message_that_is_none_is_a_problem_and_the_rest_is_read(tmp_path: Path) -> None:
    value = version_1(said("ls"), told("a b"))
    value["messages"].insert(2, "what?")
    found = found_by(READER, document_of(tmp_path, value))
    assert [one for one in found if isinstance(one, Problem)] == [
        Problem(file="document.json", place="message 3", message="is no object")
    ]
    assert len(found) == 2


def test_a_document_without_messages_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"document\.json has no list `messages`"):
        read(tmp_path, {"trajectory_format": "mini-swe-agent-1.1", "messages": {}})


@pytest.mark.parametrize("place", ["config", "message", "usage"])
def test_what_is_nested_too_deeply_is_refused_and_nothing_else_happens(tmp_path: Path, place: str) -> None:
    deep: Any = "end"
    for _ in range(850):
        deep = [deep]
    value = version_1(said("ls", usage=deep if place == "usage" else {}), told("a b"))
    if place == "config":
        value["info"]["config"]["agent"]["more"] = deep
    elif place == "message":
        value["messages"][2]["content"] = [{"text": deep}]
    assert survives(READER, document_of(tmp_path, value))


# Generated documents.

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="`<\r"), max_size=30)
COMMANDS = WORDS.map(str.strip).filter(bool)


@given(st.lists(st.tuples(COMMANDS, st.integers(0, 255), WORDS), max_size=6))
def test_commands_return_codes_and_outputs_are_read_as_they_were_written(
    steps: list[tuple[str, int, str]],
) -> None:
    messages = []
    for command, code, output in steps:
        messages += [said(command), told(f"<returncode>{code}</returncode>\n<output>\n{output}</output>")]
    with tempfile.TemporaryDirectory() as folder:
        found = read(Path(folder), version_1(*messages, exit_status="", submission=None))
    calls = [call for turn in found.turns for call in turn.calls]
    assert [(call.arguments["command"], call.exit_code) for call in calls] == [
        (command, code) for command, code, _ in steps
    ]
    assert [call.message for call in calls] == messages[1::2]
    assert [turn.message for turn in found.turns] == messages[::2]


BROKEN = st.sampled_from([*map(sample, RUNS), version_1(said("ls"), told("a"))]).flatmap(mutated)


@given(BROKEN)
def test_broken_documents_give_what_is_left_of_them(value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        document = document_of(Path(folder), value)
        assert survives(READER, document)
        if READER.recognises(probe(document)):
            assert repr(found_or_none(document)) == repr(found_or_none(document))


def found_or_none(document: Document) -> list[Any] | None:
    try:
        return list(READER.read([document]))
    except FormatError:
        return None


@given(st.sampled_from(RUNS), st.integers(2, 8))
def test_a_file_that_grows_keeps_what_it_had(name: str, end: int) -> None:
    whole = sample(name)
    part = copy.deepcopy(whole)
    part["messages"] = part["messages"][:end]
    part["info"] |= {"exit_status": "", "submission": ""}
    # The program writes the file after whole steps.
    if part["messages"] and calls_of(part["messages"][-1]):
        part["messages"].pop()
    with tempfile.TemporaryDirectory() as folder:
        found = read(Path(folder), part)
    before = found.items[:-1]
    assert before == read_sample(name).items[: len(before)]


def calls_of(message: dict[str, Any]) -> list[Any]:
    found: list[Any] = (message.get("extra") or {}).get("actions") or []
    return found


# Real files.


def real(path: str) -> Path:
    data = os.environ.get("LAB_TEST_DATA")
    if not data or not Path(data, path).exists():
        pytest.skip(f"absent data: set LAB_TEST_DATA to a folder with {path}")
    return Path(data, path)


@pytest.mark.parametrize(
    ("name", "messages", "commands", "patched"), [("github_issue", 22, 10, True), ("local", 6, 2, False)]
)
def test_real_lists_of_messages_are_read_whole(
    name: str, messages: int, commands: int, patched: bool
) -> None:
    path = real(f"{REAL}/{name}.traj.json")
    document = Document("x", path)
    assert READER.recognises(probe(document))
    found = only(found_by(READER, document))
    calls = [call for turn in found.turns for call in turn.calls]
    assert len(json.loads(path.read_text())) == messages == len(found.opening) + 2 * len(found.turns)
    assert len(calls) == commands
    assert [call.submitted for call in calls] == [False] * (commands - 1) + [True]
    assert all(call.observation is not None for call in calls)
    assert (found.exit_reason, found.patch is not None) == (ExitReason.AGENT, patched)
    assert found.statement


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verified")
    command = ["zstd", "-dcq", str(real(ARCHIVE))]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as unpacking,
        tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive,
    ):
        archive.extractall(folder, filter="data")
    return folder


def trajectories(folder: Path) -> Iterator[Trajectory]:
    for path in sorted(folder.rglob("*.traj.json")):
        yield only(found_by(READER, Document(path.name, path)))


@pytest.mark.long
def test_500_real_runs_have_the_calls_the_spend_and_the_endings_that_are_known(unpacked: Path) -> None:
    runs = turns = commands = unread = stopped = 0
    spent = reported = Decimal(0)
    harnesses: set[str] = set()
    for found in trajectories(unpacked):
        runs += 1
        turns += len(found.turns)
        spent += sum((turn.cost_reported or Decimal(0) for turn in found.turns), Decimal(0))
        reported += found.totals.cost or Decimal(0)
        calls = [call for turn in found.turns for call in turn.calls]
        commands += len(calls)
        unread += sum(
            1 for item in found.items if isinstance(item, Message) and item.reason == "format_error"
        )
        stopped += sum(call.timed_out for call in calls)
        assert {turn.model for turn in found.turns} == {"google/gemini-3-pro-preview"}
        harnesses.add(json.dumps([found.harness.config, found.harness.version, found.model.name]))
        assert (found.exit_reason, found.totals.calls) == (ExitReason.AGENT, len(found.turns))
        assert found.patch is not None
        assert found.statement
        assert all(turn.usage.input_total is not None for turn in found.turns)
        assert [call.submitted for call in calls] == [False] * (len(calls) - 1) + [True]
        assert all(call.exit_code is not None for call in calls if not call.timed_out and not call.submitted)
    assert (runs, turns, commands, unread, stopped) == (500, 20_163, 19_479, 684, 26)
    assert f"{spent:.6f}" == f"{reported:.6f}" == "229.978759"
    assert len(harnesses) == 1
