"""What a grading says: one status per test, one outcome per verification."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict


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
