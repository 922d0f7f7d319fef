"""Sandboxes of every kind this machine has, and tasks made for one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.engine import registry
from lab.engine.environments import practice_environment
from lab.engine.sandboxes.base import Sandbox, SandboxProvider, SandboxSpec
from lab.engine.tasks.snapshot import digest_of, snapshot_files
from lab.engine.tasks.spec import Environment, TaskSpec, Verification

Start = Callable[[], Sandbox]
MakeTask = Callable[..., TaskSpec]


@pytest.fixture(params=["process", pytest.param("bubblewrap", marks=pytest.mark.requires("bubblewrap"))])
def provider(request: pytest.FixtureRequest) -> SandboxProvider:
    return registry.provider(request.param)


@pytest.fixture(scope="session")
def sandbox_spec(tmp_path_factory: pytest.TempPathFactory) -> SandboxSpec:
    """A specification with the practice environment's python, pytest and unittest on PATH."""
    environment = practice_environment(tmp_path_factory.mktemp("data"))
    return SandboxSpec(
        label="test",
        scratch=tmp_path_factory.mktemp("sandboxes"),
        path_prefix=[str(environment.bin)],
        read_only_paths=environment.read_only_paths,
    )


@pytest.fixture
def start(provider: SandboxProvider, sandbox_spec: SandboxSpec) -> Iterator[Start]:
    started: list[Sandbox] = []

    def start_one() -> Sandbox:
        started.append(provider.start(sandbox_spec))
        return started[-1]

    yield start_one
    for sandbox in started:
        sandbox.stop()


@pytest.fixture
def sandbox(start: Start) -> Sandbox:
    return start()


@pytest.fixture
def make_task(tmp_path: Path) -> MakeTask:
    """Makes a task of a repository's files; keywords are fields of its verification, `timeout` in seconds."""

    def make(
        files: Mapping[str, str | bytes], *, timeout: float = 60.0, gold: str = "", **grading: Any
    ) -> TaskSpec:
        repository = tmp_path / "repository"
        for path, content in files.items():
            target = repository / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
        return TaskSpec(
            id="task",
            title="A task",
            statement="Mend it.",
            repository=repository,
            environment=Environment(verifier_timeout_sec=timeout),
            verification=Verification(**grading),
            gold_patch=gold,
            repository_digest=digest_of(snapshot_files(repository)),
        )

    return make
