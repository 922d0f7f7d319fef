"""What a task says of its environment: what is read, what is refused, and what of it is in the digest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab.engine.errors import InvalidValueError
from lab.engine.tasks.loader import load_task
from lab.engine.tasks.spec import Environment, TaskSpec

TASK_TOML = """\
id = "greeting"
title = "The greeting is rude"

[environment]
{environment}

[verification]
command = ["python", "-m", "pytest"]
fail_to_pass = ["tests/test_greeting.py::test_polite"]
"""
DOCKERFILE = "FROM lab-test/debian\nRUN touch /made\n"
IN_IMAGE = 'image = "a/b"\nworking_directory = "/testbed"\nrepository_in_image = true'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task folder with a Dockerfile beside its task.toml, which `describe` writes."""
    task = tmp_path / "greeting"
    (task / "repository").mkdir(parents=True)
    (task / "repository" / "greeting.py").write_text("WORD = 'oi'\n")
    (task / "environment").mkdir()
    (task / "environment" / "Dockerfile").write_text(DOCKERFILE)
    (task / "tests" / "tests").mkdir(parents=True)
    (task / "tests" / "tests" / "test_greeting.py").write_text("def test_polite(): ...\n")
    (task / "issue.md").write_text("# Rude\n")
    (task / "gold.patch").write_text("--- a/greeting.py\n+++ b/greeting.py\n")
    return task


def describe(folder: Path, environment: str) -> TaskSpec:
    (folder / "task.toml").write_text(TASK_TOML.format(environment=environment))
    return load_task(folder)


def test_a_task_names_its_image_and_all_that_holds_in_it(folder: Path) -> None:
    environment = describe(
        folder,
        """\
image = "registry.example:5000/team/python:3.13-bookworm"
working_directory = "/srv/work"
user = "1000:1000"
variables = { GREETING = "hello" }
setup = ["pip install -e .", "touch ready"]
setup_timeout_sec = 120
network = true
memory_mb = 512
cpus = 1.5
processes = 64
disk_mb = 1024
agent_timeout_sec = 60
verifier_timeout_sec = 30""",
    ).environment
    assert environment.image == "registry.example:5000/team/python:3.13-bookworm"
    assert (environment.name, environment.brings_image) == ("", True)
    assert environment.setup == ("pip install -e .", "touch ready")
    assert (environment.memory_mb, environment.cpus, environment.disk_mb) == (512, 1.5, 1024)
    assert Environment.model_validate(environment.model_dump(mode="json")) == environment


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "python:3.13-bookworm",
        "swebench/sweb.eval.x86_64.django_1776_django-11099:latest",
        "127.0.0.1:5000/a@sha256:" + "0" * 64,
        "Registry.Example/a/b:Tag_1",
    ],
)
def test_names_that_registries_take_are_taken(image: str) -> None:
    assert Environment(image=image).image == image


def test_a_build_folder_is_part_of_the_task(folder: Path, tmp_path: Path) -> None:
    task = describe(folder, 'build = "environment"')
    assert task.build_folder == folder / "environment"
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    assert load_task(copy).digest == task.digest
    (copy / "environment" / "Dockerfile").write_text(DOCKERFILE + "RUN true\n")
    assert load_task(copy).digest != task.digest


def test_a_repository_in_the_image_needs_no_folder(folder: Path) -> None:
    shutil.rmtree(folder / "repository")
    task = describe(folder, IN_IMAGE)
    assert task.environment.repository_in_image
    assert task.repository_digest == ""


def test_what_a_task_leaves_alone_is_not_in_its_digest(folder: Path) -> None:
    # Of the time when an environment had five fields.
    known = TaskSpec(id="a", title="A", statement="S", repository=folder, repository_digest="d")
    assert known.digest == "ed0f3f3bba8b6489a17de47fe43a4646b26414bc87ad73089a3226e7318e0ebf"
    plain = describe(folder, "network = false")
    for line in ("setup = []", 'working_directory = ""', "setup_timeout_sec = 600", 'image = ""'):
        assert describe(folder, line).digest == plain.digest
    for line in ('setup = ["true"]', "memory_mb = 512", "disk_mb = 512", 'image = "a"', "processes = 32"):
        assert describe(folder, line).digest != plain.digest


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ('image = "a"\nbuild = "environment"', ["environment.build", "'environment'", "keep one of the two"]),
        ('image = "a"\nname = "practice"', ["environment.name", "'practice'", "keep one"]),
        ('build = "environment"\nname = "practice"', ["environment.name", "keep one"]),
        ('name = ""', ["environment.name", "''", 'name = "practice"']),
        ('image = "Python 3"', ["environment.image", "'Python 3'", "python:3.13-bookworm"]),
        ('image = "-v/:/host"', ["environment.image", "'-v/:/host'"]),
        ('image = "a/B"', ["environment.image", "'a/B'"]),
        ('build = "elsewhere"', ["environment.build", "'elsewhere'", "no folder", "Dockerfile"]),
        ('build = "."', ["environment.build", "'.'", 'build = "environment"']),
        ('build = "../greeting/environment"', ["environment.build", "'../greeting/environment'"]),
        ('build = "/etc"', ["environment.build", "'/etc'"]),
        ('build = "tests"', ["environment.build", "'tests'", "hidden tests", "of its own"]),
        ('build = "environment"\nbuild_digest = "0"', ["environment.build_digest", "remove the key"]),
        ("build_network = true", ["environment.build_network", "True", "name its folder with build"]),
        ('working_directory = "work"', ["environment.working_directory", "'work'", '"/workspace"']),
        ('working_directory = "/a/../b"', ["environment.working_directory", "'/a/../b'"]),
        ('working_directory = "/a/"', ["environment.working_directory", "'/a/'"]),
        ('working_directory = "/"', ["environment.working_directory", "'/'", "of the system"]),
        ('working_directory = "/proc/self"', ["environment.working_directory", "of the system"]),
        ('image = "a"\nuser = "my user"', ["environment.user", "'my user'", "1000:1000"]),
        ('user = "root"', ["environment.user", "'root'", "give image or build"]),
        ("repository_in_image = true", ["environment.repository_in_image", "give image or build"]),
        (
            'image = "a"\nrepository_in_image = true',
            ["environment.repository_in_image", "True", "working_directory"],
        ),
        ('variables = { LAB_X = "1" }', ["environment.variables", "'LAB_X'", "without LAB_"]),
        ('variables = { "A B" = "1" }', ["environment.variables", "'A B'", "letters, digits"]),
        ('setup = "make"', ["environment.setup", "'make'"]),
        ('setup = ["make", " "]', ["environment.setup", "' '", "take it off the list"]),
        ("setup_timeout_sec = 0", ["environment.setup_timeout_sec", "0", "greater than 0"]),
        ("memory_mb = -512", ["environment.memory_mb", "-512", "greater than or equal to 16"]),
        ("memory_mb = 1.5", ["environment.memory_mb", "1.5", "integer"]),
        ("cpus = 0", ["environment.cpus", "0", "greater than or equal to 0.01"]),
        ("cpus = inf", ["environment.cpus", "inf"]),
        ("processes = 0", ["environment.processes", "0"]),
        ("disk_mb = 1", ["environment.disk_mb", "1"]),
        ('memory = "2g"', ["environment.memory", "'2g'", "not known"]),
        ('network = "no"', ["environment.network", "'no'", "boolean"]),
        ("network = 1", ["environment.network", "1", "boolean"]),
        ('memory_mb = "512"', ["environment.memory_mb", "'512'", "integer"]),
        ("cpus = true", ["environment.cpus", "True", "number"]),
        ("cpus = 0.001", ["environment.cpus", "0.001", "greater than or equal to 0.01"]),
        ("setup_timeout_sec = 1e12", ["environment.setup_timeout_sec", "less than or equal to"]),
        ('setup = "make"', ["environment.setup", "'make'", 'a list, as in ["one", "two"]']),
        ('variables = "A=1"', ["environment.variables", "'A=1'", "a table"]),
        ('image = "a"\nuser = "9999999999"', ["environment.user", "'9999999999'", "2147483647"]),
        ('image = "a"\nuser = "agent:9999999999"', ["environment.user", "2147483647"]),
        ('working_directory = "//a"', ["environment.working_directory", "'//a'"]),
        ('working_directory = "/tmp"', ["environment.working_directory", "'/tmp'", "another"]),
        ('working_directory = "/home/agent"', ["environment.working_directory", "'/home/agent'", "another"]),
        (f'working_directory = "/{"a" * 1001}"', ["environment.working_directory", "1,000"]),
        (f"variables = {{ A = '{'x' * 100_001}' }}", ["environment.variables", "'A'", "100,000"]),
        ('name = "other"', ["environment.name", "'other'", 'write "practice"']),
    ],
)
def test_what_does_not_fit_names_file_field_value_and_way_out(
    folder: Path, environment: str, words: list[str]
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        describe(folder, environment)
    for word in [str(folder / "task.toml"), *words]:
        assert word in str(caught.value)


def test_a_value_of_any_length_is_told_shortly(folder: Path) -> None:
    with pytest.raises(InvalidValueError) as caught:
        describe(folder, f"variables = {{ A = '{'x' * 3_000_000}' }}")
    assert len(str(caught.value)) < 2000


def test_root_is_a_user_like_any_other(folder: Path) -> None:
    assert describe(folder, 'image = "a"\nuser = "root"').environment.user == "root"


def test_a_build_folder_without_dockerfile_is_refused(folder: Path) -> None:
    (folder / "environment" / "Dockerfile").unlink()
    with pytest.raises(InvalidValueError, match=r"environment\.build: 'environment' holds no Dockerfile"):
        describe(folder, 'build = "environment"')


def test_a_build_folder_that_leads_elsewhere_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder / "environment", tmp_path / "outside")
    (folder / "environment").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidValueError, match=r"environment\.build.*leads out of the task's folder"):
        describe(folder, 'build = "environment"')


def test_a_repository_cannot_be_in_folder_and_image_at_once(folder: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"repository_in_image.*contradicts.*remove the folder"):
        describe(folder, IN_IMAGE)
