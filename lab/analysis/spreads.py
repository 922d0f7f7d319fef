"""How a number of runs is spread: quartiles, and an interval of the median by order statistics."""

from __future__ import annotations

from typing import NamedTuple

from lab.analysis.estimates import Interval, Unknown

LEVEL = 0.95
ORDER = "order statistics"
ORDER_BY_TASK = "order statistics, tasks as clusters"


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
