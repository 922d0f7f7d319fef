"""Containers that nobody needs any more are removed: those of this lab alone, once it has used docker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes import docker_use
from lab.engine.sandboxes.base import Sandbox, SandboxSpec
from lab.management.supervision import only_one_lab
from lab.models import Role
from lab.services import isolation, queue, upkeep
from lab.services.processes import is_dead, is_frozen
from tests import docker_host
from tests.services.builders import launched, person
from tests.whole_lab import wait_for

Start = Callable[..., Sandbox]


@pytest.fixture(autouse=True)
def _own_lab(settings: Settings, tmp_path: Path) -> Iterator[None]:
    settings.LAB_DATA_DIR = tmp_path / "lab"
    settings.LAB_DATA_DIR.mkdir()
    isolation.provider.cache_clear()
    yield
    isolation.provider.cache_clear()


@pytest.fixture
def start(settings: Settings) -> Iterator[Start]:
    """Starts containers of this lab, or of the one whose folder is named, and removes what is left."""
    started = []

    def one(label: str, folder: Path | None = None) -> Sandbox:
        scratch = (folder or settings.LAB_DATA_DIR) / "sandboxes"
        spec = SandboxSpec(label=label, scratch=scratch, image=docker_host.busybox_image())
        started.append(isolation.provider("docker").start(spec))
        return started[-1]

    yield one
    for sandbox in started:
        sandbox.stop()


def is_there(sandbox: Sandbox) -> bool:
    return docker_host.exists(sandbox.facts.identifier)


@pytest.mark.requires("docker")
@pytest.mark.django_db
def test_containers_whose_lease_is_gone_are_removed_and_no_others(
    alice: User, start: Start, tmp_path: Path
) -> None:
    launched(alice)
    held = queue.claim_next(worker="w")
    assert held is not None
    label = queue.sandbox_label(held.run.pk, 1, held.lease_token)
    running, check = start(label), start("check-1-gold")
    left, older = start("run-77-attempt-1"), start(queue.sandbox_label(held.run.pk, 1, 0))
    neighbours = start("run-77-attempt-1", tmp_path / "another")
    assert upkeep.reap_sandboxes() == sorted(["run-77-attempt-1", queue.sandbox_label(held.run.pk, 1, 0)])
    assert [is_there(one) for one in (running, check, left, older, neighbours)] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert upkeep.reap_sandboxes(all_of_them=True) == [label]
    assert [is_there(one) for one in (running, check, neighbours)] == [False, True, True]


@pytest.mark.requires("docker")
@pytest.mark.django_db(transaction=True)
def test_the_tick_removes_them_beside_its_other_work(start: Start) -> None:
    person(Role.ADMIN)
    left = start("run-77-attempt-1")
    upkeep.Upkeep(is_dead=is_dead, is_frozen=is_frozen).tick()
    wait_for(lambda: not is_there(left), what="the removal of a left container")


@pytest.mark.requires("docker")
@pytest.mark.django_db
def test_the_command_says_what_it_removed(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    start("run-77-attempt-1")
    call_command("reap")
    assert capsys.readouterr().out.split() == ["removed", "run-77-attempt-1", "1", "removed"]
    call_command("reap", json=True)
    assert '"removed": []' in capsys.readouterr().out


def away(settings: Settings, tmp_path: Path) -> None:
    docker_use.note(settings.LAB_DATA_DIR)
    settings.LAB_DOCKER_HOST = f"unix://{tmp_path}/docker.sock"


@pytest.mark.django_db(transaction=True)
def test_a_daemon_that_is_away_keeps_the_tick_from_nothing_and_is_said_once(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away(settings, tmp_path)
    reaper = upkeep.ContainerReaper()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            thread = reaper.begin()
            assert thread is not None
            thread.join()
    assert caplog.text.count("docker: left sandboxes cannot be looked for") == 1
    assert "no Docker daemon answers" in caplog.text
    upkeep.Upkeep(is_dead=is_dead, is_frozen=is_frozen).tick()


@pytest.mark.django_db
def test_who_asks_for_it_is_told_that_the_daemon_is_away(settings: Settings, tmp_path: Path) -> None:
    away(settings, tmp_path)
    with pytest.raises(SandboxLostError, match="no Docker daemon answers"):
        upkeep.reap_sandboxes()
    with pytest.raises(CommandError, match="no Docker daemon answers"):
        call_command("reap")


@pytest.mark.django_db
def test_all_of_them_are_not_removed_from_a_lab_that_runs(settings: Settings) -> None:
    with only_one_lab(settings.LAB_DATA_DIR), pytest.raises(CommandError, match="is in use by another lab"):
        call_command("reap", all=True)
    call_command("reap", all=True)
