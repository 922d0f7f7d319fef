"""What a number of tasks can show at all: the minimum detectable difference, and how many tasks it takes.

For the tests as they are made: the exact McNemar test, and Student's t over tasks. The normal approximation
promises too much where there are few tasks, and is used only where there are very many.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from lab.analysis import quantiles
from lab.analysis.estimates import Unknown

if TYPE_CHECKING:
    import numpy as np

LEVEL = 0.05
POWER = 0.8
# Up to so many tasks the exact test's own power is worked out; beyond, both agree within some hundredths.
MOST_EXACT = 1_000
EXACT = "power of the exact McNemar test"
APPROXIMATE = "power by the normal approximation"
STUDENT = "power of the paired t test, by the noncentral t distribution"
NO_TASK = "there is no task"


def reach(*, alpha: float = LEVEL, power: float = POWER) -> float:
    """The sum of the two normal quantiles: how many standard errors a difference must be long."""
    return quantiles.normal(1 - alpha / 2) + quantiles.normal(power)


def detectable(n: int, spread: float, *, alpha: float = LEVEL, power: float = POWER) -> float | Unknown:
    """The smallest difference of rates that `n` tasks show by the normal approximation: for many tasks.

    `spread` is the variance of one task's difference: for one attempt a task the share of tasks on which the
    two arms differ.
    """
    if n < 1:
        return Unknown(NO_TASK)
    return reach(alpha=alpha, power=power) * math.sqrt(spread / n)


def detectable_from_error(error: float, *, alpha: float = LEVEL, power: float = POWER) -> float:
    """The same from the standard error of a difference that was measured."""
    return reach(alpha=alpha, power=power) * error


def mcnemar_method(n: int) -> str:
    """How `detectable_mcnemar` works for so many tasks, in words."""
    return EXACT if n <= MOST_EXACT else APPROXIMATE


def detectable_mcnemar(n: int, discordant_share: float) -> float | Unknown:
    """The smallest difference of rates that the exact McNemar test finds with a power of at least 0.8.

    `discordant_share` of the tasks, each with one attempt of both arms, is expected to differ: no difference
    is larger. For more than `MOST_EXACT` tasks by the normal approximation (see `mcnemar_method`).

    Raises:
        ValueError: a share that is none.
    """
    if not 0 <= discordant_share <= 1:
        raise ValueError(f"{discordant_share} is no share of tasks")
    if n < 1:
        return Unknown(NO_TASK)
    if n < _least_differing():
        tasks = "1 task" if n == 1 else f"{n} tasks"
        return Unknown(f"with {tasks} no result of the exact test is significant")
    return _detectable_mcnemar(n, discordant_share)


@lru_cache(maxsize=1024)
def _detectable_mcnemar(n: int, share: float) -> float | Unknown:
    if n > MOST_EXACT:
        found = reach() * math.sqrt(share / n)
        if found <= share:
            return found
        return _one_way("that is too few")
    table = _Discordant(n, share)
    most = table.power(share)
    if most < POWER:
        chance = f"{100 * most:.0f} %" if most >= 0.01 else "less than 1 %"
        return _one_way(f"the exact test finds it with a power of {chance}")
    # The exact test needs somewhat more than the approximation: a bracket that mostly holds.
    low, high = (
        min(share, 0.9 * reach() * math.sqrt(share / n)),
        min(share, 1.2 * reach() * math.sqrt(share / n)),
    )

    def above(difference: float) -> float:
        return table.power(difference) - POWER

    return _crossing(above, low if above(low) < 0 else 0.0, high if above(high) >= 0 else share)


def _one_way(then: str) -> Unknown:
    return Unknown(f"even if all tasks that differ differ one way, {then}")


class _Discordant:
    """The exact test's power where `share` of `n` tasks is expected to differ.

    How many do differ is binomial, and so is, given that, how many of them the one arm alone resolves.
    """

    def __init__(self, n: int, share: float) -> None:
        import numpy as np
        from scipy import special

        self._share = share
        # What lies further away weighs some millionths.
        half = 4.5 * math.sqrt(n * share * (1 - share)) + 10
        low, high = max(0, math.floor(n * share - half)), min(n, math.ceil(n * share + half))
        # Fewer that differ are never significant.
        self._number = np.arange(max(low, _least_differing()), high + 1)
        logarithm = (
            special.gammaln(n + 1)
            - special.gammaln(self._number + 1)
            - special.gammaln(n - self._number + 1)
            + special.xlogy(self._number, share)
            + special.xlog1py(n - self._number, -share)
        )
        self._weight = np.exp(logarithm)
        self._critical = _critical(self._number)

    def power(self, difference: float) -> float:
        """The probability that the test finds a difference of so much (at most the share) as what it is.

        Where it is near `POWER` the wrong way round has no probability that counts.
        """
        from scipy import special

        if not self._number.size or not self._share:
            return 0.0
        other_way = max(0.0, (1 - difference / self._share) / 2)
        return float(self._weight @ special.bdtr(self._critical, self._number, other_way))


def _critical(number: np.ndarray) -> np.ndarray:
    """The most of the rarer kind among so many (at least `_least_differing`) with which the test is
    significant."""
    import numpy as np
    from scipy import special

    guess = np.floor(number / 2 - quantiles.normal(1 - LEVEL / 2) * np.sqrt(number) / 2 - 0.5)
    near = np.maximum(0.0, guess + np.arange(-1.0, 3.0)[:, None])
    significant = 2 * special.bdtr(near, number, 0.5) <= LEVEL
    found: np.ndarray = np.max(np.where(significant, near, 0.0), axis=0)
    return found


@lru_cache(maxsize=1)
def _least_differing() -> int:
    """How many tasks must differ, all one way, for the exact test to be significant."""
    return next(number for number in range(1, 64) if quantiles.half_p(0, number) <= LEVEL)


def detectable_paired_t(error: float, n: int) -> float | Unknown:
    """The smallest difference of rates that the paired t test over `n` tasks finds with a power of 0.8.

    `error` is the standard error of the difference.
    """
    if n < 2:
        return Unknown(NO_TASK if n < 1 else "one task says nothing about others")
    found = _noncentrality(n) * error
    if found > 1:
        return Unknown(f"with {n:,} tasks that vary so much not even 100 points would be found reliably")
    return found


@lru_cache(maxsize=1024)
def _noncentrality(n: int) -> float:
    """How many standard errors a difference must be long for the t test over `n` tasks."""
    from scipy import special

    degrees = n - 1
    critical = quantiles.student(1 - LEVEL / 2, degrees)

    def above(length: float) -> float:
        # Found the right way round: the other has no probability that counts.
        return float(1 - special.nctdtr(degrees, length, critical) - POWER)

    # The noncentral t of few degrees is wide: what is certain to be enough is some critical values long.
    return _crossing(above, 0.0, reach() + 2 * critical)


_CLOSE = 1e-8


def _crossing(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function that is negative at `low` and not at `high` passes 0; never before it."""
    at_low, at_high = function(low), function(high)
    side = 0
    while high - low > _CLOSE and at_high > _CLOSE:
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        if not low < middle < high:
            break
        at_middle = function(middle)
        # The end that stays twice pulls half as much, or the bracket would shrink from one side alone.
        if at_middle >= 0:
            high, at_high, at_low = middle, at_middle, at_low / 2 if side > 0 else at_low
            side = 1
        else:
            low, at_low, at_high = middle, at_middle, at_high / 2 if side < 0 else at_high
            side = -1
    return high


def tasks_needed(difference: float, spread: float, *, alpha: float = LEVEL, power: float = POWER) -> int:
    """How many tasks show a difference of rates, by the normal approximation. Raises: ValueError for none."""
    if difference == 0:
        raise ValueError("no number of tasks shows a difference of nothing")
    return math.ceil((reach(alpha=alpha, power=power) / difference) ** 2 * spread)


def tasks_needed_mcnemar(difference: float, discordant_share: float) -> int | Unknown:
    """How many tasks it takes until the exact McNemar test finds this difference with a power of 0.8.

    For more than `MOST_EXACT` by the normal approximation. Raises: ValueError for no difference.
    """
    if difference > discordant_share:
        return Unknown(f"only {100 * discordant_share:.0f} % of tasks differ at all")
    roughly = tasks_needed(difference, discordant_share)
    if roughly > MOST_EXACT:
        return roughly

    def enough(n: int) -> bool:
        found = detectable_mcnemar(n, discordant_share)
        return not isinstance(found, Unknown) and found <= difference

    low, high = 1, max(2 * roughly, 64)
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def tasks_needed_paired_t(difference: float, spread: float) -> int:
    """How many tasks it takes until the paired t test finds this difference with a power of 0.8, where one
    task's difference has the variance `spread`. Raises: ValueError for no difference."""
    n = max(2, tasks_needed(difference, spread))
    while True:
        found = detectable_paired_t(math.sqrt(spread / n), n)
        if not isinstance(found, Unknown) and found <= difference:
            return n
        n += 1


def unpaired_detectable(n: int, rate: float, *, alpha: float = LEVEL, power: float = POWER) -> float:
    """For two arms on different tasks, `n` each, at about this rate: what pairing saves."""
    return reach(alpha=alpha, power=power) * math.sqrt(2 * rate * (1 - rate) / n)
