"""People, endpoints, harnesses and runs for tests, made through the services."""

from __future__ import annotations

import uuid
from pathlib import Path

from django.contrib.auth.models import User

from lab.models import Experiment, Membership, Model, Role, TaskSet
from lab.services import endpoints, harnesses, runs, tasks

SET = 'name = "small"\nversion = "1"\ntasks = ["adds", "subtracts"]\n'
TASK = """
id = "{name}"
title = "{name} wrongly"

[verification]
runner = "pytest"
command = ["python", "-m", "pytest", "tests"]
fail_to_pass = ["tests/test_it.py::test_it"]
pass_to_pass = ["tests/test_it.py::test_other"]
"""


def person(role: Role = Role.ADMIN, name: str = "alice") -> User:
    user = User.objects.create(username=name)
    Membership.objects.create(user=user, role=role)
    return user


def small_task_set(folder: Path) -> TaskSet:
    """A set of two tasks, made in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "set.toml").write_text(SET)
    for name in ("adds", "subtracts"):
        task = folder / name
        (task / "repository").mkdir(parents=True)
        (task / "tests" / "tests").mkdir(parents=True)
        (task / "repository" / "it.py").write_text("it = 1\n")
        (task / "tests" / "tests" / "test_it.py").write_text("def test_it(): ...\ndef test_other(): ...\n")
        (task / "task.toml").write_text(TASK.format(name=name))
        (task / "issue.md").write_text("It is wrong.\n")
        (task / "gold.patch").write_text("--- a/it.py\n+++ b/it.py\n@@ -1 +1 @@\n-it = 1\n+it = 2\n")
    return tasks.sync_task_set(folder=folder)


def launched(
    by: User,
    *,
    models: list[Model] | None = None,
    runs_wanted: int = 1,
    seeds: int = 1,
    key: str = "",
) -> Experiment:
    """An experiment of practice tasks with the scripted models."""
    task_set = tasks.sync_practice()
    versions = harnesses.sync_presets()
    chosen = models if models is not None else endpoints.sync_scripted()[:1]
    return runs.launch(
        by=by,
        tasks=list(task_set.tasks.all()[:runs_wanted]),
        harness_versions=versions[:1],
        models=chosen,
        seeds=seeds,
        idempotency_key=key or uuid.uuid4().hex,
    )
