"""Shares of runs and of what runs did, with intervals that allow for tasks: runs of a task are no new tasks.

Two kinds: a share of runs is the mean over tasks of the mean over runs, as a resolve rate is; a share of
calls, steps or seconds is a ratio of sums, because a long run has more of them. Many shares at once, because
an analysis shows hundreds.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from lab.analysis import quantiles
from lab.analysis.estimates import ROUNDING, Estimate, Interval, Unknown, is_rounding
from lab.analysis.rates import AT_THE_EDGE as AT_THE_EDGE
from lab.analysis.rates import LEVEL, ONE_TASK, wilson_limits

if TYPE_CHECKING:
    import numpy as np

WILSON = "Wilson"
T_OVER_TASKS = "t over tasks"
RATIO = "ratio of sums, t over tasks"
NO_SUCH_RUN = "there is no such run"
ALL_THE_SAME = "all tasks came out the same, and an interval of no width would say too much"

Unit = Literal["runs", "tasks", "calls", "replies", "steps", "seconds", "dollars"]


class Share(NamedTuple):
    """`part` of `of`, in `unit`, and what that says of tasks like these.

    `estimate.value` is the mean over tasks where the unit is runs (so it is part / of only where all tasks
    have as many runs), else part / of. `estimate.n` is the number of tasks. `unknown`: runs (tasks,
    where that is the unit) that would belong to `of` and of which it is not known. `key` is the figure's name
    for `runs_behind`.
    """

    key: str
    part: float
    of: float
    unit: Unit
    estimate: Estimate | Unknown
    unknown: int = 0


class Groups:
    """Which of the values belong to the same task: `count` tasks of `size` values, each with its task."""

    def __init__(self, tasks: Sequence[Hashable]) -> None:
        import numpy as np

        numbers: dict[Hashable, int] = {}
        labels = np.array([numbers.setdefault(task, len(numbers)) for task in tasks], dtype=np.intp)
        self.tasks = tasks
        self.count = len(numbers)
        self.size = len(labels)
        self._order = np.argsort(labels, kind="stable")
        self._starts = np.searchsorted(labels[self._order], np.arange(self.count))

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sums by task of the last axis; shape (…, size) becomes (…, count)."""
        import numpy as np

        if not self.count:
            return np.zeros((*values.shape[:-1], 0))
        summed: np.ndarray = np.add.reduceat(values[..., self._order], self._starts, axis=-1)
        return summed


def run_shares(
    keys: Sequence[str], flags: Sequence[Sequence[bool]], groups: Groups, *, unknown: int = 0
) -> tuple[Share, ...]:
    """One share a key: `flags` says of each run, in the order of `groups`, whether it is so.

    Wilson with one run a task; with several, Student's t over the tasks' means, as `rates.average`. Where no
    run is so, or every one, means do not vary and t says nothing: Wilson as if each task were one run, which
    is right were runs of a task always alike, and too wide otherwise.
    """
    import numpy as np

    if not keys:
        return ()
    n = groups.count
    if n == 0:
        return tuple(Share(key, 0, 0, "runs", Unknown(NO_SUCH_RUN), unknown) for key in keys)
    table = np.array(flags, dtype=float)
    means = groups.sums(table) / groups.sums(np.ones(groups.size))
    values = means.mean(axis=1)
    squares = ((means - values[:, None]) ** 2).sum(axis=1)
    errors = np.sqrt(squares / max(n - 1, 1) / n)
    one_each = groups.size == n
    return tuple(
        Share(key, int(part), groups.size, "runs", _of_runs(value, error, n, one_each), unknown)
        for key, part, value, error in zip(
            keys, table.sum(axis=1).tolist(), values.tolist(), errors.tolist(), strict=True
        )
    )


def _of_runs(value: float, error: float, n: int, one_each: bool) -> Estimate:
    if one_each:
        return Estimate(value, Interval(*wilson_limits(round(value * n), n)), n, WILSON)
    if n < 2:
        return Estimate(value, Unknown(ONE_TASK), n, T_OVER_TASKS)
    return _with_error(value, error, n, T_OVER_TASKS, edge=n)


def ratio_shares(
    keys: Sequence[str],
    parts: Sequence[Sequence[float]],
    wholes: Sequence[float] | None,
    groups: Groups,
    unit: Unit,
    *,
    unknown: int = 0,
) -> tuple[Share, ...]:
    """One share a key: the sum of its `parts` over that of `wholes`, each with a value a run.

    `wholes` None: the keys are all the parts there are, and their sum is the whole.

    The standard error is the ratio estimator's over tasks: residuals part - ratio * whole summed within a
    task, times sqrt(G / (G - 1)); Student's t with G - 1 degrees. With nothing, or all of it, Wilson as if
    each task were one try; tasks of different size count as fewer (Kish).
    """
    import numpy as np

    if not keys:
        return ()
    table = groups.sums(np.array(parts, dtype=float).reshape(len(keys), groups.size))
    whole = table.sum(axis=0) if wholes is None else groups.sums(np.array(wholes, dtype=float))
    tried = whole > 0
    table, whole = table[:, tried], whole[tried]
    total = float(whole.sum())
    if total == 0:
        why = Unknown(f"there are no {unit} to count")
        return tuple(Share(key, 0, 0, unit, why, unknown) for key in keys)
    sums = table.sum(axis=1)
    ratios = sums / total
    n = len(whole)
    squares = ((table - ratios[:, None] * whole) ** 2).sum(axis=1)
    errors = np.sqrt(squares * n / max(n - 1, 1)) / total
    # The number of tasks of equal size that say as much; rounded down.
    sizes = whole / whole.max()  # of the least amounts there are, squares would be nothing
    edge = max(1, math.floor(float(sizes.sum() ** 2 / (sizes**2).sum()) + ROUNDING))
    return tuple(
        Share(key, part, total, unit, _of_ratio(value, error, n, edge), unknown)
        for key, part, value, error in zip(keys, sums.tolist(), ratios.tolist(), errors.tolist(), strict=True)
    )


def _of_ratio(value: float, error: float, n: int, edge: int) -> Estimate:
    if n < 2:
        return Estimate(value, Unknown(ONE_TASK), n, RATIO)
    return _with_error(value, error, n, RATIO, edge=edge)


def _with_error(value: float, error: float, n: int, method: str, *, edge: int) -> Estimate:
    if not is_rounding(error):
        reach = quantiles.student((1 + LEVEL) / 2, n - 1) * error
        # A share lies between 0 and 1 whatever a symmetric interval says.
        return Estimate(value, Interval(max(0.0, value - reach), min(1.0, value + reach)), n, method, error)
    if is_rounding(min(value, 1 - value)):
        return Estimate(round(value), Interval(*wilson_limits(round(value) * edge, edge)), n, AT_THE_EDGE)
    return Estimate(value, Unknown(ALL_THE_SAME), n, method, 0.0)
