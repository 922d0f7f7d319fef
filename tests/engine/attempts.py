"""Whole attempts against a fake server, in a real sandbox, with a real verification; everything is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from lab.engine import registry
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import ModelConfig, Price
from lab.engine.runner import AttemptResult, AttemptSpec, run_attempt
from lab.engine.sinks import ListSink
from lab.engine.stop import StopSignal
from tests.engine.conftest import MakeTask

E = TypeVar("E")
KEY = "an-endpoint-key-0123456789abcdef"


class WatchedSink(ListSink):
    """Keeps every draft, whole."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def draft(self, *, step: int, content: str, reasoning: str, calls: str, characters: int) -> None:
        self.shown.append("\n".join([content, reasoning, calls]))

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def one(self, kind: type[E]) -> E:
        (event,) = self.of(kind)
        return event

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def run_whole(
    folder: Path,
    make_task: MakeTask,
    base_url: str,
    *,
    test: str = "def test_f():\n    pass\n",
    sink: WatchedSink | None = None,
    stop: StopSignal | None = None,
    model: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    **fields: Any,
) -> tuple[AttemptResult, WatchedSink]:
    """One attempt at a task of one file; `model` and `limits` are put over what is usual."""
    task = make_task(
        {"thing.py": "x = 1\n"},
        command=("python", "-m", "pytest", "test_thing.py"),
        test_files={"test_thing.py": test},
        fail_to_pass=("test_thing.py::test_f",),
    )
    harness = load_preset("leaf-compatible")
    sink = sink if sink is not None else WatchedSink()
    asked = {"name": "fake", "model_id": "fake", "base_url": base_url, "price": Price(basis="unknown")}
    spec = AttemptSpec(
        task=task,
        harness=harness,
        model=ModelConfig(**{**asked, **(model or {})}),
        provider=registry.provider("process"),
        data_folder=folder,
        label="run-9-1",
        api_key=KEY,
        key_variable="FAKE_KEY",
        limits=harness.limits.model_copy(update=limits or {}),
        **{"retry_seconds": 0.2, "chunk_seconds": 0.0, **fields},
    )
    return run_attempt(spec, sink, stop or StopSignal()), sink
