"""A sandbox that vanishes in the middle of a call is told as lost soon and leaves nothing. So with all."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.base import Sandbox, SandboxProvider
from tests.engine.sandboxes.conftest import MakeSpec, Start, eventually, processes_naming, shell
from tests.engine.sandboxes.places import (
    Place,
    identifiers_of,
    is_there,
    kill,
    kill_half_started,
    left_of,
    take_away,
)
from tests.timing import SOON, odd_seconds, sleeping, when

LONG = odd_seconds(3)
DATA = bytes(range(256)) * 40_000
AWAY: dict[str, Callable[[Sandbox], None]] = {"killed": kill, "taken away": take_away}
how_it_goes = pytest.mark.parametrize("vanish", AWAY.values(), ids=AWAY.keys())


def _read(sandbox: Sandbox) -> None:
    assert sandbox.read("large") == DATA


CALLS: dict[str, Callable[[Sandbox], object]] = {
    "exec": lambda sandbox: sandbox.exec(["cat", "large"], timeout=120),
    "read": _read,
    "write": lambda sandbox: sandbox.write("other", DATA),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


@how_it_goes
@each_call
def test_a_sandbox_that_is_gone_is_told_by_each_call(
    sandbox: Sandbox, call: Callable[[Sandbox], object], vanish: Callable[[Sandbox], None]
) -> None:
    vanish(sandbox)
    assert eventually(lambda: not is_there(sandbox))
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(SandboxLostError):
            call(sandbox)
    assert time.monotonic() - began < 3 * SOON
    sandbox.stop()
    assert left_of(sandbox) == []


@how_it_goes
def test_a_sandbox_that_vanishes_during_a_command_is_told_soon(
    sandbox: Sandbox, vanish: Callable[[Sandbox], None]
) -> None:
    gone = list[float]()

    def go() -> None:
        gone.append(time.monotonic())
        vanish(sandbox)

    when(lambda: sleeping(LONG), go)
    with pytest.raises(SandboxLostError):
        sandbox.exec(["sh", "-c", f"setsid sleep {LONG} & sleep {LONG}"], timeout=150)
    assert time.monotonic() - gone[0] < SOON
    sandbox.stop()
    assert eventually(lambda: not processes_naming(LONG))
    assert left_of(sandbox) == []


@each_call
@pytest.mark.parametrize("after", [0.0, 0.004, 0.03])
def test_a_sandbox_that_vanishes_at_any_moment_gives_whole_answers_until_it_is_lost(
    start: Start, call: Callable[[Sandbox], object], after: float
) -> None:
    sandbox = start()
    sandbox.write("large", DATA)
    begun = threading.Event()

    def go() -> None:
        begun.wait()
        time.sleep(after)
        kill(sandbox)

    def call_again_and_again() -> None:
        began = time.monotonic()
        while time.monotonic() - began < 60:
            begun.set()
            result = call(sandbox)
            assert result is None or result.stdout.head == DATA[:1_000_000]  # type: ignore[attr-defined]

    killer = threading.Thread(target=go)
    killer.start()
    with pytest.raises(SandboxLostError):
        call_again_and_again()
    killer.join()
    sandbox.stop()
    assert left_of(sandbox) == []


@how_it_goes
def test_usage_of_a_vanished_sandbox_is_what_is_known(
    sandbox: Sandbox, vanish: Callable[[Sandbox], None]
) -> None:
    shell(sandbox, "for i in $(seq 50000); do :; done")
    vanish(sandbox)
    for _ in range(3):
        assert sandbox.usage().wall_seconds > 0
    used = sandbox.stop()
    assert used.wall_seconds > 0
    assert sandbox.usage() == used


@how_it_goes
def test_a_sandbox_that_vanishes_while_it_is_stopped_is_stopped(
    start: Start, vanish: Callable[[Sandbox], None]
) -> None:
    for after in (0.0, 0.01, 0.05):
        sandbox = start()
        shell(sandbox, f"(sleep {LONG} >/dev/null 2>&1 &)")
        stopping = threading.Thread(target=sandbox.stop)
        stopping.start()
        time.sleep(after)
        with contextlib.suppress(OSError):
            vanish(sandbox)
        stopping.join(60)
        assert not stopping.is_alive()
        assert eventually(lambda: not processes_naming(LONG))
        assert left_of(sandbox) == []


@pytest.mark.parametrize("after", [0.0, 0.02, 0.1, 0.3])
def test_a_sandbox_that_vanishes_while_it_starts_is_lost_and_leaves_nothing(
    place: Place, provider: SandboxProvider, make_spec: MakeSpec, scratch: Path, after: float
) -> None:
    label, over = f"vanishing-{LONG}", threading.Event()

    def watch() -> None:
        while not over.is_set():
            if found := identifiers_of(place.kind, label, scratch):
                time.sleep(after)
                for one in found:
                    kill_half_started(place.kind, one)
                return
            time.sleep(0.002)

    def start_and_use() -> None:
        sandbox = provider.start(make_spec(label))
        try:
            assert eventually(lambda: not is_there(sandbox))
            sandbox.exec(["true"], timeout=30)
        finally:
            sandbox.stop()

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    try:
        with pytest.raises(SandboxLostError):
            start_and_use()
    finally:
        over.set()
        watcher.join()
    assert time.monotonic() - began < 60 + SOON
    assert identifiers_of(place.kind, label, scratch) == []
