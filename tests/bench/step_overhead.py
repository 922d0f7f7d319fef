"""What the lab adds to a step of an agent: prints one JSON with ratios taken in one interleaved run.

Three loops ask the same endpoint, which answers at once, and run the same command of 2 KB output 150 times:
the floor (httpx2 and one `bash -lc` a step), the lab's whole worker path (a claimed run, every event stored,
its lease kept, one viewer watching through a web process), and the peer mini-swe-agent with its trajectory
saved. Overhead is wall time a step minus
the floor's; wall time and own processor time are taken at the endpoint, alike for all three.

H1: overhead at most 0.2 of the peer's. H2: overhead of steps 140 to 150 at most 1.5 times that of steps 1 to
10. H3: own processor time a step at most 0.3 of the peer's. H4: peak memory at most 0.5 of the peer's.

`LAB_BENCH_MINI_PYTHON` names an interpreter that has mini-swe-agent; without it H1, H3 and H4 are null.
"""

from __future__ import annotations

import json
import os
import statistics
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench import figures, programs
from tests.bench.contestants.chat_endpoint import MODEL
from tests.bench.figures import Target

ROUNDS = 5
# Of the 150 model calls that the harness allows, the last one ends the loop without a command.
STEPS = 149
OUTPUT_BYTES = 2000
MINI = os.environ.get("LAB_BENCH_MINI_PYTHON", "")
NO_PEER = "LAB_BENCH_MINI_PYTHON names no interpreter with mini-swe-agent"


@dataclass
class Measured:
    """The rounds of one loop. `steps` are milliseconds of each step, a list a round."""

    steps: list[list[float]] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    peak_megabytes: list[float] = field(default_factory=list)

    def add(self, noted: dict[str, Any], steps: int) -> None:
        arrivals = noted["arrivals"]
        if len(arrivals) != steps + 1 or noted["cpu_seconds"] is None:
            raise RuntimeError(f"{len(arrivals)} requests came instead of {steps + 1}")
        pairs = zip(arrivals, arrivals[1:], strict=False)
        self.steps.append([(after - before) * 1000 for before, after in pairs])
        self.cpu_ms.append(noted["cpu_seconds"] * 1000 / steps)
        self.peak_megabytes.append(noted["peak_kilobytes"] / 1024)

    @property
    def wall_ms(self) -> list[float]:
        return [statistics.mean(one) for one in self.steps]

    def typical(self, first: int, last: int) -> float:
        """Mean over steps `first` to `last` (from 1) of each step's median over the rounds."""
        return statistics.mean(
            statistics.median(one) for one in list(zip(*self.steps, strict=True))[first - 1 : last]
        )

    def shown(self) -> dict[str, Any]:
        last = len(self.steps[0])
        return {
            "wall_ms_step": figures.summary(self.wall_ms),
            "own_cpu_ms_step": figures.summary(self.cpu_ms),
            "peak_megabytes": figures.summary(self.peak_megabytes, 1),
            "first_10_ms": round(self.typical(1, 10), 2),
            "last_10_ms": round(self.typical(last - 9, last), 2),
        }


class Course:
    """One endpoint and one prepared lab; `round(n)` lets each loop run once."""

    def __init__(self, port: int, host: str, steps: int, launched: dict[str, Any], folder: Path) -> None:
        self._host = host
        self._launched = launched
        self._address = f"http://127.0.0.1:{port}"
        self._steps = steps
        self._folder = folder
        home = folder / "home"
        home.mkdir()
        self._environment: dict[str, str] = launched["environment"] | {"HOME": str(home)}
        self.loops: dict[str, Measured] = {}
        self.attempts: list[dict[str, Any]] = []
        self.seen: list[dict[str, Any]] = []
        self.peer = ""

    def round(self, number: int) -> None:
        self._note("floor", number, lambda: self._floor(f"{self._address}/floor-{number}/v1"))
        self._note("lab", number, lambda: self._lab(number))
        if MINI:
            self._note("mini", number, lambda: self._mini(number))

    def _note(self, name: str, number: int, run: Any) -> None:
        run()
        with urllib.request.urlopen(f"{self._address}/{name}-{number}/figures") as answer:
            self.loops.setdefault(name, Measured()).add(json.load(answer), self._steps)

    def _floor(self, url: str) -> None:
        words = ["--base-url", url, "--steps", str(self._steps), "--folder", str(self._folder)]
        programs.run_whole(
            programs.module("floor_loop", *words, "--environment", json.dumps(self._environment))
        )

    def _lab(self, number: int) -> None:
        words = ["--host", self._host, "--run", str(self._launched["runs"][number - 1])]
        viewer = programs.module("lab_viewer", *words, "--cookie", self._launched["cookie"])
        with programs.running(viewer) as watching:
            programs.first_line(watching)
            self._attempt()
            self.seen.append(programs.first_line(watching))

    def _attempt(self) -> None:
        self.attempts.append(
            programs.run_whole(
                programs.module("lab_process"), environment=programs.lab_environment(self._folder)
            )
        )

    def _mini(self, number: int) -> None:
        program = programs.ROOT / "tests" / "bench" / "contestants" / "mini_swe_agent.py"
        words = [MINI, str(program), "--model", MODEL, "--base-url", f"{self._address}/mini-{number}/v1"]
        words += ["--warm-url", f"{self._address}/mini-warm-{number}/v1"]
        words += ["--trajectory", str(self._folder / f"mini-{number}.json")]
        self.peer = programs.run_whole(words, environment=self._environment, only=True)["version"]


def measure(rounds: int, steps: int) -> tuple[dict[str, Any], list[Target]]:
    command = f"printf '%0{OUTPUT_BYTES}d' 0"
    before = figures.probe()
    with (
        programs.scratch_folder() as folder,
        programs.running(
            programs.module("chat_endpoint", "--steps", str(steps), "--command", command)
        ) as endpoint,
    ):
        environment = programs.lab_environment(folder)
        port = programs.first_line(endpoint)["port"]
        url = f"http://127.0.0.1:{port}/lab-{{number}}/v1"
        launched = programs.run_whole(
            programs.module("lab_launch", "--base-url", url, "--model", MODEL, "--runs", str(rounds)),
            environment=environment,
        )
        with programs.lab_web(environment) as host:
            course = Course(port, host, steps, launched, folder)
            for number in range(1, rounds + 1):
                course.round(number)
    shown = {
        "rounds": rounds,
        "steps": steps,
        "output_bytes": OUTPUT_BYTES,
        "sandbox": launched["sandbox"],
        "peer": f"mini-swe-agent {course.peer}" if course.peer else None,
        "viewers": course.seen,
        "loops": {name: loop.shown() for name, loop in course.loops.items()},
        "attempts": course.attempts,
        "noise": figures.noise(before, figures.probe()),
    }
    return shown, targets(course.loops, steps)


def targets(loops: Mapping[str, Measured], steps: int) -> list[Target]:
    floor, own = loops["floor"], loops["lab"]

    def overhead(first: int, last: int) -> float:
        return own.typical(first, last) - floor.typical(first, last)

    flat = overhead(steps - 9, steps) / max(overhead(1, 10), 0.1)
    judged = [Target("H2 last steps over first", round(flat, 3), 1.5)]
    peer = loops.get("mini")
    if peer is None:
        names = {
            "H1 overhead over the peer's": 0.2,
            "H3 own CPU over the peer's": 0.3,
            "H4 memory over the peer's": 0.5,
        }
        return judged + [Target(name, None, limit, NO_PEER) for name, limit in names.items()]
    median = statistics.median
    base = median(floor.wall_ms)
    return [
        Target(
            "H1 overhead over the peer's",
            round((median(own.wall_ms) - base) / (median(peer.wall_ms) - base), 3),
            0.2,
        ),
        *judged,
        Target("H3 own CPU over the peer's", round(median(own.cpu_ms) / median(peer.cpu_ms), 3), 0.3),
        Target(
            "H4 memory over the peer's",
            round(median(own.peak_megabytes) / median(peer.peak_megabytes), 3),
            0.5,
        ),
    ]


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=ROUNDS)
    figures.report(*measure(chosen.rounds, 40 if chosen.quick else STEPS))


if __name__ == "__main__":
    main()
