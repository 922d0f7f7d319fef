"""What the kept shell costs: prints one JSON with ratios taken in one interleaved run.

S5: the contract's exec of `true`, over a kept local bash that forks `/bin/true`; target at most 2.
S6: 100 MB of output: growth of this process's memory (target at most 16 MB) and the rate over that of a plain
pipe read by the same process (target at least 0.5). Also reading and writing 2 KB, and a login shell.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lab.engine.sandboxes.base import Sandbox, SandboxSpec
from lab.engine.sandboxes.bubblewrap import BubblewrapProvider
from lab.engine.sandboxes.process import ProcessProvider

FLOOD_BYTES = 100_000_000
FLOOD = ["head", "-c", str(FLOOD_BYTES), "/dev/zero"]


class LocalShell:
    """The floor: a bash of our own that is told to run /bin/true and answers with a line."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def run_true(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"/bin/true; echo $?\n")
        assert self._process.stdout.read(16) == b"0\n"

    def close(self) -> None:
        self._process.communicate()


def milliseconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def summary(values: list[float]) -> dict[str, float]:
    return {"min": round(min(values), 3), "median": round(statistics.median(values), 3)}


def memory_high_water() -> int:
    """This process's peak memory since the last reset, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status names no VmHWM")


def raw_rate() -> float:
    """Bytes a second of the same flood through a plain pipe that is read and dropped."""
    began = time.perf_counter()
    with subprocess.Popen(FLOOD, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while os.read(process.stdout.fileno(), 65536):
            pass
    return FLOOD_BYTES / (time.perf_counter() - began)


def flood(sandbox: Sandbox) -> tuple[float, int]:
    """Bytes a second and memory growth in bytes of a flood through the contract."""
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_high_water()
    began = time.perf_counter()
    result = sandbox.exec(FLOOD, timeout=120)
    seconds = time.perf_counter() - began
    assert result.stdout.total == FLOOD_BYTES
    return FLOOD_BYTES / seconds, memory_high_water() - before


def measure(rounds: int, scratch: Path) -> dict[str, object]:
    providers = {"bubblewrap": BubblewrapProvider(), "process": ProcessProvider()}
    usable = {name: one for name, one in providers.items() if one.available() is None}
    local = LocalShell()
    started: dict[str, list[float]] = {name: [] for name in usable}
    sandboxes: dict[str, Sandbox] = {}
    for name, provider in usable.items():
        spec = SandboxSpec(label=f"bench {name}", scratch=scratch)
        started[name].append(
            milliseconds(lambda p=provider, n=name, s=spec: sandboxes.update({n: p.start(s)}))
        )
    times: dict[str, dict[str, list[float]]] = {}
    data = os.urandom(2048)
    try:
        for _ in range(rounds):
            _note(times, "local", "true", local.run_true)
            for name, sandbox in sandboxes.items():
                _note(times, name, "true", lambda s=sandbox: s.exec(["true"], timeout=30))
        for _ in range(max(rounds // 5, 1)):
            for name, sandbox in sandboxes.items():
                _note(
                    times, name, "login shell", lambda s=sandbox: s.exec(["bash", "-lc", "true"], timeout=30)
                )
                _note(times, name, "write 2 KB", lambda s=sandbox: s.write("file", data))
                _note(times, name, "read 2 KB", lambda s=sandbox: s.read("file"))
        floods = {name: _floods(sandbox) for name, sandbox in sandboxes.items()}
    finally:
        local.close()
        stopped = {name: milliseconds(sandbox.stop) for name, sandbox in sandboxes.items()}
    figures = {who: {what: summary(values) for what, values in rows.items()} for who, rows in times.items()}
    floor = figures["local"]["true"]["median"]
    return {
        "rounds": rounds,
        "S5_ratio": {name: round(figures[name]["true"]["median"] / floor, 2) for name in sandboxes},
        "S5_ratio_of_minima": {
            name: round(figures[name]["true"]["min"] / figures["local"]["true"]["min"], 2)
            for name in sandboxes
        },
        "S6": floods,
        "milliseconds": figures,
        "start_ms": {name: round(values[0], 1) for name, values in started.items()},
        "stop_ms": {name: round(value, 1) for name, value in stopped.items()},
    }


def _note(
    times: dict[str, dict[str, list[float]]], who: str, what: str, action: Callable[[], object]
) -> None:
    times.setdefault(who, {}).setdefault(what, []).append(milliseconds(action))


def _floods(sandbox: Sandbox) -> dict[str, float]:
    pairs = [(raw_rate(), *flood(sandbox)) for _ in range(3)]
    return {
        "rate_over_raw": round(statistics.median(rate / raw for raw, rate, _ in pairs), 2),
        "megabytes_per_second": round(statistics.median(rate for _, rate, _ in pairs) / 1e6),
        "memory_growth_megabytes": round(max(growth for _, _, growth in pairs) / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        print(json.dumps(measure(arguments.rounds, Path(scratch)), indent=2))


if __name__ == "__main__":
    main()
