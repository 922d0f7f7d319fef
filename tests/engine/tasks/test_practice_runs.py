"""Both scripted models at every practice task with every harness that comes with the lab: real attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engine import registry
from lab.engine.errors import ExitReason
from lab.engine.events import AttemptEnded, PatchCaptured, ToolCallFinished, ToolCallStarted
from lab.engine.harnesses.conversation import check_inputs
from lab.engine.harnesses.presets import load_preset, preset_names
from lab.engine.llm.base import ModelConfig, Price
from lab.engine.llm.scripted import CONTEXT_WINDOW
from lab.engine.runner import AttemptSpec, run_attempt
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal
from lab.engine.tasks.loader import load_task_set, practice_folder
from lab.engine.tasks.spec import TaskSpec

TASKS = load_task_set(practice_folder()).tasks
MODELS = sorted({model for task in TASKS for model in task.plans})
# Every preset, and its other protocols.
HARNESSES = {
    f"{name} {protocol}": load_preset(name).model_copy(update={"protocol": protocol})
    for name in preset_names()
    for protocol in registry.family(load_preset(name).family).protocols
}


@pytest.fixture(scope="module")
def lab_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("practice-runs")


def attempt(task: TaskSpec, *, harness: str, model: str, seed: int, folder: Path) -> ListSink:
    config = HARNESSES[harness]
    sink = ListSink()
    spec = AttemptSpec(
        task=task,
        harness=config,
        model=ModelConfig(
            name=model,
            model_id=model,
            base_url="",
            scripted=True,
            context_window=CONTEXT_WINDOW,
            price=Price(basis="scripted"),
        ),
        limits=config.limits,
        provider=registry.provider("bubblewrap"),
        data_folder=folder,
        label=f"test-{task.id}",
        seed=seed,
        chunk_seconds=0,
    )
    result = run_attempt(spec, sink, StopSignal())
    assert result.exit_reason is ExitReason.AGENT, sink.events[-1]
    assert result.verdict == task.plans[model][seed - 1]["expected"]
    assert isinstance(sink.events[-1], AttemptEnded)
    return sink


def patch_of(sink: ListSink) -> str:
    (captured,) = [event for event in sink.events if isinstance(event, PatchCaptured)]
    return captured.patch


@pytest.mark.requires("bubblewrap")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_a_plan_leads_to_the_same_patch_and_verdict_with_every_harness(
    task: TaskSpec, model: str, lab_folder: Path
) -> None:
    for seed in range(1, len(task.plans[model]) + 1):
        sinks = {
            harness: attempt(task, harness=harness, model=model, seed=seed, folder=lab_folder)
            for harness in HARNESSES
        }
        assert len({patch_of(sink) for sink in sinks.values()}) == 1, (model, seed)
        for harness, sink in sinks.items():
            offered = {tool.name for tool in HARNESSES[harness].tools}
            started = [event for event in sink.events if isinstance(event, ToolCallStarted)]
            assert {event.tool for event in started} <= offered
            assert check_inputs(sink.records).differing == []


@pytest.mark.requires("bubblewrap")
def test_with_a_shell_alone_files_are_read_searched_and_edited_by_commands(lab_folder: Path) -> None:
    (task,) = [task for task in TASKS if task.id == "dst-schedule"]
    sink = attempt(
        task, harness="leaf-bash-only native", model="scripted/struggler", seed=2, folder=lab_folder
    )
    commands = [
        event.arguments["command"]
        for event in sink.events
        if isinstance(event, ToolCallStarted) and not event.malformed
    ]
    ended = [event for event in sink.events if isinstance(event, ToolCallFinished)]
    assert any(command.startswith("find . -name .git -prune") for command in commands)
    assert "cat almanac/schedule.py" in commands
    assert any(command.startswith("OLD=") for command in commands)
    # A text that is not in the file is a failed command, as it is a failed Edit elsewhere.
    assert any(event.exit_code == 1 and "does not occur exactly once" in event.observation for event in ended)
