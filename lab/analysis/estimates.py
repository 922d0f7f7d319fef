"""What a statistic comes out as: a value with its interval, or the reason why there is none."""

from __future__ import annotations

import math
from typing import NamedTuple


class Interval(NamedTuple):
    """A confidence interval; `high` None where there is no finite upper limit."""

    low: float
    high: float | None


class Unknown(NamedTuple):
    """Not estimable; `why` completes "not estimable, because …"."""

    why: str

    def __str__(self) -> str:
        return f"not estimable, because {self.why}"


class Estimate(NamedTuple):
    """A value, its interval, its standard error where one was used, and of how many it is.

    `method` names how the interval was made. `interval` is an `Unknown` where only the value is known.
    """

    value: float
    interval: Interval | Unknown
    n: int
    method: str
    error: float | None = None


def finite(value: float, why: str) -> float | Unknown:
    """The number, unless a library gave nan or an infinity for it."""
    return value if math.isfinite(value) else Unknown(why)
