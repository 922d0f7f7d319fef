"""Per task: how often each arm resolved it, and whether it tells arms apart at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from lab.analysis.estimates import Estimate, Unknown
from lab.analysis.shares import Share

Band = Literal["never", "sometimes", "always", "untried"]


class Attempts(NamedTuple):
    """Attempts at one task. `rate` with Wilson's interval over its `graded` attempts (`rate.n`).

    Attempts of one task are a sample of what happens to this task and say nothing of others. Run ids, each
    list ascending; `others` are open, invalid or cancelled.
    """

    rate: Estimate | Unknown
    resolved: tuple[int, ...]
    unresolved: tuple[int, ...]
    others: tuple[int, ...]

    @property
    def graded(self) -> int:
        return len(self.resolved) + len(self.unresolved)


class TaskRate(NamedTuple):
    """One task. `arms`: those that tried it. `whole`: all arms together, each graded attempt counting once.

    `band`: "sometimes" is 0 < p < 1, the tasks that inform; "untried" has no graded attempt.
    """

    task: str
    repository: str
    arms: Mapping[str, Attempts]
    whole: Attempts
    band: Band

    @property
    def informs(self) -> bool:
        return self.band == "sometimes"


class PerTask(NamedTuple):
    """Tasks by name. `informing`: the share of tried tasks in the band 0 < p < 1, over all arms and by arm.

    `untried` tasks have no graded attempt and are no part of a share.
    """

    tasks: tuple[TaskRate, ...]
    informing: Share
    by_arm: Mapping[str, Share]
    never: int
    sometimes: int
    always: int
    untried: int
