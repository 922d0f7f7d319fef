"""The reader of OpenHands V1: conversations as its SDK writes them, a real piece of one, and broken ones."""

from __future__ import annotations

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
from lab.engine.formats.detection import probe
from lab.engine.formats.openhands import OpenHands
from lab.engine.formats.openhands_v1 import OpenHandsV1
from lab.engine.formats.trajectory import Aside, Message, Problem, Rewritten, Trajectory
from tests.engine.formats.mutations import document_of, found_by, lines_of, mutated, only, survives

READER = OpenHandsV1()


def words(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text, "cache_prompt": False}]


class Talk:
    """Writes the events of a conversation, with running totals before each answer as the SDK does."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.prompt = self.completion = self.cached = 0
        self.cost = 0.0
        self.event(
            "SystemPromptEvent",
            "agent",
            system_prompt=words("You mend.")[0],
            dynamic_context=words("Today.")[0],
            tools=[{"kind": "TerminalTool", "description": "Runs.", "action_type": "TerminalAction"}],
        )
        self.said("user", "Mend it.")

    def event(self, kind: str, source: str, **fields: Any) -> str:
        identifier = f"e{len(self.events)}"
        stamp = f"2026-03-01T10:00:{len(self.events):02}.5"
        self.events.append({"id": identifier, "timestamp": stamp, "source": source, "kind": kind, **fields})
        return identifier

    def said(self, source: str, text: str, response: str | None = None) -> str:
        role = "assistant" if source == "agent" else "user"
        message = {"role": role, "content": words(text), "tool_calls": None, "reasoning_content": None}
        return self.event(
            "MessageEvent",
            source,
            llm_message=message,
            llm_response_id=response,
            extended_content=words("Rules.") if source == "user" else [],
            activated_skills=[],
        )

    def counts(self) -> None:
        self.prompt, self.completion, self.cached = self.prompt + 100, self.completion + 10, self.cached + 60
        self.cost += 0.25
        usage = {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "cache_read_tokens": self.cached,
            "cache_write_tokens": 0,
            "reasoning_tokens": 0,
        }
        agent = {"model_name": "glm-5", "accumulated_cost": self.cost, "accumulated_token_usage": usage}
        spare = {"accumulated_cost": 0.0, "accumulated_token_usage": dict.fromkeys(usage, 0)}
        value = {"usage_to_metrics": {"default": agent, "condenser": spare}}
        self.event("ConversationStateUpdateEvent", "environment", key="stats", value=value)

    def acted(self, response: str, call: str, command: str, thought: str = "", **more: Any) -> str:
        arguments = json.dumps({"command": command, "security_risk": "LOW"})
        return self.event(
            "ActionEvent",
            "agent",
            thought=words(thought) if thought else [],
            reasoning_content="Where?",
            thinking_blocks=[],
            action={"kind": "TerminalAction", "command": command, "is_input": False},
            tool_name="terminal",
            tool_call_id=call,
            llm_response_id=response,
            summary="Looks",
            tool_call={"id": call, "name": "terminal", "arguments": arguments, "origin": "completion"},
            **more,
        )

    def observed(self, action: str, call: str, text: str, exit_code: int | None = 0, **more: Any) -> str:
        observation = {
            "kind": "TerminalObservation",
            "content": words(text),
            "is_error": False,
            "exit_code": exit_code,
            "timeout": False,
            **more,
        }
        return self.event(
            "ObservationEvent",
            "environment",
            tool_name="terminal",
            tool_call_id=call,
            action_id=action,
            observation=observation,
        )


def whole() -> list[dict[str, Any]]:
    talk = Talk()
    talk.counts()
    first = talk.acted("r1", "c1", "ls", "I look.")
    second = talk.acted("r1", "c2", "cat x")
    talk.observed(second, "c2", "text of x", 2)
    talk.observed(first, "c1", "x y")
    talk.said("user", "Go on.")
    talk.event("PauseEvent", "user")
    talk.counts()
    third = talk.acted("r2", "c3", "make")
    talk.observed(third, "c3", "", None, timeout=True, is_error=True)
    talk.counts()
    talk.acted("r3", "c4", "rm -r /")
    talk.event(
        "UserRejectObservation",
        "environment",
        tool_name="terminal",
        tool_call_id="c4",
        action_id="e13",
        rejection_reason="No.",
    )
    talk.event(
        "Condensation",
        "environment",
        forgotten_event_ids=["e3", "e4", "e5", "e6"],
        summary="Looked.",
        summary_offset=2,
        llm_response_id="r4",
    )
    talk.counts()
    talk.said("agent", "Done.", "r5")
    talk.event("ConversationStateUpdateEvent", "environment", key="execution_status", value="finished")
    return talk.events


def read(folder: Path, events: list[dict[str, Any]]) -> Trajectory:
    return only(found_by(READER, lines_of(folder, events)))


def test_actions_with_one_response_are_one_turn_with_parallel_calls(tmp_path: Path) -> None:
    found = read(tmp_path, whole())
    first = found.turns[0]
    assert [turn.response_id for turn in found.turns] == ["r1", "r2", "r3", "r5"]
    assert [(one.id, one.observation, one.exit_code) for one in first.calls] == [
        ("c1", "x y", 0),
        ("c2", "text of x", 2),
    ]
    assert (first.message["content"], first.reasoning) == ("I look.", "Where?")
    assert [one["id"] for one in first.message["tool_calls"]] == ["c1", "c2"]
    assert first.calls[0].message == {"role": "tool", "tool_call_id": "c1", "content": "x y"}
    assert first.calls[0].kept["summary"] == "Looks"


def test_running_totals_become_the_usage_of_each_answer(tmp_path: Path) -> None:
    found = read(tmp_path, whole())
    assert [(one.usage.input_total, one.usage.output_total, one.usage.cache_read) for one in found.turns] == [
        (100, 10, 60)
    ] * 4
    assert [one.cost_reported for one in found.turns] == [Decimal("0.25")] * 4
    assert (found.totals.input_tokens, found.totals.cost) == (400, Decimal("1.0"))
    assert found.model.name == "glm-5"


def test_counts_that_come_after_an_answer_are_that_answers(tmp_path: Path) -> None:
    talk = Talk()
    talk.acted("r1", "c1", "ls")
    talk.counts()
    talk.prompt += 900
    talk.acted("r2", "c2", "ls")
    talk.counts()
    found = read(tmp_path, talk.events)
    assert [turn.usage.input_total for turn in found.turns] == [100, 1000]


def test_a_call_of_the_model_without_its_answer_is_noted_and_not_added_to_the_next(tmp_path: Path) -> None:
    talk = Talk()
    talk.counts()
    talk.counts()
    talk.acted("r1", "c1", "ls")
    found = read(tmp_path, talk.events)
    assert found.turns[0].usage.input_total == 100
    assert any(note.field == "stats" and note.kind == "missing" for note in found.notes)


def test_condensing_leaves_what_was_not_forgotten_and_the_summary(tmp_path: Path) -> None:
    (rewritten,) = [one for one in read(tmp_path, whole()).items if isinstance(one, Rewritten)]
    assert [(one["role"], one["content"]) for one in rewritten.messages] == [
        ("system", "You mend.\nToday."),
        ("user", "Mend it.\nRules."),
        ("user", "Looked."),
        ("user", "Go on.\nRules."),
        ("assistant", ""),
        ("tool", ""),
        ("assistant", ""),
        ("tool", "Action rejected: No."),
    ]


def test_the_rest_of_the_events_is_read_or_shown(tmp_path: Path) -> None:
    found = read(tmp_path, whole())
    assert [one["role"] for one in found.opening] == ["system", "user"]
    assert (found.exit_reason, found.native_reason, found.final_message) == (
        ExitReason.AGENT,
        "finished",
        "Done.",
    )
    given_up, rejected = found.turns[1].calls[0], found.turns[2].calls[0]
    assert (given_up.timed_out, given_up.failed, rejected.failed) == (True, True, True)
    assert [one.message["content"] for one in found.items if isinstance(one, Message)] == ["Go on.\nRules."]
    asides = [one.name for one in found.items if isinstance(one, Aside)]
    assert asides == ["stats", "PauseEvent", "stats", "stats", "stats", "state"]
    assert any(note.field == "SystemPromptEvent.tools" for note in found.notes)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("MaxIterationsReached", ExitReason.MAX_TURNS),
        ("LLMContextWindowExceedError", ExitReason.MAX_CONTEXT_LEN),
        ("LLMRateLimitError", ExitReason.LLM_QUERY_ERROR),
        ("KeyError", None),
    ],
)
def test_the_error_of_a_conversation_tells_why_it_ended(
    tmp_path: Path, code: str, reason: ExitReason | None
) -> None:
    talk = Talk()
    talk.acted("r1", "c1", "ls")
    talk.event("ConversationErrorEvent", "environment", code=code, detail="It broke.")
    talk.event("ConversationStateUpdateEvent", "environment", key="execution_status", value="error")
    found = read(tmp_path, talk.events)
    assert (found.exit_reason, found.native_reason, found.error) == (reason, code, "It broke.")


def test_an_agent_error_answers_its_call_or_joins_as_a_message(tmp_path: Path) -> None:
    talk = Talk()
    talk.acted("r1", "c1", "ls")
    talk.event("AgentErrorEvent", "agent", tool_name="terminal", tool_call_id="c1", error="No such tool.")
    talk.event("AgentErrorEvent", "agent", tool_name="terminal", tool_call_id="c7", error="Lost.")
    turn, message = read(tmp_path, talk.events).items
    assert isinstance(message, Message)
    assert (turn.calls[0].observation, turn.calls[0].failed) == ("No such tool.", True)  # type: ignore[union-attr]
    assert message.message == {"role": "user", "content": "Lost."}


def test_a_folder_of_files_is_one_conversation_with_its_state(tmp_path: Path) -> None:
    state = {
        "id": "s",
        "execution_status": "finished",
        "max_iterations": 500,
        "agent": {
            "kind": "Agent",
            "llm": {
                "model": "openai/glm-5",
                "api_key": "sk-recorded",
                "temperature": 0.0,
                "base_url": "http://x",
            },
            "tools": [{"name": "terminal"}],
        },
        "stats": {
            "usage_to_metrics": {
                "default": {
                    "accumulated_cost": 1.5,
                    "costs": [{"cost": 1.5}],
                    "accumulated_token_usage": {"prompt_tokens": 70, "completion_tokens": 7},
                    "token_usages": [{"response_id": "r1", "prompt_tokens": 70, "completion_tokens": 7}],
                    "response_latencies": [{"response_id": "r1", "latency": 1.5}],
                }
            }
        },
    }
    talk = Talk()
    action = talk.acted("r1", "c1", "ls")
    talk.observed(action, "c1", "x y")
    documents = []
    for number, event in enumerate(talk.events):
        local = document_of(tmp_path, event, f"{number}.json").local
        documents.append(Document(f"run/events/event-{number:05}-{event['id']}.json", local))
    documents.append(Document("run/base_state.json", document_of(tmp_path, state, "base_state.json").local))
    assert all(READER.recognises(probe(one)) for one in documents)
    assert len({READER.grouping(one, probe(one)) for one in documents}) == 1
    found = only(found_by(READER, *reversed(documents)))
    (turn,) = found.turns
    assert turn.calls[0].observation == "x y"
    assert (turn.usage.input_total, turn.usage.output_total, turn.seconds) == (70, 7, 1.5)
    assert (found.totals.cost, found.totals.input_tokens) == (Decimal("1.5"), 70)
    assert (found.model.name, found.model.sampling, found.limits) == (
        "openai/glm-5",
        {"temperature": 0.0},
        {"max_iterations": 500},
    )
    assert (found.exit_reason, found.harness.config["tools"]) == (ExitReason.AGENT, [{"name": "terminal"}])
    assert "sk-recorded" not in repr(found)


def test_an_evaluation_around_events_of_v1_is_read_like_one_of_v0(tmp_path: Path) -> None:
    line = {
        "instance_id": "astropy-1",
        "test_result": {"git_patch": "diff"},
        "history": whole(),
        "metrics": {},
    }
    found = only(found_by(OpenHands(), document_of(tmp_path, line)))
    assert (found.origin.format, found.instance_id, found.patch) == ("openhands-v1", "astropy-1", "diff")
    assert len(found.turns) == 4


def test_a_broken_line_or_file_stops_no_other(tmp_path: Path) -> None:
    events = whole()
    problem, found = found_by(READER, lines_of(tmp_path, [*events[:3], "{broken", *events[3:]]))
    assert isinstance(problem, Problem)
    assert isinstance(found, Trajectory)
    assert (problem.place, len(found.turns)) == ("line 4", 4)
    (tmp_path / "broken.json").write_text("{")
    broken = Document("broken.json", tmp_path / "broken.json")
    found_too = found_by(READER, broken, document_of(tmp_path, events[2], "1.json"))
    assert [type(one) for one in found_too] == [Problem, Trajectory]


def test_a_document_is_told_from_its_content(tmp_path: Path) -> None:
    assert READER.recognises(probe(lines_of(tmp_path, whole())))
    assert READER.recognises(probe(document_of(tmp_path, whole())))
    assert not READER.recognises(probe(document_of(tmp_path, {"id": 1, "timestamp": "x", "action": "run"})))
    assert not READER.recognises(probe(document_of(tmp_path, {"kind": "Condensation"})))


def test_a_real_piece_of_a_conversation_has_its_ten_events() -> None:
    data = os.environ.get("LAB_TEST_DATA", "")
    local = Path(data, "trajectories/openhands/v1-events.jsonl")
    if not data or not local.is_file():
        pytest.skip("absent data: set LAB_TEST_DATA to a folder with trajectories/openhands")
    document = Document(local.name, local)
    assert READER.recognises(probe(document))
    found = only(found_by(READER, document))
    observed = sum(call.observation is not None for turn in found.turns for call in turn.calls)
    assert len(found.items) + observed == 10
    assert [turn.usage.total for turn in found.turns] == [35_484, 36_176]
    assert [str(turn.message["content"]).startswith("<think>") for turn in found.turns] == [True, True]
    assert found.turns[1].calls[0].exit_code == 1
    assert (found.exit_reason, found.native_reason) == (None, "running")


TEXT = st.text(min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(turns=st.lists(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3), min_size=1, max_size=4))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, turns: list[list[tuple[str, str]]]
) -> None:
    talk = Talk()
    for number, pairs in enumerate(turns):
        actions = [talk.acted(f"r{number}", f"c{number}_{i}", one) for i, (one, _) in enumerate(pairs)]
        for i, (action, (_, output)) in enumerate(zip(actions, pairs, strict=True)):
            talk.observed(action, f"c{number}_{i}", output)
    folder = tmp_path_factory.mktemp("v1")
    found = read(folder, talk.events)
    assert found == read(folder, talk.events)
    assert [
        [(one.arguments["command"], one.observation) for one in turn.calls] for turn in found.turns
    ] == turns
    cut = read(folder, talk.events[: 2 + 2 * len(turns[0])])
    assert cut.items == found.items[:1]


@settings(deadline=None, max_examples=150)
@given(events=mutated(whole()))
def test_broken_documents_never_stop_a_reader(tmp_path_factory: pytest.TempPathFactory, events: Any) -> None:
    folder = tmp_path_factory.mktemp("v1")
    assert survives(READER, document_of(folder, events))
    assert survives(READER, *(document_of(folder, one, f"{i}.json") for i, one in enumerate(events)))


def test_conversations_of_one_configuration_have_one_harness_whenever_they_were(tmp_path: Path) -> None:
    def at(moment: str) -> Trajectory:
        folder = tmp_path / moment
        folder.mkdir()
        context = {"current_datetime": moment, "skills": ["careful"]}
        agent = {"llm": {"model": "glm-5"}, "agent_context": context}
        state = {"agent": agent, "execution_status": "finished", "persistence_dir": "/w"}
        event = document_of(folder, Talk().events[1], "0.json")
        return only(found_by(READER, event, document_of(folder, state, "base_state.json")))

    first, second = at("10:00"), at("11:00")
    assert first.harness == second.harness
    assert first.harness.config["agent_context"] == {"skills": ["careful"]}
    assert first.kept["agent_context"] == {"current_datetime": "10:00"}
