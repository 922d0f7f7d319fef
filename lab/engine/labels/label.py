"""One reading of one run: error events, and apart from them a pointer to the one that is the root cause."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Words = Annotated[str, StringConstraints(max_length=10_000)]
Name = Annotated[str, StringConstraints(max_length=200)]
# What every database holds as a number.
LARGEST = 2**31 - 1


class Owner(StrEnum):
    """Whose fault it is."""

    AGENT = "agent"
    TASK_DEFECT = "task_defect"
    ENVIRONMENT = "environment"
    HARNESS_LIMIT = "harness_limit"
    GRADER = "grader"
    INCONCLUSIVE = "inconclusive"


class Phase(StrEnum):
    """What the agent was at when it went wrong."""

    UNDERSTAND = "understand"
    LOCALISE = "localise"
    DESIGN = "design"
    IMPLEMENT = "implement"
    VERIFY = "verify"
    SUBMIT = "submit"


class Severity(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


VerifiedByReplay = Literal["yes", "no", "not tried"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Evidence(_Part):
    """A quote out of the log, which is never changed for it.

    `seq` and `part` name the event and the text of it, `start` and `end` are offsets in characters into that
    text, `sha256` is the hash of the whole text (UTF-8, surrogates passed): with another one the offsets do
    not hold. All but `quote` are None where an imported file gives only words.
    """

    quote: Words
    seq: Annotated[int, Field(ge=1)] | None = None
    part: str | None = None
    start: Annotated[int, Field(ge=0)] | None = None
    end: Annotated[int, Field(ge=0)] | None = None
    sha256: str | None = None


class StepRef(_Part):
    """A step: its number from 1 within an attempt, and the seq of its first `model_call_started` if any."""

    step: Annotated[int, Field(ge=1, le=LARGEST)]
    attempt: Annotated[int, Field(ge=1, le=LARGEST)] = 1
    seq: Annotated[int, Field(ge=1, le=LARGEST)] | None = None


class ErrorEvent(StepRef):
    """Something that went wrong at a step. Shown as "E" and `key`, which a label never gives twice.

    `category` "" is not chosen yet. `caused_by` is the key of another event of the label. `ideal_action`:
    what should have been done. `agent`: who acted, in a run of several agents.
    """

    key: Annotated[int, Field(ge=1, le=LARGEST)]
    category: Name = ""
    native_category: Name = ""
    severity: Severity | None = None
    recovered: bool | None = None
    caused_by: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    ideal_action: Words = ""
    note: Words = ""
    category_reason: Words = ""
    agent: Name = ""
    evidence: tuple[Evidence, ...] = ()


class RootCause(_Part):
    """Which of the label's events the run failed of, and why it is that one."""

    event: int
    reason: Words = ""


class Label(_Part):
    """A reading as a whole; also one in the making, where anything may be missing."""

    owner: Owner | None = None
    phase: Phase | None = None
    events: tuple[ErrorEvent, ...] = ()
    root_cause: RootCause | None = None
    alternatives: tuple[StepRef, ...] = ()
    sure: bool | None = None
    note: Words = ""
    verified_by_replay: VerifiedByReplay = "not tried"
    # The key of the next new event: those of removed ones are not given again.
    next_key: Annotated[int, Field(ge=1)] = 1

    def event(self, key: int) -> ErrorEvent | None:
        return next((event for event in self.events if event.key == key), None)

    @property
    def root(self) -> ErrorEvent | None:
        """The event that the pointer names."""
        return self.event(self.root_cause.event) if self.root_cause is not None else None
