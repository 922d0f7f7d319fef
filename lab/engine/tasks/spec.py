"""A task: an issue to resolve in a repository snapshot, with what verifies it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from lab.engine.llm.base import Frozen, canonical_sha256

TestRunner = Literal["pytest", "unittest"]


class Environment(Frozen):
    """What a task needs around its repository. `name` is an environment the lab prepares ("practice").

    `agent_timeout_sec` is what the task's authors allow; the wall time of a run is a limit of its arm.
    `verifier_timeout_sec` bounds the test command."""

    name: str = "practice"
    variables: dict[str, str] = Field(default_factory=dict)
    network: bool = False
    agent_timeout_sec: float = Field(default=3600.0, gt=0, allow_inf_nan=False)
    verifier_timeout_sec: float = Field(default=600.0, gt=0, allow_inf_nan=False)


class Verification(Frozen):
    """How a patch is graded. Hidden from the agent: its tests enter a sandbox only after the agent has ended.

    `test_files` maps a path inside the repository to its content; they overwrite what the agent left there.
    Test ids are as the runner prints them (`tests/test_x.py::test_y`, `tests.test_x.Case.test_y`).
    `command` is run in the workspace.
    """

    rule: str = "swe-bench"
    runner: TestRunner = "pytest"
    command: tuple[str, ...] = ()
    test_files: dict[str, str] = Field(default_factory=dict)
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()


class TaskSpec(Frozen):
    """One task, whole. `repository` is the folder that holds the snapshot (a plain tree, no `.git`).

    `plans` are the scripted models' tool-neutral actions: model name -> list of plans, the seed picks one.
    `gold_patch` is a unified diff. `difficulty` and `trait` are words for the list on the first page.
    """

    id: str
    title: str
    statement: str
    repository: Path
    difficulty: str = ""
    trait: str = ""
    environment: Environment = Environment()
    verification: Verification = Verification()
    gold_patch: str = ""
    plans: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    repository_digest: str = ""
    cache_globs: tuple[str, ...] = ("**/__pycache__/**", "**/.pytest_cache/**", "**/*.pyc")

    @property
    def digest(self) -> str:
        """SHA-256 over everything that decides what the task is; where it lies on disk and plans do not."""
        return canonical_sha256(
            self.model_dump(mode="json", exclude={"repository", "plans", "difficulty", "trait"})
        )


class TaskSetSpec(Frozen):
    """A versioned list of tasks, in the order in which they are shown."""

    name: str
    version: str
    title: str = ""
    tasks: tuple[TaskSpec, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over name, version and the digests of the tasks in their order."""
        return canonical_sha256(
            {
                "name": self.name,
                "version": self.version,
                "tasks": [{"id": task.id, "digest": task.digest} for task in self.tasks],
            }
        )
