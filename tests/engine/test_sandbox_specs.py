"""What the sandboxes of a task start from, by kind of sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engine import registry
from lab.engine.environments import practice_build, practice_environment, sandbox_spec_for
from lab.engine.errors import InfrastructureError, InvalidValueError, SandboxLostError
from lab.engine.sandboxes.base import SandboxLimits, SandboxSpec
from lab.engine.tasks.loader import load_task_set, practice_folder
from lab.engine.tasks.snapshot import digest_of, snapshot_files
from lab.engine.tasks.spec import Environment, TaskSpec
from lab.engine.verify.run import check_task
from tests.docker_host import busybox_image, debian_image

PRACTICE = load_task_set(practice_folder()).tasks


def task_with(folder: Path, **environment: object) -> TaskSpec:
    return TaskSpec(
        id="Some.Task", title="A task", statement="Mend it.", repository=folder / "repository",
        environment=Environment.model_validate(environment),
    )  # fmt: skip


def spec_of(task: TaskSpec, folder: Path, **fields: object) -> SandboxSpec:
    return sandbox_spec_for(task, data_folder=folder / "data", label="run-1", **fields)  # type: ignore[arg-type]


def test_a_sandbox_of_this_machine_is_given_the_practice_environment(tmp_path: Path) -> None:
    environment = practice_environment(tmp_path / "data")
    spec = spec_of(PRACTICE[0], tmp_path, kind="bubblewrap")
    assert spec.path_prefix == [str(environment.bin)]
    assert (spec.workspace, spec.image, spec.build) == ("/workspace", "", None)
    assert spec.environment == {"LANG": "C.UTF-8"}


def test_docker_is_given_an_image_and_nothing_of_this_machine(tmp_path: Path) -> None:
    spec = spec_of(PRACTICE[0], tmp_path, kind="docker", practice_image="python:3.14-slim")
    assert spec.image.startswith("trajectory-lab/practice:")
    assert spec.build is not None
    assert (spec.build / "Dockerfile").read_text().startswith("FROM python:3.14-slim\n")
    assert (spec.path_prefix, spec.read_only_paths, spec.hidden_paths) == ((), (), ())
    assert not spec.build_network
    other = spec_of(PRACTICE[0], tmp_path, kind="docker", practice_image="python:3.13-slim")
    assert other.image != spec.image


def test_what_a_task_says_goes_before_the_labs_limits(tmp_path: Path) -> None:
    task = task_with(
        tmp_path, image="a/b:1", memory_mb=512, cpus=2, disk_mb=100, network=True, user="1000",
        working_directory="/srv/work", variables={"A": "b"},
    )  # fmt: skip
    spec = spec_of(task, tmp_path, kind="docker", limits=SandboxLimits(processes=99, disk_bytes=1))
    assert spec.limits == SandboxLimits(512 * 1024**2, 99, 2, network=True, disk_bytes=100 * 1024**2)
    assert (spec.image, spec.user, spec.workspace) == ("a/b:1", "1000", "/srv/work")
    assert spec.environment == {"LANG": "C.UTF-8", "A": "b"}


def test_a_build_is_named_by_task_and_content_and_refused_once_that_changed(tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\n")
    digest = digest_of(snapshot_files(folder))
    task = task_with(tmp_path, build="environment", build_digest=digest, build_network=True)
    spec = spec_of(task, tmp_path, kind="docker")
    assert (spec.build, spec.image) == (folder, f"trajectory-lab/some-task:{digest[:16]}")
    assert spec.build_network
    (folder / "Dockerfile").write_text("FROM other\n")
    with pytest.raises(InfrastructureError, match=r"environment\.build: .*changed since the task was loaded"):
        spec_of(task, tmp_path, kind="docker")


@pytest.mark.parametrize("kind", ["bubblewrap", "process", ""])
def test_a_task_with_an_image_needs_docker(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InvalidValueError, match=r"environment\.image: 'a/b:1' .*LAB_SANDBOX=docker"):
        spec_of(task_with(tmp_path, image="a/b:1"), tmp_path, kind=kind)


@pytest.mark.parametrize("kind", ["bubblewrap", "docker"])
def test_an_environment_nobody_prepares_is_named(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InvalidValueError, match=r"environment\.name: 'other' is not prepared by the lab"):
        spec_of(task_with(tmp_path, name="other"), tmp_path, kind=kind)


def test_what_is_no_name_of_an_image_cannot_be_built_on(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"LAB_PRACTICE_IMAGE: 'a\\nRUN b' is no name of an image"):
        practice_build(tmp_path, "a\nRUN b")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("practice-in-docker")


@pytest.mark.requires("docker", "debian image")
@pytest.mark.parametrize("task", PRACTICE, ids=lambda task: task.id)
def test_each_practice_task_can_be_graded_in_docker(task: TaskSpec, data: Path) -> None:
    spec = spec_of(task, data, kind="docker", practice_image=debian_image())
    result = check_task(task, provider=registry.provider("docker"), sandbox_spec=spec)
    assert result.problems == ()


@pytest.mark.requires("docker", "debian image")
def test_a_login_shell_in_docker_finds_its_pytest(data: Path) -> None:
    spec = spec_of(PRACTICE[0], data, kind="docker", practice_image=debian_image())
    sandbox = registry.provider("docker").start(spec)
    try:
        sandbox.write("test_sums.py", b"def test_one():\n    assert 1 + 1 == 2\n")
        for words in (["bash", "-lc", "pytest -q -rA"], ["python", "-m", "pytest", "-q", "-rA"]):
            found = sandbox.exec(words, timeout=120)
            assert "PASSED test_sums.py::test_one" in found.stdout.text(), found.stderr.text()
    finally:
        sandbox.stop()


@pytest.mark.requires("docker")
def test_an_image_without_git_or_python_cannot_hold_practice_tasks(tmp_path: Path) -> None:
    spec = spec_of(PRACTICE[0], tmp_path, kind="docker", practice_image=busybox_image())
    with pytest.raises(SandboxLostError, match="the image below has no git"):
        registry.provider("docker").prepare(spec)


def test_one_build_folder_is_made_for_many_calls(tmp_path: Path) -> None:
    first = practice_build(tmp_path, "a/b")
    before = first[1].stat().st_ctime_ns
    assert practice_build(tmp_path, "a/b") == first
    assert first[1].stat().st_ctime_ns == before
