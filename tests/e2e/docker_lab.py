"""A whole lab whose sandboxes are containers of this machine's daemon, and what it may not leave there."""

from __future__ import annotations

from typing import Any

from tests import docker_host
from tests.e2e.harmed_lab import HarmedLab

_LABELS = ("trajectory-lab.label", "trajectory-lab.lab", "trajectory-lab.starter")


class DockerLab(HarmedLab):
    """A lab told to use Docker, on images that need no registry.

    Unless told otherwise it prepares no containers: each that comes to a point is then a run's.
    """

    def __init__(self, **settings: str) -> None:
        super().__init__(
            **{
                "LAB_SANDBOX": "docker",
                "LAB_PRACTICE_IMAGE": docker_host.debian_image(),
                "LAB_PREPARED_CONTAINERS": "0",
                **settings,
            }
        )

    def __enter__(self) -> DockerLab:
        super().__enter__()
        return self

    def _leftovers(self) -> list[str]:
        return [
            *super()._leftovers(),
            *(f"container {one}" for one in self.faults.containers() if docker_host.exists(one)),
        ]

    def labels_of_a_sandbox(self) -> dict[str, Any]:
        """The labels of a container that is there now, None of them missing.

        Raises:
            LookupError: there is none, or it lacks one.
        """
        for identifier in self.faults.containers():
            labels = docker_host.labels(identifier)
            if labels is not None and all(name in labels for name in _LABELS):
                return labels
        raise LookupError(f"no container of this lab has the labels {', '.join(_LABELS)}")
