"""What a lab costs while nobody uses it: processor time and memory of everything `manage.py up` starts.

Prints one JSON object. The lab is started with eight workers on a data folder of its own and left alone; then
the processor time of all its processes is summed over 30 s, and their memory, shared parts counted once.

Targets: at most 3 % of a core. I8: at most 450 MB.

    python -m tests.bench.idle [--rounds 1] [--quick]
"""

from __future__ import annotations

import time
from typing import Any

from tests.bench import figures, processes
from tests.bench.figures import Target
from tests.whole_lab import WholeLab

SETTLE_SECONDS = 10.0
SECONDS = 30.0
WORKERS = 8


def name_of(pid: int) -> str:
    """Which of the lab's processes it is."""
    words = processes.command(pid)
    known = {"uvicorn": "web", "celery": "worker", " tick": "tick", "manage.py up": "up"}
    return next((name for part, name in known.items() if part in words), words[:40] or "gone")


def measure(rounds: int, seconds: float) -> dict[str, Any]:
    """Percent of a core over each round, by process; megabytes at the end."""
    told: list[dict[str, float]] = []
    with WholeLab(LAB_RUN_SLOTS=str(WORKERS)) as lab:
        time.sleep(SETTLE_SECONDS)
        for _ in range(rounds):
            before = {pid: processes.cpu_seconds(pid) for pid in processes.tree(lab.pid)}
            began = time.perf_counter()
            time.sleep(seconds)
            passed = time.perf_counter() - began
            used: dict[str, float] = {}
            for pid in processes.tree(lab.pid):
                more = processes.cpu_seconds(pid) - before.get(pid, 0.0)
                used[name_of(pid)] = used.get(name_of(pid), 0.0) + 100 * more / passed
            told.append(used)
        held: dict[str, float] = {}
        for pid in processes.tree(lab.pid):
            held[name_of(pid)] = held.get(name_of(pid), 0.0) + processes.memory(pid).proportional
    return {
        "percent_of_a_core": figures.summary([sum(used.values()) for used in told]),
        "percent_by_process": {name: round(value, 2) for name, value in told[-1].items()},
        "megabytes": round(sum(held.values()), 1),
        "megabytes_by_process": {name: round(value, 1) for name, value in held.items()},
    }


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=1)
    before = figures.probe()
    found = measure(chosen.rounds, 5.0 if chosen.quick else SECONDS)
    targets = [
        Target("idle, percent of a core", found["percent_of_a_core"]["median"], 3.0),
        Target("I8 idle megabytes", found["megabytes"], 450.0),
    ]
    figures.report({"workers": WORKERS, **found, "noise": figures.noise(before, figures.probe())}, targets)


if __name__ == "__main__":
    main()
