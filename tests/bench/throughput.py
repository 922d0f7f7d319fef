"""Whether many runs at once keep their model busy: prints one JSON object.

A lab with 32 workers runs 32 runs against an endpoint that answers each request after 1 s; every step runs
one command. Steps a second are counted at the endpoint from when all runs go on until the first one ends.
The ideal is 32 / (1 s + floor): the floor is what a step of the bare loop (httpx2 and one `bash -lc`) takes
beside its answer, measured alone just afterwards.

H5: at least 0.95 of the ideal, told here as at most 1 / 0.95 times the ideal's seconds for a step.

    python -m tests.bench.throughput [--rounds 1] [--quick]
"""

from __future__ import annotations

import json
import statistics
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.bench import figures, programs
from tests.bench.contestants.chat_endpoint import MODEL
from tests.bench.contestants.lab_process import KEY_VARIABLE
from tests.bench.figures import Target
from tests.whole_lab import WholeLab, wait_for

RUNS = 32
DELAY_SECONDS = 1.0
STEPS = 30
FLOOR_STEPS = 8
OUTPUT_BYTES = 2000
_WHOLE_SECONDS = 300.0
_OPEN = "SELECT count(*) FROM lab_run WHERE status <> 'ended'"
_DISTURBED = (
    "SELECT run_id, seq, kind, payload FROM lab_event WHERE kind IN "
    "('model_call_failed', 'model_call_interrupted', 'tool_call_interrupted', 'attempt_continued')"
)


class Course:
    """An endpoint that takes its time, and what came to it."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def arrivals(self, name: str) -> list[float]:
        """When each request of this loop came, in seconds."""
        with urllib.request.urlopen(f"{self.address}/{name}/figures") as answer:
            found: list[float] = json.load(answer)["arrivals"]
        return found

    def floor(self, name: str, environment: dict[str, str], folder: Path) -> float:
        """Seconds of a bare loop's step beside its answer."""
        words = ["--base-url", f"{self.address}/{name}/v1", "--steps", str(FLOOR_STEPS)]
        words += ["--folder", str(folder), "--environment", json.dumps(environment)]
        programs.run_whole(programs.module("floor_loop", *words))
        came = self.arrivals(name)
        steps = [after - before for before, after in zip(came, came[1:], strict=False)]
        return statistics.median(steps) - DELAY_SECONDS


def throughput(runs: list[list[float]]) -> float:
    """Steps a second while all runs went on."""
    first, last = max(came[0] for came in runs), min(came[-1] for came in runs)
    return sum(1 for came in runs for at in came if first < at <= last) / (last - first)


def once(number: int, runs: int, steps: int) -> dict[str, Any]:
    """One lab from its start to the ends of its runs.

    Raises:
        RuntimeError: a run made fewer steps than it was to.
    """
    command = f"printf '%0{OUTPUT_BYTES}d' 0"
    words = ["--steps", str(steps), "--command", command, "--delay", str(DELAY_SECONDS)]
    settings = {KEY_VARIABLE: "bench-key", "LAB_RUN_SLOTS": str(runs)}
    with (
        programs.scratch_folder() as folder,
        programs.running(programs.module("chat_endpoint", *words)) as endpoint,
        WholeLab(**settings) as lab,
    ):
        course = Course(programs.first_line(endpoint)["port"])
        launch = ["--base-url", f"{course.address}/lab-{{number}}/v1", "--model", MODEL, "--runs", str(runs)]
        began = time.perf_counter()
        launched = programs.run_whole(programs.module("lab_launch", *launch), environment=lab.environment)
        wait_for(lambda: lab.value(_OPEN) == 0, what="the ends of the runs", seconds=_WHOLE_SECONDS)
        whole = time.perf_counter() - began
        floor = course.floor("floor", launched["environment"], folder)
        came = [course.arrivals(f"lab-{one}") for one in range(1, runs + 1)]
        disturbed = lab.query(_DISTURBED)
    if any(len(one) <= steps for one in came):
        raise RuntimeError(f"runs made {sorted({len(one) for one in came})} requests instead of {steps + 1}")
    rate = throughput(came)
    ideal = runs / (DELAY_SECONDS + floor)
    spans = [after - before for one in came for before, after in zip(one, one[1:], strict=False)]
    return {
        "steps_a_second": round(rate, 2),
        "ideal": round(ideal, 2),
        "of_the_ideal": round(rate / ideal, 4),
        "floor_ms": round(floor * 1000, 1),
        "beside_the_answer_ms": {
            "median": round((statistics.median(spans) - DELAY_SECONDS) * 1000, 1),
            "p95": round((figures.percentile(spans, 0.95) - DELAY_SECONDS) * 1000, 1),
        },
        "whole_seconds": round(whole, 1),
        "disturbed": [[run, seq, kind, str(payload)[:300]] for run, seq, kind, payload in disturbed],
        "round": number,
    }


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=1)
    runs, steps = (8, 5) if chosen.quick else (RUNS, STEPS)
    before = figures.probe()
    found = [once(number, runs, steps) for number in range(1, chosen.rounds + 1)]
    reached = statistics.median(one["of_the_ideal"] for one in found)
    targets = [Target("H5 ideal throughput over the lab's", round(1 / reached, 4), round(1 / 0.95, 4))]
    figures.report({"runs": runs, "rounds": found, "noise": figures.noise(before, figures.probe())}, targets)


if __name__ == "__main__":
    main()
