"""How long the outlines of 6 runs of 150 steps take, each step with an output of 30 KB.

    python -m tests.bench.outlines

Prints one JSON object of milliseconds. `first`: in a process that has read nothing, connection included;
`again`: nothing new in the logs; `grown`: one more step in one of them. `short_outputs`: the first time for
runs whose outputs of 4 KB stand in the log itself, which is the most that a step's row can hold.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

RUNS, STEPS = 6, 150
_FILES = ("src/pricing.py", "tests/test_pricing.py", "src/rules/discounts.py", "README.md")


def _prepare(folder: str) -> None:
    os.environ.update(LAB_DATA_DIR=folder, DJANGO_SETTINGS_MODULE="lab.settings")
    import django

    django.setup()


def _runs(output: Callable[[int], str]) -> list[int]:
    from lab.models import Run
    from tests import builders

    found = []
    for number in range(RUNS):
        run = builders.run(status=Run.Status.QUEUED)
        builders.start(run)
        for first in range(1, STEPS + 1, 50):
            events = [
                event
                for step in range(first, first + 50)
                for event in builders.bash_step(step, _command(number, step), output(step))
            ]
            builders.append(run, *events)
        found.append(run.pk)
    return found


def _command(run: int, step: int) -> str:
    path = _FILES[step % len(_FILES)]
    return (
        f"cd /workspace && sed -n '{step},{step + 40}p' {path}",
        f'grep -rn "def price_{step}_{run % 2}" --include="*.py" {path} | head -20',
        f"python -m pytest -q {path} -k 'price and not slow_{step}'",
        f"cat > {path} <<'EOF'\n" + f"price = {step}\n" * 40 + "EOF\npython -m pytest -q",
    )[step % 4]


def _timed(pks: list[int]) -> float:
    from lab.models import Run
    from lab.services import outlines

    runs = list(Run.objects.filter(pk__in=pks))
    started = time.perf_counter()
    read = outlines.outlines_of(runs)
    taken = time.perf_counter() - started
    assert len(read) == RUNS
    assert all(len(one.steps) >= STEPS for one in read)
    return taken * 1e3


def _fresh(folder: str, pks: list[int], times: multiprocessing.Queue[tuple[float, float]]) -> None:
    _prepare(folder)
    first = _timed(pks)
    times.put((first, statistics.median(_timed(pks) for _ in range(9))))


def _in_fresh_processes(folder: str, pks: list[int], rounds: int) -> list[tuple[float, float]]:
    context = multiprocessing.get_context("spawn")
    times: multiprocessing.Queue[tuple[float, float]] = context.Queue()
    for _ in range(rounds):
        process = context.Process(target=_fresh, args=(folder, pks, times))
        process.start()
        process.join()
    return [times.get() for _ in range(rounds)]


def measure(folder: str, *, rounds: int = 7) -> dict[str, object]:
    """The figures of one run of the bench."""
    from lab.models import Run
    from tests import builders

    long = _runs(lambda step: f"{step} line of output, 60 long {'.' * 32}\n" * 500)
    short = _runs(lambda step: f"{step} line of output, 60 long {'.' * 32}\n" * 60)
    first, again = zip(*_in_fresh_processes(folder, long, rounds), strict=True)
    in_rows, _ = zip(*_in_fresh_processes(folder, short, rounds), strict=True)
    _timed(long)
    grown = []
    run = Run.objects.get(pk=long[0])
    for step in range(STEPS + 1, STEPS + 1 + rounds):
        builders.append(run, *builders.bash_step(step, "python -m pytest -q", "7 passed\n"))
        grown.append(_timed(long))
    return {
        "first_ms": _figures(first),
        "again_ms": _figures(again),
        "grown_ms": _figures(grown),
        "short_outputs_first_ms": _figures(in_rows),
    }


def _figures(times: tuple[float, ...] | list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(times), 2), "best": round(min(times), 2)}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as name:
        folder = str(Path(name))
        _prepare(folder)
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        json.dump({"bench": "outlines", **measure(folder)}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
