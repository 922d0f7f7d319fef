"""A whole lab that prepares containers for its next sandboxes: workers die, and nothing of theirs is left."""

from __future__ import annotations

import pytest

from tests import docker_host
from tests.e2e.docker_lab import DockerLab
from tests.e2e.faults import Fault
from tests.e2e.oracle import problems
from tests.whole_lab import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.requires("docker", "debian image"),
]


def _waiting(lab: DockerLab) -> set[str]:
    """This lab's containers that wait for a sandbox."""
    return set(docker_host.labelled("prepared")) & set(lab.faults.containers())


def test_workers_that_are_killed_around_prepared_containers_cost_time_and_leave_nothing() -> None:
    told = [
        [Fault("sandbox made")],
        [Fault("running a command")],
        [Fault("sandbox made", nth=2)],
    ]
    with DockerLab(LAB_RUN_SLOTS="2", LAB_PREPARED_CONTAINERS="1") as lab:
        (unharmed,) = lab.run([[]], seconds=400)
        assert (unharmed.exit_reason, unharmed.verdict) == ("agent", "resolved")
        # A worker child keeps one for its next run.
        wait_for(lambda: _waiting(lab), what="a prepared container")
        stories = lab.run(told, seconds=300)
        wrong = lab.not_happened([story.run for story in stories], told)
        wrong += [text for story in stories for text in problems(story, unharmed)]
        assert not wrong, "\n".join(wrong)
        made = lab.faults.containers()
    # At its stop the lab removes what waits, and what the dead had.
    assert [one for one in made if docker_host.exists(one)] == []
