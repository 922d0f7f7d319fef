"""How long a killed run takes to go on: from reading its log to its next request. Prints one JSON object.

A run of 150 steps, each with 2 KB of output and a changed file, is continued from its log as another worker
child does: read the log, fold it, compare the last input with what was sent, start a sandbox, unpack the
snapshot, put 149 stored changes over it, take stock, ask. The sandbox's own start is left out.

Target: at most 3 s plus the sandbox.

    python -m tests.bench.resume [--rounds 5] [--quick]
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.engine import registry
from lab.engine.attempt import AttemptSpec
from lab.engine.errors import HandedOverError
from lab.engine.events import Event, ModelCallStarted, Record, SandboxStarted
from lab.engine.harnesses.presets import load_preset
from lab.engine.llm.base import ModelConfig, Price
from lab.engine.runner import run_attempt
from lab.engine.sinks import JSONLSink, ListSink, blob_folder, read_log
from lab.engine.steering import Steering
from lab.engine.stop import StopSignal
from lab.engine.tasks.loader import load_task, practice_folder
from tests.bench import figures
from tests.bench.engine_step import endpoint
from tests.bench.figures import Target

STEPS = 150
TARGET_SECONDS = 3.0
COMMAND = (
    "n=$(cat .count 2> /dev/null || echo 0); n=$((n + 1)); echo $n > .count; "
    "head -c 2048 /dev/zero | tr '\\0' x | tee file-$n"
)


class Dying(JSONLSink):
    """Writes a log, and ends the attempt in the last step's call, as a kill does."""

    def __init__(self, path: Path, steering: Steering, steps: int) -> None:
        super().__init__(path)
        self._steering, self._steps = steering, steps

    def append_all(self, events: Sequence[Event]) -> list[Record]:
        if any(event.kind == "tool_call_started" and event.step == self._steps for event in events):
            self._steering.close()
        return super().append_all(events)


class Waiting(ListSink):
    """Notes when the continued attempt asks its model, and what its sandbox's start took."""

    def __init__(self, steering: Steering, first_seq: int) -> None:
        super().__init__(first_seq=first_seq)
        self._steering = steering
        self.asked_at = 0.0
        self.sandbox_seconds = 0.0

    def append_all(self, events: Sequence[Event]) -> list[Record]:
        for event in events:
            if isinstance(event, SandboxStarted) and not self.asked_at:
                self.sandbox_seconds = event.seconds
            if isinstance(event, ModelCallStarted) and not self.asked_at:
                self.asked_at = time.perf_counter()
                self._steering.close()
        return super().append_all(events)


def spec_for(base_url: str, folder: Path, sandbox: str, steps: int) -> AttemptSpec:
    harness = load_preset("leaf-compatible")
    limits = harness.limits.model_copy(update={"max_steps": steps + 10, "max_context_tokens": None})
    return AttemptSpec(
        task=load_task(practice_folder() / "parse-duration"),
        harness=harness,
        model=ModelConfig(name="bench", model_id="bench", base_url=base_url, price=Price(basis="unknown")),
        limits=limits,
        provider=registry.provider(sandbox),
        data_folder=folder,
        label="bench-resume",
        api_key="sk-bench-0123456789abcdef",
    )


def write_log(spec: AttemptSpec, path: Path, steps: int) -> None:
    steering = Steering()
    sink = Dying(path, steering, steps)
    try:
        run_attempt(spec, sink, StopSignal(), steering=steering)
    except HandedOverError:
        sink.close()
        return
    raise AssertionError("the run ended before it was to be killed")


def resume(spec: AttemptSpec, path: Path) -> dict[str, float]:
    """Seconds from the log's file to the next request."""
    began = time.perf_counter()
    records = read_log(path)
    read = time.perf_counter()
    steering = Steering()
    sink = Waiting(steering, records[-1].seq + 1)
    continued = dataclasses.replace(
        spec,
        history=tuple(records),
        read_blob=lambda sha256: (blob_folder(path) / sha256).read_bytes(),
    )
    with contextlib.suppress(HandedOverError):
        run_attempt(continued, sink, StopSignal(), steering=steering)
    return {
        "read": read - began,
        "sandbox": sink.sandbox_seconds,
        "all_but_sandbox": sink.asked_at - began - sink.sandbox_seconds,
    }


def measure(rounds: int, steps: int, folder: Path) -> dict[str, Any]:
    names = [name for name in ("process", "bubblewrap") if registry.provider(name).available() is None]
    found: dict[str, Any] = {}
    with endpoint(steps, COMMAND) as base_url:
        for name in names:
            path = folder / f"{name}.jsonl"
            spec = spec_for(base_url, folder, name, steps)
            write_log(spec, path, steps)
            told = [resume(spec, path) for _ in range(rounds)]
            found[name] = {
                "log_megabytes": round(path.stat().st_size / 1e6, 2),
                "changes": sum(1 for _ in blob_folder(path).iterdir()),
                **{key: figures.summary([one[key] for one in told], 3) for key in told[0]},
            }
    return found


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=5)
    steps = 10 if chosen.quick else STEPS
    before = figures.probe()
    with tempfile.TemporaryDirectory() as folder:
        # Readable for whoever the sandbox's commands run as.
        Path(folder).chmod(0o755)
        found = measure(chosen.rounds, steps, Path(folder))
    targets = [
        Target(f"resume seconds, {name}", one["all_but_sandbox"]["median"], TARGET_SECONDS)
        for name, one in found.items()
    ]
    figures.report(
        {"steps": steps, "sandboxes": found, "noise": figures.noise(before, figures.probe())}, targets
    )


if __name__ == "__main__":
    main()
