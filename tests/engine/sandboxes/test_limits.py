"""Limits hold for all processes together, and what was used is told. The same for every kind of sandbox."""

from __future__ import annotations

import time

import pytest

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.base import Sandbox, SandboxLimits
from tests.engine.sandboxes.conftest import Start, eventually, processes_naming, shell
from tests.engine.sandboxes.places import left_of
from tests.timing import odd_seconds

LONG = odd_seconds(8)


def test_many_processes_are_held_by_the_limit_and_the_sandbox_recovers(start: Start) -> None:
    sandbox = start(limits=SandboxLimits(processes=40))
    if any("number of processes" in note for note in sandbox.facts.notes):
        pytest.skip("missing: a writable control group for processes")
    result = sandbox.exec(["sh", "-c", f"for i in $(seq 100); do sleep {LONG} & done; wait"], timeout=3)
    assert result.timed_out or result.exit_code
    # A provider may let its own shell and its fork in as well.
    assert len(processes_naming(LONG)) < 50
    bomb = sandbox.exec(["sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 60"], timeout=2)
    assert bomb.exit_code is None or bomb.exit_code
    assert eventually(lambda: sandbox.exec(["true"], timeout=20).exit_code == 0, 90)


@pytest.mark.promises("outlives a fork bomb")
def test_a_fork_bomb_that_is_left_running_does_not_cost_the_sandbox(start: Start) -> None:
    sandbox = start(limits=SandboxLimits(processes=40))
    if any("number of processes" in note for note in sandbox.facts.notes):
        pytest.skip("missing: a writable control group for processes")
    sandbox.exec(["sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 0.5"], timeout=20)
    assert eventually(lambda: sandbox.exec(["true"], timeout=20).exit_code == 0, 90)


def test_a_kill_for_memory_is_told_even_when_the_command_says_all_is_well(start: Start) -> None:
    sandbox = start(limits=SandboxLimits(memory_bytes=64 * 1024**2))
    if any("memory" in note for note in sandbox.facts.notes):
        pytest.skip("missing: a writable control group for memory")
    result = sandbox.exec(
        ["sh", "-c", "head -c 300000000 /dev/zero | tail -c 200000000 >/dev/null; exit 0"], timeout=60
    )
    assert result.exit_code == 0
    assert result.out_of_memory
    assert not sandbox.exec(["true"], timeout=30).out_of_memory


def test_spinning_commands_get_no_more_than_their_share_of_the_processor(start: Start) -> None:
    sandbox = start(limits=SandboxLimits(cpu_cores=0.5))
    if any("CPU" in note or "processor" in note for note in sandbox.facts.notes):
        pytest.skip("missing: a writable control group for the processor")
    before = sandbox.usage().cpu_seconds or 0.0
    began = time.monotonic()
    spin = "for i in 1 2 3; do (while :; do :; done) & done; wait"
    assert sandbox.exec(["sh", "-c", spin], timeout=4).timed_out
    used = (sandbox.usage().cpu_seconds or 0.0) - before
    # A period of the scheduler more than the share, and what starting and killing takes.
    assert 0 < used < 0.5 * (time.monotonic() - began) + 1.0


@pytest.mark.promises("limited disk")
def test_what_fills_the_disk_is_ended_and_its_neighbour_goes_on(start: Start) -> None:
    filling, neighbour = start(limits=SandboxLimits(disk_bytes=60_000_000)), start()
    shell(filling, "head -c 20000000 /dev/zero > within")
    fill = ["sh", "-c", "head -c 300000000 /dev/zero > filler && sleep 100"]
    # Where the file system itself holds the limit, the command is told; else the sandbox is ended.
    try:
        told = filling.exec(fill, timeout=90).stderr.text()
    except SandboxLostError as error:
        told = str(error)
        with pytest.raises(SandboxLostError):
            filling.exec(["true"], timeout=30)
    assert "wrote more than" in told or "No space left" in told or "quota" in told
    assert shell(neighbour, "head -c 1000000 /dev/zero > mine && echo well") == "well\n"
    filling.stop()
    assert left_of(filling) == []


def test_usage_counts_memory_and_processor_time(sandbox: Sandbox) -> None:
    shell(
        sandbox,
        "head -c 40000000 /dev/zero | tail -c 30000000 | sha256sum; for i in $(seq 100000); do :; done",
    )
    now = sandbox.usage()
    used = sandbox.stop()
    assert used.cpu_seconds is not None
    assert now.cpu_seconds is not None
    assert 0 < now.cpu_seconds <= used.cpu_seconds
    assert used.peak_memory_bytes is not None
    assert used.peak_memory_bytes > 25_000_000
    assert used.wall_seconds > 0
    assert used.source
    assert sandbox.usage() == used
    assert sandbox.stop() == used
