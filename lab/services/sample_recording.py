"""Recording the sample lab: every run is a real attempt in a real sandbox, nothing is written by hand."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import lab
from lab.engine.attempt import AttemptSpec
from lab.engine.environments import practice_environment
from lab.engine.errors import ExitOrigin, InfrastructureError
from lab.engine.events import RunEnded
from lab.engine.harnesses.presets import load_preset
from lab.engine.limits import Limits
from lab.engine.llm.base import JSONObject, ModelConfig, Price
from lab.engine.llm.scripted import CONTEXT_WINDOW, SCRIPTED_MODELS
from lab.engine.runner import run_attempt
from lab.engine.sandboxes.base import SandboxProvider
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal
from lab.engine.tasks.loader import load_task_set, practice_folder
from lab.engine.tasks.spec import TaskSpec
from lab.services.sample_log import Cell, RecordedRun

HARNESSES = ("leaf-compatible", "leaf-bash-only", "r2e", "mini")
TASKS = ("parse-duration", "ledger-rounding", "slug-unicode", "money-split", "dst-schedule", "topo-cycle")
SEEDS = 2
# Scripted models do the same with every harness, so their verdicts would be the same too. In a context this
# small it shows that five tools take more of it than one, and that it lasts longer for a family that measures
# it by the last reply than for one that adds what was observed since: some runs end before their edit.
LIMITS = {"max_context_tokens": 2500}


def cells() -> list[Cell]:
    """Every run of the sample lab, in the order in which a launch would queue them."""
    return [
        Cell(harness, model, task, seed)
        for seed in range(1, SEEDS + 1)
        for task in TASKS
        for harness in HARNESSES
        for model in SCRIPTED_MODELS
    ]


def limits_of(harness: str) -> Limits:
    """The effective limits of the sample's arms with this harness."""
    return load_preset(harness).limits.tightened(LIMITS, context_window=CONTEXT_WINDOW)


def about() -> JSONObject:
    """With what this lab would record the sample; a recording that was made with something else is stale."""
    tasks = _tasks()
    return {
        "harnesses": {name: load_preset(name).digest for name in HARNESSES},
        "tasks": {name: tasks[name].digest for name in TASKS},
        "models": list(SCRIPTED_MODELS),
        "limits": LIMITS,
        "seeds": SEEDS,
    }


def made_with() -> JSONObject:
    """What else is worth knowing of a recording."""
    return {"lab_version": lab.__version__, "python": platform.python_version()}


def record(*, provider: SandboxProvider, data_folder: Path) -> Iterator[RecordedRun]:
    """Run every cell, one after the other, and give each as it ends.

    Raises:
        InfrastructureError: something broke; a sample must not show what was nobody's doing.
    """
    practice_environment(data_folder)
    tasks = _tasks()
    for cell in cells():
        yield record_cell(cell, task=tasks[cell.task], provider=provider, data_folder=data_folder)


def record_cell(
    cell: Cell,
    *,
    task: TaskSpec,
    provider: SandboxProvider,
    data_folder: Path,
    chunk_seconds: float = 0.015,
) -> RecordedRun:
    """Run one cell for real.

    Raises:
        InfrastructureError: something broke.
    """
    sink = ListSink()
    spec = AttemptSpec(
        task=task,
        harness=load_preset(cell.harness),
        model=ModelConfig(
            name=cell.model,
            model_id=cell.model,
            base_url="",
            scripted=True,
            context_window=CONTEXT_WINDOW,
            price=Price(basis="scripted"),
        ),
        limits=limits_of(cell.harness),
        provider=provider,
        data_folder=data_folder,
        label=f"sample-{cell.task}-{cell.seed}",
        seed=cell.seed,
        chunk_seconds=chunk_seconds,
    )
    result = run_attempt(spec, sink, StopSignal())
    if result.exit_reason.origin is not ExitOrigin.MODEL_OR_LIMIT or result.verdict is None:
        raise InfrastructureError(f"{cell}: {result.exit_reason}: {result.error or 'it was not graded'}")
    sink.append(RunEnded(exit_reason=result.exit_reason, verdict=result.verdict))
    return RecordedRun(cell, tuple(sink.records), dict(sink.blobs))


def _tasks() -> dict[str, TaskSpec]:
    return {task.id: task for task in load_task_set(practice_folder()).tasks}
