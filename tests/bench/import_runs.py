"""How long 500 recorded runs take to be imported, and how much memory: prints one JSON object.

The command imports an archive of 500 runs with 20,000 calls and 112 MB: the real one, where LAB_TEST_DATA
names a folder with it, else made ones of that size. Then it imports the same archive again, which adds
nothing. Each round has a lab of its own with SQLite; memory is the most that the command held at once.

Targets: at most 120 s and 400 MB.

    python -m tests.bench.import_runs [--rounds 1] [--quick]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import figures
from tests.bench.figures import Target
from tests.grown_up import PROJECT, GrownUp
from tests.services.leaf_files import trajectory, write

RUNS, STEPS, OUTPUT_BYTES = 500, 40, 2400
SECONDS, MEGABYTES = 120.0, 400.0
_REAL = "trajectories/mini-swe-agent/swe-bench-verified-500.tar.zst"


def archive(folder: Path, runs: int) -> Path:
    """What is imported."""
    named = os.environ.get("LAB_TEST_DATA", "")
    if named and runs == RUNS and (real := Path(named) / _REAL).is_file():
        return real
    made = folder / "runs"
    for number in range(runs):
        text = f"{number} {'x' * 78}\n" * (OUTPUT_BYTES // 80)
        write(made / f"{number:03}.json", trajectory(f"task-{number}", steps=STEPS, text=text))
    packed = folder / "runs.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1) as tar:
        tar.add(made, "runs")
    return packed


def imported(lab: GrownUp, given: Path) -> dict[str, Any]:
    """Seconds and megabytes of one import, and what it says it did.

    Raises:
        RuntimeError: something could not be read.
    """
    command = [sys.executable, str(PROJECT / "manage.py"), "import_trajectories", str(given), "--json"]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=lab.environment, stdout=said)
        _, status, used = os.wait4(process.pid, 0)
        passed = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"the import ended with {process.returncode}")
        said.seek(0)
        report = json.load(said)["report"]
    return {
        "seconds": round(passed, 2),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 2),
        "megabytes": round(used.ru_maxrss / 1000, 1),
        "imported": report["imported"],
        "known": report["known"],
    }


def measure(runs: int) -> dict[str, Any]:
    """One round: imported, and once more."""
    with tempfile.TemporaryDirectory() as folder:
        given = archive(Path(folder), runs)
        lab = GrownUp()
        if lab.manage("migrate", "-v0").returncode:
            raise RuntimeError("the lab has no database")
        return {"given": given.name, "first": imported(lab, given), "again": imported(lab, given)}


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=1)
    before = figures.probe()
    rounds = [measure(20 if chosen.quick else RUNS) for _ in range(chosen.rounds)]
    firsts = [one["first"] for one in rounds]
    targets = [
        Target("seconds", min(one["seconds"] for one in firsts), SECONDS),
        Target("megabytes", max(one["megabytes"] for one in firsts), MEGABYTES),
    ]
    figures.report({"rounds": rounds, "noise": figures.noise(before, figures.probe())}, targets)


if __name__ == "__main__":
    main()
