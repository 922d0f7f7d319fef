"""`python -m lab.engine` and `manage.py check_tasks` with sandboxes in docker, and without a daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.engine.sandboxes import docker_use
from lab.engine.tasks.loader import practice_folder
from tests import docker_host
from tests.house.tree import ROOT


def run(*arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def engine(folder: Path, task: str, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    out = str(folder / "run.jsonl")
    given = ["--task", task, "--model", "scripted/solver", "--data-folder", str(folder), "--out", out]
    return run("-m", "lab.engine", *given, *more, environment=environment)


def with_image(folder: Path, image: str) -> str:
    """A copy of a practice task that names its image."""
    task = folder / "task"
    source = practice_folder() / "parse-duration"
    task.mkdir()
    for path in sorted(source.rglob("*")):
        target = task / path.relative_to(source)
        if path.is_dir():
            target.mkdir()
        else:
            target.write_bytes(path.read_bytes())
    described = task / "task.toml"
    text = described.read_text()
    assert 'name = "practice"' in text
    described.write_text(text.replace('name = "practice"', f'image = "{image}"'))
    return str(task)


def small_set(folder: Path) -> str:
    """A set of one practice task."""
    made = folder / "set"
    made.mkdir()
    (made / "set.toml").write_text('name = "small"\nversion = "1"\ntasks = ["parse-duration"]\n')
    (made / "parse-duration").symlink_to(practice_folder() / "parse-duration")
    return str(made)


@pytest.mark.requires("debian image")
def test_a_practice_task_is_worked_on_and_graded_in_containers(tmp_path: Path) -> None:
    base = docker_host.debian_image()
    done = engine(tmp_path, "parse-duration", "--sandbox", "docker", LAB_PRACTICE_IMAGE=base)
    assert done.returncode == 0, done.stderr
    assert "verdict: resolved" in done.stdout
    events = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    started = [event for event in events if event["kind"] == "sandbox_started"]
    assert [(one["purpose"], one["sandbox"]) for one in started] == [
        ("agent", "docker"),
        ("verification", "docker"),
    ]
    assert started[0]["image"]["reference"].startswith("trajectory-lab/practice:")
    assert started[0]["image"]["identifier"] == started[1]["image"]["identifier"]
    assert docker_use.is_noted(tmp_path)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            ["--sandbox", "process"],
            "knows no images, and parse-duration brings one; leave it out, or write docker",
        ),
        ([], "is not available: The Docker daemon at unix:///nowhere/docker.sock cannot be used"),
    ],
)
def test_a_task_with_an_image_says_what_it_needs(tmp_path: Path, asked: list[str], said: str) -> None:
    task = with_image(tmp_path, "debian:12")
    done = engine(tmp_path, task, *asked, LAB_DOCKER_HOST="unix:///nowhere/docker.sock")
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "run.jsonl").exists()


@pytest.mark.requires("docker")
def test_an_image_that_cannot_be_had_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    task = with_image(tmp_path, "127.0.0.1:1/none:1")
    done = engine(tmp_path, task)
    assert done.returncode == 1
    assert "127.0.0.1:1/none:1" in done.stdout
    assert "exit reason: infrastructure_error" in done.stdout


@pytest.mark.requires("debian image")
def test_tasks_are_checked_in_containers(tmp_path: Path) -> None:
    lab = {
        "LAB_DATA_DIR": str(tmp_path / "lab"),
        "LAB_PRACTICE_IMAGE": docker_host.debian_image(),
        "DATABASE_URL": "",
    }
    assert run("manage.py", "migrate", "--verbosity=0", environment=lab).returncode == 0
    done = run(
        "manage.py", "check_tasks", small_set(tmp_path), "--sandbox", "docker", "--json", environment=lab
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["sandbox"], [task["valid"] for task in found["tasks"]]) == ("docker", [True])


def test_a_check_in_docker_without_a_daemon_says_so(tmp_path: Path) -> None:
    lab = {
        "LAB_DATA_DIR": str(tmp_path / "lab"),
        "LAB_DOCKER_HOST": "unix:///nowhere/docker.sock",
        "DATABASE_URL": "",
    }
    assert run("manage.py", "migrate", "--verbosity=0", environment=lab).returncode == 0
    done = run("manage.py", "check_tasks", small_set(tmp_path), "--sandbox", "docker", environment=lab)
    assert done.returncode == 1
    assert "--sandbox: 'docker' does not work here: The Docker daemon" in done.stderr
