"""What a sandbox keeps apart, and that no secret of the lab is in it. The same for every kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.engine.sandboxes.base import Sandbox
from tests.engine.sandboxes.conftest import Start, processes_naming, shell
from tests.timing import odd_seconds

SECRET = "sk-a-key-of-the-lab-0123456789"
LONG = odd_seconds(2)
# chown, dac_override, fowner, kill, setgid, setuid: about files and processes that are the sandbox's own.
WITHIN = 0xEB


@pytest.fixture
def sandbox_of_a_lab_with_secrets(start: Start, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    monkeypatch.setenv("LAB_TEST_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    return start()


def test_no_key_of_the_lab_is_in_the_environment_or_in_proc(sandbox_of_a_lab_with_secrets: Sandbox) -> None:
    script = (
        "env; for file in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do cat $file 2>/dev/null; done; true"
    )
    seen = shell(sandbox_of_a_lab_with_secrets, script)
    assert "PATH=" in seen
    assert SECRET not in seen


@pytest.mark.promises("its own processes")
def test_processes_of_the_machine_are_invisible_and_out_of_reach(sandbox: Sandbox) -> None:
    numbers = [name for name in shell(sandbox, "ls /proc").split() if name.isdecimal()]
    assert len(numbers) < 10
    assert sandbox.exec(["sh", "-c", f"kill -0 {os.getpid()}"], timeout=30).exit_code != 0 or os.getpid() < 10


@pytest.mark.promises("its own processes")
def test_commands_have_no_capability_that_reaches_the_machine(sandbox: Sandbox) -> None:
    status = shell(sandbox, "cat /proc/self/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    held = [int(fields[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")]
    assert [f"{one:x}" for one in held if one & ~WITHIN] == []
    assert fields["NoNewPrivs"] == "1"


@pytest.mark.promises("its own file system")
def test_neither_docker_nor_devices_nor_the_kernels_settings_are_there(sandbox: Sandbox) -> None:
    script = "for path in /var/run/docker.sock /run/docker.sock /dev/mem /dev/kmsg /dev/sda /dev/vda; do "
    assert shell(sandbox, script + "test -e $path && echo $path; done; true") == ""
    writing = "for path in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /sys/kernel/uevent_helper; do "
    assert shell(sandbox, writing + "(echo x > $path) 2>/dev/null && echo $path; done; true") == ""


@pytest.mark.promises("its own file system")
def test_nothing_of_the_machine_is_mounted(sandbox: Sandbox, scratch: Path) -> None:
    mounts = shell(sandbox, "cat /proc/self/mountinfo")
    assert "docker.sock" not in mounts
    if sandbox.host_workspace is None:
        assert str(scratch) not in mounts


def test_sandboxes_do_not_see_each_others_files(start: Start) -> None:
    one, two = start(label="one"), start(label="two")
    one.write("of-one", b"1")
    assert two.exec(["test", "-e", f"{one.facts.workspace}/of-one"], timeout=30).exit_code == 1 or (
        two.facts.kind == "process"
    )
    assert two.exec(["test", "-e", "of-one"], timeout=30).exit_code == 1


@pytest.mark.promises("its own processes")
def test_sandboxes_cannot_end_each_others_commands(start: Start) -> None:
    one, two = start(label="one"), start(label="two")
    shell(one, f"(sleep {LONG} >/dev/null 2>&1 &)")
    two.exec(["sh", "-c", "kill -9 -1"], timeout=30)
    assert len(processes_naming(LONG)) == 1
    assert shell(two, "echo next") == "next\n"
