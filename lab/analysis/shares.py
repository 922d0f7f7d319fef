"""Shares of runs and of what runs did, with intervals that allow for tasks: runs of a task are no new tasks.

Two kinds: a share of runs is the mean over tasks of the mean over runs, as a resolve rate is; a share of
calls, steps or seconds is a ratio of sums, because a long run has more of them. For many columns at once.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from lab.analysis.estimates import Estimate, Unknown

LEVEL = 0.95
WILSON = "Wilson"
T_OVER_TASKS = "t over tasks"
RATIO = "ratio of sums, t over tasks"
AT_THE_EDGE = "Wilson, each task counting once"
NO_RUN = "there is no run to count"
ONE_TASK = "one task says nothing about others"
ALL_THE_SAME = "all tasks came out the same, and an interval of no width would say too much"

Unit = Literal["runs", "calls", "commands", "steps", "seconds"]


class Share(NamedTuple):
    """`count` of `of`, in `unit`, and what that says of tasks like these.

    `estimate.value` is the mean over tasks where the unit is runs (so it is count / of only where all tasks
    have as many runs), else count / of. `estimate.n` is the number of tasks. `unknown`: runs that would
    belong to `of` and of which it is not known. `key` is the figure's name for `runs_behind`.
    """

    key: str
    count: float
    of: float
    unit: Unit
    estimate: Estimate | Unknown
    unknown: int = 0
