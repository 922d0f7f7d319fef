"""The reader of OpenHands V0: evaluation outputs as it writes them, real ones, and broken ones."""

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
from lab.engine.formats.trajectory import Aside, Message, Problem, Rewritten, Trajectory, Turn
from lab.engine.verify.base import Outcome
from tests.engine.formats.mutations import document_of, found_by, lines_of, mutated, only, survives

READER = OpenHands()


class Run:
    """Writes the history of a run event by event, with running totals as OpenHands keeps them."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []
        self.tokens = {
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
        }
        self.cost = 0.0
        self.usages: list[dict[str, Any]] = []
        tool = {"type": "function", "function": {"name": "execute_bash", "parameters": {}}}
        system = {"content": "You mend.", "openhands_version": "0.35.0", "tools": [tool]}
        self.event("agent", action="system", args=system)
        self.event("user", action="message", args={"content": "Mend it.", "image_urls": None})

    def event(self, source: str, **fields: Any) -> int:
        number = len(self.history)
        stamp = f"2026-03-01T10:00:{number:02}.5"
        self.history.append({"id": number, "timestamp": stamp, "source": source, **fields})
        return number

    def answer(
        self, identifier: str, *calls: tuple[str, str, dict[str, Any]], usage: bool = True, cost: float = 0.01
    ) -> list[int]:
        """One answer with calls (id, tool, arguments): an action each, with the whole response in each."""
        self.tokens["prompt_tokens"] += 100
        self.tokens["completion_tokens"] += 10
        self.tokens["cache_read_tokens"] += 60
        self.cost += cost
        made = [
            {"id": call, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for call, name, arguments in calls
        ]
        message = {
            "role": "assistant",
            "content": f"Thought {identifier}.",
            "tool_calls": made,
            "function_call": None,
        }
        response = {
            "id": identifier,
            "model": "glm-5",
            "object": "chat.completion",
            "created": 1,
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
        }
        if usage:
            response["usage"] = {"prompt_tokens": 100, "completion_tokens": 10}
        actions = []
        for call, name, arguments in calls:
            metadata = {"function_name": name, "tool_call_id": call, "model_response": response,
                        "total_calls_in_response": len(calls)}  # fmt: skip
            totals = {
                "accumulated_cost": self.cost,
                "accumulated_token_usage": {"model": "glm-5", **self.tokens},
            }
            action = {"execute_bash": "run"}.get(name, name)
            args = {**arguments, "thought": message["content"], "hidden": False}
            actions.append(
                self.event("agent", action=action, args=args, tool_call_metadata=metadata, llm_metrics=totals)
            )
        return actions

    def ran(self, cause: int, content: str, exit_code: int = 0, suffix: str = "") -> None:
        metadata = {"exit_code": exit_code, "working_dir": "/workspace", "suffix": suffix}
        self.event("agent", cause=cause, observation="run", content=content,
                   extras={"command": "x", "metadata": metadata}, success=exit_code == 0)  # fmt: skip

    def line(self, **fields: Any) -> dict[str, Any]:
        return {
            "instance_id": "astropy-1",
            "instruction": "Mend it.",
            "instance": {"problem_statement": "It is broken.", "repo": "astropy/astropy"},
            "metadata": {
                "agent_class": "CodeActAgent",
                "llm_config": {
                    "model": "openai/glm-5",
                    "base_url": "http://127.0.0.1:1",
                    "api_key": "sk-recorded",
                    "temperature": 0.0,
                },
                "max_iterations": 50,
            },
            "test_result": {"git_patch": "diff --git a/x b/x\n"},
            "history": self.history,
            "metrics": {
                "accumulated_cost": self.cost,
                "accumulated_token_usage": self.tokens,
                "costs": [{"cost": self.cost}] if self.cost else [],
                "token_usages": [],
                "response_latencies": [{"response_id": "r1", "latency": 2.5, "model": "glm-5"}],
            },
            "error": None,
            **fields,
        }  # fmt: skip


LIST = ("c1", "execute_bash", {"command": "ls"})
SHOW = ("c2", "execute_bash", {"command": "cat x"})
FINISH = ("c9", "finish", {"message": "Mended."})


def whole() -> dict[str, Any]:
    run = Run()
    run.event("user", action="recall", args={"query": "Mend it."})
    listed, shown = run.answer("r1", LIST, SHOW)
    run.ran(shown, "text of x", 2)
    run.ran(listed, "x y")
    run.event("agent", observation="error", content="No such tool.", extras={"error_id": "E"})
    run.event("user", action="message", args={"content": "Go on.", "image_urls": ["http://127.0.0.1/1.png"]})
    (again,) = run.answer("r2", ("c3", "execute_bash", {"command": "make"}), usage=False)
    run.ran(again, "...", -1, "\n[The command has no new output after 120 seconds.]")
    forgotten = {"forgotten_event_ids": [3, 4, 5, 6], "summary": "Looked at x.", "summary_offset": 2}
    run.event("agent", action="condensation", args=forgotten)
    run.answer("r3", FINISH)
    return run.line(test_result={"git_patch": "diff --git a/x b/x\n", "report": {"resolved": True}})


def read(folder: Path, value: Any) -> Trajectory:
    return only(found_by(READER, document_of(folder, value)))


def test_several_actions_of_one_response_are_one_turn(tmp_path: Path) -> None:
    found = read(tmp_path, whole())
    first = found.turns[0]
    assert (len(found.turns), first.response_id, first.model, first.finish_reason) == (
        3,
        "r1",
        "glm-5",
        "tool_calls",
    )
    assert [(one.id, one.name, one.observation, one.exit_code) for one in first.calls] == [
        ("c1", "execute_bash", "x y", 0),
        ("c2", "execute_bash", "text of x", 2),
    ]
    assert first.message["content"] == "Thought r1."
    assert "function_call" not in first.message
    assert first.seconds == 2.5
    assert first.calls[0].message == {"role": "tool", "tool_call_id": "c1", "content": "x y"}
    assert first.calls[0].kept["args"] == {"hidden": False}


def test_usage_that_is_counted_up_is_differenced(tmp_path: Path) -> None:
    first, second, third = read(tmp_path, whole()).turns
    assert [(one.usage.input_total, one.usage.output_total) for one in (first, second, third)] == [
        (100, 10)
    ] * 3
    assert (second.usage.cache_read, second.usage.input_uncached) == (60, 40)
    assert [round(one.cost_reported or 0, 6) for one in (first, second, third)] == [Decimal("0.01")] * 3


def test_a_cost_of_nothing_that_was_never_priced_is_unknown(tmp_path: Path) -> None:
    run = Run()
    run.answer("r1", LIST, cost=0.0)
    found = read(tmp_path, run.line())
    assert (found.turns[0].cost_reported, found.totals.cost) == (None, None)


def test_a_running_total_that_falls_is_no_usage(tmp_path: Path) -> None:
    run = Run()
    run.answer("r1", LIST, usage=False)
    run.tokens["prompt_tokens"] = -60
    run.answer("r2", SHOW, usage=False)
    assert read(tmp_path, run.line()).turns[1].usage.input_total is None


def test_condensing_leaves_what_was_not_forgotten_and_the_summary(tmp_path: Path) -> None:
    found = read(tmp_path, whole())
    (rewritten,) = [one for one in found.items if isinstance(one, Rewritten)]
    assert [(one["role"], one["content"]) for one in rewritten.messages] == [
        ("system", "You mend."),
        ("user", "Mend it."),
        ("user", "Looked at x."),
        ("user", "No such tool."),
        ("user", [{"type": "text", "text": "Go on."}, {"type": "image_url", "image_url": {"url": "http://127.0.0.1/1.png"}}]),
        ("assistant", "Thought r2."),
        ("tool", "..."),
    ]  # fmt: skip


def test_the_rest_of_a_line_is_read_or_kept(tmp_path: Path) -> None:
    found = read(tmp_path, whole())
    assert [type(one).__name__ for one in found.items] == [
        "Aside", "Turn", "Message", "Message", "Turn", "Rewritten", "Turn",
    ]  # fmt: skip
    error, said = [one for one in found.items if isinstance(one, Message)]
    assert (error.by, error.reason, said.by) == ("harness", "error", "person")
    assert (found.instance_id, found.statement) == ("astropy-1", "It is broken.")
    assert (found.harness.version, found.model.name, found.model.sampling) == (
        "0.35.0", "openai/glm-5", {"temperature": 0.0},
    )  # fmt: skip
    assert (found.patch, found.limits) == ("diff --git a/x b/x\n", {"max_iterations": 50})
    assert (found.exit_reason, found.native_reason, found.final_message) == (
        ExitReason.AGENT,
        "finish",
        "Mended.",
    )
    assert found.turns[-1].calls[0].submitted
    assert (found.turns[1].calls[0].timed_out, found.turns[1].calls[0].exit_code) == (True, None)
    assert [one.outcome for one in found.gradings] == [Outcome.RESOLVED]
    assert found.task_kept == {"repo": "astropy/astropy"}
    assert [one["function"]["name"] for one in found.tools] == ["execute_bash"]
    assert isinstance(found.items[0], Aside)
    assert "sk-recorded" not in repr(found)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("RuntimeError: Agent reached maximum iteration in headless mode.", ExitReason.MAX_TURNS),
        ("litellm.RateLimitError: slow down", ExitReason.LLM_QUERY_ERROR),
        ("LLMContextWindowExceedError: too long", ExitReason.MAX_CONTEXT_LEN),
        ("AgentStuckInLoopError: again and again", None),
    ],
)
def test_an_error_tells_the_reason_or_leaves_it_unknown(
    tmp_path: Path, error: str, reason: ExitReason | None
) -> None:
    found = read(tmp_path, {**whole(), "error": error})
    assert (found.exit_reason, found.native_reason, found.error) == (reason, error, error)


def test_pairs_and_a_bare_list_of_events_are_read_alike(tmp_path: Path) -> None:
    run = Run()
    (listed,) = run.answer("r1", LIST)
    run.ran(listed, "x y")
    whole_line = read(tmp_path, run.line())
    pairs = [run.history[:2], run.history[2:]]
    assert read(tmp_path, run.line(history=pairs)).items == whole_line.items
    bare = read(tmp_path, run.history)
    assert bare.turns[0].calls == whole_line.turns[0].calls
    assert READER.recognises(probe(document_of(tmp_path, run.history)))


def test_an_action_without_its_answer_is_a_call_with_an_id_of_the_readers(tmp_path: Path) -> None:
    run = Run()
    action = run.event("agent", action="run", args={"command": "ls", "thought": "I look."})
    run.ran(action, "x y")
    (turn,) = read(tmp_path, run.line()).turns
    (call,) = turn.calls
    assert turn.message == {"role": "assistant", "content": "I look."}
    assert (call.id, call.synthesised_id, call.name, call.arguments) == (
        "call_1_0",
        True,
        "run",
        {"command": "ls"},
    )
    assert call.message == {"role": "user", "content": "x y"}


def test_a_broken_line_is_a_problem_and_the_next_one_is_read(tmp_path: Path) -> None:
    first, broken, third = found_by(READER, lines_of(tmp_path, [whole(), "{broken", whole()]))
    assert isinstance(first, Trajectory)
    assert isinstance(broken, Problem)
    assert isinstance(third, Trajectory)
    assert (broken.place, third.origin.place) == ("line 2", "line 3")


REAL = {
    "ponylang__ponyc-4595": (49, 23, 565158, 2558, ExitReason.AGENT),
    "ponylang__ponyc-4593": (70, 33, 410169, 5156, ExitReason.AGENT),
    "ponylang__ponyc-4588": (103, 49, 938015, 5627, ExitReason.MAX_TURNS),
}


def test_real_runs_have_the_recorded_events_tokens_and_patches() -> None:
    data = os.environ.get("LAB_TEST_DATA", "")
    local = Path(data, "trajectories/openhands/multi-swe-bench-output.jsonl")
    if not data or not local.is_file():
        pytest.skip("absent data: set LAB_TEST_DATA to a folder with trajectories/openhands")
    document = Document(local.name, local)
    assert READER.recognises(probe(document))
    found = [one for one in found_by(READER, document) if isinstance(one, Trajectory)]
    assert [one.instance_id for one in found] == list(REAL)
    for run in found:
        events, turns, read_tokens, written, reason = REAL[run.instance_id]
        observed = sum(call.observation is not None for turn in run.turns for call in turn.calls)
        assert len(run.opening) + len(run.items) + observed == events
        assert len(run.turns) == turns
        assert (
            sum(turn.usage.input_total or 0 for turn in run.turns) == read_tokens == run.totals.input_tokens
        )
        assert sum(turn.usage.output_total or 0 for turn in run.turns) == written == run.totals.output_tokens
        assert run.exit_reason == reason
        assert run.patch
        assert run.totals.cost is None


TEXT = st.text(min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(calls=st.lists(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3), min_size=1, max_size=4))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, calls: list[list[tuple[str, str]]]
) -> None:
    run = Run()
    for number, pairs in enumerate(calls):
        made = [(f"c{number}_{i}", "execute_bash", {"command": one}) for i, (one, _) in enumerate(pairs)]
        for action, (_, output) in zip(run.answer(f"r{number}", *made), pairs, strict=True):
            run.ran(action, output)
    folder = tmp_path_factory.mktemp("openhands")
    found = read(folder, run.line())
    assert found == read(folder, run.line())
    assert [
        [(one.arguments["command"], one.observation) for one in turn.calls] for turn in found.turns
    ] == calls
    cut = read(folder, run.line(history=run.history[: 2 + 2 * len(calls[0])]))
    assert cut.items == found.items[:1]


@settings(deadline=None, max_examples=150)
@given(value=mutated(whole()))
def test_broken_documents_never_stop_a_reader(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    assert survives(READER, document_of(tmp_path_factory.mktemp("openhands"), value))


def test_every_turn_stands_where_its_first_action_stood(tmp_path: Path) -> None:
    found = read(tmp_path, whole())
    places = [place for place, one in enumerate(found.items) if isinstance(one, Turn)]
    assert places == [1, 4, 6]


def test_runs_of_one_configuration_have_one_harness_whenever_they_were_started(tmp_path: Path) -> None:
    def started(at: str) -> Trajectory:
        line = Run().line()
        line["metadata"] |= {"start_time": at, "eval_output_dir": f"outputs/run_{at}"}
        return read(tmp_path, line)

    first, second = started("10:00"), started("10:09")
    assert first.harness == second.harness
    assert first.harness.config["agent_class"] == "CodeActAgent"
    assert first.kept["metadata"] == {"start_time": "10:00", "eval_output_dir": "outputs/run_10:00"}


def test_what_tests_printed_is_kept_with_the_grading_or_the_task_which_are_not_for_everybody(
    tmp_path: Path,
) -> None:
    printed = {"git_patch": "", "test_output": "hidden tests"}
    graded = read(tmp_path, Run().line(test_result={**printed, "report": {"resolved": False}}))
    assert graded.gradings[0].kept["test_result"] == {"test_output": "hidden tests"}
    assert "test_result" not in graded.kept
    ungraded = read(tmp_path, Run().line(test_result=printed))
    assert ungraded.task_kept["test_result"] == {"test_output": "hidden tests"}
    assert "test_result" not in ungraded.kept
