"""Appends the steps of one open run event by event, as a worker would, and prints when each was stored."""

from __future__ import annotations

import argparse
import json
import time

from tests.bench.contestants import lab_process
from tests.bench.contestants.lab_runs import output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="events a second")
    chosen = parser.parse_args()
    lab_process.set_up()
    from lab.models import Run
    from tests import builders

    run = Run.objects.get(pk=chosen.run)
    begun: dict[int, float] = {}
    committed: dict[int, float] = {}
    due = time.monotonic()
    for step in range(1, chosen.steps + 1):
        for event in builders.bash_step(step, "python -m pytest -q", output(step, 2000)):
            due += 1 / chosen.rate
            time.sleep(max(0.0, due - time.monotonic()))
            before = time.time() * 1000
            seq = builders.append(run, event)
            begun[seq], committed[seq] = before, time.time() * 1000
    print(json.dumps({"begun": begun, "committed": committed}))


if __name__ == "__main__":
    main()
