"""How long an analysis of 1,500 runs takes on the server, on SQLite: prints one JSON object.

The runs are those of one experiment of three arms, 100 tasks and five seeds, of 150 steps each. Each part is
timed by itself: reading the observations, and every section's numbers. `page` is the whole page as somebody
who is signed in gets it. `cpu_milliseconds` are the process's own, which other programs on the machine do not
lengthen much. What is loaded once a process (scipy's special functions, templates) is loaded before.

Target: the whole page within 150 ms.

    python -m tests.bench.analysis_page [--rounds 10] [--quick]
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
MOST_MILLISECONDS = 150.0
_COMPUTED = "observed and computed"


def _parts() -> dict[str, Callable[[], Any]]:
    """What a page is worked out from, by name; the first reads what the others take."""
    from lab.analysis import conduct, harness_effect, pairs, per_task, resolve, spending
    from lab.services import analysis

    found = analysis.observed(analysis.Selection())
    runs, switches = found.observations, found.selection.switches
    keys = [arm.key for arm in found.arms]
    sides = [harness_effect.parts_of(key) for key in keys]
    return {
        "observed": lambda: analysis.observed(analysis.Selection()),
        "rates": lambda: resolve.of_arms(keys, runs, switches),
        "pairs": lambda: pairs.of_pairs(pairs.all_of(keys), runs, switches),
        "spending": lambda: spending.of_arms(keys, runs, switches),
        "plane": lambda: spending.plane(keys, runs, switches),
        "curves": lambda: spending.curves(keys, runs, switches),
        "conduct": lambda: conduct.conduct(runs, switches),
        "tasks": lambda: per_task.per_task(runs, switches),
        "harness effect": lambda: harness_effect.slopes(runs, switches, sides),
    }


def _milliseconds(work: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU time."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000


def _page() -> Callable[[], Any]:
    from django.test import Client
    from django.urls import reverse

    from tests import builders

    client = Client()
    client.force_login(builders.person())

    def ask() -> None:
        answer = client.get(reverse("analysis"))
        if answer.status_code != 200:
            raise RuntimeError(f"the page answers {answer.status_code}")

    return ask


def measure(folder: Path, runs: int, rounds: int) -> tuple[dict[str, Any], float]:
    """What was found, and the page's fastest time in milliseconds.

    Raises:
        RuntimeError: it answers no page.
    """
    big_lab.prepare(folder)
    big_lab.fill(runs=runs, steps=STEPS)
    work = _parts() | {"page": _page()}
    began = time.perf_counter()
    for one in work.values():
        one()
    first = time.perf_counter() - began
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, one in work.items():
            times[name].append(_milliseconds(one))
    found = {
        "runs": runs,
        "rounds": rounds,
        "everything_once_after_start_seconds": round(first, 2),
        "milliseconds": _summaries({name: [wall for wall, _ in each] for name, each in times.items()}),
        "cpu_milliseconds": _summaries({name: [cpu for _, cpu in each] for name, each in times.items()}),
    }
    return found, min(wall for wall, _ in times["page"])


def _summaries(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Of each part, and of all parts but the page together."""
    together = [sum(row) for row in zip(*(times[name] for name in times if name != "page"), strict=True)]
    return {name: figures.summary(each, 1) for name, each in (times | {_COMPUTED: together}).items()}


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=10)
    runs = 60 if chosen.quick else RUNS
    before = figures.probe()
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as folder:
        found, fastest = measure(Path(folder), runs, chosen.rounds)
    found["noise"] = figures.noise(before, figures.probe())
    why = "" if runs == RUNS else "too few runs"
    target = Target("page milliseconds", None if why else round(fastest, 1), MOST_MILLISECONDS, why)
    figures.report(found, [target])


if __name__ == "__main__":
    main()
