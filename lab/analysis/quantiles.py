"""Quantiles and tails of the distributions that intervals and tests are made of, each worked out once.

`scipy.special` alone: it loads in a third of the time of `scipy.stats`, and one value costs a microsecond
where a distribution's object takes a hundred. It is imported when first needed, so that what merely refers
to an analysis stays cheap to load.
"""

from __future__ import annotations

import math
from functools import lru_cache

_KEPT = 4096


@lru_cache(maxsize=_KEPT)
def normal(share: float) -> float:
    """The value below which `share` of the standard normal distribution lies."""
    from scipy import special

    return float(special.ndtri(share))


@lru_cache(maxsize=_KEPT)
def student(share: float, degrees: int) -> float:
    """The same of Student's t with so many degrees of freedom."""
    from scipy import special

    return float(special.stdtrit(degrees, share))


def student_p(statistic: float, degrees: int) -> float:
    """Two-sided: how probable a value of Student's t at least so far from 0 is."""
    from scipy import special

    return float(2 * special.stdtr(degrees, -abs(statistic)))


def beta(share: float, first: float, second: float) -> float:
    """The value below which `share` of the beta distribution lies."""
    from scipy import special

    return float(special.betaincinv(first, second, share))


def beta_above(value: float, first: float, second: float) -> float:
    """The share of the beta distribution above `value`."""
    from scipy import special

    return float(special.betaincc(first, second, value))


def half_p(successes: int, n: int) -> float:
    """Two-sided exact p value of so many successes in `n` tosses of a fair coin."""
    from scipy import special

    return min(1.0, float(2 * special.bdtr(min(successes, n - successes), n, 0.5)))


def half_probability(successes: int, n: int) -> float:
    """The probability of exactly so many successes in `n` tosses of a fair coin."""
    # Whole numbers: no power of two is too small for them.
    return float(math.comb(n, successes) / 2**n)
