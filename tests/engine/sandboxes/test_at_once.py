"""Eight sandboxes at once, each from a thread of its own, as a worker has them. The same for every kind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lab.engine.errors import ExitReason
from lab.engine.sandboxes.base import Sandbox, SandboxProvider
from lab.engine.stop import StopSignal
from tests.engine.sandboxes.conftest import MakeSpec, Start, eventually, processes_naming, shell
from tests.engine.sandboxes.places import left_of
from tests.timing import SOON, odd_seconds, sleeping

LONG = odd_seconds(1)
AT_ONCE = 8


def all_at_once(work: Callable[[int], None]) -> None:
    """Each number to a thread of its own; the first exception is raised here."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(work, number) for number in range(AT_ONCE)]:
            done.result(timeout=300)


def test_eight_lives_at_once_do_not_mix(provider: SandboxProvider, make_spec: MakeSpec) -> None:
    together = threading.Barrier(AT_ONCE)
    stopped: list[Sandbox] = []

    def live(number: int) -> None:
        data = os.urandom(300_000)
        together.wait(60)
        sandbox = provider.start(make_spec(f"run-{number}", environment={"NUMBER": str(number)}))
        try:
            for turn in range(5):
                sandbox.write("data", data)
                assert sandbox.read("data") == data
                assert shell(sandbox, "echo $NUMBER; cat") == f"{number}\n"
                assert sandbox.exec(["cat"], timeout=60, stdin=data).stdout.head == data
                if turn == number % 5:
                    assert sandbox.exec(["sleep", "100"], timeout=0.2).timed_out
        finally:
            sandbox.stop()
            stopped.append(sandbox)

    all_at_once(live)
    assert [left for sandbox in stopped for left in left_of(sandbox)] == []


def test_a_cancel_of_eight_commands_at_once_kills_all_soon(start: Start) -> None:
    sandboxes = [start(label=f"run-{number}") for number in range(AT_ONCE)]
    stop = StopSignal()

    def cancel() -> None:
        assert eventually(lambda: len(sleeping(LONG)) == 2 * AT_ONCE)
        stop.set(ExitReason.CANCELLED)
        stop.set(ExitReason.CANCELLED)

    def work(number: int) -> None:
        command = ["sh", "-c", f"(setsid sleep {LONG} &); sleep {LONG}; true"]
        assert sandboxes[number].exec(command, timeout=200, stop=stop).interrupted
        assert shell(sandboxes[number], "echo next") == "next\n"

    canceller = threading.Thread(target=cancel)
    canceller.start()
    all_at_once(work)
    canceller.join()
    assert eventually(lambda: not processes_naming(LONG), SOON)


def test_eight_are_stopped_at_once_soon_and_leave_nothing(start: Start) -> None:
    sandboxes = [start(label=f"run-{number}") for number in range(AT_ONCE)]
    for sandbox in sandboxes:
        shell(sandbox, f"(setsid sleep {LONG} >/dev/null 2>&1 &)")
    began = time.monotonic()
    all_at_once(lambda number: sandboxes[number].stop() and None)
    assert time.monotonic() - began < SOON
    assert processes_naming(LONG) == []
    assert [left for sandbox in sandboxes for left in left_of(sandbox)] == []
