"""What a worker's pool child holds of its own while it works, over what it held idle: prints one JSON object.

A lab with one worker runs a step whose command prints 100 MB. A second lab runs four runs of 150 steps with
2 KB of output at once. Memory is each pool child's private pages, looked at 20 times a second; what commands
use in their sandboxes is their own. Children share what was loaded before they were forked.

Targets: 100 MB of output at most 50 MB above idle. H4: each concurrent run at most 10 MB above an idle child.

    python -m tests.bench.child_memory [--rounds 1] [--quick]
"""

from __future__ import annotations

import time
from typing import Any

from tests.bench import figures, processes, programs
from tests.bench.contestants.chat_endpoint import MODEL
from tests.bench.contestants.lab_process import KEY_VARIABLE
from tests.bench.figures import Target
from tests.whole_lab import WholeLab, wait_for

OUTPUT_BYTES = 100_000_000
RUNS = 4
STEPS = 149
_SETTLE_SECONDS = 3.0
_WHOLE_SECONDS = 300.0
_OPEN = "SELECT count(*) FROM lab_run WHERE status <> 'ended'"
_ENDS = "SELECT exit_reason FROM lab_run"


def growth(*, runs: int, steps: int, command: str) -> dict[str, Any]:
    """Megabytes that pool children grow by while as many runs go on as there are children.

    Raises:
        RuntimeError: a run ended otherwise than by its agent.
    """
    words = ["--steps", str(steps), "--command", command]
    settings = {KEY_VARIABLE: "bench-key", "LAB_RUN_SLOTS": str(runs)}
    with programs.running(programs.module("chat_endpoint", *words)) as endpoint, WholeLab(**settings) as lab:
        port = programs.first_line(endpoint)["port"]
        time.sleep(_SETTLE_SECONDS)
        main = lab.child("celery", "--queues runs")
        children = [pid for pid in processes.tree(main) if pid != main]
        idle = {pid: processes.memory(pid).private for pid in children}
        with processes.peak_private(children) as peaks:
            launch = ["--base-url", f"http://127.0.0.1:{port}/lab-{{number}}/v1", "--model", MODEL]
            programs.run_whole(
                programs.module("lab_launch", *launch, "--runs", str(runs)), environment=lab.environment
            )
            wait_for(lambda: lab.value(_OPEN) == 0, what="the ends of the runs", seconds=_WHOLE_SECONDS)
        ends = lab.query(_ENDS)
    if any(reason != "agent" for (reason,) in ends):
        raise RuntimeError(f"runs ended as {ends}")
    grown = {pid: peaks[pid] - idle[pid] for pid in children}
    return {
        "idle_megabytes": figures.summary(list(idle.values()), 1),
        "grown_megabytes": [round(one, 1) for one in sorted(grown.values())],
        "steps": steps,
    }


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=1)
    size, steps = (5_000_000, 10) if chosen.quick else (OUTPUT_BYTES, STEPS)
    before = figures.probe()
    large = [
        growth(runs=1, steps=1, command=f"head -c {size} /dev/zero | tr '\\0' x")
        for _ in range(chosen.rounds)
    ]
    several = [growth(runs=RUNS, steps=steps, command="printf '%02000d' 0") for _ in range(chosen.rounds)]
    most = {
        "100 MB of output": max(max(one["grown_megabytes"]) for one in large),
        "H4 each concurrent run": max(max(one["grown_megabytes"]) for one in several),
    }
    targets = [
        Target("100 MB of output, megabytes above idle", most["100 MB of output"], 50.0),
        Target("H4 each concurrent run, megabytes above idle", most["H4 each concurrent run"], 10.0),
    ]
    found = {"output_bytes": size, "large_output": large, "concurrent_runs": several}
    figures.report({**found, "noise": figures.noise(before, figures.probe())}, targets)


if __name__ == "__main__":
    main()
