"""Whether an endpoint with a limit is kept busy: prints one JSON object.

A lab with 12 slots has 64 runs that wait for one endpoint, which takes 8 at once and answers each request
after a while; every step runs one command, and each run is graded. A run is in flight from when a worker
claims it until it has ended. Looked at from when the eighth run is in flight until the last one is claimed:
until then some wait.

Targets: never more than 8 at once, and on average 0.95 of them, told here as at most 1 / 0.95 times.

    python -m tests.bench.occupancy [--rounds 1] [--quick]
"""

from __future__ import annotations

import datetime as dt
import statistics
import time
from typing import Any

from tests.bench import figures, programs
from tests.bench.contestants.chat_endpoint import MODEL
from tests.bench.contestants.lab_process import KEY_VARIABLE
from tests.bench.figures import Target
from tests.whole_lab import WholeLab, wait_for

LIMIT, RUNS, SLOTS = 8, 64, 12
DELAY_SECONDS = 2.0
STEPS = 7
_WHOLE_SECONDS = 1200.0
_OPEN = "SELECT count(*) FROM lab_run WHERE status <> 'ended'"
_TIMES = (
    "SELECT a.started_at, r.ended_at, a.n FROM lab_attempt a JOIN lab_run r ON r.id = a.run_id "
    "WHERE r.ended_at IS NOT NULL"
)


def in_flight(times: list[tuple[float, float]]) -> tuple[int, float]:
    """The most runs at once, and how many on average while some wait; `times` are begins and ends."""
    begins = sorted(begin for begin, _ in times)
    since, until = begins[LIMIT - 1], begins[-1]
    inside = sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in times)
    # An end at the moment of a begin comes first.
    moves = sorted([(begin, 1) for begin, _ in times] + [(end, -1) for _, end in times])
    now, most = 0, 0
    for _, move in moves:
        now += move
        most = max(most, now)
    return most, inside / (until - since)


def _seconds(moment: Any) -> float:
    if isinstance(moment, str):
        moment = dt.datetime.fromisoformat(moment)
    return float(moment.timestamp())


def once(number: int, runs: int, steps: int) -> dict[str, Any]:
    """One lab from its start to the ends of its runs."""
    words = ["--steps", str(steps), "--command", "ls", "--delay", str(DELAY_SECONDS), "--apart"]
    settings = {KEY_VARIABLE: "bench-key", "LAB_RUN_SLOTS": str(SLOTS)}
    with (
        programs.running(programs.module("chat_endpoint", *words)) as endpoint,
        WholeLab(**settings) as lab,
    ):
        address = f"http://127.0.0.1:{programs.first_line(endpoint)['port']}/lab/v1"
        launch = ["--base-url", address, "--model", MODEL, "--runs", str(runs), "--limit", str(LIMIT)]
        began = time.perf_counter()
        programs.run_whole(programs.module("lab_launch", *launch), environment=lab.environment)
        wait_for(lambda: lab.value(_OPEN) == 0, what="the ends of the runs", seconds=_WHOLE_SECONDS)
        whole = time.perf_counter() - began
        rows = lab.query(_TIMES)
    again = [row for row in rows if row[2] > 1]
    most, mean = in_flight([(_seconds(begin), _seconds(end)) for begin, end, n in rows if n == 1])
    return {
        "most_in_flight": most,
        "mean_in_flight": round(mean, 3),
        "of_the_limit": round(mean / LIMIT, 4),
        "whole_seconds": round(whole, 1),
        "further_attempts": len(again),
        "round": number,
    }


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=1)
    runs, steps = (24, 3) if chosen.quick else (RUNS, STEPS)
    before = figures.probe()
    found = [once(number, runs, steps) for number in range(1, chosen.rounds + 1)]
    reached = statistics.median(one["of_the_limit"] for one in found)
    targets = [
        Target("most runs in flight", max(one["most_in_flight"] for one in found), LIMIT),
        Target("limit over mean runs in flight", round(1 / reached, 4), round(1 / 0.95, 4)),
    ]
    figures.report({"runs": runs, "rounds": found, "noise": figures.noise(before, figures.probe())}, targets)


if __name__ == "__main__":
    main()
