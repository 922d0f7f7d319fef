from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.engine import registry
from lab.engine.sandboxes.base import Sandbox, SandboxSpec


@pytest.fixture(scope="module")
def shared_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One process sandbox for the module: what runs in it is written by the tests themselves."""
    started = registry.provider("process").start(
        SandboxSpec(label="harness", scratch=tmp_path_factory.mktemp("sandboxes"))
    )
    yield started
    started.stop()


@pytest.fixture
def sandbox(shared_sandbox: Sandbox) -> Sandbox:
    shared_sandbox.exec(["/bin/sh", "-c", "find . -mindepth 1 -delete"], timeout=30)
    return shared_sandbox


@pytest.fixture
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox of its own, for a test that loses it."""
    started = registry.provider("process").start(
        SandboxSpec(label="lost", scratch=tmp_path_factory.mktemp("lost"))
    )
    yield started
    started.stop()
