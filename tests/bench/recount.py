"""How long it takes to count 1,500 runs of 150 steps anew, on SQLite: prints one JSON object.

`recount` sums tokens, cost, steps and verdicts of every run from its stored requests and gradings, and its
figures are compared with the roll-ups once. `rebuild` folds the whole log of some runs anew, for comparison.

Target: all runs, 225,000 steps, counted in a second.

    python -m tests.bench.recount [--rounds 5] [--quick]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import big_lab, figures
from tests.bench.figures import Target

RUNS, STEPS = 1_500, 150
SECONDS = 1.0
_REBUILT = 20


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(folder: Path, runs: int, rounds: int) -> tuple[dict[str, Any], float]:
    """What was found, and the fastest recount in seconds.

    Raises:
        RuntimeError: the recount and the roll-ups differ.
    """
    big_lab.prepare(folder)
    began = time.perf_counter()
    filled = big_lab.fill(runs=runs, steps=STEPS)
    made = time.perf_counter() - began
    from lab.models import Call
    from lab.services import facts, recounts

    differences = list(recounts.differing())
    if differences:
        raise RuntimeError(f"{len(differences)} figures differ, as {differences[0]}")
    counted = [_seconds(recounts.recount) for _ in range(rounds)]
    rebuilt = [_seconds(lambda run=run: facts.rebuild_facts(run_id=run)) for run in filled.runs[:_REBUILT]]
    found = {
        "runs": runs,
        "steps": runs * STEPS,
        "requests": Call.objects.count(),
        "rounds": rounds,
        "made_in_seconds": round(made, 1),
        "database_megabytes": round((folder / "lab.sqlite3").stat().st_size / 1e6),
        "recount_seconds": figures.summary(counted, 3),
        "rebuild_milliseconds_a_run": figures.summary([one * 1000 for one in rebuilt], 1),
    }
    return found, min(counted)


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=5)
    runs = 50 if chosen.quick else RUNS
    before = figures.probe()
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as folder:
        found, fastest = measure(Path(folder), runs, chosen.rounds)
    found["noise"] = figures.noise(before, figures.probe())
    why = "" if runs == RUNS else "too few runs"
    figures.report(found, [Target("recount seconds", None if why else round(fastest, 3), SECONDS, why)])


if __name__ == "__main__":
    main()
