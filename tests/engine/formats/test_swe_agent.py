"""The reader of SWE-agent's files: those of several releases, real ones, and broken ones."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.engine.errors import ExitReason
from lab.engine.formats.base import Document
from lab.engine.formats.detection import probe
from lab.engine.formats.swe_agent import SweAgent
from lab.engine.formats.trajectory import Aside, Message, Problem, Rewritten, Trajectory, Turn
from tests.engine.formats.mutations import document_of, found_by, lines_of, mutated, only, survives

READER = SweAgent()
SYSTEM = {"role": "system", "content": "You mend.", "agent": "main", "message_type": "system_prompt"}
TASK = {"role": "user", "content": "Mend it.", "agent": "main", "message_type": "observation"}
STATS = {"instance_cost": 0.25, "tokens_sent": 900, "tokens_received": 40, "api_calls": 3}
REPLAY = {
    "env": {"deployment": {"image": "swe/astropy:1"}, "repo": {"base_commit": "abc"}},
    "agent": {
        "templates": {"system_template": "You mend."},
        "tools": {"execution_timeout": 30, "parse_function": {"type": "function_calling"}},
        "model": {
            "name": "glm-5",
            "api_base": "http://127.0.0.1:1/v1",
            "api_key": "sk-recorded",
            "temperature": 0.0,
            "per_instance_cost_limit": 3.0,
            "fallbacks": [],
        },
        "max_requeries": 3,
    },
    "problem_statement": {
        "type": "text",
        "id": "astropy-1",
        "text": "It is broken.",
        "extra_fields": {"a": 1},
    },
}


def native(number: int, name: str, arguments: str, action: str, seen: str) -> list[dict[str, Any]]:
    """An answer with one call of a function and the message with its result, in the history."""
    call = {"id": f"id{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
    answer = {
        "role": "assistant",
        "content": f"Thought {number}.",
        "thought": f"Thought {number}.",
        "action": action,
        "agent": "main",
        "tool_calls": [call],
        "message_type": "action",
        "thinking_blocks": [],
    }
    result = {
        "role": "tool",
        "content": [{"type": "text", "text": seen}],
        "agent": "main",
        "message_type": "observation",
        "tool_call_ids": [f"id{number}"],
    }
    return [answer, result]


def step(
    response: str, action: str, observation: str, query: Sequence[Any] = (), **more: Any
) -> dict[str, Any]:
    found = {
        "action": action,
        "observation": observation,
        "response": response,
        "thought": response,
        "execution_time": 0.5,
        "state": {"working_dir": "/testbed"},
        "query": list(query),
        "extra_info": {},
    }
    return found | more


def traj(
    history: list[Any], steps: list[Any], status: str | None = "submitted", **info: Any
) -> dict[str, Any]:
    return {
        "trajectory": steps,
        "history": history,
        "info": {
            "swe_agent_version": "1.1.0",
            "swe_agent_hash": "abc",
            "exit_status": status,
            "submission": "diff --git a/x b/x\n",
            "model_stats": STATS,
            **info,
        },
        "replay_config": json.dumps(REPLAY),
        "environment": "main",
    }


def plain() -> dict[str, Any]:
    """A run of two native calls, as release 1.1 writes it."""
    first = native(1, "bash", '{"command": "ls"}', "ls", "OBSERVATION:\nx y")
    last = native(2, "submit", "{}", "submit", "OBSERVATION:\ndiff")
    history = [SYSTEM, TASK, *first, *last]
    steps = [
        step("Thought 1.", "ls", "x y", history[:2]),
        step("Thought 2.", "submit", "diff", history[:4]),
    ]
    return traj(history, steps)


def asked_again() -> dict[str, Any]:
    """A run whose model was asked again twice before its first call."""
    first = native(1, "bash", '{"command": "ls"}', "ls", "x y")
    last = native(2, "submit", "{}", "submit", "diff")
    opening = [SYSTEM, TASK]

    def reprimanded(answer: str, reprimand: str) -> list[dict[str, Any]]:
        return [
            *opening,
            {"role": "assistant", "content": answer, "agent": "main", "message_type": "assistant"},
            {"role": "user", "content": reprimand, "agent": "main", "message_type": "user"},
        ]

    steps = [
        step("No call.", "", "", opening),
        step("vim x", "vim x", "", reprimanded("No call.", "One call, please.")),
        step("Thought 1.", "ls", "x y", reprimanded("vim x", "vim is blocked.")),
        step("Thought 2.", "submit", "diff", [*opening, *first]),
    ]
    return traj([*opening, *first, *last], steps)


def read(folder: Path, document: Any, name: str = "document.json") -> Trajectory:
    return only(found_by(READER, document_of(folder, document, name)))


def kinds(found: Trajectory) -> list[str]:
    return [type(item).__name__ for item in found.items]


def test_native_calls_have_their_ids_the_observation_the_model_saw_and_the_whole_output(
    tmp_path: Path,
) -> None:
    found = read(tmp_path, plain())
    assert [one["role"] for one in found.opening] == ["system", "user"]
    first, last = found.turns
    (call,) = first.calls
    assert (call.id, call.name, call.arguments, call.seconds) == ("id1", "bash", {"command": "ls"}, 0.5)
    assert (call.observation, call.output) == ("OBSERVATION:\nx y", "x y")
    assert (call.message["role"], call.message["tool_call_id"]) == ("tool", "id1")
    assert first.kept["state"] == {"working_dir": "/testbed"}
    assert (call.submitted, last.calls[0].submitted) == (False, True)
    assert first.usage.input_total is None


def test_the_run_is_described_by_its_configuration_without_keys(tmp_path: Path) -> None:
    found = read(tmp_path, plain())
    assert (found.instance_id, found.statement) == ("astropy-1", "It is broken.")
    assert (found.model.name, found.model.base_url) == ("glm-5", "http://127.0.0.1:1/v1")
    assert found.model.sampling == {"temperature": 0.0}
    assert (found.harness.name, found.harness.version, found.harness.family) == (
        "SWE-agent",
        "1.1.0",
        "swe-agent",
    )
    assert found.harness.config["templates"] == {"system_template": "You mend."}
    assert found.limits == {"per_instance_cost_limit": 3.0, "execution_timeout": 30, "max_requeries": 3}
    assert found.task_kept["env"]["deployment"]["image"] == "swe/astropy:1"
    assert (found.exit_reason, found.native_reason) == (ExitReason.AGENT, "submitted")
    assert found.patch == "diff --git a/x b/x\n"
    assert found.kept["info"]["swe_agent_hash"] == "abc"
    assert "sk-recorded" not in repr(found)


def test_cost_and_tokens_are_known_for_the_whole_run_alone(tmp_path: Path) -> None:
    found = read(tmp_path, plain())
    assert found.totals.cost == Decimal("0.25")
    assert (found.totals.input_tokens, found.totals.output_tokens, found.totals.calls) == (900, 40, 3)
    assert any(note.kind == "missing" and note.field == "usage" for note in found.notes)
    uncounted = {"instance_cost": 0, "tokens_sent": 0, "tokens_received": 0, "api_calls": 2}
    found = read(tmp_path, traj(plain()["history"], plain()["trajectory"], model_stats=uncounted))
    assert (found.totals.cost, found.totals.input_tokens, found.totals.calls) == (None, None, 2)
    assert found.kept["info"]["model_stats"] == uncounted


def test_answers_that_were_asked_for_again_stay_and_leave_the_conversation(tmp_path: Path) -> None:
    found = read(tmp_path, asked_again())
    assert kinds(found) == ["Turn", "Message", "Turn", "Rewritten", "Turn", "Rewritten", "Turn"]
    wrong, reprimand, blocked, second, call, back, _ = found.items
    assert isinstance(wrong, Turn)
    assert isinstance(reprimand, Message)
    assert isinstance(blocked, Turn)
    assert isinstance(second, Rewritten)
    assert isinstance(call, Turn)
    assert isinstance(back, Rewritten)
    assert wrong.message == {"role": "assistant", "content": "No call."}
    assert (reprimand.message["content"], reprimand.reason) == ("One call, please.", "requery")
    assert blocked.kept["state"] == {"working_dir": "/testbed"}
    assert [one["content"] for one in second.messages][2:] == ["vim x", "vim is blocked."]
    assert call.calls[0].observation == "x y"
    assert [one["role"] for one in back.messages] == ["system", "user", "assistant", "tool"]
    assert "query_changes" not in call.kept


def test_a_command_in_text_is_a_call_with_an_id_of_the_readers(tmp_path: Path) -> None:
    answer = {
        "role": "assistant",
        "content": "Look.\n```\nls -F\n```",
        "thought": "Look.\n",
        "action": "ls -F\n",
    }
    seen = {"role": "user", "content": "x y\n(Open file: n/a)\nbash-$", "agent": "primary"}
    submit = {"role": "assistant", "content": "```\nsubmit\n```", "thought": "", "action": "submit\n"}
    document = {
        "environment": "swe_main",
        "trajectory": [
            step(answer["content"], "ls -F\n", "x y\n", state='{"working_dir": "/astropy"}\n'),
            step(submit["content"], "submit\n", "diff --git", state="no JSON"),
        ],
        "history": [
            {**SYSTEM, "agent": "primary"},
            {**TASK, "agent": "primary", "is_demo": True},
            answer,
            seen,
            submit,
        ],
        "info": {"exit_status": "submitted", "submission": "", "model_stats": {**STATS, "total_cost": 9.0}},
    }
    found = read(tmp_path, document, "pydicom-1458.traj")
    look, done = found.turns
    (call,) = look.calls
    assert (call.name, call.arguments, call.synthesised_id) == ("bash", {"command": "ls -F\n"}, True)
    assert (call.observation, call.output) == ("x y\n(Open file: n/a)\nbash-$", "x y\n")
    assert call.message == {"role": "user", "content": call.observation}
    assert "tool_calls" not in look.message
    assert look.kept == {"state": {"working_dir": "/astropy"}}
    assert done.kept == {"state": "no JSON"}
    assert (done.calls[0].submitted, done.calls[0].observation) == (True, "diff --git")
    assert (found.instance_id, found.patch, found.totals.cost) == ("pydicom-1458", "", Decimal("0.25"))
    assert found.kept["opening"]["1"] == {"is_demo": True}
    assert any(note.field == "instance_id" and note.kind == "guessed" for note in found.notes)


def test_a_conversation_alone_has_turns_and_no_ending(tmp_path: Path) -> None:
    found = read(tmp_path, {"history": plain()["history"]})
    assert [turn.calls[0].name for turn in found.turns] == ["bash", "submit"]
    assert (found.exit_reason, found.native_reason, found.patch) == (None, "", None)
    assert found.totals.cost is None


def test_what_the_model_was_shown_instead_of_its_conversation_is_kept(tmp_path: Path) -> None:
    document = plain()
    elided = {**document["history"][3], "content": "Old output: (2 lines omitted)"}
    document["trajectory"][1]["query"][3] = elided
    first, last = read(tmp_path, document).turns
    assert "query_changes" not in first.kept
    assert last.kept["query_changes"] == {"3": elided}


def test_a_command_that_took_too_long_is_told_from_the_words_of_its_output(tmp_path: Path) -> None:
    document = plain()
    document["trajectory"][0]["observation"] = (
        "The command 'ls' was cancelled because it took more than 30 seconds."
    )
    first, last = read(tmp_path, document).turns
    assert (first.calls[0].timed_out, last.calls[0].timed_out) == (True, False)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("submitted", ExitReason.AGENT),
        ("exit_forfeit", ExitReason.AGENT),
        ("submitted (exit_cost)", ExitReason.MAX_COST),
        ("exit_context", ExitReason.MAX_CONTEXT_LEN),
        ("exit_format", ExitReason.FORMAT_ERRORS),
        ("exit_total_execution_time", ExitReason.MAX_TIME),
        ("exit_api", ExitReason.LLM_QUERY_ERROR),
        ("exit_environment_error", ExitReason.INFRASTRUCTURE_ERROR),
        ("a new reason", None),
        ("", None),
    ],
)
def test_the_reason_of_the_end_is_the_labs_word_or_unknown(
    tmp_path: Path, status: str, reason: ExitReason | None
) -> None:
    document = traj(plain()["history"], plain()["trajectory"], status)
    found = read(tmp_path, document)
    assert (found.exit_reason, found.native_reason) == (reason, status)
    assert any(note.field == "info.exit_status" for note in found.notes) is (reason is None)


def test_the_harness_saying_why_it_stopped_is_no_answer_of_the_model(tmp_path: Path) -> None:
    said = "Exit due to cost limit"
    history = [
        *plain()["history"][:4],
        {
            "role": "assistant",
            "content": said,
            "thought": said,
            "action": "",
            "agent": "main",
            "tool_calls": None,
        },
        {"role": "user", "content": "Exited (autosubmitted)", "agent": "main"},
    ]
    steps = [plain()["trajectory"][0], step(said, "", "Exited (autosubmitted)", [{}])]
    found = read(tmp_path, traj(history, steps, "submitted (exit_cost)"))
    assert kinds(found) == ["Turn", "Aside"]
    last = found.items[-1]
    assert isinstance(last, Aside)
    assert last.kept["step"]["response"] == said
    assert len(last.kept["history"]) == 2


def test_a_file_without_its_conversation_is_read_from_its_steps(tmp_path: Path) -> None:
    document = plain()
    document["history"] = []
    found = read(tmp_path, document)
    assert [one["content"] for one in found.opening] == ["You mend.", "Mend it."]
    assert [turn.calls[0].observation for turn in found.turns] == ["x y", "diff"]
    assert any(note.field == "observation" for note in found.notes)


def test_attempts_of_an_agent_that_tries_again_are_kept_beside_the_best(tmp_path: Path) -> None:
    found = read(tmp_path, {**plain(), "attempts": [plain(), asked_again()]})
    assert len(found.turns) == 2
    assert found.kept["attempts"] == [plain(), asked_again()]
    assert any(note.kind == "lost" and note.field == "attempts" for note in found.notes)


def test_each_line_is_a_run_and_a_broken_one_stops_no_other(tmp_path: Path) -> None:
    given = lines_of(tmp_path, [plain(), "{broken", asked_again(), {"history": 1}])
    first, broken, third, other = found_by(READER, given)
    assert isinstance(first, Trajectory)
    assert isinstance(third, Trajectory)
    assert isinstance(broken, Problem)
    assert isinstance(other, Problem)
    assert (broken.place, third.origin.place, other.place) == ("line 2", "line 3", "line 4")


def test_a_file_is_told_from_its_content(tmp_path: Path) -> None:
    assert READER.recognises(probe(document_of(tmp_path, plain())))
    assert READER.recognises(probe(document_of(tmp_path, {"history": plain()["history"]})))
    assert not READER.recognises(probe(document_of(tmp_path, {"messages": [], "trajectory_format": "x"})))
    assert not READER.recognises(probe(document_of(tmp_path, {"history": [{"id": 1, "action": "run"}]})))


REAL = {
    "pandas-dev__pandas.95280573.pr_53652.traj": (37, "0.34398689999999993", "submitted", 834),
    "pydantic__pydantic.acb0f10f.pr_8316.traj": (22, "0.3017616", "submitted", 2048),
    "marshmallow-1867-function-calling.traj": (11, None, "submitted", 578),
    "marshmallow-1867-default-thought-action.traj": (14, None, "submitted", 564),
    "pydicom-1458-v0.6.traj": (12, "1.26719", "submitted", 803),
    "function-calling-history-only.traj": (5, None, "", None),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_have_the_recorded_steps_cost_ending_and_patch(name: str) -> None:
    folder = Path(os.environ.get("LAB_TEST_DATA", ""), "trajectories/swe-agent")
    if not os.environ.get("LAB_TEST_DATA") or not folder.is_dir():
        pytest.skip("absent data: set LAB_TEST_DATA to a folder with trajectories/swe-agent")
    document = Document(name, folder / name)
    assert READER.recognises(probe(document))
    found = only(found_by(READER, document))
    turns, cost, status, patch = REAL[name]
    assert len(found.turns) == len(found.items) == turns
    assert all(len(turn.calls) == 1 and turn.calls[0].observation is not None for turn in found.turns)
    assert found.totals.cost == (None if cost is None else Decimal(cost))
    assert found.native_reason == status
    assert (None if found.patch is None else len(found.patch)) == patch
    assert all("query_changes" not in turn.kept and "query" not in turn.kept for turn in found.turns)


TEXT = st.text(min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(
    answers=st.lists(st.tuples(TEXT, TEXT, TEXT, TEXT), min_size=1, max_size=4, unique_by=lambda one: one[0])
)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, answers: list[tuple[str, str, str, str]]
) -> None:
    history: list[Any] = [SYSTEM, TASK]
    steps = []
    for number, (name, command, seen, output) in enumerate(answers):
        pair = native(number, name, json.dumps({"command": command}), command, seen)
        steps.append(step(f"Thought {number}.", command, output, list(history)))
        history += pair
    folder = tmp_path_factory.mktemp("swe")
    found = read(folder, traj(history, steps))
    assert found == read(folder, traj(history, steps))
    calls = [turn.calls[0] for turn in found.turns]
    read_back = [(call.name, call.arguments["command"], call.observation, call.output) for call in calls]
    assert read_back == answers
    shorter = read(folder, traj(history[:-2], steps[:-1], "exit_cost"))
    assert shorter.items == read(folder, traj(history, steps, "exit_cost")).items[: len(shorter.items)]


@settings(deadline=None, max_examples=150)
@given(document=mutated(asked_again()) | mutated(plain()))
def test_broken_documents_never_stop_a_reader(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any]
) -> None:
    assert survives(READER, document_of(tmp_path_factory.mktemp("swe"), document))


def test_a_configuration_that_is_no_json_is_named_and_kept(tmp_path: Path) -> None:
    found = read(tmp_path, {**plain(), "replay_config": "{no"})
    assert any(note.kind == "lost" and note.field == "replay_config" for note in found.notes)
    assert found.kept["replay_config"] == {"text": "{no"}


def test_runs_of_one_configuration_have_one_harness_though_each_is_named_after_its_instance(
    tmp_path: Path,
) -> None:
    def named(instance: str) -> Trajectory:
        agent = {**REPLAY["agent"], "name": instance}
        return read(tmp_path, plain() | {"replay_config": json.dumps({**REPLAY, "agent": agent})})

    first, second = named("astropy-1"), named("astropy-2")
    assert first.harness == second.harness
    assert first.kept["replay_config"]["agent"] == {"name": "astropy-1"}
