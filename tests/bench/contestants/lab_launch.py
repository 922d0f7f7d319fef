"""Prepares a lab of its own in LAB_DATA_DIR: a task, a connected model, `--runs` queued runs.

Prints the runs' numbers, the environment that commands get in its sandbox, and a session for a browser.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from tests.bench.contestants import lab_process

_SET = 'name = "bench"\nversion = "1"\ntasks = ["one"]\n'
_TASK = """
id = "one"
title = "One file that is wrong"

[verification]
runner = "unittest"
command = ["python", "-m", "unittest", "-v", "tests.test_it"]
fail_to_pass = ["tests.test_it.It.test_it"]
pass_to_pass = []
"""
_TEST = (
    "import it, unittest\nclass It(unittest.TestCase):\n    def test_it(self):\n        assert it.it == 2\n"
)
_PATCH = "--- a/it.py\n+++ b/it.py\n@@ -1 +1 @@\n-it = 1\n+it = 2\n"


def write_task_set(folder: Path) -> Path:
    task = folder / "one"
    (task / "repository").mkdir(parents=True)
    (task / "tests" / "tests").mkdir(parents=True)
    (folder / "set.toml").write_text(_SET)
    (task / "task.toml").write_text(_TASK)
    (task / "issue.md").write_text("It is wrong.\n")
    (task / "gold.patch").write_text(_PATCH)
    (task / "repository" / "it.py").write_text("it = 1\n")
    (task / "tests" / "tests" / "__init__.py").write_text("\n")
    (task / "tests" / "tests" / "test_it.py").write_text(_TEST)
    return folder


def launch(base_url: str, model_id: str, runs: int, limit: str) -> dict[str, Any]:
    from django.contrib.auth.models import User

    from lab.models import Membership, Role
    from lab.services import endpoint_settings, endpoints, harnesses, isolation, tasks
    from lab.services.runs import launch as launch_runs

    person = User.objects.create(username="bench")
    Membership.objects.create(user=person, role=Role.ADMIN)
    data = Path(os.environ["LAB_DATA_DIR"])
    task_set = tasks.sync_task_set(folder=write_task_set(data / "bench-tasks"))
    versions = harnesses.sync_presets()
    isolated = isolation.isolation()
    if not isolated.available:
        isolation.consent_without_isolation(by=person)
    tasks.prepare_practice_environment()
    numbers = []
    for number in range(1, runs + 1):
        model = endpoints.connect(
            by=person,
            base_url=base_url.format(number=number),
            model_id=model_id,
            key_variable=lab_process.KEY_VARIABLE,
            name=f"bench {number}",
        )
        endpoint_settings.change(by=person, endpoint=model.endpoint, typed={"concurrency_limit": limit})
        experiment = launch_runs(
            by=person, tasks=list(task_set.tasks.all()), harness_versions=versions[:1], models=[model]
        )
        numbers += experiment.runs.values_list("pk", flat=True)
    return {
        "runs": numbers,
        "sandbox": isolated.kind,
        "environment": _environment(isolated.kind, data),
        "cookie": lab_process.session_cookie(person),
    }


def _environment(kind: str, data: Path) -> dict[str, str]:
    """What a command of an agent finds in its environment."""
    from lab.engine.environments import practice_environment
    from lab.engine.sandboxes.base import SandboxSpec
    from lab.services import isolation

    spec = SandboxSpec(
        label="bench-environment",
        scratch=data / "sandboxes",
        environment={"LANG": "C.UTF-8"},
        path_prefix=[str(practice_environment(data).bin)],
    )
    sandbox = isolation.provider(kind).start(spec)
    try:
        printed = sandbox.exec(["env", "-0"], timeout=30).stdout.text()
    finally:
        sandbox.stop()
    pairs = (line.partition("=") for line in printed.split("\0") if line)
    return {name: value for name, _, value in pairs if name not in ("_", "PWD", "SHLVL", "OLDPWD")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", required=True, help="of the model's server; {number} is the run's")
    parser.add_argument("--model", required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--limit", default="", help="how many runs the endpoint takes at once")
    chosen = parser.parse_args()
    lab_process.set_up()
    from django.core.management import call_command

    from lab.worker.execution import warm_up

    call_command("migrate", verbosity=0)
    # Everything a worker imports is compiled before anything is measured, as in an installed lab.
    warm_up()
    print(json.dumps(launch(chosen.base_url, chosen.model, chosen.runs, chosen.limit)))


if __name__ == "__main__":
    main()
