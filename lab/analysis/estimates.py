"""What a statistic comes out as: a value with its interval, or the reason why there is none."""

from __future__ import annotations

import math
from typing import NamedTuple

# Below this part of what is averaged a standard error is the rounding of its terms: thirds that are all the
# same leave 1e-17, and sums of squares the root of that.
ROUNDING = 1e-7


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


def is_rounding(error: float, scale: float = 1.0) -> bool:
    """Whether a standard error or width is nothing but rounding; `scale` 1 for shares, a cost for costs."""
    return error <= ROUNDING * abs(scale)


def finite(value: float, why: str) -> float | Unknown:
    """The number, unless a library gave nan or an infinity for it."""
    return value if math.isfinite(value) else Unknown(why)
