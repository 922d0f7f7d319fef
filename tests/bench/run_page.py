"""How long the run page takes and how large it is, for runs of 150 and 1,000 steps with 30 KB of output each.

    python -m tests.bench.run_page

Prints one JSON object. Times are milliseconds in the server (test client, sessions and templates included),
"cold" with nothing rendered before, "warm" from the second request on; `…_cpu_ms` is processor time, which
other programs on the machine disturb less. `floor_ms` is the same client asking a
page without a run in it (the health page), taken in turns with the others.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path


def _prepare(folder: Path) -> None:
    os.environ.update(LAB_DATA_DIR=str(folder), DJANGO_SETTINGS_MODULE="lab.settings")
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    settings.ALLOWED_HOSTS.append("testserver")
    call_command("migrate", verbosity=0)


def _run_of(steps: int) -> int:
    from lab.models import Run
    from tests import builders

    run = builders.run(status=Run.Status.QUEUED)
    builders.start(run)
    for first in range(1, steps + 1, 50):
        events = [
            event
            for step in range(first, min(first + 50, steps + 1))
            for event in builders.bash_step(
                step, "python -m pytest -q", f"{step} line of output, 60 long\n" * 1_000
            )
        ]
        builders.append(run, *events)
    builders.append(run, *builders.ending(steps=steps))
    return run.pk


def measure(*, rounds: int = 15) -> dict[str, object]:
    """The figures of one interleaved run."""
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from lab.services import trajectories
    from tests import builders

    runs = {steps: _run_of(steps) for steps in (150, 1_000)}
    client = Client()
    client.force_login(builders.person())
    pages = {"floor": "/healthz"} | {str(steps): f"/runs/{pk}/" for steps, pk in runs.items()}
    for path in pages.values():
        client.get(path)
    wall: dict[tuple[str, str], list[float]] = defaultdict(list)
    cpu: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name, path in pages.items():
            trajectories.forget_rendered()
            for state in ("cold", "warm"):
                started, used = time.perf_counter(), time.process_time()
                client.get(path)
                wall[name, state].append((time.perf_counter() - started) * 1e3)
                cpu[name, state].append((time.process_time() - used) * 1e3)
    result: dict[str, object] = {"floor_ms": round(statistics.median(wall["floor", "warm"]), 2)}
    for steps, pk in runs.items():
        with CaptureQueriesContext(connection) as queries:
            body = client.get(f"/runs/{pk}/").content
        result[f"{steps}_steps"] = {
            **_figures("cold", wall[str(steps), "cold"], cpu[str(steps), "cold"]),
            **_figures("warm", wall[str(steps), "warm"], cpu[str(steps), "warm"]),
            "bytes": len(body),
            "bytes_compressed": len(gzip.compress(body)),
            "queries": len(queries),
        }
    ratio = statistics.median(cpu["1000", "cold"]) / statistics.median(cpu["150", "cold"])
    result["cold_cpu_ratio_1000_to_150"] = round(ratio, 2)
    return result


def _figures(state: str, wall: list[float], cpu: list[float]) -> dict[str, float]:
    return {
        f"{state}_ms_median": round(statistics.median(wall), 2),
        f"{state}_ms_best": round(min(wall), 2),
        f"{state}_cpu_ms_median": round(statistics.median(cpu), 2),
    }


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as folder:
        _prepare(Path(folder))
        print(json.dumps({"bench": "run_page", **measure()}, indent=1))


if __name__ == "__main__":
    main()
