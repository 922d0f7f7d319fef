"""What a sandbox in Docker that makes 200,000 files costs the one beside it: one JSON.

A step is what a small tool call does: a command, 2 KB written, 2 KB read. Measured is its median while the
neighbour makes the files, and while they are there and their container's size is looked at again and again,
over that of steps before and after, with nobody beside; target at most 2. What the lab reads of a sandbox's
use must not grow with its files: that of the full one over that of the other, target at most 5 (both are tens
of microseconds).

    python -m tests.bench.docker_neighbour
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from lab.engine.sandboxes.base import Sandbox, SandboxLimits, SandboxSpec
from lab.engine.sandboxes.docker import DockerProvider
from tests import docker_host
from tests.bench.figures import Target, arguments, noise, percentile, probe, report

FILES, FILES_WHEN_QUICK = 200_000, 5_000
STEPS = 60
PAUSE_SECONDS = 0.02
DATA = os.urandom(2048)
MAKE = """
import os, sys
for folder in range(int(sys.argv[1]) // 1000):
    os.mkdir(f"many{folder}")
    for number in range(1000):
        os.close(os.open(f"many{folder}/{number}", os.O_CREAT | os.O_WRONLY))
"""


def step(sandbox: Sandbox) -> None:
    assert sandbox.exec(["sh", "-c", "wc -l < /etc/passwd"], timeout=60).exit_code == 0
    sandbox.write("file", DATA)
    assert sandbox.read("file") == DATA


def steps(sandbox: Sandbox, until: threading.Event | None = None) -> list[float]:
    """Milliseconds of each; with `until`, as many as there is time for until it is set."""
    taken: list[float] = []
    while not until.is_set() if until is not None else len(taken) < STEPS:
        began = time.perf_counter()
        step(sandbox)
        taken.append((time.perf_counter() - began) * 1000)
        time.sleep(PAUSE_SECONDS)
    return taken


def usage_microseconds(sandbox: Sandbox) -> float:
    taken = []
    for _ in range(50):
        began = time.perf_counter()
        sandbox.usage()
        taken.append((time.perf_counter() - began) * 1e6)
    return statistics.median(taken)


def one_round(provider: DockerProvider, scratch: Path, files: int) -> dict[str, Any]:
    # With a limit on disk, so that the container is watched.
    limits = SandboxLimits(disk_bytes=10_000_000_000)
    image = docker_host.debian_image()
    specs = [SandboxSpec(label=f"bench-{n}", scratch=scratch, image=image, limits=limits) for n in (1, 2)]
    ours, neighbour = (provider.start(spec) for spec in specs)
    made, codes = threading.Event(), list[int | None]()

    def make() -> None:
        codes.append(neighbour.exec(["python3", "-c", MAKE, str(files)], timeout=900).exit_code)
        made.set()

    try:
        alone = steps(ours)
        making = threading.Thread(target=make)
        making.start()
        while_made = steps(ours, until=made)
        making.join()
        assert codes == [0]
        beside = steps(ours)
        used = usage_microseconds(neighbour) / usage_microseconds(ours)
        began = time.perf_counter()
        neighbour.stop()
        removed = time.perf_counter() - began
        alone += steps(ours)
    finally:
        ours.stop()
        neighbour.stop()
    return {"alone": alone, "while made": while_made, "beside": beside, "usage": used, "removed": removed}


def figures_of(taken: list[float]) -> dict[str, float]:
    return {
        "median_ms": round(statistics.median(taken), 2),
        "p90_ms": round(percentile(taken, 0.9), 2),
        "steps": len(taken),
    }


def main() -> None:
    chosen = arguments(__doc__, rounds=1)
    files = FILES_WHEN_QUICK if chosen.quick else FILES
    if missing := docker_host.debian_missing():
        report({"files": files}, [Target("neighbour", None, 2.0, missing)])
    before = probe()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / "sandboxes"
        rounds = [one_round(DockerProvider(), scratch, files) for _ in range(chosen.rounds)]
    figures: dict[str, Any] = {"files": files, "noise": noise(before, probe())}
    taken = {
        name: [one for each in rounds for one in each[name]] for name in ("alone", "while made", "beside")
    }
    figures |= {name: figures_of(each) for name, each in taken.items()}
    figures["removal_seconds"] = [round(each["removed"], 1) for each in rounds]
    alone = statistics.median(taken["alone"])
    targets = [
        Target(f"step {name}, over alone", round(statistics.median(taken[name]) / alone, 2), 2.0)
        for name in ("while made", "beside")
    ]
    usage = statistics.median(each["usage"] for each in rounds)
    report(figures, [*targets, Target("usage of the full one, over the other", round(usage, 2), 5.0)])


if __name__ == "__main__":
    main()
