from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from lab.services.processes import is_dead, process_identity
from tests.house.tree import ROOT


def test_this_process_is_alive() -> None:
    assert not is_dead(process_identity())


def test_a_process_that_has_ended_is_dead_also_while_its_parent_has_not_looked() -> None:
    script = (
        "from lab.services.processes import process_identity; print(process_identity(), flush=True); input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    identity = child.stdout.readline().strip()
    assert not is_dead(identity)
    child.kill()
    until = time.monotonic() + 60
    while not is_dead(identity) and time.monotonic() < until:
        time.sleep(0.01)
    assert is_dead(identity)
    child.communicate()
    assert is_dead(identity)


def test_another_process_with_the_same_number_is_not_the_same() -> None:
    host, pid, start = process_identity().split("/")
    assert is_dead(f"{host}/{pid}/{int(start) - 1}")


@pytest.mark.parametrize("identity", ["", "w", "elsewhere/1/1", f"{socket.gethostname()}/x/1"])
def test_of_processes_elsewhere_nothing_is_said(identity: str) -> None:
    assert not is_dead(identity)


def test_a_child_dies_with_its_parent() -> None:
    inner = (
        "from lab.services.processes import die_with_parent\n"
        "die_with_parent(); print('ready', flush=True); input()"
    )
    outer = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {inner!r}], stdin=subprocess.PIPE, text=True,"
        " stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); input()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", outer], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    until = time.monotonic() + 60
    while time.monotonic() < until and _is_there(pid):
        time.sleep(0.01)
    assert not _is_there(pid)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - as short as it gets
        return file.read().rpartition(")")[2].split()[0] != "Z"
