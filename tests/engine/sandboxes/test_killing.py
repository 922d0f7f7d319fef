"""Commands that do not end, that leave things running, and that fight. The same for every kind of sandbox."""

from __future__ import annotations

import time

import pytest

from lab.engine.errors import ExitReason
from lab.engine.sandboxes.base import Sandbox
from lab.engine.stop import StopSignal
from tests.engine.sandboxes.conftest import eventually, processes_naming, shell
from tests.timing import SOON, odd_seconds, sleeping, when

LONG = odd_seconds(7)


def test_endless_output_ends_at_the_time_out(sandbox: Sandbox) -> None:
    for seconds in (0.5, 5.0, 20.0):
        result = sandbox.exec(["yes"], timeout=seconds)
        # Otherwise there was no time to begin.
        if result.stdout.total > 1_000_000:
            break
    assert result.timed_out
    assert result.exit_code is None
    assert result.stdout.total > 1_000_000
    assert result.stdout.truncated
    assert shell(sandbox, "echo next") == "next\n"


STUBBORN = {
    "ignores TERM": f"trap '' TERM HUP INT; sleep {LONG}; sleep {LONG}",
    "a child that ignores TERM": f"(trap '' TERM; sleep {LONG}) & wait",
    "setsid": f"setsid sleep {LONG} & sleep {LONG}",
    "a daemon": f"(setsid sh -c 'sleep {LONG} & sleep {LONG}' </dev/null >/dev/null 2>&1 &) ; sleep {LONG}",
    "no environment": f"(env -i setsid sleep {LONG} &) ; sleep {LONG}",
    "stopped": f"sleep {LONG} & kill -STOP $$",
    "holds the pipe": f"(sleep {LONG} &) ; sleep {LONG}",
}


@pytest.mark.parametrize("script", STUBBORN.values(), ids=STUBBORN.keys())
def test_a_time_out_kills_the_whole_tree(sandbox: Sandbox, script: str) -> None:
    for seconds in (0.7, 5.0, 20.0):
        began = time.monotonic()
        result = sandbox.exec(["sh", "-c", f"echo before; {script}"], timeout=seconds)
        # Otherwise there was no time to begin.
        if result.stdout.total:
            break
    assert result.timed_out
    assert result.exit_code is None
    assert result.stdout.text() == "before\n"
    assert time.monotonic() - began < seconds + SOON
    assert eventually(lambda: not processes_naming(LONG), SOON)
    assert shell(sandbox, "echo next") == "next\n"


def test_a_stop_signal_interrupts_a_command_and_its_tree(sandbox: Sandbox) -> None:
    stop = StopSignal()
    when(lambda: len(sleeping(LONG)) == 2, lambda: stop.set(ExitReason.CANCELLED))
    result = sandbox.exec(["sh", "-c", f"echo a; setsid sleep {LONG} & sleep {LONG}"], timeout=150, stop=stop)
    assert result.interrupted
    assert not result.timed_out
    assert result.exit_code is None
    assert result.stdout.text() == "a\n"
    assert eventually(lambda: not processes_naming(LONG), SOON)
    assert shell(sandbox, "echo next") == "next\n"


def test_a_signal_that_is_set_already_interrupts_at_once(sandbox: Sandbox) -> None:
    stop = StopSignal()
    stop.set(ExitReason.CANCELLED)
    result = sandbox.exec(["sleep", LONG], timeout=60, stop=stop)
    assert result.interrupted
    assert result.seconds < SOON


def test_what_a_finished_command_left_running_survives_later_time_outs(sandbox: Sandbox) -> None:
    shell(sandbox, f"(sleep {LONG} >/dev/null 2>&1 &)")
    assert eventually(lambda: len(sleeping(LONG)) == 1)
    assert sandbox.exec(["sleep", "500"], timeout=0.3).timed_out
    assert len(processes_naming(LONG)) == 1
    sandbox.stop()
    assert processes_naming(LONG) == []


def test_a_grandchild_that_holds_the_output_does_not_hold_the_command(sandbox: Sandbox) -> None:
    began = time.monotonic()
    assert shell(sandbox, f"sleep {LONG} & echo done") == "done\n"
    assert time.monotonic() - began < SOON
    assert shell(sandbox, "echo next") == "next\n"


def test_a_background_writer_does_not_reach_later_output_and_lives_on(sandbox: Sandbox) -> None:
    shell(sandbox, "(while sleep 0.02; do echo noise; echo tick >> ticks; done) & echo started")
    for _ in range(5):
        assert shell(sandbox, "sleep 0.1; echo mine") == "mine\n"
    count = int(shell(sandbox, "wc -l < ticks"))
    assert eventually(lambda: int(shell(sandbox, "wc -l < ticks")) > count)


def test_an_endless_background_writer_does_not_hold_the_command(sandbox: Sandbox) -> None:
    began = time.monotonic()
    result = sandbox.exec(["sh", "-c", "yes & echo started >&2"], timeout=30)
    assert result.exit_code == 0
    assert time.monotonic() - began < SOON
    assert shell(sandbox, "echo next") == "next\n"
    began = time.monotonic()
    sandbox.stop()
    assert time.monotonic() - began < SOON


BREAKERS = {
    "exit": "exit 5",
    "kill $$": "kill -9 $$",
    "closes its outputs": "exec >&- 2>&- ; exit 5",
    "strict": "set -eu; false",
    "every signal to the shell above": "for n in 1 2 3 10 12 13 14 15; do kill -$n $PPID; done; exit 5",
    "kills the shell above": "kill -9 $PPID; sleep 0.2; exit 5",
    "stops the shell above": "kill -STOP $PPID; exit 5",
    "says it has ended": (
        "for n in $(seq 3 30); do (echo 'E 0123456789abcdef 0' > /proc/self/fd/$n) 2>/dev/null; done; exit 5"
    ),
    "reads what is open": (
        "for file in /proc/$PPID/fd/* /proc/1/fd/*; do timeout 0.2 cat $file; done 2>/dev/null; exit 5"
    ),
    "writes where others read": (
        'for file in /proc/$PPID/fd/* /proc/1/fd/*; do (timeout 0.2 sh -c "echo exit > $file") & done '
        "2>/dev/null; wait; exit 5"
    ),
}


@pytest.mark.parametrize("script", BREAKERS.values(), ids=BREAKERS.keys())
def test_a_command_cannot_break_the_next_one(sandbox: Sandbox, script: str) -> None:
    began = time.monotonic()
    sandbox.exec(["sh", "-c", script], timeout=3)
    assert time.monotonic() - began < 3 + SOON
    assert shell(sandbox, "echo next; exit 0") == "next\n"
    assert sandbox.exec(["sh", "-c", "exit 4"], timeout=30).exit_code == 4


def test_a_signal_to_the_shell_above_as_the_command_ends_takes_neither_its_end_nor_its_exit_code(
    sandbox: Sandbox,
) -> None:
    # Both reach the shell within microseconds, in an order that differs from time to time.
    for _ in range(60):
        result = sandbox.exec(["sh", "-c", "kill $PPID; exit 3"], timeout=SOON)
        assert result.exit_code == 3, result


def test_a_command_ignores_no_signal_and_has_none_held_back(sandbox: Sandbox) -> None:
    # Two are the C library's own: a program that was started by way of posix_spawn, as by make, ignores them,
    # nobody can set them otherwise, and the library takes them back when it needs them.
    own_of_the_library = 1 << 31 | 1 << 32
    result = sandbox.exec(["grep", "-E", "^Sig(Ign|Blk):", "/proc/self/status"], timeout=60)
    told = [int(line.split()[1], 16) for line in result.stdout.text().splitlines()]
    assert [signals & ~own_of_the_library for signals in told] == [0, 0]


def test_a_command_inherits_no_descriptor(sandbox: Sandbox) -> None:
    assert shell(sandbox, "ls /proc/self/fd").split() == ["0", "1", "2", "3"]  # 3 is how ls reads the folder.


@pytest.mark.promises("its own processes")
def test_a_command_that_ends_everything_it_may_ends_itself_and_not_the_sandbox(sandbox: Sandbox) -> None:
    sandbox.exec(["sh", "-c", "kill -9 -1; kill -9 1; kill 1"], timeout=30)
    assert shell(sandbox, "echo next") == "next\n"
