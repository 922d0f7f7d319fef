"""Prepares a lab of its own in LAB_DATA_DIR with runs made of records; prints their numbers and a cookie.

`--steps 150,1000` makes one ended run of each length, `--open N` makes N runs that have only begun.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from tests.bench.contestants import lab_process

# Stands in every step's command, so that a page can be searched for it.
MARK = "needle_in_the_log"
_AT_ONCE = 50


def output(step: int, size: int) -> str:
    """Lines of believable output."""
    lines: list[str] = [f"collected {step} items"]
    length = len(lines[0])
    while length < size:
        lines.append(f"tests/test_module_{step}.py::test_case_{len(lines)} PASSED in {length % 97} ms")
        length += len(lines[-1]) + 1
    return "\n".join(lines)


def ended_run(steps: int, size: int) -> int:
    from tests import builders

    run = builders.run()
    builders.start(run)
    for first in range(1, steps + 1, _AT_ONCE):
        last = min(first + _AT_ONCE, steps + 1)
        builders.append(run, *(event for step in range(first, last) for event in _step(step, size)))
    builders.append(run, *builders.ending(steps=steps))
    return int(run.pk)


def _step(step: int, size: int) -> Iterator[object]:
    from tests import builders

    yield from builders.bash_step(step, f"python -m pytest -q {MARK}_{step}.py", output(step, size))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", default="")
    parser.add_argument("--bytes", type=int, default=30_000, help="output of each step")
    parser.add_argument("--open", type=int, default=0)
    chosen = parser.parse_args()
    lab_process.set_up()
    from django.core.management import call_command

    from tests import builders

    call_command("migrate", verbosity=0)
    cookie = lab_process.session_cookie(builders.person())
    ended = {steps: ended_run(int(steps), chosen.bytes) for steps in chosen.steps.split(",") if steps}
    opened = []
    for _ in range(chosen.open):
        run = builders.run()
        builders.start(run)
        opened.append(run.pk)
    print(json.dumps({"ended": ended, "open": opened, "cookie": cookie}))


if __name__ == "__main__":
    main()
