"""The reader of ATIF: documents made with the format's reference models, real ones, and broken ones."""

from __future__ import annotations

import datetime as dt
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import atif
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.engine.formats.atif import Atif
from lab.engine.formats.base import Document, FormatError
from lab.engine.formats.detection import probe
from lab.engine.formats.trajectory import Aside, Message, Problem, Trajectory, Turn
from tests.engine.formats.mutations import document_of, found_by, lines_of, mutated, only, survives

READER = Atif()
AGENT = {"name": "terminus", "version": "2.0", "model_name": "glm-5"}
HELLO = ("openhands_hello-world.trajectory.json", "openhands_hello-world.trajectory.no_function_calling.json")


def made(*steps: dict[str, Any], **root: Any) -> dict[str, Any]:
    """A document as the reference models write it."""
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, 1)]
    document = {"schema_version": "ATIF-v1.8", "agent": AGENT, "steps": numbered, **root}
    return atif.Trajectory.model_validate(document).to_json_dict()


def read(folder: Path, document: dict[str, Any]) -> Trajectory:
    return only(found_by(READER, document_of(folder, document)))


USER = {"source": "user", "message": "Mend it."}
SYSTEM = {"source": "system", "message": "You mend."}
CALLS = {
    "source": "agent",
    "timestamp": "2026-03-01T10:00:05Z",
    "message": "I look.",
    "reasoning_content": "Where is it?",
    "reasoning_effort": "high",
    "tool_calls": [
        {"tool_call_id": "a", "function_name": "bash", "arguments": {"command": "ls"}},
        {
            "tool_call_id": "b",
            "function_name": "read",
            "arguments": {"path": "x"},
            "extra": {"took": 2},
        },
    ],
    "observation": {
        "results": [
            {"source_call_id": "b", "content": "text of x", "extra": {"score": 1}},
            {"source_call_id": "a", "content": "x y"},
        ]
    },
    "metrics": {
        "prompt_tokens": 100,
        "cached_tokens": 60,
        "completion_tokens": 20,
        "cost_usd": 0.25,
        "completion_token_ids": [1, 2],
        "extra": {"reasoning_tokens": 7},
    },
}
DONE = {"source": "agent", "message": "Done.", "model_name": "glm-5-air"}


def whole() -> dict[str, Any]:
    """A document with every part that the format has."""
    explorer = {
        "schema_version": "ATIF-v1.8",
        "trajectory_id": "explorer-1",
        "agent": {"name": "explorer", "version": "1"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "Look around."},
            {"step_id": 2, "source": "agent", "message": "It is in x.", "metrics": {"prompt_tokens": 9}},
            {"step_id": 3, "source": "user", "message": "Thank you."},
        ],
    }
    delegation = {
        "source": "agent",
        "message": "",
        "tool_calls": [{"tool_call_id": "c", "function_name": "delegate", "arguments": {}}],
        "observation": {
            "results": [
                {"source_call_id": "c", "subagent_trajectory_ref": [{"trajectory_id": "explorer-1"}]},
            ]
        },
    }
    dispatch = {
        "source": "agent",
        "message": "start",
        "llm_call_count": 0,
        "tool_calls": [{"tool_call_id": "d", "function_name": "mount", "arguments": {}}],
        "observation": {"results": [{"source_call_id": "d", "content": "mounted"}]},
    }
    picture = {"type": "image", "source": {"media_type": "image/png", "path": "images/1.png"}}
    parts = {"source": "user", "message": [{"type": "text", "text": "See:"}, picture]}
    copied = {"source": "agent", "message": "Before.", "is_copied_context": True}
    several = {"source": "agent", "message": "Twice.", "llm_call_count": 2}
    return made(
        SYSTEM, USER, copied, CALLS, delegation, dispatch, parts, several, DONE,
        session_id="s-1",
        notes="all parts",
        extra={"instance_id": "astropy-1"},
        continued_trajectory_ref="next.json",
        subagent_trajectories=[explorer],
        final_metrics={
            "total_prompt_tokens": 109, "total_completion_tokens": 20, "total_cached_tokens": 60,
            "total_cost_usd": 0.25, "total_steps": 9, "extra": {"seconds": 3},
        },
    )  # fmt: skip


def test_a_step_with_parallel_calls_is_one_turn_whose_results_find_their_calls(tmp_path: Path) -> None:
    found = read(tmp_path, made(SYSTEM, USER, CALLS))
    assert [one["role"] for one in found.opening] == ["system", "user"]
    (turn,) = found.turns
    assert [(one.id, one.name, one.arguments, one.observation) for one in turn.calls] == [
        ("a", "bash", {"command": "ls"}, "x y"),
        ("b", "read", {"path": "x"}, "text of x"),
    ]
    assert turn.calls[1].kept == {"extra": {"took": 2}, "result": {"extra": {"score": 1}}}
    assert turn.calls[0].message == {"role": "tool", "tool_call_id": "a", "content": "x y"}
    assert [one["id"] for one in turn.message["tool_calls"]] == ["a", "b"]
    assert json.loads(turn.message["tool_calls"][0]["function"]["arguments"]) == {"command": "ls"}
    assert (turn.reasoning, turn.model) == ("Where is it?", "glm-5")
    assert turn.ended_at == dt.datetime(2026, 3, 1, 10, 0, 5, tzinfo=dt.UTC)


def test_prompt_tokens_include_the_cached_ones_and_the_rest_of_the_metrics_is_kept(tmp_path: Path) -> None:
    (turn,) = read(tmp_path, made(USER, CALLS)).turns
    usage = turn.usage
    assert (usage.input_total, usage.cache_read, usage.input_uncached) == (100, 60, 40)
    assert (usage.output_total, usage.reasoning) == (20, 7)
    assert turn.cost_reported == Decimal("0.25")
    assert turn.kept["metrics"] == {"completion_token_ids": [1, 2], "extra": {"reasoning_tokens": 7}}
    assert turn.kept["reasoning_effort"] == "high"


def test_a_step_without_metrics_has_unknown_usage(tmp_path: Path) -> None:
    (turn,) = read(tmp_path, made(USER, DONE)).turns
    assert (turn.usage.input_total, turn.usage.output_total, turn.cost_reported) == (None, None, None)
    assert turn.model == "glm-5-air"


def test_all_parts_of_a_document_are_read_or_kept(tmp_path: Path) -> None:
    found = read(tmp_path, whole())
    assert [type(item).__name__ for item in found.items] == [
        "Turn",  # copied
        "Turn",
        "Turn",  # delegates
        "Aside",
        "Turn",  # the subagent's
        "Aside",
        "Message",  # no model call
        "Message",
        "Message",  # of a person, with a picture
        "Turn",
        "Turn",
    ]
    assert [turn.copied for turn in found.turns] == [True, False, False, False, False, False]
    assert (found.instance_id, found.statement, found.final_message) == ("astropy-1", "Mend it.", "Done.")
    assert (found.totals.cost, found.totals.steps, found.totals.cached_tokens) == (Decimal("0.25"), 9, 60)
    assert found.kept["session_id"] == "s-1"
    assert found.kept["notes"] == "all parts"
    assert found.kept["final_metrics"] == {"extra": {"seconds": 3}}
    noted = {note.field: note for note in found.notes}
    assert noted["continued_trajectory_ref"].kind == "missing"
    assert "2 model calls" in noted["steps.8.llm_call_count"].detail
    assert noted["steps.7"].kind == "lost"


def test_a_subagent_answers_in_place_of_the_call_that_refers_to_it(tmp_path: Path) -> None:
    found = read(tmp_path, whole())
    place = next(i for i, item in enumerate(found.items) if isinstance(item, Turn) and item.agent)
    caller, aside, turn, after = found.items[place - 2 : place + 2]
    assert isinstance(caller, Turn)
    assert isinstance(aside, Aside)
    assert isinstance(turn, Turn)
    assert isinstance(after, Aside)
    assert (caller.calls[0].name, turn.agent, turn.usage.input_total) == ("delegate", "explorer-1", 9)
    assert aside.kept["opening"] == [{"role": "user", "content": "Look around."}]
    assert after.kept["message"] == {"role": "user", "content": "Thank you."}


def test_a_subagent_calls_one_that_stands_beside_it_and_never_itself_again(tmp_path: Path) -> None:
    def delegating(name: str, *wanted: str) -> dict[str, Any]:
        references = [{"trajectory_id": one} for one in wanted]
        results = [{"content": "done", "subagent_trajectory_ref": references}]
        step = {
            "step_id": 1,
            "source": "agent",
            "message": f"{name} speaks.",
            "observation": {"results": results},
        }
        document = {"schema_version": "ATIF-v1.8", "agent": {"name": name, "version": "1"}, "steps": [step]}
        return {**document, "trajectory_id": name}

    beside = [delegating("first", "second", "first"), delegating("second")]
    found = read(tmp_path, {**delegating("root", "first"), "subagent_trajectories": beside})
    assert [(turn.agent, turn.message["content"]) for turn in found.turns] == [
        ("", "root speaks."),
        ("first", "first speaks."),
        ("second", "second speaks."),
    ]
    assert any("referred to again" in note.detail for note in found.notes)


def test_an_act_of_the_harness_without_the_model_is_no_turn(tmp_path: Path) -> None:
    found = read(tmp_path, whole())
    acted, result = [one for one in found.items if isinstance(one, Message) and one.reason == "no model call"]
    assert acted.message["content"] == "start"
    assert acted.kept["llm_call_count"] == 0
    assert result.message == {"role": "tool", "tool_call_id": "d", "content": "mounted"}


def test_a_picture_is_named_by_its_path_and_stays_as_it_stood(tmp_path: Path) -> None:
    found = read(tmp_path, whole())
    (said,) = [one for one in found.items if isinstance(one, Message) and one.by == "person"]
    assert said.message["content"][1] == {"type": "image_url", "image_url": {"url": "images/1.png"}}
    assert said.kept["content_parts"][1]["source"]["media_type"] == "image/png"


def test_results_of_calls_written_as_text_join_as_messages(tmp_path: Path) -> None:
    step = {"source": "agent", "message": "<ls/>", "observation": {"results": [{"content": "x y"}]}}
    turn, message = read(tmp_path, made(USER, step)).items
    assert isinstance(turn, Turn)
    assert isinstance(message, Message)
    assert (turn.calls, message.message) == ((), {"role": "user", "content": "x y"})


@pytest.mark.parametrize("version", [f"ATIF-v1.{minor}" for minor in range(9)])
def test_every_version_is_read_without_a_remark(tmp_path: Path, version: str) -> None:
    found = read(tmp_path, {**made(USER, DONE), "schema_version": version})
    assert found.origin.format == version
    assert [note.field for note in found.notes] == ["statement"]


def test_an_unknown_version_and_unknown_fields_are_read_and_named(tmp_path: Path) -> None:
    document = {**made(USER, DONE), "schema_version": "ATIF-v2.0", "colour": "red"}
    document["steps"][1]["mood"] = "good"
    del document["agent"]["version"]
    found = read(tmp_path, document)
    noted = {note.field: note for note in found.notes}
    assert "unknown" in noted["schema_version"].detail
    assert noted["agent.version"].kind == "missing"
    assert "colour" in noted
    assert "steps.1.mood" in noted
    assert found.kept["colour"] == "red"
    assert found.turns[0].kept["mood"] == "good"


def test_steps_out_of_order_are_sorted_by_their_numbers_and_this_is_said(tmp_path: Path) -> None:
    document = made(USER, DONE, CALLS)
    document["steps"].reverse()
    found = read(tmp_path, document)
    assert [turn.message["content"] for turn in found.turns] == ["Done.", "I look."]
    assert any(note.field == "steps.step_id" and "sorted" in note.detail for note in found.notes)


def test_steps_with_the_same_number_stay_as_they_stand(tmp_path: Path) -> None:
    document = made(USER, DONE, CALLS)
    for step in document["steps"]:
        step["step_id"] = 1
    assert [turn.message["content"] for turn in read(tmp_path, document).turns] == ["Done.", "I look."]


def test_a_broken_line_is_a_problem_and_the_next_one_is_read(tmp_path: Path) -> None:
    document = lines_of(tmp_path, [made(USER, DONE), '{"schema_version": "ATIF', made(USER, CALLS), {"a": 1}])
    first, broken, third, other = found_by(READER, document)
    assert isinstance(first, Trajectory)
    assert isinstance(third, Trajectory)
    assert (first.origin.place, third.origin.place) == ("line 1", "line 3")
    assert isinstance(broken, Problem)
    assert "not JSON" in broken.message
    assert isinstance(other, Problem)
    assert other.place == "line 4"


def test_a_document_that_was_cut_off_is_named_with_its_line(tmp_path: Path) -> None:
    local = tmp_path / "cut.json"
    local.write_text(json.dumps(made(USER, DONE), indent=1)[:-40])
    with pytest.raises(FormatError, match=r"cut\.json, line \d+, is not JSON"):
        found_by(READER, Document("cut.json", local))


def test_a_document_is_told_from_its_content(tmp_path: Path) -> None:
    assert READER.recognises(probe(document_of(tmp_path, made(USER, DONE), "anything")))
    assert READER.recognises(probe(lines_of(tmp_path, [made(USER, DONE), made(USER, CALLS)])))
    assert not READER.recognises(probe(document_of(tmp_path, {"steps": [], "agent": AGENT})))


@pytest.mark.parametrize("name", HELLO)
def test_real_documents_have_the_recorded_steps_and_cost(name: str) -> None:
    folder = Path(os.environ.get("LAB_TEST_DATA", ""), "trajectories/atif")
    if not os.environ.get("LAB_TEST_DATA") or not folder.is_dir():
        pytest.skip("absent data: set LAB_TEST_DATA to a folder with trajectories/atif")
    document = Document(name, folder / name)
    assert READER.recognises(probe(document))
    found = only(found_by(READER, document))
    results = [one for one in found.items if isinstance(one, Message)]
    native = name == HELLO[0]
    assert len(found.opening) + len(found.turns) == (6 if native else 4)
    assert len(results) == (0 if native else 1)
    assert [(turn.usage.input_total, turn.usage.output_total) for turn in found.turns] == [
        (100, 50),
        (120, 30),
    ]
    assert (found.totals.input_tokens, found.totals.output_tokens) == (220, 80)
    assert found.totals.cost == Decimal("0.00135")
    assert [call.name for turn in found.turns for call in turn.calls] == (
        ["str_replace_editor", "finish"] if native else []
    )


TEXT = st.text(max_size=12)
COUNT = st.none() | st.integers(0, 10**6)


@st.composite
def agent_steps(draw: st.DrawFn) -> dict[str, Any]:
    calls = draw(
        st.lists(st.tuples(TEXT, st.dictionaries(TEXT, TEXT, max_size=2), st.none() | TEXT), max_size=3)
    )
    results = [
        {"source_call_id": f"c{i}", "content": content}
        for i, (_, _, content) in enumerate(calls)
        if content is not None
    ]
    step: dict[str, Any] = {"source": "agent", "message": draw(TEXT)}
    if calls:
        step["tool_calls"] = [
            {"tool_call_id": f"c{i}", "function_name": name, "arguments": arguments}
            for i, (name, arguments, _) in enumerate(calls)
        ]
        step["observation"] = {"results": draw(st.permutations(results))}
    step["metrics"] = {"prompt_tokens": draw(COUNT), "completion_tokens": draw(COUNT)}
    return step


@settings(deadline=None, max_examples=60)
@given(steps=st.lists(agent_steps(), min_size=1, max_size=4))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("atif")
    found = read(folder, made(USER, *steps))
    assert found == read(folder, made(USER, *steps))
    assert len(found.turns) == len(found.items) == len(steps)
    for step, turn in zip(steps, found.turns, strict=True):
        results = {
            one["source_call_id"]: one["content"]
            for one in step.get("observation", {"results": []})["results"]
        }
        assert turn.message["content"] == step["message"]
        assert [
            {"tool_call_id": one.id, "function_name": one.name, "arguments": one.arguments}
            for one in turn.calls
        ] == step.get("tool_calls", [])
        assert {one.id: one.observation for one in turn.calls if one.observation is not None} == results
        assert turn.usage.input_total == step["metrics"]["prompt_tokens"]
        assert turn.usage.output_total == step["metrics"]["completion_tokens"]


@settings(deadline=None, max_examples=150)
@given(document=mutated(whole()))
def test_broken_documents_never_stop_a_reader(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any]
) -> None:
    assert survives(READER, document_of(tmp_path_factory.mktemp("atif"), document))


@pytest.mark.parametrize("number", ["9" * 5000, "1e999", "NaN"])
def test_numbers_that_nothing_holds_stop_no_reader(tmp_path: Path, number: str) -> None:
    local = tmp_path / "numbers.json"
    local.write_text(
        json.dumps(made(USER, CALLS)).replace('"prompt_tokens": 100', f'"prompt_tokens": {number}')
    )
    assert survives(READER, Document("numbers.json", local))


def test_deep_nesting_stops_no_reader(tmp_path: Path) -> None:
    document = made(USER, DONE)
    for depth in range(200):
        document = made(USER, DONE, subagent_trajectories=[{**document, "trajectory_id": str(depth)}])
    assert survives(READER, document_of(tmp_path, document))


def test_trajectories_of_one_configuration_have_one_harness_wherever_the_agent_worked(tmp_path: Path) -> None:
    def worked_in(folder: str) -> Trajectory:
        of_session = {"cwds": [folder], "git_branches": ["main"], "agent_ids": [folder]}
        return read(tmp_path, made(USER, DONE, agent={**AGENT, "extra": {"mode": "plan", **of_session}}))

    first, second = worked_in("/a"), worked_in("/b")
    assert first.harness == second.harness
    assert first.harness.config == {"mode": "plan"}
    assert first.kept["agent"] == {"extra": {"cwds": ["/a"], "git_branches": ["main"], "agent_ids": ["/a"]}}
