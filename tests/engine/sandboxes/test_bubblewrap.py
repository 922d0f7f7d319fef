"""What bubblewrap adds: a command sees and reaches nothing of the lab, the machine's files or the network."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.engine.errors import InvalidValueError, SandboxLostError
from lab.engine.sandboxes.base import SandboxLimits, SandboxSpec
from lab.engine.sandboxes.bubblewrap import BubblewrapProvider
from lab.engine.sandboxes.local import LocalSandbox

pytestmark = pytest.mark.requires("bubblewrap")


@pytest.fixture
def sandbox(scratch: Path) -> Iterator[LocalSandbox]:
    sandbox = BubblewrapProvider().start(SandboxSpec(label="isolation", scratch=scratch))
    yield sandbox
    sandbox.stop()


def bash(sandbox: LocalSandbox, script: str) -> str:
    return sandbox.exec(["bash", "-c", script], timeout=30).stdout.text()


def test_its_facts_say_what_it_is(sandbox: LocalSandbox) -> None:
    facts = sandbox.facts
    assert (facts.kind, facts.isolation, facts.network) == ("bubblewrap", "bubblewrap", False)
    assert facts.workspace == "/workspace"
    assert facts.notes


def test_commands_have_no_rights_and_are_not_root(sandbox: LocalSandbox) -> None:
    assert bash(sandbox, "id -u").strip() != "0"
    status = bash(sandbox, "cat /proc/self/status")
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert sandbox.exec(["bash", "-c", "echo x > /usr/bin/x || echo x > /x"], timeout=30).exit_code == 1


def test_processes_of_the_machine_and_their_environment_are_invisible(sandbox: LocalSandbox) -> None:
    numbers = bash(sandbox, "ls /proc | grep -E '^[0-9]+$'").split()
    assert len(numbers) < 8
    assert bash(sandbox, "cat /proc/*/environ | tr '\\0' '\\n' | grep -c PYTEST").strip() == "0"


def test_files_of_the_machine_are_invisible_also_through_links(sandbox: LocalSandbox, scratch: Path) -> None:
    secret = scratch / "secret.txt"
    secret.write_text("the lab's own")
    secret.chmod(0o644)
    assert sandbox.exec(["cat", str(secret)], timeout=30).exit_code == 1
    bash(sandbox, f"ln -s {secret} link; ln -s {scratch} folder; ln -s /proc/self/root/{secret} around")
    for path in ("link", "folder/secret.txt", "around", str(secret), f"../../..{secret}"):
        with pytest.raises(FileNotFoundError):
            sandbox.read(path)
    with pytest.raises(OSError, match=r"Permission denied|No such file|Read-only file system"):
        sandbox.write("link", b"overwritten")
    assert secret.read_text() == "the lab's own"
    assert sandbox.exec(["ls", "/root"], timeout=30).exit_code == 2
    assert "shadow" not in bash(sandbox, "ls /etc")


def test_the_network_is_off_but_loopback_works_inside(sandbox: LocalSandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert bash(sandbox, f"(echo > /dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached") == ""
    assert bash(sandbox, "grep -c . /proc/net/route").strip() == "1"
    assert bash(sandbox, "ls /sys 2>/dev/null | wc -l").strip() == "0"


def test_the_network_is_on_where_the_limits_say_so(scratch: Path) -> None:
    spec = SandboxSpec(label="network", scratch=scratch, limits=SandboxLimits(network=True))
    sandbox = BubblewrapProvider().start(spec)
    try:
        assert sandbox.facts.network
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            assert bash(sandbox, f"(echo > /dev/tcp/127.0.0.1/{port}) && echo reached") == "reached\n"
    finally:
        sandbox.stop()


def test_killing_everything_inside_kills_the_command_alone(sandbox: LocalSandbox) -> None:
    sandbox.exec(["bash", "-c", "kill -9 -1; kill -9 1"], timeout=30)
    assert bash(sandbox, "echo next") == "next\n"


def test_read_only_paths_are_there_and_cannot_be_written(scratch: Path) -> None:
    tools = scratch / "home" / "shut" / "tools"
    tools.mkdir(parents=True)
    (tools / "tool").write_text("#!/bin/sh\necho tool\n")
    (tools / "tool").chmod(0o755)
    (scratch / "home").chmod(0o700)  # Like /root: nobody but its owner may pass.
    spec = SandboxSpec(
        label="paths",
        scratch=scratch / "s",
        read_only_paths=[tools],
        path_prefix=[str(tools)],
        workspace="/deep/w",
    )
    sandbox = BubblewrapProvider().start(spec)
    try:
        assert sandbox.exec(["bash", "-lc", "tool; pwd"], timeout=30).stdout.text() == "tool\n/deep/w\n"
        assert sandbox.exec(["touch", str(tools / "x")], timeout=30).exit_code == 1
    finally:
        sandbox.stop()


def test_hidden_paths_are_empty_wherever_they_would_be_seen(scratch: Path) -> None:
    packages = scratch / "python" / "packages"
    (packages / "lab" / "tests").mkdir(parents=True)
    (packages / "lab" / "tests" / "hidden.py").write_text("assert answer() == 42\n")
    (packages / "other.py").write_text("")
    hidden = [packages / "lab", Path("/usr/share"), scratch / "not" / "there"]
    spec = SandboxSpec(
        label="hide", scratch=scratch / "s", read_only_paths=[scratch / "python"], hidden_paths=hidden
    )
    sandbox = BubblewrapProvider().start(spec)
    try:
        script = f"find {packages} /usr/share -mindepth 1 | sort; touch {packages}/lab/x || echo refused"
        assert sandbox.exec(["bash", "-c", script], timeout=30).stdout.text() == (
            f"{packages}/lab\n{packages}/other.py\nrefused\n"
        )
    finally:
        sandbox.stop()


def test_temporary_and_shared_memory_folders_are_private_and_writable(sandbox: LocalSandbox) -> None:
    assert bash(sandbox, "touch /tmp/a /dev/shm/b /var/tmp/c ~/d && ls /tmp /dev/shm") == (
        "/dev/shm:\nb\n\n/tmp:\na\nc\n"  # noqa: S108
    )
    assert not Path("/dev/shm/b").exists()  # noqa: S108


def test_a_missing_read_only_path_is_named_when_the_start_fails(scratch: Path) -> None:
    spec = SandboxSpec(label="x", scratch=scratch / "s", read_only_paths=[scratch / "nowhere"])
    with pytest.raises(SandboxLostError, match="nowhere"):
        BubblewrapProvider().start(spec)
    assert list(scratch.iterdir()) == []


def test_without_bwrap_the_way_out_is_named(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(scratch))
    provider = BubblewrapProvider()
    assert "apt-get install bubblewrap" in (provider.available() or "")
    with pytest.raises(SandboxLostError, match="apt-get install bubblewrap"):
        provider.start(SandboxSpec(label="x", scratch=scratch))


def test_root_is_no_user_for_commands() -> None:
    with pytest.raises(InvalidValueError, match="LAB_SANDBOX_UID"):
        BubblewrapProvider(uid=0)


ORDINARY = """
    import os, subprocess, sys, tempfile
    from pathlib import Path
    from lab.engine.sandboxes.base import SandboxSpec
    from lab.engine.sandboxes.bubblewrap import BubblewrapProvider
    # Loaded now: afterwards the interpreter's own folder may be out of reach.
    import concurrent.futures.thread, resource
    os.setgroups([]); os.setgid(65531); os.setuid(65531)
    provider = BubblewrapProvider()
    print(provider.available())
    sandbox = provider.start(SandboxSpec(label="ordinary", scratch=Path(sys.argv[1])))
    script = "id -u; [ $(ls -d /proc/[0-9]* | wc -l) -lt 8 ] && echo few; ls /proc/1/fd; "
    script += "(setsid sleep 985.5 &) ; sleep 985.5"
    for seconds in (0.7, 5.0, 20.0):
        result = sandbox.exec(["bash", "-lc", script], timeout=seconds)
        if b"few" in result.stdout.head and result.stderr.head:
            break  # otherwise there was no time for it
    print(result.stdout.text().split(), result.timed_out, "denied" in result.stderr.text())
    sandbox.write("a/b", b"x", mode=0o600)
    print(sandbox.read("a/b"), sandbox.exec(["sh", "-c", "mkdir c; chmod 0 c"], timeout=30).exit_code)
    used = sandbox.stop()
    print(used.cpu_seconds is not None, used.peak_memory_bytes is not None, os.listdir(sys.argv[1]))
"""


@pytest.mark.requires("root")
def test_it_works_for_a_lab_that_is_not_root(scratch: Path) -> None:
    folder = scratch / "ordinary"
    folder.mkdir()
    os.chown(folder, 65_531, 65_531)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ORDINARY), str(folder)],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "None",
        "['65531', 'few'] True True",
        "b'x' 0",
        "True True []",
    ]
