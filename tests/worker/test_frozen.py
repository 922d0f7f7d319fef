from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from lab.services import processes
from lab.worker import frozen
from lab.worker.frozen import FrozenChildren


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as started:
        yield started
        started.kill()


def freeze(child: subprocess.Popen[bytes]) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    until = time.monotonic() + 60
    while not processes.is_stopped(child.pid):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_child_that_stays_frozen_is_ended(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "FROZEN_SECONDS", 0.3)
    watch = FrozenChildren()
    watch.look()
    freeze(child)
    watch.look()
    assert child.poll() is None
    # More than once: who stood still itself begins anew.
    until = time.monotonic() + 60
    while child.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.1)
        watch.look()
    assert child.wait() == -signal.SIGKILL


def test_a_child_that_goes_on_is_left_alone(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "FROZEN_SECONDS", 0.3)
    watch = FrozenChildren()
    freeze(child)
    watch.look()
    os.kill(child.pid, signal.SIGCONT)
    time.sleep(0.2)
    watch.look()
    freeze(child)
    time.sleep(0.2)
    watch.look()
    assert child.poll() is None


def test_who_was_frozen_as_well_begins_anew(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(frozen.time, "monotonic", lambda: clock[0])
    watch = FrozenChildren()
    os.kill(child.pid, signal.SIGSTOP)
    while not processes.is_stopped(child.pid):
        os.sched_yield()
    for seconds in (1.0, 300.0, 1.0):
        clock[0] += seconds
        watch.look()
    assert child.poll() is None


def test_a_process_of_this_machine_is_known_to_be_frozen_by_its_identity(
    child: subprocess.Popen[bytes],
) -> None:
    host, pid, start = processes.process_identity().split("/")
    assert not processes.is_frozen(f"{host}/{pid}/{start}")
    freeze(child)
    fields = processes._stat_of(child.pid)
    assert fields is not None
    identity = f"{host}/{child.pid}/{fields[processes._START]}"
    assert processes.is_frozen(identity)
    assert not processes.is_frozen(f"elsewhere/{child.pid}/{fields[processes._START]}")
    assert not processes.is_frozen(f"{host}/{child.pid}/1")
