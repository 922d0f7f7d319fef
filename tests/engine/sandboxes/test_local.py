"""What sandboxes made of folders and processes of this machine have in common: process and bubblewrap."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.base import Sandbox, SandboxProvider
from tests.engine.sandboxes.conftest import MakeSpec, Start

# The places whose files and processes the machine itself can see.
pytestmark = pytest.mark.promises("a folder on this machine")


def test_the_workspace_is_a_folder_of_this_machine(sandbox: Sandbox) -> None:
    sandbox.write("file", b"x")
    assert sandbox.host_workspace is not None
    assert (sandbox.host_workspace / "file").read_bytes() == b"x"


def test_a_command_cannot_look_into_the_shell(sandbox: Sandbox) -> None:
    script = "ls /proc/$PPID/fd; cat /proc/$PPID/environ /proc/$PPID/mem"
    result = sandbox.exec(["sh", "-c", script], timeout=30)
    assert result.stdout.total == 0
    assert result.stderr.text().count("Permission denied") == 3


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


def test_a_removed_control_folder_is_a_lost_sandbox_and_no_hang(sandbox: Sandbox) -> None:
    subprocess.run(["rm", "-rf", str(sandbox._parts.folders.control)], check=True)
    with pytest.raises(SandboxLostError):
        sandbox.exec(["true"], timeout=10, stdin=b"x")


def test_a_removal_that_was_interrupted_is_finished_by_the_reaper(
    provider: SandboxProvider, make_spec: MakeSpec, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = provider.start(make_spec("run-8", scratch=scratch / "run-8"))
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


def test_a_start_that_fails_says_why_and_leaves_nothing(
    provider: SandboxProvider, make_spec: MakeSpec, scratch: Path
) -> None:
    (scratch / "file").write_text("")
    with pytest.raises(SandboxLostError, match="Not a directory|File exists"):
        provider.start(make_spec(scratch=scratch / "file" / "below"))
    assert [path.name for path in scratch.iterdir()] == ["file"]


def test_commands_leave_no_file_in_the_control_folder(sandbox: Sandbox) -> None:
    for _ in range(20):
        sandbox.exec(["true"], timeout=30, stdin=b"x")
        sandbox.exec(["sleep", "9"], timeout=0.01)
    assert len(list(sandbox._parts.folders.control.iterdir())) < 15  # type: ignore[attr-defined]
