"""Recorded turns are served again as long as the conversation goes as it went then."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engine import registry
from lab.engine.attempt import AttemptSpec
from lab.engine.errors import ExitReason
from lab.engine.events import (
    AttemptEnded,
    ModelCallFailed,
    ModelCallFinished,
    PatchCaptured,
    ToolCallFinished,
)
from lab.engine.harnesses.base import HarnessConfig, Observation
from lab.engine.harnesses.conversation import check_inputs
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import ModelConfig, Price
from lab.engine.llm.replay import OnDifference, Recording, parted_lines, recording_of
from lab.engine.runner import AttemptResult, run_attempt
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal
from lab.engine.tasks.loader import load_task_set, practice_folder
from lab.engine.tasks.spec import TaskSpec
from lab.engine.verify.base import Outcome

LEAF = load_preset("leaf-compatible")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replay")


@pytest.fixture(scope="module")
def task() -> TaskSpec:
    return next(task for task in load_task_set(practice_folder()).tasks if task.id == "ledger-rounding")


def attempt(
    folder: Path,
    task: TaskSpec,
    *,
    replay: Recording | None = None,
    harness: HarnessConfig = LEAF,
    sink: ListSink | None = None,
) -> tuple[AttemptResult, ListSink]:
    sink = sink or ListSink()
    name = "scripted/solver" if replay is None else "replay"
    price = Price(basis="scripted" if replay is None else "replay")
    spec = AttemptSpec(
        task=task,
        harness=harness,
        model=ModelConfig(name=name, model_id=name, base_url="", scripted=replay is None, price=price),
        limits=harness.limits,
        provider=registry.provider("process"),
        data_folder=folder,
        label="run-1-1",
        chunk_seconds=0.0,
        replay=replay,
    )
    return run_attempt(spec, sink, StopSignal()), sink


@pytest.fixture(scope="module")
def recorded(folder: Path, task: TaskSpec) -> ListSink:
    result, sink = attempt(folder, task)
    assert result.verdict is Outcome.RESOLVED
    return sink


def recording(sink: ListSink, on_difference: OnDifference = "stop") -> Recording:
    return recording_of(sink.records, source="run 7", on_difference=on_difference)


def replies(sink: ListSink) -> list[tuple[str, list[str]]]:
    finished = [event.reply for event in sink.events if isinstance(event, ModelCallFinished)]
    return [(reply.content, [call.arguments for call in reply.tool_calls]) for reply in finished]


def changed(harness: HarnessConfig, name: str, **fields: object) -> HarnessConfig:
    tools = [tool.model_copy(update=fields) if tool.name == name else tool for tool in harness.tools]
    return harness.model_copy(update={"tools": tuple(tools)})


def test_a_replay_does_what_was_done_at_no_cost(folder: Path, task: TaskSpec, recorded: ListSink) -> None:
    result, sink = attempt(folder, task, replay=recording(recorded))
    assert (result.exit_reason, result.verdict) == (ExitReason.AGENT, Outcome.RESOLVED)
    assert replies(sink) == replies(recorded)
    costs = [event.cost for event in sink.events if isinstance(event, ModelCallFinished)]
    assert {(cost.basis, cost.amount) for cost in costs} == {("replay", 0)}
    assert check_inputs(sink.records).differing == []


def test_another_prompt_and_other_descriptions_are_no_difference(
    folder: Path, task: TaskSpec, recorded: ListSink
) -> None:
    harness = changed(LEAF, "Bash", description="Runs things.").model_copy(
        update={"system_prompt": "Mend it."}
    )
    result, _ = attempt(folder, task, replay=recording(recorded), harness=harness)
    assert result.verdict is Outcome.RESOLVED


def test_the_first_other_observation_ends_the_run_and_is_shown(
    folder: Path, task: TaskSpec, recorded: ListSink
) -> None:
    harness = changed(LEAF, "Bash", observation=Observation(template="It said: {{ text }}"))
    result, sink = attempt(folder, task, replay=recording(recorded), harness=harness)
    assert result.exit_reason is ExitReason.REPLAY_DIVERGED
    assert not result.retryable
    assert "run 7" in result.error
    assert "It said:" in result.error
    (failed,) = [event for event in sink.events if isinstance(event, ModelCallFailed)]
    assert (failed.error, failed.retry_in) == ("replay_diverged", None)
    parted = parted_lines(failed.message)
    assert parted is not None
    assert parted[0].startswith("the conversation differs from run 7, step 2, message ")
    assert "It said:" not in parted[1]
    assert "It said:" in parted[2]
    (ended,) = [event for event in sink.events if isinstance(event, AttemptEnded)]
    assert ended.exit_reason == "replay_diverged"


def test_a_replay_that_follows_says_where_it_first_differed(
    folder: Path, task: TaskSpec, recorded: ListSink
) -> None:
    harness = changed(LEAF, "Bash", observation=Observation(template="It said: {{ text }}"))
    result, sink = attempt(folder, task, replay=recording(recorded, "follow"), harness=harness)
    assert (result.exit_reason, result.verdict) == (ExitReason.AGENT, Outcome.RESOLVED)
    (patch,) = [event for event in sink.events if isinstance(event, PatchCaptured)]
    assert "first difference" in patch.detail
    assert "It said:" in patch.detail


def without(harness: HarnessConfig, name: str) -> HarnessConfig:
    return harness.model_copy(update={"tools": tuple(tool for tool in harness.tools if tool.name != name)})


def test_a_tool_the_harness_does_not_offer_ends_a_run_that_stops_and_both_sides_are_told(
    folder: Path, task: TaskSpec, recorded: ListSink
) -> None:
    result, sink = attempt(folder, task, replay=recording(recorded), harness=without(LEAF, "Edit"))
    assert result.exit_reason is ExitReason.REPLAY_DIVERGED
    (failed,) = [event for event in sink.events if isinstance(event, ModelCallFailed)]
    parted = parted_lines(failed.message)
    assert parted is not None
    assert parted[0].endswith("of run 7 calls a tool that this harness does not offer")
    assert parted[1] == "calls Edit"
    assert parted[2].startswith("tools Bash, ")


def test_one_that_follows_goes_on_past_an_unknown_tool_and_says_so(
    folder: Path, task: TaskSpec, recorded: ListSink
) -> None:
    replay = recording(recorded, "follow")
    result, sink = attempt(folder, task, replay=replay, harness=without(LEAF, "Edit"))
    assert result.exit_reason is ExitReason.AGENT
    assert replies(sink) == replies(recorded)
    finished = [event for event in sink.events if isinstance(event, ToolCallFinished)]
    assert any(event.failed and "Edit" in event.observation for event in finished)
    (patch,) = [event for event in sink.events if isinstance(event, PatchCaptured)]
    assert "followed beyond its first difference" in patch.detail
    assert "calls Edit" in patch.detail


def test_a_recording_that_ends_too_early_says_how_long_it_is(
    folder: Path, task: TaskSpec, recorded: ListSink
) -> None:
    whole = recording(recorded)
    cut = Recording(whole.source, whole.turns[:2])
    result, _ = attempt(folder, task, replay=cut)
    assert result.exit_reason is ExitReason.REPLAY_DIVERGED
    assert "has 2 turns" in result.error


def test_a_replay_that_was_interrupted_goes_on_with_the_turn_that_is_due(
    folder: Path, task: TaskSpec, recorded: ListSink
) -> None:
    first, sink = attempt(folder, task, replay=recording(recorded))
    assert first.verdict is Outcome.RESOLVED
    finished = [at for at, record in enumerate(sink.records) if isinstance(record.event, ModelCallFinished)]
    # Killed in the middle of the third call: it has begun, and its answer never came.
    history = tuple(sink.records[: finished[2]])
    again = ListSink()
    for record in history:
        again.append(record.event)
    spec = AttemptSpec(
        task=task,
        harness=LEAF,
        model=ModelConfig(name="replay", model_id="replay", base_url="", price=Price(basis="replay")),
        limits=LEAF.limits,
        provider=registry.provider("process"),
        data_folder=folder,
        label="run-1-1",
        chunk_seconds=0.0,
        replay=recording(recorded),
        history=history,
        read_blob=lambda sha256: sink.blobs[sha256],
    )
    result = run_attempt(spec, again, StopSignal())
    assert (result.exit_reason, result.verdict) == (ExitReason.AGENT, Outcome.RESOLVED)
    assert replies(again) == replies(recorded)
