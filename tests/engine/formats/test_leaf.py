"""The readers of Leaf's files: whole runs, runs that are still going on, and rows of results."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.errors import ExitReason
from lab.engine.formats.base import FormatError
from lab.engine.formats.detection import probe
from lab.engine.formats.leaf import Leaf, LeafResults
from lab.engine.formats.trajectory import FoundGrading, Message, Problem, Trajectory
from lab.engine.verify.base import Outcome
from tests.engine.formats.mutations import document_of, found_by, lines_of, mutated, only, survives

RUNS, RESULTS = Leaf(), LeafResults()


def call(identifier: str, name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": identifier, "type": "function", "function": function}


def steps_of(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps that Leaf writes beside its messages."""
    steps: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        if message["role"] == "assistant":
            names |= {one["id"]: one["function"]["name"] for one in message.get("tool_calls", [])}
            steps.append({"step": len(steps), "assistant": message, "observations": []})
        elif message["role"] == "tool":
            seen = {"tool": names[message["tool_call_id"]], "observation": message["content"]}
            steps[-1]["observations"].append(seen)
    return steps


MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You are an engineer."},
    {"role": "user", "content": "Mend it."},
    {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "Where?",
        "tool_calls": [call("a", "Bash", command="ls"), call("b", "Read", file_path="x")],
    },
    {"role": "tool", "tool_call_id": "a", "content": "Exit code: 2\nSTDOUT:\n\nSTDERR:\nno\n"},
    {"role": "tool", "tool_call_id": "b", "content": "x\n1. one"},
    {"role": "assistant", "content": "", "tool_calls": [call("c", "Bash", command="sleep 9", timeout=1)]},
    {"role": "tool", "tool_call_id": "c", "content": "Timed out after 1.0s\nSTDOUT:\n\nSTDERR:\n"},
    {"role": "assistant", "content": "Done."},
]


def run(**changes: Any) -> dict[str, Any]:
    return {
        "trajectory_format": "leaf-function-calling",
        "trajectory_id": "0f" * 16,
        "instance_id": "owner__project-1",
        "seed": 2,
        "messages": MESSAGES,
        "tools": [{"type": "function", "function": {"name": "Bash"}}],
        "steps": steps_of(MESSAGES),
        "n_steps": 3,
        "exit_reason": "agent",
        "error": None,
        "final_message": "Done.",
        "context_tokens": 1234,
        "elapsed_sec": 61.5,
        "output_patch": "diff --git a/x b/x\n",
        "partial": False,
        "reward": 1.0,
        "test_output": "1 passed",
        "attempt": 1,
        **changes,
    }


def going_on(messages: int, **changes: Any) -> dict[str, Any]:
    """The file as it is after so many messages."""
    part = MESSAGES[:messages]
    without = {"reward", "test_output", "attempt"}
    value = {name: one for name, one in run().items() if name not in without}
    told = {"exit_reason": None, "final_message": None, "output_patch": "", "partial": True}
    return {**value, "messages": part, "steps": steps_of(part), **told, **changes}


def read(folder: Path, value: Any) -> Trajectory:
    return only(found_by(RUNS, document_of(folder, value)))


def test_a_run_is_read_whole(tmp_path: Path) -> None:
    document = document_of(tmp_path, run())
    assert RUNS.recognises(probe(document))
    found = only(found_by(RUNS, document))
    assert (found.instance_id, found.seed, found.statement) == ("owner__project-1", 2, "Mend it.")
    assert [message["role"] for message in found.opening] == ["system", "user"]
    first, second, last = found.turns
    assert first.reasoning == "Where?"
    assert [(one.id, one.name, one.exit_code, one.timed_out) for one in (*first.calls, *second.calls)] == [
        ("a", "Bash", 2, False),
        ("b", "Read", None, False),
        ("c", "Bash", None, True),
    ]
    assert first.calls[1].message == MESSAGES[4]
    assert last.calls == ()
    assert (found.exit_reason, found.native_reason) == (ExitReason.AGENT, "agent")
    assert (found.final_message, found.patch) == ("Done.", "diff --git a/x b/x\n")
    assert (found.totals.steps, found.totals.seconds) == (3, 61.5)
    assert found.tools == ({"type": "function", "function": {"name": "Bash"}},)
    (grading,) = found.gradings
    assert (grading.outcome, grading.rewards, grading.log) == (Outcome.RESOLVED, {"reward": 1.0}, "1 passed")
    assert found.kept == {"context_tokens": 1234, "attempt": 1}
    assert all(turn.usage.input_total is None and turn.cost_reported is None for turn in found.turns)
    assert all(turn.kept == {} for turn in found.turns)


@pytest.mark.parametrize(
    ("reward", "outcome"), [(0.5, "unresolved"), (-1.0, "unresolved"), (2, "resolved"), (None, None)]
)
def test_a_reward_of_one_or_more_is_resolved(
    tmp_path: Path, reward: float | None, outcome: str | None
) -> None:
    found = read(tmp_path, run(reward=reward))
    assert [grading.outcome.value for grading in found.gradings] == ([outcome] if outcome else [])
    assert (found.task_kept.get("test_output") == "1 passed") == (outcome is None)


def test_a_run_that_goes_on_keeps_its_identity_and_what_it_had(tmp_path: Path) -> None:
    sooner, later = read(tmp_path, going_on(5)), read(tmp_path, going_on(7))
    assert (sooner.partial, sooner.exit_reason, sooner.patch) == (True, None, None)
    assert sooner.origin.sha256 == later.origin.sha256
    assert later.items[: len(sooner.items)] == sooner.items
    ended = read(tmp_path, run())
    assert ended.items[: len(later.items)] == later.items
    assert ended.origin.sha256 != later.origin.sha256
    assert read(tmp_path, going_on(5, trajectory_id="another")).origin.sha256 != sooner.origin.sha256


def test_calls_of_a_reply_that_was_cut_have_no_result(tmp_path: Path) -> None:
    found = read(tmp_path, run(messages=MESSAGES[:3], exit_reason="max_tokens_per_turn"))
    assert [one.observation for one in found.turns[0].calls] == [None, None]
    assert found.exit_reason is ExitReason.MAX_TOKENS_PER_TURN


def test_steps_that_say_something_else_are_kept_where_they_stand(tmp_path: Path) -> None:
    steps = copy.deepcopy(steps_of(MESSAGES))
    steps[1]["observations"][0]["observation"] = "something else"
    more = {"step": 3, "assistant": None, "observations": []}
    found = read(tmp_path, run(steps=[*steps, more]))
    assert [turn.kept for turn in found.turns] == [{}, {"step": steps[1]}, {}]
    assert found.kept["steps"] == [more]


def test_a_result_of_no_call_stays_a_message(tmp_path: Path) -> None:
    stray = {"role": "tool", "tool_call_id": "z", "content": "?"}
    found = read(tmp_path, run(messages=[*MESSAGES, stray]))
    assert found.items[-1] == Message(message=stray)


def test_an_unknown_exit_reason_is_kept_with_a_note(tmp_path: Path) -> None:
    found = read(tmp_path, run(exit_reason="out_of_coffee"))
    assert (found.exit_reason, found.native_reason) == (None, "out_of_coffee")
    assert ("lost", "exit_reason") in {(note.kind, note.field) for note in found.notes}


def test_a_document_without_messages_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"document\.json has no list `messages`"):
        read(tmp_path, run(messages=None))


# Results.


def row(**changes: Any) -> dict[str, Any]:
    return {
        "instance_id": "owner__project-1",
        "seed": 1,
        "attempt": 1,
        "status": "completed",
        "reward": 0.0,
        "exit_reason": "max_turns",
        "trajectory": "trajectories/owner__project-1/trajectory_seed-1.json",
        "source": {"url": "https://example.org", "revision": "1", "subpath": ""},
        **changes,
    }


def test_the_last_row_of_an_instance_and_seed_counts(tmp_path: Path) -> None:
    failed = row(seed=2, status="failed", error="the pod was lost")
    document = lines_of(tmp_path, [failed, row(), row(seed=2, attempt=2, reward=1.0), '{"status'])
    assert RESULTS.recognises(probe(document))
    found = found_by(RESULTS, document)
    gradings = [one for one in found if isinstance(one, FoundGrading)]
    assert [
        (one.seed, one.grading.outcome.value, one.grading.rewards, one.origin.place)
        for one in gradings
        if one.grading
    ] == [
        (1, "unresolved", {"reward": 0.0}, "line 2"),
        (2, "resolved", {"reward": 1.0}, "line 3"),
    ]
    assert gradings[0].trajectory == "trajectories/owner__project-1/trajectory_seed-1.json"
    assert [one.place for one in found if isinstance(one, Problem)] == ["line 4"]


@pytest.mark.parametrize(
    ("changes", "outcome", "detail"),
    [
        ({"status": "failed", "reward": None, "error": "lost"}, Outcome.INFRASTRUCTURE, "lost"),
        ({"status": "failed", "reward": None}, Outcome.INFRASTRUCTURE, "the job failed"),
        ({"reward": None}, Outcome.UNPARSED, "no reward is recorded"),
        ({"reward": 1}, Outcome.RESOLVED, ""),
    ],
)
def test_a_job_that_failed_was_not_graded(
    tmp_path: Path, changes: dict[str, Any], outcome: Outcome, detail: str
) -> None:
    document = document_of(tmp_path, row(**changes))
    assert RESULTS.recognises(probe(document))
    (found,) = found_by(RESULTS, document)
    assert isinstance(found, FoundGrading)
    assert found.grading is not None
    assert (found.grading.outcome, found.grading.detail) == (outcome, detail)


# Generated documents.


@given(st.lists(st.tuples(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=3)), max_size=5))
def test_replies_and_results_are_read_as_they_were_written(turns: list[tuple[str, list[str]]]) -> None:
    messages = MESSAGES[:2]
    for number, (content, seen) in enumerate(turns):
        names = [f"{number}-{index}" for index in range(len(seen))]
        calls = [call(name, "Read", file_path=name) for name in names]
        messages = [*messages, {"role": "assistant", "content": content, "tool_calls": calls}]
        messages += [
            {"role": "tool", "tool_call_id": name, "content": one}
            for name, one in reversed(list(zip(names, seen, strict=True)))
        ]
    with tempfile.TemporaryDirectory() as folder:
        found = read(Path(folder), run(messages=messages, steps=[]))
    assert [
        (turn.message["content"], [one.observation for one in turn.calls]) for turn in found.turns
    ] == turns


@given(mutated(run()) | mutated(going_on(5)))
def test_broken_runs_give_what_is_left_of_them(value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert survives(RUNS, document_of(Path(folder), value))


@given(st.lists(mutated(row()), min_size=1, max_size=3))
def test_broken_rows_give_what_is_left_of_them(rows: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert survives(RESULTS, lines_of(Path(folder), rows))
