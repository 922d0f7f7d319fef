"""Containers prepared for the next sandbox: who is given one, who is not, and that none is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.engine.sandboxes import docker_boot, docker_pool
from lab.engine.sandboxes.base import SandboxLimits, SandboxSpec
from lab.engine.sandboxes.docker import DockerProvider, DockerSandbox
from tests import docker_host
from tests.engine.sandboxes.conftest import eventually, everything, shell
from tests.engine.sandboxes.prepared import prepare_for, prepared
from tests.timing import SOON

pytestmark = pytest.mark.requires("docker")
RUN = "run-7-attempt-1-lease-2"


@pytest.fixture
def spec(scratch: Path) -> SandboxSpec:
    return SandboxSpec(label=RUN, scratch=scratch / "sandboxes", image=docker_host.busybox_image())


@pytest.fixture
def provider() -> Iterator[DockerProvider]:
    """One that keeps a single container prepared, and none after the test."""
    docker_pool.pool().clear()
    yield DockerProvider(prepared_containers=1)
    docker_pool.pool().clear()


@pytest.fixture
def start(provider: DockerProvider, spec: SandboxSpec) -> Iterator[Callable[..., DockerSandbox]]:
    """Start a sandbox of `spec` with other fields; it is stopped after the test."""
    started: list[DockerSandbox] = []

    def start(**fields: Any) -> DockerSandbox:
        started.append(provider.start(replace(spec, **fields)))
        return started[-1]

    yield start
    for sandbox in started:
        sandbox.stop()


Start = Callable[..., DockerSandbox]


def test_after_a_sandbox_the_next_one_of_its_kind_is_there_already_and_has_its_own_task(start: Start) -> None:
    first = start()
    assert first.facts.identifier not in prepared()
    (waiting,) = prepared()
    second = start(label="run-8-attempt-1-lease-1", workspace="/other", environment={"WHOSE": "the second's"})
    assert second.facts.identifier == waiting
    assert shell(second, "pwd; echo $WHOSE") == "/other\nthe second's\n"
    assert eventually(lambda: docker_host.labelled("run-8-attempt-1-lease-1") == [waiting])
    assert shell(first, "ls -d /other 2>/dev/null; echo $WHOSE") == "\n"
    # A third one is prepared by now, and nobody was given it.
    assert len({waiting, first.facts.identifier, *prepared()}) == 3


def test_a_sandbox_does_not_wait_for_one_whose_making_takes_long() -> None:
    kept, kind, gate = (
        docker_pool.Pool(),
        docker_pool.Kind("", "", SandboxLimits(), "", ""),
        threading.Event(),
    )

    def make() -> docker_boot.Booted:
        began.set()
        gate.wait(120)
        raise OSError("the daemon hung")

    began = threading.Event()
    kept.want(kind, make, 1)
    assert began.wait(SOON)
    before = time.monotonic()
    try:
        assert kept.take(kind) is None
        assert time.monotonic() - before < SOON
    finally:
        gate.set()


OTHERS: dict[str, dict[str, Any]] = {
    "limits": {"limits": SandboxLimits(memory_bytes=64 * 1024**2)},
    "network": {"limits": SandboxLimits(network=True)},
    "user": {"user": docker_host.IMAGE_USER},
}


@pytest.mark.parametrize("fields", OTHERS.values(), ids=OTHERS.keys())
def test_a_sandbox_that_differs_is_given_no_prepared_container(start: Start, fields: dict[str, Any]) -> None:
    start()
    (waiting,) = prepared()
    assert start(**fields).facts.identifier != waiting


@pytest.mark.requires("debian image")
def test_a_sandbox_of_another_image_or_another_lab_is_given_no_prepared_container(
    start: Start, scratch: Path
) -> None:
    start()
    (waiting,) = prepared()
    elsewhere = scratch / "another" / "lab"
    elsewhere.mkdir(parents=True)
    assert start(scratch=elsewhere).facts.identifier != waiting
    (waiting,) = prepared()
    assert start(image=docker_host.debian_image()).facts.identifier != waiting


def test_of_two_sandboxes_that_start_at_once_one_is_given_what_was_prepared(start: Start) -> None:
    start()
    (waiting,) = prepared()
    found: list[DockerSandbox] = []
    gate = threading.Barrier(2)

    def one() -> None:
        gate.wait()
        found.append(start())

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({sandbox.facts.identifier for sandbox in found}) == 2
    assert waiting in {sandbox.facts.identifier for sandbox in found}
    assert [shell(sandbox, "echo mine") for sandbox in found] == ["mine\n"] * 2


def test_a_prepared_container_that_was_killed_or_removed_costs_time_alone(start: Start) -> None:
    start()
    for harm in (docker_host.kill, docker_host.remove):
        (waiting,) = prepared()
        harm(waiting)
        another = start()
        assert another.facts.identifier != waiting
        assert shell(another, "echo well") == "well\n"
        assert eventually(lambda: not docker_host.exists(waiting))  # noqa: B023 (called in this round)


def test_one_that_does_not_answer_is_replaced(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_boot, "_HAND_OUT_SECONDS", 0.5)
    start()
    (waiting,) = prepared()
    docker_host.freeze(waiting)
    another = start()
    assert another.facts.identifier != waiting
    assert shell(another, "echo well") == "well\n"
    assert eventually(lambda: not docker_host.exists(waiting))


def test_with_none_to_prepare_none_is(spec: SandboxSpec) -> None:
    provider = DockerProvider()
    sandbox = provider.start(spec)
    try:
        assert prepared() == []
    finally:
        sandbox.stop()


def test_of_more_kinds_than_may_be_kept_those_wanted_last_stay(start: Start) -> None:
    start()
    (first,) = prepared()
    start(user=docker_host.IMAGE_USER)
    (second,) = prepared()
    assert first != second
    assert eventually(lambda: not docker_host.exists(first))


def test_one_that_nobody_uses_goes_and_not_while_a_sandbox_of_its_kind_is_in_use(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_pool, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(docker_pool, "_LOOK_SECONDS", 0.05)
    sandbox = start()
    (waiting,) = prepared()
    time.sleep(0.5)
    assert prepared() == [waiting]
    sandbox.stop()
    assert eventually(lambda: not docker_host.exists(waiting))
    assert eventually(lambda: not [one for one in threading.enumerate() if one.name == "docker-pool"])


def test_a_prepared_container_without_its_process_is_reaped_and_another_is_left(
    provider: DockerProvider, spec: SandboxSpec, scratch: Path
) -> None:
    owner = _owner(spec, "import time; time.sleep(600)")
    theirs = _said(owner)
    prepare_for(provider, spec)
    (ours,) = prepared()
    asked: dict[str, list[bool]] = {}

    def note(label: str, starter_lives: bool) -> bool:
        asked.setdefault(label, []).append(starter_lives)
        return not starter_lives

    assert provider.reap(scratch / "sandboxes", note) == []
    assert asked == {RUN: [True], "prepared": [True, True]}
    owner.kill()
    owner.communicate()
    removed = provider.reap(scratch / "sandboxes", note)
    # That of its run was handed out before its owner died, and is known by the run's name.
    assert removed == ["prepared", RUN]
    assert [one for one in theirs if docker_host.exists(one)] == []
    assert docker_host.is_running(ours)
    assert provider.reap(scratch, everything) == ["prepared"]


def test_a_process_that_ends_takes_what_it_prepared_along(spec: SandboxSpec) -> None:
    owner = _owner(spec, "sandbox.stop()")
    theirs = _said(owner)
    assert len(theirs) == 2
    assert owner.wait(SOON * 2) == 0
    assert [one for one in theirs if docker_host.exists(one)] == []


OWNER = """
    import sys
    from pathlib import Path
    from lab.engine.sandboxes import docker_pool
    from lab.engine.sandboxes.base import SandboxSpec
    from lab.engine.sandboxes.docker import DockerProvider
    from tests import docker_host
    from tests.engine.sandboxes.prepared import prepare_for, prepared
    label, scratch, image = sys.argv[1:]
    provider = DockerProvider(prepared_containers=1)
    spec = SandboxSpec(label=label, scratch=Path(scratch), image=image)
    prepare_for(provider, spec)
    waiting = prepared()
    sandbox = provider.start(spec)
    assert waiting == [sandbox.facts.identifier]
    while docker_host.labelled(label) != waiting: pass
    print(sandbox.facts.identifier, *prepared(), flush=True)
"""


def _owner(spec: SandboxSpec, then: str) -> subprocess.Popen[str]:
    """A process that has a sandbox in a container which was prepared, and another one waiting."""
    code = textwrap.dedent(OWNER) + then
    words = [sys.executable, "-c", code, spec.label, str(spec.scratch), spec.image]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def _said(owner: subprocess.Popen[str]) -> list[str]:
    assert owner.stdout is not None
    return owner.stdout.readline().split()


def test_a_forked_child_leaves_its_parents_container_alone_and_prepares_its_own(
    provider: DockerProvider, spec: SandboxSpec, start: Start
) -> None:
    start()
    (waiting,) = prepared()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # Whatever goes wrong here must not go on as a second test run.
        try:
            inner = provider.start(replace(spec, label="child"))
            told = f"{inner.facts.identifier} {shell(inner, 'echo well').strip()} {' '.join(prepared())}"
            inner.stop()
            docker_pool.pool().clear()
            os.write(writing, told.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read().split()
    os.waitpid(child, 0)
    assert len(told) == 3
    identifier, well, another = told
    assert well == "well"
    assert waiting not in (identifier, another)
    assert not docker_host.exists(another)
    assert start().facts.identifier == waiting


@pytest.mark.parametrize("label", ["run-1-attempt-2-lease-3", "run 9", "a_b.c/d", "Häuser ✓", ".", "_", ""])
def test_any_label_is_found_again_in_a_containers_name(label: str) -> None:
    name = f"/trajectory-lab.0123456789abcdef.{docker_boot._encoded(label)}"
    assert all(character.isascii() and (character.isalnum() or character in "_.-/") for character in name)
    assert docker_boot.label_of("prepared", [name]) == label
    assert docker_boot.label_of("another", [name]) == "another"
    assert docker_boot.label_of("prepared", ["/trajectory-lab.0123456789abcdef"]) == "prepared"
