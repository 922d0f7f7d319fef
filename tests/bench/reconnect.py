"""How soon a live page that missed 1,000 events has them: prints one JSON object.

A socket of a run's page says the number of the last event it has and hears of the next 1,000, of steps with
2 KB of output. Time is from the call that opens the connection, handshake and session included, to the last
event. The first of each run is told apart: its fragments are rendered for it; those that somebody has watched
are kept by the web process.

L5: at most 250 ms, for fragments that are kept and for those that are not.

    python -m tests.bench.reconnect [--rounds 5] [--quick]
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

from websockets.sync.client import connect

from tests.bench import figures, programs
from tests.bench.figures import Target

MISSED = 1000
STEPS = 400
OUTPUT_BYTES = 2000
TARGET_MS = 250.0


def catch_up(host: str, cookie: str, run: int, missed: int) -> tuple[float, int]:
    """Milliseconds until all is there, and kilobytes of it.

    Raises:
        RuntimeError: events are missing or out of order.
    """
    last = last_seq(host, cookie, run)
    position, size = last - missed, 0
    began = time.perf_counter()
    with _socket(host, cookie, run, position) as socket:
        while position < last:
            text = socket.recv(timeout=30)
            message, size = json.loads(text), size + len(text)
            if "steps" not in message:
                continue
            if message["after"] != position:
                raise RuntimeError(f"after event {position} came {message['after'] + 1}")
            position = message["seq"]
        passed = (time.perf_counter() - began) * 1000
    return passed, size // 1024


def last_seq(host: str, cookie: str, run: int) -> int:
    """The number of the run's last event, which a socket that has all of them is told."""
    with _socket(host, cookie, run, 10**8) as socket:
        while True:
            message = json.loads(socket.recv(timeout=30))
            if "last" in message:
                return int(message["last"])


def _socket(host: str, cookie: str, run: int, after: int) -> Any:
    return connect(
        f"ws://{host}/ws/runs/{run}/?after={after}",
        origin=f"http://{host}",  # type: ignore[arg-type]
        additional_headers={"Cookie": cookie},
        compression=None,
        max_size=None,
    )


def measure(rounds: int, missed: int) -> dict[str, Any]:
    """Milliseconds of each round, with fragments that nobody has seen yet and with kept ones."""
    told: dict[str, list[float]] = {"rendered": [], "kept": []}
    kilobytes = 0
    with programs.scratch_folder() as folder:
        environment = programs.lab_environment(folder)
        # A run for each round, and one that warms the web process.
        lengths = ",".join(str(STEPS + number) for number in range(rounds + 1))
        words = ["--steps", lengths, "--bytes", str(OUTPUT_BYTES)]
        made = programs.run_whole(programs.module("lab_runs", *words), environment=environment)
        runs = list(made["ended"].values())
        with programs.lab_web(environment) as host:
            catch_up(host, made["cookie"], runs[0], missed)
            for run in runs[1:]:
                for kind in told:
                    passed, kilobytes = catch_up(host, made["cookie"], run, missed)
                    told[kind].append(passed)
    return {
        "missed": missed,
        "kilobytes": kilobytes,
        "milliseconds": {kind: figures.summary(values, 1) for kind, values in told.items()},
        "medians": {kind: round(statistics.median(values), 1) for kind, values in told.items()},
    }


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=5)
    before = figures.probe()
    found = measure(chosen.rounds, 100 if chosen.quick else MISSED)
    medians = found.pop("medians")
    targets = [Target(f"L5 caught up, fragments {kind}", value, TARGET_MS) for kind, value in medians.items()]
    figures.report({**found, "noise": figures.noise(before, figures.probe())}, targets)


if __name__ == "__main__":
    main()
