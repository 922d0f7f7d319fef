"""Starting, stopping, vanishing: nothing remains, nothing hangs. The same for every kind of sandbox."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.base import SandboxProvider, SandboxSpec
from lab.engine.sandboxes.local import LocalSandbox
from tests.engine.sandboxes.conftest import Start, eventually, processes_naming
from tests.timing import SOON, odd_seconds, sleeping, when

LONG = odd_seconds(6)
CALLS: dict[str, Callable[[LocalSandbox], object]] = {
    "exec": lambda sandbox: sandbox.exec(["sleep", LONG], timeout=120),
    "read": lambda sandbox: sandbox.read("file"),
    "write": lambda sandbox: sandbox.write("file", b"x"),
}


def groups_of(sandbox: LocalSandbox) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/lab/{sandbox.facts.identifier}"))


def test_stop_leaves_no_process_no_folder_and_no_group(start: Start, scratch: Path) -> None:
    sandbox = start()
    sandbox.exec(["bash", "-c", f"(setsid sleep {LONG} >/dev/null 2>&1 &)"], timeout=30)
    assert eventually(lambda: len(sleeping(LONG)) == 1)
    sandbox.stop()
    assert processes_naming(LONG) == []
    assert processes_naming(sandbox.facts.identifier) == []
    assert groups_of(sandbox) == []
    assert list(scratch.iterdir()) == []


def test_stop_removes_folders_of_any_mode_depth_and_name(start: Start, scratch: Path) -> None:
    sandbox = start()
    script = r"""
        mkdir -p shut/inner && touch shut/inner/file && chmod 000 shut
        mkdir $'odd\nname' -- -dash && ln -s / root && ln -s /etc/passwd link
        for i in 1 2 3; do mkdir -p $(printf 'd/%.0s' {1..1500}) && cd -P $(printf 'd/%.0s' {1..1500}); done
    """
    sandbox.exec(["bash", "-c", script], timeout=60)
    sandbox.stop()
    assert list(scratch.iterdir()) == []
    assert Path("/etc/passwd").exists()


def test_stopping_again_and_from_many_threads_is_harmless(start: Start) -> None:
    sandbox = start()
    threads = [threading.Thread(target=sandbox.stop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sandbox.stop() == sandbox.usage()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_every_call_after_stop_says_the_sandbox_is_lost(
    sandbox: LocalSandbox, call: Callable[[LocalSandbox], object]
) -> None:
    sandbox.stop()
    for _ in range(2):
        with pytest.raises(SandboxLostError, match="stopped"):
            call(sandbox)


def test_stop_from_another_thread_ends_a_running_command(sandbox: LocalSandbox) -> None:
    stopping = when(lambda: sleeping(LONG), sandbox.stop)
    with pytest.raises(SandboxLostError):
        sandbox.exec(["sleep", LONG], timeout=150)
    stopping.join(60)
    assert not stopping.is_alive()
    assert processes_naming(LONG) == []


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_sandbox_that_died_is_told_by_each_call(
    sandbox: LocalSandbox, call: Callable[[LocalSandbox], object]
) -> None:
    parts = sandbox._parts
    shell = parts.root if parts.own_numbers else parts.shell.pid
    os.kill(parts.first.pid, signal.SIGKILL)
    began = time.monotonic()
    assert eventually(lambda: not Path(f"/proc/{shell}").exists())
    for _ in range(3):
        with pytest.raises(SandboxLostError):
            call(sandbox)
    assert time.monotonic() - began < 90


def test_a_sandbox_that_dies_during_a_command_is_told_promptly(sandbox: LocalSandbox) -> None:
    died = list[float]()

    def die() -> None:
        died.append(time.monotonic())
        os.kill(sandbox._parts.first.pid, signal.SIGKILL)

    when(lambda: sleeping(LONG), die)
    with pytest.raises(SandboxLostError):
        sandbox.exec(["sleep", LONG], timeout=150)
    assert time.monotonic() - died[0] < SOON
    sandbox.stop()
    assert eventually(lambda: not processes_naming(LONG))


def test_a_removed_control_folder_is_a_lost_sandbox_and_no_hang(sandbox: LocalSandbox) -> None:
    subprocess.run(["rm", "-rf", str(sandbox._parts.folders.control)], check=True)
    with pytest.raises(SandboxLostError):
        sandbox.exec(["true"], timeout=10, stdin=b"x")


def test_sandboxes_do_not_disturb_each_other(start: Start) -> None:
    one, two = start(label="one"), start(label="two")
    one.write("file", b"1")
    two.write("file", b"2")
    assert one.exec(["sleep", "100"], timeout=0.3).timed_out
    assert (one.read("file"), two.read("file")) == (b"1", b"2")
    one.stop()
    assert two.exec(["cat", "file"], timeout=30).stdout.head == b"2"


def test_a_sandbox_outlives_the_thread_that_started_it(start: Start) -> None:
    started: list[LocalSandbox] = []
    thread = threading.Thread(target=lambda: started.append(start()))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert started[0].exec(["echo", "alive"], timeout=30).stdout.head == b"alive\n"


def everything(label: str, starter_lives: bool) -> bool:
    return True


OWNER = """
    import sys, time
    from pathlib import Path
    from lab.engine.sandboxes.base import SandboxSpec
    from lab.engine.sandboxes.bubblewrap import BubblewrapProvider
    from lab.engine.sandboxes.process import ProcessProvider
    provider = {"process": ProcessProvider, "bubblewrap": BubblewrapProvider}[sys.argv[1]]()
    sandbox = provider.start(SandboxSpec(label="run-7", scratch=Path(sys.argv[2])))
    sandbox.exec(["bash", "-c", "(setsid sleep %(long)s >/dev/null 2>&1 &)"], timeout=30)
    print(sandbox.facts.identifier, flush=True)
    sandbox.exec(["bash", "-c", "setsid sleep %(long)s & trap '' TERM HUP; sleep %(long)s"], timeout=600)
"""


def test_nothing_is_left_when_its_owner_is_killed(provider: SandboxProvider, scratch: Path) -> None:
    code = textwrap.dedent(OWNER) % {"long": LONG}
    folder = scratch / "run-7"
    owner = subprocess.Popen(
        [sys.executable, "-c", code, provider.kind, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    identifier = owner.stdout.readline().strip()
    assert eventually(lambda: len(processes_naming(LONG)) >= 4)  # Two of them are bash with the script.
    assert provider.reap(scratch, lambda label, starter_lives: not starter_lives) == []
    owner.kill()
    owner.communicate()
    assert eventually(lambda: not processes_naming(LONG)), "commands outlived the lab"
    assert eventually(lambda: not processes_naming(identifier)), "the sandbox outlived the lab"
    assert provider.reap(scratch, lambda label, starter_lives: starter_lives) == []
    assert (folder / identifier).is_dir()
    assert provider.reap(scratch, lambda label, starter_lives: label == "run-7") == ["run-7"]
    assert list(scratch.iterdir()) == []
    assert list(Path("/sys/fs/cgroup").glob(f"**/lab/{identifier}")) == []
    assert provider.reap(scratch, everything) == []


def test_the_reaper_kills_what_still_runs_and_leaves_other_kinds_alone(
    provider: SandboxProvider, start: Start, scratch: Path
) -> None:
    from tests.engine.sandboxes.conftest import PROVIDERS

    sandbox = start(label="run 9")
    sandbox.exec(["bash", "-c", f"(setsid sleep {LONG} >/dev/null 2>&1 &)"], timeout=30)
    others = [make() for kind, make in PROVIDERS.items() if kind != provider.kind]
    for other in others:
        assert other.reap(scratch, everything) == []
    assert provider.reap(scratch, everything) == ["run 9"]
    assert processes_naming(LONG) == []
    with pytest.raises(SandboxLostError):
        sandbox.exec(["true"], timeout=10)
    sandbox.stop()


def test_a_removal_that_was_interrupted_is_finished_by_the_reaper(
    provider: SandboxProvider, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = provider.start(SandboxSpec(label="run-8", scratch=scratch / "run-8"))
    sandbox.write("file", b"x")
    with monkeypatch.context() as patched:
        patched.setattr("lab.engine.sandboxes.folders.remove_tree", lambda path: None)
        sandbox.stop()
    assert any(scratch.rglob("file"))
    assert provider.reap(scratch, lambda label, starter_lives: False) == []
    assert list(scratch.iterdir()) == []


def test_the_reaper_goes_on_where_folders_come_and_go(provider: SandboxProvider, scratch: Path) -> None:
    over = threading.Event()

    def come_and_go() -> None:
        number = 0
        while not over.is_set():
            number += 1
            folder = scratch / f"{number % 50}"
            folder.mkdir(parents=True)
            folder.rmdir()

    scratch.mkdir(exist_ok=True)
    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(500):
            assert provider.reap(scratch, lambda label, starter_lives: True) == []
    finally:
        over.set()
        other.join()


def test_a_sandbox_without_its_marker_is_removed_after_a_minute(
    provider: SandboxProvider, scratch: Path
) -> None:
    folders = [scratch / f"{provider.kind}-run-5-0123abcd", scratch / f"{provider.kind}-run-6-0123abcd"]
    somebody_elses = scratch / "mine"
    for folder in (*folders, somebody_elses):
        (folder / "workspace").mkdir(parents=True)
    for folder in (folders[0], somebody_elses):
        os.utime(folder, (time.time() - 70, time.time() - 70))
    assert provider.reap(scratch, lambda label, starter_lives: False) == [folders[0].name]
    assert sorted(scratch.iterdir()) == sorted([folders[1], somebody_elses])


def test_a_start_that_fails_says_why_and_leaves_nothing(provider: SandboxProvider, scratch: Path) -> None:
    (scratch / "file").write_text("")
    with pytest.raises(SandboxLostError, match="Not a directory|File exists"):
        provider.start(SandboxSpec(label="x", scratch=scratch / "file" / "below"))
    assert [path.name for path in scratch.iterdir()] == ["file"]


def test_a_hundred_commands_leak_no_descriptor(sandbox: LocalSandbox) -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    sandbox.exec(["true"], timeout=30)
    before = opened()
    for _ in range(50):
        sandbox.exec(["true"], timeout=30, stdin=b"x")
        sandbox.exec(["sleep", "9"], timeout=0.01)
    # Fewer is fine: what earlier tests left behind may be collected meanwhile.
    assert opened() <= before
    assert len(list(sandbox._parts.folders.control.iterdir())) < 15
