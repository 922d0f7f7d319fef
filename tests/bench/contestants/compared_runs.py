"""Prepares a lab of its own in LAB_DATA_DIR with six runs of one task, and times the server's answers.

    compared_runs make --steps 150 --bytes 30000     # prints the runs' numbers and a cookie
    compared_runs ask --rounds 10 --of NAME=ADDRESS …   # prints milliseconds, and sizes, of each address

The runs do the same kinds of things in about the same order: with each further run more steps have another
target, some steps are its own, and from the middle on each goes its own way. `ask` takes the addresses in
turns; "cold" is an answer for which nothing was kept in the process, "warm" one that was given before.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.bench.contestants import lab_process
from tests.bench.contestants.lab_runs import MARK, output

if TYPE_CHECKING:
    from lab.engine.events import Event
    from lab.models import Run

RUNS = 6
_AT_ONCE = 25
_FILES = ("tickwell/schedule.py", "tickwell/zones.py", "tickwell/clock.py", "tickwell/cli.py")


def make_runs(steps: int, size: int) -> list[int]:
    """Six ended runs of one task and arm, of `steps` steps with `size` bytes of output each."""
    from tests import builders

    first = builders.run()
    runs = [first, *(builders.another_run(first, seed=seed) for seed in range(2, RUNS + 1))]
    for place, run in enumerate(runs):
        _play(run, place, steps, size)
    return [run.pk for run in runs]


def _play(run: Run, place: int, steps: int, size: int) -> None:
    from tests import builders

    chance = random.Random(1_000 + place)
    builders.start(run)
    events: list[Event] = []
    for step in range(1, steps + 1):
        events += _step(step, place, chance, steps, size)
        if step % _AT_ONCE == 0:
            builders.append(run, *events)
            events = []
    ending = builders.ending(outcome="resolved" if place % 2 == 0 else "unresolved", steps=steps)
    builders.append(run, *events, *ending)


def _step(step: int, place: int, chance: random.Random, steps: int, size: int) -> Iterator[Event]:
    """Each seventh step or so is a detour; in the second half every run looks at a file of its own."""
    from tests import builders

    own = place > 0 and chance.random() < 0.14
    file = _FILES[(place if step > steps // 2 else 0) % len(_FILES)]
    if own:
        yield from builders.bash_step(step, f"ls -l {MARK}/{place}/{step}", output(step, size))
    elif step % 5 == 0:
        yield from builders.edit_step(step)
    elif step % 5 == 1:
        yield from builders.bash_step(step, f"cat {file} # {MARK}", output(step // 3, size))
    elif step % 5 == 2:
        yield from builders.bash_step(step, f"python -m pytest -q {MARK}", output(step + place % 2, size))
    elif step % 5 == 3:
        yield from builders.bash_step(step, f"grep -rn part_{step // 5} tickwell", output(step, size))
    else:
        yield from builders.bash_step(step, f"sed -n {step},{step + 80}p {file}", output(step, size))


def ask(addresses: dict[str, str], rounds: int) -> dict[str, Any]:
    """For each name: milliseconds cold and warm, processor time, bytes whole and compressed, queries."""
    from django.conf import settings
    from django.test import Client

    from tests import builders

    settings.ALLOWED_HOSTS.append("testserver")
    client = Client()
    client.force_login(builders.person())
    # Templates and modules are loaded once a process, whoever asks first.
    found = {name: _size(client, address) for name, address in addresses.items()}
    for _ in range(rounds):
        for name, address in addresses.items():
            _forget()
            for state in ("cold", "warm"):
                wall, cpu = time.perf_counter(), time.process_time()
                content(client, address)
                found[name].setdefault(f"{state}_ms", []).append((time.perf_counter() - wall) * 1e3)
                found[name].setdefault(f"{state}_cpu_ms", []).append((time.process_time() - cpu) * 1e3)
    return found


def _size(client: Any, address: str) -> dict[str, Any]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    content(client, address)
    _forget()
    with CaptureQueriesContext(connection) as queries:
        whole = content(client, address)
    return {"bytes": len(whole), "compressed": len(gzip.compress(whole)), "queries": len(queries)}


def content(client: Any, address: str) -> bytes:
    """The whole answer.

    Raises:
        RuntimeError: it is none.
    """
    answer = client.get(address)
    if answer.status_code != 200:
        raise RuntimeError(f"{address} answers {answer.status_code}")
    return bytes(answer.getvalue())


def _forget() -> None:
    """As in a process that has answered nothing yet."""
    from lab.services import trajectories

    trajectories.forget_rendered()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("make", "ask"))
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--bytes", type=int, default=30_000, help="output of each step")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--of", nargs="*", default=[], help="NAME=ADDRESS, any number of them")
    chosen = parser.parse_args()
    lab_process.set_up()
    if chosen.what == "ask":
        addresses = dict(word.split("=", 1) for word in chosen.of)
        print(json.dumps(ask(addresses, chosen.rounds)))
        return
    from django.core.management import call_command

    from tests import builders

    call_command("migrate", verbosity=0)
    cookie = lab_process.session_cookie(builders.person())
    print(json.dumps({"runs": make_runs(chosen.steps, chosen.bytes), "cookie": cookie}))


if __name__ == "__main__":
    main()
