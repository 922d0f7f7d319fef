"""How a number of runs is spread: quartiles, and an interval of the median by order statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from lab.analysis import quantiles
from lab.analysis.estimates import Interval, Unknown
from lab.analysis.rates import LEVEL, ONE_TASK
from lab.analysis.shares import Groups

ORDER = "order statistics"
ORDER_BY_TASK = "order statistics, tasks as clusters"
NO_VALUE = "no run has a known value"
TOO_FEW = "so few runs do not bound their median with 95 %"


class Quartiles(NamedTuple):
    """Of the known values, with linear interpolation between them."""

    minimum: float
    low: float
    median: float
    high: float
    maximum: float


class Spread(NamedTuple):
    """`quartiles` of `n` runs with a known value on `tasks` tasks; `unknown` runs have none.

    `interval` is the median's, `method` how it was made. `key` is the figure's name for `runs_behind`.
    """

    key: str
    quartiles: Quartiles | Unknown
    interval: Interval | Unknown
    method: str
    n: int
    tasks: int
    unknown: int


def spread(key: str, values: Sequence[float | None], groups: Groups) -> Spread:
    """How the values are spread, of runs in the order of `groups`; None is unknown.

    One run a task: the interval lies between two of the sorted values, by the binomial distribution, and
    holds for whatever distribution. Several: how far the share below the median may be from a half is
    estimated with tasks as clusters and read off the sorted values (Woodruff), and never narrower than were
    the runs independent.
    """
    known = [value for value in values if value is not None]
    unknown = len(values) - len(known)
    if unknown:
        kept = zip(values, groups.tasks, strict=True)
        groups = Groups([task for value, task in kept if value is not None])
    if not known:
        return Spread(key, Unknown(NO_VALUE), Unknown(NO_VALUE), ORDER, 0, 0, unknown)
    ordered = sorted(known)
    low, median, high = (_quantile(ordered, share) for share in (0.25, 0.5, 0.75))
    quartiles = Quartiles(ordered[0], low, median, high, ordered[-1])
    n = len(known)
    if groups.count == n:
        rank, method = _binomial_rank(n), ORDER
    else:
        rank, method = _clustered_rank(known, median, groups), ORDER_BY_TASK
    interval: Interval | Unknown
    if groups.count < 2:
        interval = Unknown(ONE_TASK)
    elif rank < 1:
        interval = Unknown(TOO_FEW)
    else:
        interval = Interval(ordered[rank - 1], ordered[n - rank])
    return Spread(key, quartiles, interval, method, n, groups.count, unknown)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@cache
def _binomial_rank(n: int) -> int:
    """The rank, from 1, of the interval's lower end, and counted from above of its upper one; 0 for none."""
    import numpy as np
    from scipy import special

    below = special.bdtr(np.arange(n // 2 + 1), n, 0.5)
    return int(np.searchsorted(below, (1 - LEVEL) / 2, side="right"))


def _clustered_rank(values: Sequence[float], median: float, groups: Groups) -> int:
    if groups.count < 2:
        return 0
    import numpy as np

    known = np.array(values)
    below = (known < median) + 0.5 * (known == median)
    sums = groups.sums(below - below.mean())
    n, tasks = groups.size, groups.count
    error = math.sqrt(float((sums**2).sum()) * tasks / (tasks - 1)) / n
    share = (1 + LEVEL) / 2
    reach = max(quantiles.student(share, tasks - 1) * error, quantiles.normal(share) * 0.5 / math.sqrt(n))
    return math.floor(n * (0.5 - reach))
