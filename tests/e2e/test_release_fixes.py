"""Real bugs of packages, worked on in Docker: the fix, nothing, and something broken are three verdicts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.docker_lab import DockerLab
from tests.e2e.person import Person
from tests.whole_lab import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1200),
    pytest.mark.requires("docker", "debian image", "package index"),
]

FETCH_AND_LAUNCH = """
from django.contrib.auth.models import User
from lab.models import HarnessVersion, Model
from lab.services import runs, task_downloads
tasks = list(task_downloads.fetch("release-fixes").tasks.all())
models = list(Model.objects.filter(name__in=["scripted/solver", "scripted/struggler"]))
harness = HarnessVersion.objects.filter(harness__name="leaf-compatible").get()
by = User.objects.filter(is_superuser=True).first() or User.objects.first()
experiment = runs.launch(by=by, tasks=tasks, harness_versions=[harness], models=models, seeds="2")
print(json.dumps(experiment.pk))
"""
ENDED = "SELECT count(*) FROM lab_run WHERE experiment_id = ? AND ended_at IS NOT NULL"
FOUND = (
    "SELECT m.name, r.seed, r.id, v.outcome, "
    "(SELECT count(*) FROM lab_test_result f WHERE f.verification_id = v.id AND f.status = 'passed' "
    "AND f.\"group\" = 'pass_to_pass') FROM lab_run r JOIN lab_arm a ON a.id = r.arm_id "
    "JOIN lab_model m ON m.id = a.model_id JOIN lab_verification v ON v.run_id = r.id "
    "WHERE r.experiment_id = ?"
)


@pytest.fixture(scope="module")
def lab() -> Iterator[DockerLab]:
    with DockerLab(LAB_RUN_SLOTS="2") as started:
        yield started


def test_the_fix_resolves_nothing_does_not_and_breaking_something_is_told_apart(lab: DockerLab) -> None:
    reader = Person(lab)
    experiment = lab.program(FETCH_AND_LAUNCH)
    wait_for(lambda: lab.value(ENDED, experiment) == 12, what="twelve runs to end", seconds=900)
    found: dict[tuple[str, int], list[tuple[str, int, str]]] = {}
    for model, seed, run, outcome, kept in lab.query(FOUND, experiment):
        found.setdefault((model, seed), []).append((outcome, kept, reader.read(f"/runs/{run}/")))
    for seed in (1, 2):
        for outcome, kept, page in found["scripted/solver", seed]:
            assert (outcome, kept > 0) == ("resolved", True)
            assert "docker" in page
    for outcome, kept, page in found["scripted/struggler", 1]:
        assert (outcome, kept > 0) == ("unresolved", True)
        assert "broken on purpose" not in page
    for outcome, kept, page in found["scripted/struggler", 2]:
        assert (outcome, kept) == ("unresolved", 0)
        assert "broken on purpose" in page
