"""Which sandbox a run gets, and what is said before a launch where that one does not work."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from lab.models import Experiment, Task
from lab.services import endpoints, harnesses, isolation, runs, tasks
from lab.services.errors import FieldErrors
from tests.house.tree import ROOT
from tests.services.builders import small_task_set

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _looked_at_anew() -> Iterator[None]:
    isolation.look_again()
    yield
    isolation.look_again()


class Ready:
    """A kind of sandboxes of somebody's own, which takes images."""

    kind = "ready"

    def available(self) -> None:
        return None


@pytest.fixture
def no_daemon(settings: Settings, tmp_path: Path) -> str:
    """The address of a daemon that is not there."""
    settings.LAB_DOCKER_HOST = f"unix://{tmp_path}/docker.sock"
    return settings.LAB_DOCKER_HOST


@pytest.fixture
def with_image(tmp_path: Path) -> Task:
    """A task that names its image, of a set of two."""
    folder = tmp_path / "set"
    small_task_set(folder)
    described = folder / "adds" / "task.toml"
    described.write_text(described.read_text() + '\n[environment]\nimage = "debian:12"\n')
    return tasks.sync_task_set(folder=folder).tasks.get(slug="adds")


def launch(by: User, *chosen: Task) -> Experiment:
    return runs.launch(
        by=by,
        tasks=chosen,
        harness_versions=harnesses.sync_presets()[:1],
        models=endpoints.sync_scripted()[:1],
        idempotency_key=uuid.uuid4().hex,
    )


def refused(by: User, *chosen: Task) -> str:
    with pytest.raises(FieldErrors) as told:
        launch(by, *chosen)
    assert not Experiment.objects.exists()
    return told.value.errors["isolation"]


def test_a_task_that_brings_an_image_gets_docker_and_the_others_what_they_had(settings: Settings) -> None:
    assert isolation.sandbox_kind(lab_commands_only=True, brings_image=True) == "docker"
    assert isolation.sandbox_kind(lab_commands_only=True) in ("bubblewrap", "process")
    settings.LAB_SANDBOX = "docker"
    assert isolation.sandbox_kind(lab_commands_only=True) == "docker"


def test_a_launch_without_a_daemon_names_the_task_what_is_missing_and_the_way_out(
    alice: User, with_image: Task, no_daemon: str
) -> None:
    said = refused(alice, with_image)
    assert said.startswith("sandbox: adds brings an image of its own, which needs docker: ")
    assert "no Docker daemon answers there; install Docker" in said
    assert no_daemon in said
    assert said.endswith("Or choose tasks without an image.")
    assert launch(alice, *tasks.sync_practice().tasks.all()[:1]).runs.exists()


def test_a_setting_that_knows_no_images_is_named(alice: User, with_image: Task, settings: Settings) -> None:
    settings.LAB_SANDBOX = "process"
    assert "adds brings an image of its own, which needs docker: LAB_SANDBOX is process; unset it" in refused(
        alice, with_image
    )
    with pytest.raises(isolation.IsolationMissingError, match="LAB_SANDBOX is process; unset it"):
        isolation.sandbox_kind(lab_commands_only=True, brings_image=True)


def test_running_such_a_run_again_asks_the_same(
    alice: User, with_image: Task, no_daemon: str, settings: Settings
) -> None:
    settings.LAB_SANDBOX = f"{__name__}:Ready"
    run = launch(alice, with_image).runs.get()
    settings.LAB_SANDBOX = ""
    with pytest.raises(FieldErrors, match="adds brings an image"):
        runs.launch_again(run=run, by=alice)


def test_a_lab_that_is_told_to_use_docker_launches_nothing_without_it(
    alice: User, no_daemon: str, settings: Settings, client: Client
) -> None:
    settings.LAB_SANDBOX = "docker"
    said = refused(alice, *tasks.sync_practice().tasks.all()[:1])
    assert said.startswith("sandbox: LAB_SANDBOX is docker, which does not work here: ")
    found = isolation.isolation()
    assert (found.kind, found.available, found.forced, found.keeps_runs_back) == ("docker", False, True, True)
    client.force_login(alice)
    page = client.get("/").content.decode()
    assert "No run can start yet." in page
    assert "no Docker daemon answers there" in page
    assert "Run without isolation" not in page


def test_where_processes_are_what_the_setting_asks_for_no_notice_says_otherwise(
    alice: User, settings: Settings, client: Client
) -> None:
    settings.LAB_SANDBOX = "process"
    tasks.sync_practice()
    client.force_login(alice)
    assert "launch-isolation" not in client.get("/").content.decode()


@pytest.mark.requires("docker")
def test_a_daemon_that_answers_lets_tasks_with_images_be_launched(alice: User, with_image: Task) -> None:
    assert launch(alice, with_image).runs.exists()


def test_what_one_sandbox_may_write_is_the_settings_where_that_can_be_held(settings: Settings) -> None:
    settings.LAB_SANDBOX_DISK_GB = 2.5
    assert isolation.limits("docker").disk_bytes == 2_500_000_000
    assert isolation.limits("bubblewrap").disk_bytes is None


def test_a_lab_that_never_used_docker_loads_nothing_of_it(tmp_path: Path) -> None:
    program = (
        "import sys, django; django.setup()\n"
        "from lab import checks, urls, asgi\n"
        "from lab.services import isolation, upkeep\n"
        "from lab.worker import execution\n"
        "checks.check_sandbox(); isolation.provider('bubblewrap').available()\n"
        "isolation.provider('process'); upkeep.reap_sandboxes()\n"
        "print(sorted(name for name in sys.modules if name == 'docker' or name.startswith('docker.')))\n"
    )
    lab = {"LAB_DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "lab.settings", "LAB_SANDBOX": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=lab, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
