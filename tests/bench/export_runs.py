"""How fast 500 imported runs are exported, and in how much memory: prints one JSON object.

The runs of `tests.bench.import_runs` are imported once. Then the command writes all of them to ATIF, and to
the other formats for comparison; memory is the most that the command held at once.

Target: ATIF at 20 runs a second, the command's own start of Django included, in 300 MB.

    python -m tests.bench.export_runs [--rounds 3] [--quick]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench import figures
from tests.bench.figures import Target
from tests.bench.import_runs import RUNS, archive, imported
from tests.grown_up import PROJECT, GrownUp

RUNS_A_SECOND, MEGABYTES = 20.0, 300.0
OTHERS = ("trajectory-lab", "mini-swe-agent", "chat", "csv")


class Took(NamedTuple):
    seconds: float
    processor_seconds: float
    megabytes: float
    written_bytes: int


def exported(lab: GrownUp, format_name: str, folder: Path) -> Took:
    """One export of the first experiment.

    Raises:
        RuntimeError: the command failed.
    """
    target = folder / f"{format_name}.out"
    target.unlink(missing_ok=True)
    command = [sys.executable, str(PROJECT / "manage.py"), "export_trajectories", "--experiment", "1"]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--format", format_name, "--out", str(target)],
        env=lab.environment,
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    passed = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"the export to {format_name} ended with {process.returncode}")
    worked = used.ru_utime + used.ru_stime
    return Took(passed, worked, used.ru_maxrss / 1000, target.stat().st_size)


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=3)
    runs = 20 if chosen.quick else RUNS
    before = figures.probe()
    with tempfile.TemporaryDirectory() as folder:
        lab = GrownUp()
        if lab.manage("migrate", "-v0").returncode:
            raise RuntimeError("the lab has no database")
        imported(lab, archive(Path(folder), runs))
        rounds = [exported(lab, "atif", Path(folder)) for _ in range(chosen.rounds)]
        others = {name: exported(lab, name, Path(folder)) for name in OTHERS}
    found: dict[str, Any] = {
        "runs": runs,
        "rounds": chosen.rounds,
        "atif": {
            "runs_a_second": figures.summary([runs / took.seconds for took in rounds]),
            "processor_seconds": figures.summary([took.processor_seconds for took in rounds]),
            "megabytes": round(max(took.megabytes for took in rounds), 1),
            "written_bytes": rounds[0].written_bytes,
        },
        "others": {
            name: {
                "runs_a_second": round(runs / took.seconds, 1),
                "megabytes": round(took.megabytes),
                "written_bytes": took.written_bytes,
            }
            for name, took in others.items()
        },
        "noise": figures.noise(before, figures.probe()),
    }
    fastest = min(took.seconds for took in rounds)
    why = "" if runs == RUNS else "too few runs: the start of the command is most of it"
    figures.report(
        found,
        [
            Target("seconds_a_run", None if why else fastest / runs, 1 / RUNS_A_SECOND, why),
            Target("megabytes", found["atif"]["megabytes"], MEGABYTES),
        ],
    )


if __name__ == "__main__":
    main()
