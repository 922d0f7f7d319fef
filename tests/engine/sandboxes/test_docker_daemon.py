"""A Docker daemon that is restarted, killed or frozen under its sandboxes, and one that is not there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.engine import registry
from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes import docker_pool
from lab.engine.sandboxes.base import Sandbox, SandboxProvider, SandboxSpec
from lab.engine.sandboxes.docker import DockerProvider
from tests.docker_host import Daemon, busybox_reference
from tests.engine.sandboxes.conftest import eventually, everything, processes_naming, shell
from tests.engine.sandboxes.prepared import prepare_for, prepared
from tests.servers import running
from tests.timing import SOON, odd_seconds, sleeping

pytestmark = pytest.mark.requires("dockerd")

LONG = odd_seconds(3)
# When at the latest a sandbox is told as lost whose daemon does not answer.
LOST_SECONDS = 30.0
CALLS: dict[str, Callable[[Sandbox], object]] = {
    "exec": lambda sandbox: sandbox.exec(["sleep", LONG], timeout=200),
    "read": lambda sandbox: sandbox.read("file"),
    "write": lambda sandbox: sandbox.write("file", b"x"),
}


@pytest.fixture(scope="module")
def one_daemon() -> Iterator[Daemon]:
    with running(Daemon()) as daemon:
        yield daemon


@pytest.fixture
def daemon(one_daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """The daemon that the lab is told to use, running again afterwards."""
    monkeypatch.setenv("DOCKER_HOST", one_daemon.url)
    yield one_daemon
    one_daemon.wake()


@pytest.fixture
def provider(daemon: Daemon) -> SandboxProvider:
    return registry.provider("docker")


@pytest.fixture
def spec(scratch: Path) -> SandboxSpec:
    return SandboxSpec(label="run-3", scratch=scratch / "run-3", image=busybox_reference())


@pytest.fixture
def sandbox(provider: SandboxProvider, spec: SandboxSpec, daemon: Daemon) -> Iterator[Sandbox]:
    sandbox = provider.start(spec)
    sandbox.write("file", b"x")
    yield sandbox
    daemon.wake()
    sandbox.stop()


def restart(daemon: Daemon) -> None:
    daemon.restart()


def kill_and_start(daemon: Daemon) -> None:
    daemon.kill()
    daemon.start()


ENDINGS = {"restarted": restart, "killed and started": kill_and_start}


@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS.keys())
def test_a_daemon_that_goes_during_a_command_is_a_lost_sandbox(
    daemon: Daemon,
    provider: SandboxProvider,
    sandbox: Sandbox,
    spec: SandboxSpec,
    scratch: Path,
    end: Callable[[Daemon], None],
) -> None:
    with ThreadPoolExecutor(1) as pool:
        command = ["sh", "-c", f"trap '' TERM; sleep {LONG}; true"]
        running_it = pool.submit(sandbox.exec, command, timeout=300)
        assert eventually(lambda: bool(sleeping(LONG)))
        # Here and not on a thread: a server dies with the thread that started it.
        end(daemon)
        with pytest.raises(SandboxLostError):
            running_it.result(LOST_SECONDS + SOON)
    for call in CALLS.values():
        with pytest.raises(SandboxLostError):
            call(sandbox)
    sandbox.stop()
    assert eventually(lambda: not processes_naming(LONG))
    # The next run finds the daemon again.
    another = provider.start(spec)
    assert shell(another, "echo well") == "well\n"
    another.stop()
    assert provider.reap(scratch, everything) == []
    assert daemon.client().containers.list(all=True) == []


def test_a_daemon_that_hangs_loses_and_starts_no_sandbox_within_half_a_minute_and_leaves_nothing(
    daemon: Daemon, provider: SandboxProvider, spec: SandboxSpec, scratch: Path
) -> None:
    sandboxes = {name: provider.start(spec) for name in CALLS}
    idle = provider.start(spec)
    for sandbox in sandboxes.values():
        sandbox.write("file", b"x")
    os.kill(daemon.pid, signal.SIGSTOP)
    began = time.monotonic()

    def call_again_and_again(name: str) -> None:
        """What needs no answer of the daemon itself may go on until it is looked after."""
        while time.monotonic() - began < 2 * LOST_SECONDS:
            CALLS[name](sandboxes[name])

    with ThreadPoolExecutor(len(CALLS) + 2) as pool:
        starting, stopping = pool.submit(provider.start, spec), pool.submit(idle.stop)
        for calling in [pool.submit(call_again_and_again, name) for name in CALLS]:
            with pytest.raises(SandboxLostError):
                calling.result(2 * LOST_SECONDS + SOON)
        with pytest.raises(SandboxLostError, match="answer|docker"):
            starting.result(LOST_SECONDS + SOON)
        stopping.result(LOST_SECONDS + SOON)
        assert time.monotonic() - began < LOST_SECONDS + SOON
    daemon.wake()
    for sandbox in sandboxes.values():
        sandbox.stop()
    assert eventually(lambda: set(provider.reap(scratch, everything)) <= {"run-3"})
    assert daemon.client().containers.list(all=True) == []
    assert eventually(lambda: not processes_naming(LONG))


@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS.keys())
def test_what_was_prepared_before_a_daemon_went_costs_the_next_sandbox_time_alone(
    daemon: Daemon, spec: SandboxSpec, scratch: Path, end: Callable[[Daemon], None]
) -> None:
    provider = DockerProvider(prepared_containers=1)
    prepare_for(provider, spec)
    (waiting,) = prepared()
    end(daemon)
    sandbox = provider.start(spec)
    try:
        assert sandbox.facts.identifier != waiting
        assert shell(sandbox, "echo well") == "well\n"
    finally:
        sandbox.stop()
        docker_pool.pool().clear()
    assert eventually(lambda: set(provider.reap(scratch, everything)) <= {"prepared"})
    assert daemon.client().containers.list(all=True) == []


def test_without_a_daemon_the_way_out_is_named_by_start_and_reaper(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{scratch}/nobody.sock")
    provider = registry.provider("docker")
    assert "dockerd" in (provider.available() or "") or "daemon" in (provider.available() or "")
    spec = SandboxSpec(label="x", scratch=scratch, image=busybox_reference())
    with pytest.raises(SandboxLostError, match="daemon"):
        provider.start(spec)
    with pytest.raises(SandboxLostError, match="daemon"):
        provider.reap(scratch, everything)
