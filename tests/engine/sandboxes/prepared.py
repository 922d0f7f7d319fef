"""Sandboxes in containers that were prepared before: each is handed out, and none is left behind."""

from __future__ import annotations

import threading
import time

from lab.engine.sandboxes import docker_pool
from lab.engine.sandboxes.base import SandboxSpec
from lab.engine.sandboxes.docker import DockerProvider, DockerSandbox
from tests import docker_host
from tests.timing import SOON

# Between those that start at once nobody could tell whose container it was.
_one_at_a_time = threading.Lock()


class PreparedProvider(DockerProvider):
    """Prepares a container for each sandbox, waits until it is there, and prepares none after it."""

    def __init__(self) -> None:
        super().__init__(prepared_containers=1)

    def start(self, spec: SandboxSpec) -> DockerSandbox:
        with _one_at_a_time:
            prepare_for(self, spec)
            waiting = prepared()
            try:
                sandbox = super().start(spec)
            finally:
                docker_pool.pool().clear()
        assert [sandbox.facts.identifier] == waiting
        # Named beside its caller; before that a reaper finds it by no label of its own.
        until = time.monotonic() + SOON
        while waiting[0] not in docker_host.labelled(spec.label) and time.monotonic() < until:
            time.sleep(0.005)
        return sandbox


def prepare_for(provider: DockerProvider, spec: SandboxSpec) -> None:
    """Have a container prepared for this specification, as it is after a sandbox of its kind was started."""
    provider._have_prepared(provider._source(spec))


def prepared() -> list[str]:
    """The containers of this process that wait, once nothing is to be prepared or removed."""
    kept = docker_pool.pool()
    until = time.monotonic() + 4 * SOON
    while not kept.is_settled() and time.monotonic() < until:
        time.sleep(0.005)
    return kept.waiting()
