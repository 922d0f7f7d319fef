"""Logs of Inspect, as Inspect itself writes them, of older versions, and broken ones."""

from __future__ import annotations

import copy
import io
import itertools
import json
import os
import re
import subprocess
import tempfile
import time
import tracemalloc
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.errors import ExitReason
from lab.engine.formats import zip_members
from lab.engine.formats.base import Document, FormatError
from lab.engine.formats.detection import probe
from lab.engine.formats.inspect_log import InspectLog
from lab.engine.formats.trajectory import (
    Aside,
    FailedRequest,
    Message,
    Problem,
    Rewritten,
    Trajectory,
)
from lab.engine.verify.base import Outcome
from tests.engine.formats.mutations import document_of, found_by, mutated, only, survives
from tests.owners import environment_with

READER = InspectLog()
FORMATS = Path(__file__).parent
SAMPLES = FORMATS / "samples" / "inspect_ai"
MAKER = FORMATS / "makers" / "inspect_ai_logs.py"
PROGRAM = "inspect_ai==0.3.285"
LOGS = ("colours", "endless", "breaking", "delegating")


def sample_log(name: str) -> Document:
    return Document(f"{name}.eval", SAMPLES / f"{name}.eval")


def read_log(name: str) -> list[Trajectory]:
    found = found_by(READER, sample_log(name))
    assert all(isinstance(one, Trajectory) for one in found)
    return [one for one in found if isinstance(one, Trajectory)]


def members(path: Path) -> dict[str, Any]:
    with zip_members.opened(path) as archive:
        return {
            member.filename: json.loads(zip_members.content(archive, member, most=10**8))
            for member in archive.infolist()
        }


def as_json(name: str) -> dict[str, Any]:
    """The same log in Inspect's JSON form: its header with the samples in it."""
    parts = members(SAMPLES / f"{name}.eval")
    samples = [value for part, value in parts.items() if part.startswith("samples/")]
    return {**parts["header.json"], "samples": samples}


def log_of(*samples: dict[str, Any], **header: Any) -> dict[str, Any]:
    spec = {"task": "sums", "model": "openai/gpt-4o", "packages": {"inspect_ai": "0.3.58"}, "config": {}}
    return {"version": 2, "status": "success", "eval": spec, "samples": list(samples), **header}


def read_one(tmp_path: Path, sample: dict[str, Any], **header: Any) -> Trajectory:
    return only(found_by(READER, document_of(tmp_path, log_of(sample, **header))))


def model_event(sent: list[dict[str, Any]], answer: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    choices = [{"message": answer, "stop_reason": "stop"}] if answer else []
    return {
        "event": "model", "model": "openai/gpt-4o", "input": sent, "tools": [], "config": {},
        "timestamp": "2025-01-01T00:00:01+00:00", "completed": "2025-01-01T00:00:03+00:00",
        "output": {"model": "gpt-4o-2024", "choices": choices}, **more,
    }  # fmt: skip


def user(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def assistant(content: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **more}


# What the program itself wrote.


@pytest.mark.requires("package index")
def test_the_program_still_writes_what_the_samples_hold(tmp_path: Path) -> None:
    python = environment_with(PROGRAM)
    subprocess.run([python, MAKER, tmp_path], check=True, capture_output=True, timeout=300, cwd=tmp_path)
    for name in LOGS:
        assert normal(members(tmp_path / f"{name}.eval")) == normal(members(SAMPLES / f"{name}.eval")), name
    packed = found_by(READER, Document("colours.eval", tmp_path / "colours.eval"))
    plain = found_by(READER, Document("colours.json", tmp_path / "colours.json"))
    assert [told(one) for one in packed] == [told(one) for one in plain]


def told(found: object) -> object:
    assert isinstance(found, Trajectory)
    calls = [(call.name, call.arguments, call.observation) for turn in found.turns for call in turn.calls]
    usages = [turn.usage.model_copy(update={"raw": None}) for turn in found.turns]
    return found.instance_id, found.seed, found.opening, calls, usages, found.exit_reason, found.final_message


VOLATILE = re.compile(r"[A-Za-z0-9]{22}|\d{4}-\d\d-\d\dT\d\d:\d\d:[\d.]+(\+00:00|Z)?")


def normal(value: Any) -> Any:
    """Without what differs from one day and machine to another."""
    if isinstance(value, dict):
        named = {VOLATILE.sub("id", name): normal(inner) for name, inner in value.items()}
        return {name: inner for name, inner in named.items() if not name.startswith("traceback")}
    if isinstance(value, list):
        return [normal(inner) for inner in value]
    if isinstance(value, str):
        return VOLATILE.sub("id", value)
    return 0.0 if isinstance(value, float) else value


@pytest.mark.parametrize("name", LOGS)
def test_logs_are_recognised_by_what_is_in_them(name: str, tmp_path: Path) -> None:
    assert READER.recognises(probe(sample_log(name)))
    assert READER.recognises(probe(document_of(tmp_path, as_json(name))))


def test_each_epoch_of_a_sample_is_a_trajectory_with_calls_usage_and_money() -> None:
    first, second = read_log("colours")
    assert (first.instance_id, first.seed, second.instance_id, second.seed) == ("sky-1", 1, "sky-1", 2)
    assert first.statement.startswith("What colour is the sky? Look well.")
    assert [message["role"] for message in first.opening] == ["system", "user"]
    # Long texts are kept once and put back where they stood.
    assert first.opening[1]["content"] == first.statement
    assert [tool["function"]["name"] for tool in first.tools] == ["look"]

    looking, failing, answering = first.turns
    assert (looking.reasoning, looking.message["content"]) == ("Which file?", "Let me see.")
    assert looking.kept["message"]["reasoning"][0]["signature"] == "sig"
    usage = looking.usage
    assert (usage.input_total, usage.input_uncached, usage.cache_read, usage.cache_write) == (150, 100, 50, 0)
    assert (usage.output_total, usage.reasoning) == (20, 5)
    assert usage.raw is not None
    assert usage.raw["input_tokens"] == 100
    assert looking.cost_reported == Decimal("0.25")
    assert failing.cost_reported is None
    assert looking.started_at is not None
    assert looking.ended_at is not None
    (call,) = looking.calls
    assert (call.id, call.name, call.arguments) == ("call_a", "look", {"path": "a.txt"})
    assert call.observation == "contents of a.txt " + "x" * 200
    assert call.message == {"role": "tool", "tool_call_id": "call_a", "content": call.observation}
    assert call.started_at is not None
    assert call.seconds is not None
    (wrong,) = failing.calls
    assert (wrong.observation, wrong.failed, wrong.timed_out) == ("missing", True, False)
    assert wrong.kept["message"]["error"]["type"] == "file_not_found"

    assert (answering.finish_reason, first.final_message) == ("stop", "The answer is blue.")
    (grading,) = first.gradings
    assert (grading.rule, grading.outcome, grading.rewards) == (
        "inspect:includes",
        Outcome.RESOLVED,
        {"includes": 1.0},
    )
    assert grading.at is not None
    assert (first.exit_reason, first.native_reason) == (ExitReason.AGENT, "stop")
    assert (first.totals.cost, first.totals.input_tokens, first.totals.output_tokens) == (
        Decimal("0.25"),
        650,
        36,
    )
    assert (first.harness.name, first.harness.version) == ("inspect_ai", "0.3.285")
    assert (first.model.provider, first.model.name) == ("mockllm", "model")
    assert first.origin.place == "samples/sky-1_epoch_1.json"


def test_a_limit_is_the_exit_reason_and_all_limits_are_there() -> None:
    (found,) = read_log("endless")
    assert (found.instance_id, found.exit_reason, found.native_reason) == (
        "endless/1",
        ExitReason.MAX_TURNS,
        "message",
    )
    assert found.limits["message_limit"] == 6
    assert len(found.turns) == 3
    # The last call was made, and the limit came before its result joined the conversation.
    assert all(call.observation for turn in found.turns for call in turn.calls)
    assert found.gradings[0].outcome is Outcome.UNRESOLVED
    assert [note.field for note in found.notes if note.kind == "guessed"] == ["id"]


def test_a_sample_whose_model_broke_has_a_failed_request_and_the_other_is_read() -> None:
    broken, works = read_log("breaking")
    assert (broken.exit_reason, broken.native_reason) == (ExitReason.LLM_QUERY_ERROR, "error")
    assert "the server is gone" in broken.error
    (failure,) = [item for item in broken.items if isinstance(item, FailedRequest)]
    assert "the server is gone" in failure.message
    assert (broken.turns, broken.gradings) == ((), ())
    assert works.turns[0].message == {"role": "assistant", "content": "fine"}


def test_a_subagent_is_told_apart_and_a_scorers_model_is_no_turn() -> None:
    (found,) = read_log("delegating")
    assert [turn.agent for turn in found.turns] == ["", "helper", "helper", ""]
    inner = found.turns[1]
    assert [message["content"] for message in inner.kept["opening"]][-1] == "Find it."
    assert inner.calls[0].observation == "contents of inner " + "x" * 200
    assert found.turns[0].calls[0].observation == "Let me see.\n\nIt is inside."
    assert not [item for item in found.items if isinstance(item, Message | Rewritten)]
    asides = [item.name for item in found.items if isinstance(item, Aside)]
    assert asides.count("model call of a scorer") == 1
    assert [(one.rule, one.outcome, one.rewards) for one in found.gradings] == [
        ("inspect:includes", Outcome.RESOLVED, {"includes": 1.0}),
        ("inspect:model_graded_qa", Outcome.RESOLVED, {"model_graded_qa": 1.0}),
        ("inspect:length", Outcome.UNPARSED, {"length": 0.25}),
    ]
    assert found.gradings[2].log == "a quarter"
    assert found.gradings[2].kept["metadata"] == {"words": 3}
    assert found.exit_reason is ExitReason.AGENT


@pytest.mark.parametrize("name", LOGS)
def test_a_log_reads_the_same_as_json_and_each_time(name: str, tmp_path: Path) -> None:
    assert read_log(name) == read_log(name)
    plain = found_by(READER, document_of(tmp_path, as_json(name)))
    assert [told(one) for one in plain] == [told(one) for one in read_log(name)]


# What other versions wrote.


def test_messages_alone_are_a_trajectory_without_times(tmp_path: Path) -> None:
    call = {"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}, "type": "function"}
    messages = [
        {"role": "system", "content": "Be brief."},
        user("List."),
        assistant("", call),
        {"role": "tool", "content": "a\nb", "tool_call_id": "c1", "function": "bash"},
        user("Now stop.", source="operator"),
        assistant("Two files."),
    ]
    sample = {
        "id": "x",
        "epoch": 1,
        "input": "List.",
        "messages": messages,
        "scores": {"exact": {"value": "N"}},
    }
    found = read_one(tmp_path, sample)
    assert [message["role"] for message in found.opening] == ["system", "user"]
    first, second = found.turns
    assert (first.calls[0].observation, first.calls[0].arguments) == ("a\nb", {"cmd": "ls"})
    assert first.message["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"cmd": "ls"}'}
    (between,) = [item for item in found.items if isinstance(item, Message)]
    assert (between.by, between.message["content"]) == ("person", "Now stop.")
    assert (second.usage.total, second.started_at, found.exit_reason) == (None, None, None)
    assert ("missing", "events") in [(note.kind, note.field) for note in found.notes]
    assert (found.gradings[0].outcome, found.gradings[0].detail) == (Outcome.UNRESOLVED, "no answer")


def test_a_history_that_is_not_the_earlier_one_grown_is_a_rewriting(tmp_path: Path) -> None:
    opening, answer = [user("Start.", id="m1")], assistant("One.", id="m2")
    shortened = [user("Summary of all.", id="m9")]
    events = [
        model_event(opening, answer),
        {"event": "compaction", "type": "trim", "timestamp": "2025-01-01T00:00:04+00:00"},
        model_event(shortened, assistant("Two.", id="m3")),
        model_event([*shortened, assistant("Two.", id="m3"), user("More.")], assistant("Three.")),
    ]
    found = read_one(tmp_path, {"id": "x", "epoch": 1, "input": "Start.", "events": events})
    (rewriting,) = [item for item in found.items if isinstance(item, Rewritten)]
    assert rewriting.reason == "compaction (trim)"
    assert rewriting.messages == ({"role": "user", "content": "Summary of all."},)
    (added,) = [item for item in found.items if isinstance(item, Message)]
    assert added.message == {"role": "user", "content": "More."}
    assert [turn.message["content"] for turn in found.turns] == ["One.", "Two.", "Three."]


def test_what_was_said_after_the_last_answer_is_in_the_samples_own_messages(tmp_path: Path) -> None:
    call = {"id": "c1", "function": "bash", "arguments": {}}
    opening, answer = user("Start.", id="m1"), assistant("One.", call, id="m2")
    messages = [
        user("Put in by a solver.", id="m0"),
        opening,
        answer,
        {"role": "tool", "content": "cut", "tool_call_id": "c1", "id": "m3"},
        user("Well done.", id="m4"),
    ]
    events = [
        model_event([opening], answer),
        {"event": "tool", "id": "c1", "function": "bash", "arguments": {}, "result": "cut short"},
    ]
    sample = {"id": "x", "epoch": 1, "input": "Start.", "events": events, "messages": messages}
    found = read_one(tmp_path, sample)
    (done,) = found.turns[0].calls
    assert (done.observation, done.output, done.message["content"]) == ("cut", "cut short", "cut")
    (message,) = [item for item in found.items if isinstance(item, Message)]
    assert message.message["content"] == "Well done."
    (aside,) = [item for item in found.items if isinstance(item, Aside)]
    assert [one["content"] for one in aside.kept["messages"]] == ["Put in by a solver."]


def test_tries_that_failed_cached_answers_and_calls_that_were_not_understood_are_said(tmp_path: Path) -> None:
    call = {"id": "c1", "function": "bash", "arguments": {}, "parse_error": "Error parsing: {cmd"}
    events = [
        model_event([user("Go.")], assistant("", call), retries=2, cache="read"),
        {"event": "tool", "id": "c1", "function": "bash", "arguments": {}, "result": "",
         "error": {"type": "timeout", "message": "took too long"}},
    ]  # fmt: skip
    found = read_one(tmp_path, {"id": "x", "epoch": 1, "input": "Go.", "events": events})
    assert len([item for item in found.items if isinstance(item, FailedRequest)]) == 2
    (turn,) = found.turns
    assert (turn.copied, turn.calls[0].malformed) == (True, "Error parsing: {cmd")
    assert (turn.calls[0].observation, turn.calls[0].timed_out) == ("took too long", True)
    assert "events.model.retries" in [note.field for note in found.notes]


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}, (9, None, None, 1)),
        (
            {"input_tokens": 9, "output_tokens": 1, "total_tokens": 14, "input_tokens_cache_read": 4},
            (13, 9, 4, 1),
        ),
        # The first versions counted what came from a cache within the input.
        (
            {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10, "input_tokens_cache_read": 4},
            (9, 5, 4, 1),
        ),
        ({}, (None, None, None, None)),
    ],
)
def test_cached_tokens_are_counted_once(
    usage: dict[str, int], counts: tuple[int | None, ...], tmp_path: Path
) -> None:
    event = model_event([user("Go.")], assistant("Done."))
    event["output"]["usage"] = usage
    found = read_one(tmp_path, {"id": "x", "epoch": 1, "input": "Go.", "events": [event]}).turns[0].usage
    assert (found.input_total, found.input_uncached, found.cache_read, found.output_total) == counts


@pytest.mark.parametrize(
    ("value", "outcome", "rewards"),
    [
        ("C", Outcome.RESOLVED, {"s": 1.0}),
        ("I", Outcome.UNRESOLVED, {"s": 0.0}),
        ("P", Outcome.UNRESOLVED, {"s": 0.5}),
        (True, Outcome.RESOLVED, {"s": 1.0}),
        (1, Outcome.RESOLVED, {"s": 1.0}),
        (0.0, Outcome.UNRESOLVED, {"s": 0.0}),
        (7, Outcome.UNPARSED, {"s": 7.0}),
        ("excellent", Outcome.UNPARSED, {}),
        ({"style": 0.5, "right": "C", "word": "x"}, Outcome.UNPARSED, {"style": 0.5, "right": 1.0}),
        (None, Outcome.UNPARSED, {}),
    ],
)
def test_a_score_is_a_verdict_only_where_it_says_so(
    value: Any, outcome: Outcome, rewards: dict[str, float], tmp_path: Path
) -> None:
    sample = {"id": "x", "epoch": 1, "input": "Go.", "messages": [], "scores": {"s": {"value": value}}}
    (grading,) = read_one(tmp_path, sample).gradings
    assert (grading.outcome, grading.rewards, grading.kept["value"]) == (outcome, rewards, value)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [("context", ExitReason.MAX_CONTEXT_LEN), ("token", ExitReason.MAX_TOKENS_TOTAL), ("custom", None)],
)
def test_limits_have_the_labs_names_where_it_has_one(
    limit: str, reason: ExitReason | None, tmp_path: Path
) -> None:
    sample = {"id": "x", "epoch": 1, "input": "Go.", "messages": [], "limit": {"type": limit, "limit": 1}}
    found = read_one(tmp_path, sample)
    assert (found.exit_reason, found.native_reason) == (reason, limit)


# Broken ones.


def packed(parts: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def raw_parts(name: str) -> dict[str, bytes]:
    return {part: json.dumps(value).encode() for part, value in members(SAMPLES / f"{name}.eval").items()}


def test_a_log_that_is_still_being_written_has_its_finished_samples(tmp_path: Path) -> None:
    parts = {part: content for part, content in raw_parts("breaking").items() if "header" not in part}
    local = tmp_path / "running"
    local.write_bytes(packed(parts))
    assert READER.recognises(probe(Document("running", local)))
    assert len(found_by(READER, Document("running", local))) == 2


def test_broken_members_are_problems_and_the_rest_is_read(tmp_path: Path) -> None:
    parts = raw_parts("breaking")
    parts["samples/cut.json"] = parts["samples/works_epoch_1.json"][:500]
    parts["samples/list.json"] = b"[]"
    parts["samples/latin.json"] = b'"\xff"'
    parts["samples/deep.json"] = b"[" * 200_000
    parts["samples/digits.json"] = b"9" * 5000
    local = tmp_path / "broken"
    local.write_bytes(packed(parts))
    found = found_by(READER, Document("broken", local))
    assert len([one for one in found if isinstance(one, Trajectory)]) == 2
    problems = {one.place: one.message for one in found if isinstance(one, Problem)}
    assert set(problems) == {f"samples/{name}.json" for name in ("cut", "list", "latin", "deep", "digits")}
    assert problems["samples/list.json"] == "is a list and no sample"


def test_a_damaged_header_is_read_from_the_journal(tmp_path: Path) -> None:
    parts = {**raw_parts("colours"), "header.json": b"{"}
    local = tmp_path / "damaged"
    local.write_bytes(packed(parts))
    found = found_by(READER, Document("damaged", local))
    assert [type(one) for one in found] == [Problem, Trajectory, Trajectory]


def test_a_log_without_any_header_is_refused_with_the_way_out(tmp_path: Path) -> None:
    parts = {part: content for part, content in raw_parts("colours").items() if part.startswith("samples/")}
    local = tmp_path / "headless"
    local.write_bytes(packed(parts))
    with pytest.raises(FormatError, match=r"headless has neither .* “inspect log recover”"):
        found_by(READER, Document("headless", local))


def test_a_flipped_byte_is_found(tmp_path: Path) -> None:
    data = bytearray((SAMPLES / "colours.eval").read_bytes())
    with zip_members.opened(SAMPLES / "colours.eval") as archive:
        member = archive.getinfo("samples/sky-1_epoch_1.json")
    data[member.header_offset + 30 + len(member.filename) + member.compress_size // 2] ^= 0x01
    local = tmp_path / "flipped"
    local.write_bytes(data)
    problem, whole = found_by(READER, Document("flipped", local))
    assert isinstance(problem, Problem)
    assert problem.message.startswith(("is damaged", "has "))
    assert isinstance(whole, Trajectory)


TEXTS = st.text(max_size=20)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 10**6) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@given(
    st.lists(
        st.tuples(TEXTS, st.dictionaries(TEXTS, JSON_VALUES, max_size=3), TEXTS, st.integers(0, 10**6)),
        min_size=1,
        max_size=5,
    )
)
def test_what_is_written_is_read_back(rounds: list[tuple[str, dict[str, Any], str, int]]) -> None:
    sent, events = [user("Go.")], []
    for number, (said, arguments, result, tokens) in enumerate(rounds):
        call = {"id": f"c{number}", "function": "tool", "arguments": arguments, "type": "function"}
        answer = assistant(said, call)
        event = model_event(list(sent), answer)
        event["output"]["usage"] = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
        reply = {"role": "tool", "content": result, "tool_call_id": f"c{number}", "function": "tool"}
        events += [event, {"event": "tool", **call, "result": result}]
        sent += [answer, reply]
    with tempfile.TemporaryDirectory() as folder:
        found = read_one(Path(folder), {"id": "x", "epoch": 3, "input": "Go.", "events": events})
    assert found.seed == 3
    assert [
        (turn.message["content"], turn.calls[0].arguments, turn.calls[0].observation, turn.usage.input_total)
        for turn in found.turns
    ] == rounds
    assert not [item for item in found.items if isinstance(item, Message | Rewritten)]


@given(st.data())
def test_broken_documents_are_never_an_unexpected_error(data: st.DataObject) -> None:
    log = copy.deepcopy(as_json(data.draw(st.sampled_from(LOGS))))
    with tempfile.TemporaryDirectory() as folder:
        assert survives(READER, document_of(Path(folder), data.draw(mutated(log))))


# Long ones, and real ones.


@pytest.mark.requires("package index")
def test_a_long_log_is_read_a_sample_at_a_time_and_as_fast_as_inspect_reads_it(tmp_path: Path) -> None:
    python = environment_with(PROGRAM)
    subprocess.run([python, MAKER, tmp_path, "1"], check=True, capture_output=True, timeout=300, cwd=tmp_path)
    parts = members(tmp_path / "long.eval")
    sample = parts.pop("samples/sample-0_epoch_1.json")
    written = {part: json.dumps(value).encode() for part, value in parts.items()}
    for number in range(100):
        copied = {**sample, "id": f"sample-{number}"}
        written[f"samples/sample-{number}_epoch_1.json"] = json.dumps(copied).encode()
    log = tmp_path / "hundred.eval"
    log.write_bytes(packed(written))
    theirs = (
        "import sys, time; from inspect_ai.log import read_eval_log; t = time.perf_counter(); "
        "assert len(read_eval_log(sys.argv[1]).samples) == 100; print(time.perf_counter() - t)"
    )
    done = subprocess.run([python, "-c", theirs, log], check=True, capture_output=True, text=True)

    began = time.perf_counter()
    found = sum(isinstance(one, Trajectory) for one in READER.read([Document("long.eval", log)]))
    took = time.perf_counter() - began

    assert found == 100
    assert took < 2 * float(done.stdout) + 1
    tracemalloc.start()
    for _ in itertools.islice(READER.read([Document("long.eval", log)]), 20):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All hundred of them would be thirty times as much.
    assert peak < 10 * len(json.dumps(sample))


def test_real_logs_are_read() -> None:
    folder = Path(os.environ.get("LAB_TEST_DATA", ""), "trajectories/inspect")
    if not os.environ.get("LAB_TEST_DATA") or not folder.is_dir():
        pytest.skip("absent data: set LAB_TEST_DATA to a folder with trajectories/inspect")
    found = {path.name: only(found_by(READER, Document(path.name, path))) for path in folder.iterdir()}
    browsing = found["browser.json"]
    calls = [call for turn in browsing.turns for call in turn.calls]
    assert (len(browsing.turns), len(calls), len(browsing.tools)) == (5, 4, 8)
    assert all(call.observation for call in calls)
    assert browsing.gradings[0].outcome is Outcome.RESOLVED
    assert (
        sum(turn.usage.input_total or 0 for turn in browsing.turns) == browsing.totals.input_tokens == 15235
    )
    wrong = [item for item in found["log_tool_call_error.json"].items if isinstance(item, Message)]
    assert len(wrong) == 11
    assert wrong[1].kept["error"]["type"] == "timeout"
    assert found["log_formats.eval"].gradings[0].outcome is Outcome.UNRESOLVED
    assert found["log_read_sample.eval"].gradings[0].outcome is Outcome.RESOLVED


def test_logs_of_one_plan_have_one_harness_though_each_names_its_browser_anew(tmp_path: Path) -> None:
    def browsing(instance: str) -> Trajectory:
        tool = {"type": "tool", "name": "web_browser_go", "params": {"instance": instance, "visible": True}}
        steps = [{"solver": "use_tools", "params": {"tools": [[tool]]}}]
        return read_one(tmp_path, {"id": 1, "epoch": 1, "messages": [user("Go.")]}, plan={"steps": steps})

    first, second = browsing("4g6KtU22C8DUjmbCoiJCfR"), browsing("another")
    assert first.harness == second.harness
    assert '"visible": true' in json.dumps(first.harness.config)
    assert "4g6KtU22C8DUjmbCoiJCfR" in json.dumps(first.kept)
