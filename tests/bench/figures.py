"""What every benchmark shares: figures of rounds, a probe for noise, and verdicts over ratios."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

# Rounds measured while the machine itself became this much slower or faster say little.
_NOISE_LIMIT = 1.3
_LOOPS = 400_000


class Target(NamedTuple):
    """A figure that must not pass `limit`. `value` is None when it could not be measured: `why` says so."""

    name: str
    value: float | None
    limit: float
    why: str = ""

    @property
    def missed(self) -> bool:
        return self.value is not None and self.value > self.limit


class Probe(NamedTuple):
    """How fast the machine is right now: milliseconds of a fixed loop and of one fsync."""

    cpu_ms: float
    fsync_ms: float


def probe() -> Probe:
    """Take the machine's speed; a fraction of a second."""
    loops = [_milliseconds_of_loop() for _ in range(5)]
    with tempfile.NamedTemporaryFile() as file:
        syncs = [_milliseconds_of_fsync(file.fileno()) for _ in range(30)]
    return Probe(round(statistics.median(loops), 2), round(statistics.median(syncs), 3))


def _milliseconds_of_loop() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(_LOOPS):
        total += number & 7
    return (time.perf_counter() - began) * 1000


def _milliseconds_of_fsync(descriptor: int) -> float:
    began = time.perf_counter()
    os.pwrite(descriptor, b"x" * 4096, 0)
    os.fsync(descriptor)
    return (time.perf_counter() - began) * 1000


def noise(before: Probe, after: Probe) -> dict[str, Any]:
    """Both probes, and whether either moved by more than 30 %."""
    moved = {
        name: round(getattr(after, name) / max(getattr(before, name), 1e-6), 2) for name in Probe._fields
    }
    return {
        "before": before._asdict(),
        "after": after._asdict(),
        "moved": moved,
        "noisy": any(not 1 / _NOISE_LIMIT <= ratio <= _NOISE_LIMIT for ratio in moved.values()),
        "load": os.getloadavg()[0],
    }


def summary(values: Sequence[float], digits: int = 2) -> dict[str, float]:
    """Minimum and median."""
    return {"min": round(min(values), digits), "median": round(statistics.median(values), digits)}


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of the values do not pass."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def arguments(description: str | None, *, rounds: int) -> argparse.Namespace:
    """The options of every benchmark: `--rounds N`, and `--quick` for one round that shows that it works."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"interleaved rounds (default {rounds})")
    parser.add_argument("--quick", action="store_true", help="one round, small, for trying the script")
    chosen = parser.parse_args()
    # Ended from outside, a benchmark still ends its programs and removes its folders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if chosen.quick:
        chosen.rounds = 1
    return chosen


def report(figures: dict[str, Any], targets: Iterable[Target]) -> None:
    """Print everything as one JSON object and end with code 1 when a target is missed."""
    judged = list(targets)
    figures["targets"] = {
        target.name: {"value": target.value, "limit": target.limit, "met": _met(target)}
        | ({"why": target.why} if target.why else {})
        for target in judged
    }
    print(json.dumps(figures, indent=2))
    sys.exit(any(target.missed for target in judged))


def _met(target: Target) -> bool | None:
    return None if target.value is None else not target.missed
