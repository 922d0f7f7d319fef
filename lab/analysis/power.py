"""What a number of tasks can show at all: the minimum detectable difference, and how many tasks it takes."""

from __future__ import annotations

import math

from lab.analysis import quantiles
from lab.analysis.estimates import Unknown

LEVEL = 0.05
POWER = 0.8


def reach(*, alpha: float = LEVEL, power: float = POWER) -> float:
    """The sum of the two normal quantiles: how many standard errors a difference must be long."""
    return quantiles.normal(1 - alpha / 2) + quantiles.normal(power)


def detectable(n: int, spread: float, *, alpha: float = LEVEL, power: float = POWER) -> float | Unknown:
    """The smallest difference of rates that `n` tasks would show with this power.

    `spread` is the variance of one task's difference: for one attempt a task the share of tasks on which the
    two arms differ.
    """
    if n < 1:
        return Unknown("there is no task")
    return reach(alpha=alpha, power=power) * math.sqrt(spread / n)


def detectable_from_error(error: float, *, alpha: float = LEVEL, power: float = POWER) -> float:
    """The same from the standard error of a difference that was measured."""
    return reach(alpha=alpha, power=power) * error


def tasks_needed(difference: float, spread: float, *, alpha: float = LEVEL, power: float = POWER) -> int:
    """How many tasks show a difference of rates with this power. Raises: ValueError for none."""
    if difference == 0:
        raise ValueError("no number of tasks shows a difference of nothing")
    return math.ceil((reach(alpha=alpha, power=power) / difference) ** 2 * spread)


def unpaired_detectable(n: int, rate: float, *, alpha: float = LEVEL, power: float = POWER) -> float:
    """For two arms on different tasks, `n` each, at about this rate: what pairing saves."""
    return reach(alpha=alpha, power=power) * math.sqrt(2 * rate * (1 - rate) / n)
