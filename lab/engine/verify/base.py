"""What a grading says: one status per test, one outcome per verification."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from lab.engine.sandboxes.base import ResourceUsage


class Outcome(StrEnum):
    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    UNPARSED = "unparsed"
    INFRASTRUCTURE = "infrastructure"
    TASK_INVALID = "task_invalid"


class TestStatus(StrEnum):
    """A status per test. `missing`: expected, and the log says nothing of it ("not run")."""

    __test__ = False  # pytest would collect a class whose name starts with Test

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    XFAIL = "xfail"
    XPASS = "xpass"
    MISSING = "missing"


TestGroup = Literal["fail_to_pass", "pass_to_pass", "other"]


class TestOutcome(BaseModel):
    """One test's result. `assertion` is the line that says why it failed; `log` its part of the output."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    __test__ = False

    test_id: str
    group: TestGroup
    status: TestStatus
    assertion: str = ""
    log: str = ""


class Judgement(NamedTuple):
    """What a rule says: one outcome, one status per test, and why, where it is not plain from the tests."""

    outcome: Outcome
    tests: tuple[TestOutcome, ...]
    detail: str = ""


@dataclass(frozen=True)
class VerificationResult:
    """One grading of a patch, as `verify` returns it and as the event `verification_finished` holds it.

    `detail` says why where the tests alone do not. `log` is the test command's whole output, `exit_code` its
    own, None when it was killed or never ran. `usage` is what the fresh sandbox used, None when none started.
    `broke_off` says that another grading may well end otherwise: its sandbox broke, or it was broken off.
    """

    rule: str
    outcome: Outcome
    tests: tuple[TestOutcome, ...]
    detail: str
    exit_code: int | None
    log: str
    seconds: float
    usage: ResourceUsage | None = None
    broke_off: bool = False


@dataclass(frozen=True)
class TaskCheckResult:
    """Whether a task can be graded at all.

    Without a patch every F2P test must fail and every P2P test pass; with the gold patch all must pass.
    `problems` says what does not hold, test by test.
    """

    task_id: str
    problems: tuple[str, ...]
    without_patch: VerificationResult
    with_gold: VerificationResult

    @property
    def valid(self) -> bool:
        return not self.problems
