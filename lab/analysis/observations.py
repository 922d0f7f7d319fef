"""What an analysis knows of a run: one row of numbers and names, from the roll-ups, without its texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

RESOLVED = "resolved"
UNRESOLVED = "unresolved"
GRADED = frozenset({RESOLVED, UNRESOLVED})
CANCELLED = "cancelled"
# Something of lab or endpoint broke, which is nobody's answer to the task: such a run is not verified.
BROKEN = frozenset(
    {"llm_query_error", "tool_error", "infrastructure_error", "internal_error", "replay_diverged"}
)
# Nor is one of which nobody knows why it ended.
INFRASTRUCTURE = BROKEN | {"unknown"}


class Behaviour(NamedTuple):
    """How the newest attempt went about it. Counts are of tool calls unless another unit is named.

    `tools`: tool's name -> calls; `kinds`: read, edit, test, shell, final -> calls. `steps_with_calls` and
    `parallel_steps` count steps with at least one call and with several. `malformed` calls were not
    understood. `exit_codes` have a known exit code; `failed_commands` of these have another than 0, None
    where none has one: many records say nothing of them. `cycles`: how often a test run followed an edit.
    `tested_after_last_edit` None where nothing was edited. `repeats`: calls equal in tool and arguments to an
    earlier one of the attempt. Seconds None where the record has no times; `waiting` is between retries, for
    a sandbox and while paused.
    """

    tools: Mapping[str, int]
    kinds: Mapping[str, int]
    calls: int
    steps_with_calls: int
    parallel_steps: int
    malformed: int
    exit_codes: int
    failed_commands: int | None
    tests: int
    edits: int
    cycles: int
    tested_after_last_edit: bool | None
    repeats: int
    model_seconds: float | None
    tool_seconds: float | None
    waiting_seconds: float | None


class Observation(NamedTuple):
    """One run. None is unknown, never 0.

    `arm` is a key that runs of one harness version, model and limits share across experiments. `task` is
    shared by versions of a task that are the same in content. Tokens and dollars count over all attempts,
    `cost_earlier` those before the newest; steps, seconds and behaviour are the newest attempt's.
    `stepped_in`: people changed a limit or sent a message.
    """

    run: int
    experiment: int
    arm: str
    task: str
    repository: str
    seed: int
    ended: bool
    verdict: str
    exit_reason: str
    flagged: bool
    stepped_in: bool
    steps: int | None
    requests: int
    usage_unknown: int
    input_uncached: int | None
    cache_read: int | None
    cache_write: int | None
    output_total: int | None
    reasoning: int | None
    cost: float | None
    cost_unknown: int
    cost_basis: str
    cost_earlier: float | None
    seconds: float | None
    peak_memory_bytes: int | None
    fail_to_pass: tuple[int, int] | None
    pass_to_pass: tuple[int, int] | None
    changed_files: int | None
    behaviour: Behaviour | None
    # How many requests before the newest attempt have no known cost, of `cost_unknown`.
    cost_earlier_unknown: int = 0
    # The whole input, known also where its parts are not (a server that says nothing of its cache).
    input_total: int | None = None
    # Of the newest attempt: replies, and those of which no call was understood though one was needed.
    replies: int | None = None
    format_errors: int | None = None
    # Recorded elsewhere, and no request of it was: how many there were, and what they cost, is not known.
    unrecorded: bool = False

    @property
    def graded(self) -> bool:
        """Whether it counts in a rate: resolved or unresolved."""
        return self.verdict in GRADED

    @property
    def resolved(self) -> bool:
        return self.verdict == RESOLVED

    @property
    def not_graded(self) -> bool:
        """It ended as runs that are graded do, and nobody verified it: nothing broke."""
        apart = self.exit_reason == CANCELLED or self.exit_reason in INFRASTRUCTURE
        return self.ended and not self.verdict and not apart

    @property
    def invalid(self) -> bool:
        """It broke, or its verification did, and nobody cancelled it: nobody failed."""
        apart = self.graded or self.not_graded or self.exit_reason == CANCELLED
        return self.ended and not apart
