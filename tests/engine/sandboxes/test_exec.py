"""Running commands: what goes in, what comes out, how they end. The same for every kind of sandbox."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from lab.engine.errors import ExitReason
from lab.engine.sandboxes.base import SandboxLimits
from lab.engine.sandboxes.local import LocalSandbox
from lab.engine.stop import StopSignal
from tests.engine.sandboxes.conftest import Start, eventually, processes_naming
from tests.timing import SOON, odd_seconds, sleeping, when

LONG = odd_seconds(7)


def bash(sandbox: LocalSandbox, script: str, timeout: float = 30.0) -> str:
    """Output of a script that must succeed."""
    result = sandbox.exec(["bash", "-c", script], timeout=timeout)
    assert result.exit_code == 0, result
    return result.stdout.text()


def test_a_new_workspace_is_empty_and_the_working_directory(sandbox: LocalSandbox) -> None:
    assert bash(sandbox, "pwd; ls -A") == f"{sandbox.facts.workspace}\n"


def test_streams_are_kept_apart_and_the_exit_code_is_told(sandbox: LocalSandbox) -> None:
    result = sandbox.exec(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout=30)
    assert (result.exit_code, result.stdout.text(), result.stderr.text()) == (7, "out\n", "err\n")
    assert (result.timed_out, result.interrupted, result.out_of_memory) == (False, False, False)
    assert 0 < result.seconds < 30


def test_a_death_by_signal_is_128_and_its_number(sandbox: LocalSandbox) -> None:
    for number in (9, 15, 2, 6, 1, 13):
        assert sandbox.exec(["sh", "-c", f"kill -{number} $$"], timeout=30).exit_code == 128 + number


def test_words_arrive_byte_for_byte(sandbox: LocalSandbox) -> None:
    every = bytes(range(1, 256)).decode("utf-8", "surrogateescape")
    words = [
        "",
        "a b",
        "it's",
        '"$HOME"',
        "$(echo x)`id`",
        "-n",
        "two\nlines",
        "\\",
        "*",
        "ä€😀",
        every,
        "~",
        "!!",
    ]
    result = sandbox.exec(["printf", "%s\\0", *words], timeout=30)
    assert result.stdout.head == b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)


def test_a_lone_surrogate_or_nul_in_a_command_is_no_crash(sandbox: LocalSandbox) -> None:
    assert sandbox.exec(["echo", "\ud83d"], timeout=30).stdout.head == b"?\n"
    result = sandbox.exec(["echo", "a\0b"], timeout=30)
    assert result.exit_code == 126
    assert "NUL byte" in result.stderr.text()


def test_long_scripts_work_and_too_long_words_are_the_commands_failure(sandbox: LocalSandbox) -> None:
    assert sandbox.exec(["sh", "-c", f": {'x' * 120_000}; echo done"], timeout=30).stdout.text() == "done\n"
    result = sandbox.exec(["echo", "x" * 300_000], timeout=30)
    assert result.exit_code == 126
    assert "Argument list too long" in result.stderr.text()


def test_what_cannot_be_started_is_the_commands_failure(sandbox: LocalSandbox) -> None:
    missing = sandbox.exec(["no-such-program"], timeout=30)
    assert (missing.exit_code, missing.stderr.text()) == (127, "exec: no-such-program: not found\n")
    sandbox.write("plain.txt", b"text")
    refused = sandbox.exec(["./plain.txt"], timeout=30)
    assert refused.exit_code == 126
    assert "Permission denied" in refused.stderr.text()


def test_a_command_reads_its_input_and_nothing_without_it(sandbox: LocalSandbox) -> None:
    data = os.urandom(3_000_000)
    assert sandbox.exec(["sha256sum"], timeout=30, stdin=data).stdout.text().split()[0] == (
        hashlib.sha256(data).hexdigest()
    )
    assert sandbox.exec(["cat", "/dev/stdin"], timeout=30, stdin=b"x").stdout.head == b"x"
    assert sandbox.exec(["wc", "-c"], timeout=30).stdout.text().strip() == "0"


def test_the_folder_of_a_command_can_be_chosen(sandbox: LocalSandbox) -> None:
    sandbox.write("sub dir/file", b"")
    workspace = sandbox.facts.workspace
    assert sandbox.exec(["pwd"], timeout=30, cwd="sub dir").stdout.text() == f"{workspace}/sub dir\n"
    assert sandbox.exec(["pwd"], timeout=30, cwd="/usr").stdout.text() == "/usr\n"
    missing = sandbox.exec(["pwd"], timeout=30, cwd="nowhere")
    assert missing.exit_code == 126
    assert "No such file or directory" in missing.stderr.text()


def test_the_environment_is_the_specs_and_nothing_of_the_labs(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_TEST_SECRET", "hunter2-hunter2")
    given = {
        "ONE": "1 '\"$x",
        "LC_ALL": "C",
        "IFS": "x",
        "TMOUT": "1",
        "POSIXLY_CORRECT": "1",
        "odd.name": "2",
        "UID": "7",
    }
    sandbox = start(environment=given, path_prefix=["/opt/first"])
    text = sandbox.exec(
        ["env", "-0"], timeout=30, environment={"TWO": "2\n3", "ONE": "changed"}
    ).stdout.text()
    seen = dict(entry.split("=", 1) for entry in text.rstrip("\0").split("\0"))
    assert seen.items() >= {**given, "ONE": "changed", "TWO": "2\n3"}.items()
    assert seen["PATH"].startswith("/opt/first:")
    assert "hunter2" not in text
    known = {"PATH", "HOME", "PWD", "LANG", "USER", "LOGNAME", "TMPDIR", "LAB_SANDBOX", "_", "TWO"}
    assert set(seen) - known == set(given)
    again = sandbox.exec(["env"], timeout=30).stdout.text()
    assert "ONE=1 '\"$x\n" in again
    assert "TWO" not in again


def test_a_login_shell_keeps_the_prefix_first_on_path_and_has_a_home(start: Start) -> None:
    sandbox = start(path_prefix=["/opt/first"])
    script = 'echo "$PATH"; touch ~/mine && ls -A ~; [ -w /tmp ] && echo tmp'
    result = sandbox.exec(["bash", "-lc", script], timeout=30)
    lines = result.stdout.text().splitlines()
    assert lines[0].startswith("/opt/first:")
    assert {".profile", "mine", "tmp"} <= set(lines)
    assert result.stderr.total == 0


def test_every_command_is_a_process_group_of_its_own(sandbox: LocalSandbox) -> None:
    assert sandbox.exec(["sh", "-c", "trap 'exit 3' TERM; kill 0; sleep 5"], timeout=30).exit_code == 3
    assert bash(sandbox, "echo next") == "next\n"


def test_output_over_the_limit_keeps_head_tail_size_and_hash(sandbox: LocalSandbox) -> None:
    script = (
        "head -c 300000 /dev/zero | tr '\\0' a; head -c 100000 /dev/zero | tr '\\0' b; "
        "printf end; printf e >&2"
    )
    result = sandbox.exec(["sh", "-c", script], timeout=30, output_limit=1000)
    whole = b"a" * 300_000 + b"b" * 100_000 + b"end"
    assert result.stdout.head == b"a" * 1000
    assert result.stdout.tail == whole[-64_000:]
    assert result.stdout.total == len(whole)
    assert result.stdout.sha256 == hashlib.sha256(whole).hexdigest()
    assert result.stdout.truncated
    assert "bytes of output were dropped here" in result.stdout.text()
    assert result.stderr.head == b"e"


def test_binary_output_is_kept_byte_for_byte(sandbox: LocalSandbox) -> None:
    data = bytes(range(256)) * 100
    sandbox.write("data", data)
    result = sandbox.exec(["cat", "data"], timeout=30)
    assert result.stdout.head == data
    assert "�" in result.stdout.text()


def test_a_hundred_megabytes_cost_bounded_memory(sandbox: LocalSandbox) -> None:
    Path("/proc/self/clear_refs").write_text("5")
    before = _high_water()
    result = sandbox.exec(["head", "-c", "100000000", "/dev/zero"], timeout=120)
    assert result.stdout.total == 100_000_000
    assert _high_water() - before < 16_000_000


def _high_water() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def test_endless_output_ends_at_the_time_out(sandbox: LocalSandbox) -> None:
    for seconds in (0.5, 5.0, 20.0):
        result = sandbox.exec(["yes"], timeout=seconds)
        # Otherwise there was no time to begin.
        if result.stdout.total > 1_000_000:
            break
    assert result.timed_out
    assert result.exit_code is None
    assert result.stdout.total > 1_000_000
    assert result.stdout.truncated
    assert bash(sandbox, "echo next") == "next\n"


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
def test_a_time_out_kills_the_whole_tree(sandbox: LocalSandbox, script: str) -> None:
    for seconds in (0.7, 5.0, 20.0):
        began = time.monotonic()
        result = sandbox.exec(["bash", "-c", f"echo before; {script}"], timeout=seconds)
        # Otherwise there was no time to begin.
        if result.stdout.total:
            break
    assert result.timed_out
    assert result.exit_code is None
    assert result.stdout.text() == "before\n"
    assert time.monotonic() - began < seconds + SOON
    assert eventually(lambda: not processes_naming(LONG), SOON)
    assert bash(sandbox, "echo next") == "next\n"


def test_a_stop_signal_interrupts_a_command_and_its_tree(sandbox: LocalSandbox) -> None:
    stop = StopSignal()
    when(lambda: len(sleeping(LONG)) == 2, lambda: stop.set(ExitReason.CANCELLED))
    result = sandbox.exec(
        ["bash", "-c", f"echo a; setsid sleep {LONG} & sleep {LONG}"], timeout=150, stop=stop
    )
    assert result.interrupted
    assert not result.timed_out
    assert result.exit_code is None
    assert result.stdout.text() == "a\n"
    assert eventually(lambda: not processes_naming(LONG), SOON)
    assert bash(sandbox, "echo next") == "next\n"


def test_a_signal_that_is_set_already_interrupts_at_once(sandbox: LocalSandbox) -> None:
    stop = StopSignal()
    stop.set(ExitReason.CANCELLED)
    result = sandbox.exec(["sleep", LONG], timeout=60, stop=stop)
    assert result.interrupted
    assert result.seconds < SOON


def test_what_a_finished_command_left_running_survives_later_time_outs(sandbox: LocalSandbox) -> None:
    bash(sandbox, f"(sleep {LONG} >/dev/null 2>&1 &)")
    assert eventually(lambda: len(sleeping(LONG)) == 1)
    assert sandbox.exec(["sleep", "500"], timeout=0.3).timed_out
    assert len(processes_naming(LONG)) == 1
    sandbox.stop()
    assert processes_naming(LONG) == []


def test_a_grandchild_that_holds_the_output_does_not_hold_the_command(sandbox: LocalSandbox) -> None:
    began = time.monotonic()
    assert bash(sandbox, f"sleep {LONG} & echo done") == "done\n"
    assert time.monotonic() - began < SOON
    assert bash(sandbox, "echo next") == "next\n"


def test_a_background_writer_does_not_reach_later_output_and_lives_on(sandbox: LocalSandbox) -> None:
    bash(sandbox, "(while sleep 0.02; do echo noise; echo tick >> ticks; done) & echo started")
    for _ in range(5):
        assert bash(sandbox, "sleep 0.1; echo mine") == "mine\n"
    count = int(bash(sandbox, "wc -l < ticks"))
    assert eventually(lambda: int(bash(sandbox, "wc -l < ticks")) > count)


def test_an_endless_background_writer_does_not_hold_the_command(sandbox: LocalSandbox) -> None:
    began = time.monotonic()
    result = sandbox.exec(["bash", "-c", "yes & echo started >&2"], timeout=30)
    assert result.exit_code == 0
    assert time.monotonic() - began < SOON
    assert bash(sandbox, "echo next") == "next\n"


BREAKERS = {
    "exit": "exit 5",
    "kill $$": "kill -9 $$",
    "closes its outputs": "exec >&- 2>&- ; exit 5",
    "strict": "set -eu; false",
    "every signal to the shell above": "for n in 1 2 3 10 12 13 14 15; do kill -$n $PPID; done; exit 5",
    "kills the shell above": "kill -9 $PPID; sleep 0.2; exit 5",
    "stops the shell above": "kill -STOP $PPID; exit 5",
    "says it has ended": "for n in $(seq 3 30); do echo 'E 0123456789abcdef 0' >&$n; done; exit 5",
    "reads what is open": "timeout 1 cat <&3; cat /proc/$PPID/fd/* /proc/1/fd/*; exit 5",
}


@pytest.mark.parametrize("script", BREAKERS.values(), ids=BREAKERS.keys())
def test_a_command_cannot_break_the_next_one(sandbox: LocalSandbox, script: str) -> None:
    began = time.monotonic()
    sandbox.exec(["bash", "-c", script], timeout=3)
    assert time.monotonic() - began < 3 + SOON
    assert bash(sandbox, "echo next; exit 0") == "next\n"
    assert sandbox.exec(["sh", "-c", "exit 4"], timeout=30).exit_code == 4


def test_a_command_inherits_no_descriptor_and_cannot_look_into_the_shell(sandbox: LocalSandbox) -> None:
    assert bash(sandbox, "ls /proc/self/fd").split() == ["0", "1", "2", "3"]  # 3 is how ls reads the folder.
    result = sandbox.exec(
        ["bash", "-c", "ls /proc/$PPID/fd; cat /proc/$PPID/environ /proc/$PPID/mem"], timeout=30
    )
    assert result.stdout.total == 0
    assert result.stderr.text().count("Permission denied") == 3


def test_many_processes_are_held_by_the_limit_and_the_sandbox_recovers(start: Start) -> None:
    sandbox = start(limits=SandboxLimits(processes=40))
    if any("number of processes" in note for note in sandbox.facts.notes):
        pytest.skip("missing: a writable control group for processes")
    result = sandbox.exec(["bash", "-c", f"for i in $(seq 100); do sleep {LONG} & done; wait"], timeout=3)
    assert result.timed_out or result.exit_code
    assert len(processes_naming(LONG)) <= 40
    bomb = sandbox.exec(["bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 60"], timeout=2)
    assert bomb.exit_code is None or bomb.exit_code
    assert eventually(lambda: sandbox.exec(["true"], timeout=20).exit_code == 0, 90)
    sandbox.exec(["bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 0.5"], timeout=20)
    assert eventually(lambda: sandbox.exec(["true"], timeout=20).exit_code == 0, 90)


def test_a_kill_for_memory_is_told_even_when_the_command_says_all_is_well(start: Start) -> None:
    sandbox = start(limits=SandboxLimits(memory_bytes=64 * 1024**2))
    if any("memory" in note for note in sandbox.facts.notes):
        pytest.skip("missing: a writable control group for memory")
    result = sandbox.exec(
        ["bash", "-c", "head -c 300M /dev/zero | tail -c 200M >/dev/null; exit 0"], timeout=60
    )
    assert result.exit_code == 0
    assert result.out_of_memory
    assert not sandbox.exec(["true"], timeout=30).out_of_memory


def test_usage_counts_memory_and_processor_time(sandbox: LocalSandbox) -> None:
    bash(sandbox, "head -c 40M /dev/zero | tail -c 30M | sha256sum; for i in $(seq 100000); do :; done")
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
