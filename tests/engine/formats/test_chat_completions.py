"""The reader of chat completions: training lines, logs of requests, and broken ones."""

from __future__ import annotations

import datetime as dt
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document
from lab.engine.formats.chat_completions import ChatCompletions
from lab.engine.formats.detection import probe
from lab.engine.formats.trajectory import FailedRequest, Message, Problem, Trajectory
from lab.engine.verify.base import Outcome
from tests.engine.formats.mutations import document_of, found_by, lines_of, mutated, only, survives

READER = ChatCompletions()
OPENING = [{"role": "system", "content": "You mend."}, {"role": "user", "content": "Mend it."}]
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {}}}


def call(identifier: str, command: str) -> dict[str, Any]:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {"id": identifier, "type": "function", "function": function}


def asked(content: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **more}


def result(identifier: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identifier, "content": content}


def line(**more: Any) -> dict[str, Any]:
    messages = [
        *OPENING,
        asked("I look.", call("a", "ls"), call("b", "cat x"), reasoning_content="Where?"),
        result("b", "text of x"),
        result("a", "x y"),
        {"role": "user", "content": "Go on."},
        asked("Done."),
    ]
    return {"id": "1", "instance_id": "astropy-1", "messages": messages, "tools": [TOOL], **more}


def log(
    messages: list[dict[str, Any]], answer: dict[str, Any] | None, number: int, **more: Any
) -> dict[str, Any]:
    """A log of one request, as OpenHands writes it."""
    response = {
        "id": f"r{number}",
        "model": "glm-5",
        "object": "chat.completion",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {**(answer or {}), "function_call": None}}
        ],
        "usage": {"prompt_tokens": 100 * number, "completion_tokens": 10},
    }
    return {
        "messages": messages,
        "tools": [TOOL],
        "kwargs": {"temperature": 0.0, "api_key": "sk-recorded", "tools": [TOOL]},
        "response": response if answer is not None else {"error": {"message": "overloaded"}},
        "cost": 0.5,
        "timestamp": 1_757_015_000.5 + number,
        "latency_sec": 2.0,
        **more,
    }  # fmt: skip


def series() -> list[dict[str, Any]]:
    first = asked("I look.", call("a", "ls"))
    second = asked("Done.")
    return [log(OPENING, first, 1), log([*OPENING, first, result("a", "x y")], second, 2)]


def read(folder: Path, value: Any) -> Trajectory:
    return only(found_by(READER, document_of(folder, value)))


def test_each_answer_of_a_line_is_a_turn_with_the_results_of_its_calls(tmp_path: Path) -> None:
    found = read(tmp_path, line())
    first, last = found.turns
    assert list(found.opening) == OPENING
    assert [(one.id, one.arguments["command"], one.observation) for one in first.calls] == [
        ("a", "ls", "x y"),
        ("b", "cat x", "text of x"),
    ]
    assert (first.reasoning, last.message["content"], found.final_message) == ("Where?", "Done.", "Done.")
    assert isinstance(found.items[1], Message)
    assert (found.instance_id, found.statement, found.tools) == ("astropy-1", "Mend it.", (TOOL,))
    assert (first.usage.input_total, first.cost_reported, first.ended_at) == (None, None, None)
    assert found.kept == {"id": "1"}


def test_actions_in_text_are_answered_by_user_messages(tmp_path: Path) -> None:
    messages = [*OPENING, asked("<ls/>"), {"role": "user", "content": "x y"}, asked("<submit/>")]
    found = read(tmp_path, {"messages": json.dumps(messages), "resolved": False, "model": "glm-5"})
    assert [type(one).__name__ for one in found.items] == ["Turn", "Message", "Turn"]
    assert found.model.name == "glm-5"
    assert [one.outcome for one in found.gradings] == [Outcome.UNRESOLVED]


def test_a_trajectory_of_messages_with_patch_and_ending_is_a_conversation(tmp_path: Path) -> None:
    published = {
        "instance_id": "a-1",
        "trajectory": line()["messages"],
        "model_patch": "diff",
        "exit_status": "submit",
    }
    given = document_of(tmp_path, published)
    assert READER.recognises(probe(given))
    found = only(found_by(READER, given))
    assert (len(found.turns), found.patch, found.exit_reason, found.native_reason) == (
        2,
        "diff",
        None,
        "submit",
    )
    assert any(note.field == "exit_status" and note.kind == "lost" for note in found.notes)


def test_the_old_form_of_a_call_is_a_call_with_an_id_of_the_readers(tmp_path: Path) -> None:
    old = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "bash", "arguments": '{"command": "ls"}'},
    }
    found = read(
        tmp_path, {"messages": [*OPENING, old, {"role": "function", "name": "bash", "content": "x y"}]}
    )
    (one,) = found.turns[0].calls
    assert (one.id, one.synthesised_id, one.arguments, one.observation) == (
        "call_1_0", True, {"command": "ls"}, "x y",
    )  # fmt: skip


def test_arguments_that_are_no_object_are_malformed_and_stay_as_they_came(tmp_path: Path) -> None:
    wrong = {"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command": '}}
    (one,) = read(tmp_path, {"messages": [*OPENING, asked("", wrong)]}).turns[0].calls
    assert (one.arguments, one.raw_arguments) == ({}, '{"command": ')
    assert "not JSON" in one.malformed


def test_a_verdict_is_read_from_the_labs_own_export(tmp_path: Path) -> None:
    own = {
        "loss_mask": [0, 0, 0, 0, 0, 0, 1],
        "reasoning": ["", "", "Where is it?", "", "", "", ""],
        "reward": 1.0,
        "rewards": {"tests": 0.5},
        "outcome": "resolved",
        "exit_reason": "max_turns",
        "run": {"model": {"name": "glm-5"}, "harness": {"name": "leaf"}, "seed": 2},
    }
    found = read(tmp_path, line(**own))
    (grading,) = found.gradings
    assert (grading.outcome, grading.rewards) == (Outcome.RESOLVED, {"tests": 0.5, "reward": 1.0})
    assert [turn.copied for turn in found.turns] == [True, False]
    assert found.turns[0].reasoning == "Where is it?"
    assert (found.exit_reason, found.model.name, found.harness.name) == (
        ExitReason.MAX_TURNS,
        "glm-5",
        "leaf",
    )


@pytest.mark.parametrize(("reward", "outcome"), [(1, Outcome.RESOLVED), (0.5, Outcome.UNRESOLVED)])
def test_a_reward_alone_is_a_verdict_that_is_guessed(tmp_path: Path, reward: float, outcome: Outcome) -> None:
    found = read(tmp_path, line(reward=reward))
    assert [one.outcome for one in found.gradings] == [outcome]
    assert any(note.field == "reward" and note.kind == "guessed" for note in found.notes)
    assert read(tmp_path, line(reward=None)).gradings == ()


def test_logs_that_go_on_from_one_another_are_one_conversation(tmp_path: Path) -> None:
    first, second = series()
    documents = [document_of(tmp_path, second, "a.json"), document_of(tmp_path, first, "b.json")]
    found = only(found_by(READER, *documents))
    one, two = found.turns
    assert list(found.opening) == OPENING
    assert (one.calls[0].observation, one.response_id, two.response_id) == ("x y", "r1", "r2")
    assert [turn.usage.input_total for turn in found.turns] == [100, 200]
    assert [turn.cost_reported for turn in found.turns] == [Decimal("0.5")] * 2
    assert (one.seconds, one.ended_at) == (2.0, dt.datetime.fromtimestamp(1_757_015_001.5, dt.UTC))
    assert found.model.sampling == {"temperature": 0.0}
    assert "sk-recorded" not in repr(found)


def test_an_answer_that_joined_as_text_keeps_its_calls(tmp_path: Path) -> None:
    first, second = series()
    as_text = asked("I look.\n<ls/>")
    second["messages"] = [*OPENING, as_text, {"role": "user", "content": "RESULT: x y"}]
    found = only(found_by(READER, lines_of(tmp_path, [first, second])))
    one = found.turns[0]
    assert one.message == as_text
    assert (one.calls[0].name, one.calls[0].observation) == ("bash", "RESULT: x y")
    assert one.kept["response_message"]["content"] == "I look."


def test_a_request_that_failed_is_no_answer_and_the_next_try_goes_on(tmp_path: Path) -> None:
    first, second = series()
    failed = log(first["messages"], None, 0)
    found = only(found_by(READER, lines_of(tmp_path, [failed, first, second])))
    assert [type(one).__name__ for one in found.items] == ["FailedRequest", "Turn", "Turn"]
    assert isinstance(found.items[0], FailedRequest)
    assert found.items[0].message == "overloaded"


def test_other_conversations_stay_apart(tmp_path: Path) -> None:
    other = log([OPENING[0], {"role": "user", "content": "Something else."}], asked("No."), 3)
    found = found_by(READER, lines_of(tmp_path, [*series(), other]))
    assert [len(one.turns) for one in found if isinstance(one, Trajectory)] == [2, 1]


def test_a_request_and_its_response_are_a_log_too(tmp_path: Path) -> None:
    whole = log(OPENING, asked("Done."), 1)
    request = {"model": "glm", "messages": OPENING, "temperature": 0.5, "tools": [TOOL]}
    found = read(tmp_path, {"request": request, "response": whole["response"]})
    assert (found.model.sampling, found.tools, len(found.turns)) == ({"temperature": 0.5}, (TOOL,), 1)


def test_logs_of_one_folder_are_read_together_and_lines_by_their_file(tmp_path: Path) -> None:
    local = document_of(tmp_path, series()[0]).local
    one, two = Document("logs/a.json", local), Document("logs/b.json", local)
    assert READER.grouping(one, probe(one)) == READER.grouping(two, probe(two))
    given = lines_of(tmp_path, [line(), line()])
    assert READER.grouping(given, probe(given)) == given.path


def test_a_broken_log_or_line_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"messages": [')
    broken = Document("broken.json", tmp_path / "broken.json")
    problem, first, cut, third = found_by(READER, broken, lines_of(tmp_path, [line(), "{broken", line()]))
    assert isinstance(problem, Problem)
    assert isinstance(first, Trajectory)
    assert isinstance(cut, Problem)
    assert isinstance(third, Trajectory)
    assert (problem.file, cut.place, third.origin.place) == ("broken.json", "line 2", "line 3")


def test_a_document_is_told_from_its_content(tmp_path: Path) -> None:
    assert READER.recognises(probe(document_of(tmp_path, line(), "anything")))
    assert READER.recognises(probe(lines_of(tmp_path, series())))
    assert not READER.recognises(probe(document_of(tmp_path, {"messages": ["hello"]})))
    assert not READER.recognises(probe(document_of(tmp_path, {**line(), "trajectory_format": "mini"})))


@pytest.mark.parametrize("role", [None, {}, [], 3, "narrator"])
def test_a_role_that_is_none_stops_no_reader(tmp_path: Path, role: Any) -> None:
    late = {"role": role, "content": "x y"}
    found = read(tmp_path, {"messages": [*OPENING, *line()["messages"][2:], asked("a"), *OPENING * 2, late]})
    last = found.items[-1]
    assert isinstance(last, Message)
    assert last.message == late


REAL = {
    "native-tool-calls.json": ("str_replace_editor", 4812, 146, "0.016626000000000002"),
    "calls-as-text.json": ("terminal", 7911, 59, "0.0006264700000000001"),
}


@pytest.mark.parametrize("name", REAL)
def test_real_logs_have_the_recorded_call_tokens_and_cost(name: str) -> None:
    data = os.environ.get("LAB_TEST_DATA", "")
    local = Path(data, "completions", name)
    if not data or not local.is_file():
        pytest.skip("absent data: set LAB_TEST_DATA to a folder with completions")
    document = Document(name, local)
    assert READER.recognises(probe(document))
    found = only(found_by(READER, document))
    (turn,) = found.turns
    tool, read_tokens, written, cost = REAL[name]
    assert ([one.name for one in turn.calls], len(found.tools)) == ([tool], 3)
    assert (turn.usage.input_total, turn.usage.output_total) == (read_tokens, written)
    assert turn.cost_reported == Decimal(cost)
    assert ("raw_response" in turn.kept) is (name == "calls-as-text.json")


TEXT = st.text(max_size=12)


@settings(deadline=None, max_examples=60)
@given(turns=st.lists(st.tuples(TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=3)), min_size=1, max_size=4))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[str, list[tuple[str, str]]]]
) -> None:
    messages = list(OPENING)
    logs = []
    for number, (content, pairs) in enumerate(turns):
        answer = asked(content, *(call(f"{number}_{i}", command) for i, (command, _) in enumerate(pairs)))
        logs.append(log(list(messages), answer, number))
        messages += [answer, *(result(f"{number}_{i}", output) for i, (_, output) in enumerate(pairs))]
    folder = tmp_path_factory.mktemp("chat")
    for found in (read(folder, {"messages": messages}), only(found_by(READER, lines_of(folder, logs)))):
        assert [turn.message["content"] for turn in found.turns] == [content for content, _ in turns]
        commands = [[one.arguments["command"] for one in turn.calls] for turn in found.turns]
        assert commands == [[command for command, _ in pairs] for _, pairs in turns]
        seen = [[one.observation for one in turn.calls] for turn in found.turns[:-1]]
        assert seen == [[output for _, output in pairs] for _, pairs in turns[:-1]]
    fewer = only(found_by(READER, lines_of(folder, logs[:-1]))) if len(logs) > 1 else None
    assert fewer is None or fewer.items[:-1] == found.items[: len(fewer.items) - 1]


@settings(deadline=None, max_examples=150)
@given(values=mutated([line(), *series()]))
def test_broken_documents_never_stop_a_reader(tmp_path_factory: pytest.TempPathFactory, values: Any) -> None:
    folder = tmp_path_factory.mktemp("chat")
    assert survives(READER, lines_of(folder, values))
    assert survives(READER, *(document_of(folder, one, f"{i}.json") for i, one in enumerate(values)))


def test_logs_of_one_model_have_one_sampling_whoever_asked(tmp_path: Path) -> None:
    def asked_by(user: str) -> Trajectory:
        messages = [{"role": "user", "content": "Mend it."}]
        sent = {"temperature": 0.0, "user": user, "prompt_cache_key": user}
        value = log(messages, {"role": "assistant", "content": "Done."}, 1, kwargs=sent)
        return only(found_by(READER, lines_of(tmp_path, [value])))

    first, second = asked_by("run-1"), asked_by("run-2")
    assert first.model == second.model
    assert (first.kept["user"], first.kept["prompt_cache_key"]) == ("run-1", "run-1")
