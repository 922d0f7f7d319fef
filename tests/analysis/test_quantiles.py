"""Quantiles and tails agree with the distributions of scipy, and loading the formulas loads none of them."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lab.analysis import quantiles, rates


@given(share=st.floats(0.001, 0.999), degrees=st.integers(1, 2000))
def test_quantiles(share: float, degrees: int) -> None:
    assert quantiles.normal(share) == pytest.approx(stats.norm.ppf(share), abs=1e-9)
    assert quantiles.student(share, degrees) == pytest.approx(stats.t.ppf(share, degrees), rel=1e-9, abs=1e-9)


@given(statistic=st.floats(-30, 30), degrees=st.integers(1, 2000))
def test_the_tail_of_students_t(statistic: float, degrees: int) -> None:
    expected = 2 * stats.t.sf(abs(statistic), degrees)
    assert quantiles.student_p(statistic, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@given(data=st.data(), n=st.integers(1, 2000))
def test_tosses_of_a_fair_coin(data: st.DataObject, n: int) -> None:
    successes = data.draw(st.integers(0, n))
    # Exact: of chances near the smallest number there is, scipy rounds some to 0.
    tail = sum(math.comb(n, number) for number in range(min(successes, n - successes) + 1))
    expected = float(min(Fraction(1), Fraction(2 * tail, 2**n)))
    assert quantiles.half_p(successes, n) == pytest.approx(expected, rel=1e-9, abs=1e-300)
    seen = float(Fraction(math.comb(n, successes), 2**n))
    assert quantiles.half_probability(successes, n) == pytest.approx(seen, rel=1e-9, abs=1e-300)


@given(data=st.data(), n=st.integers(1, 300))
def test_intervals_and_chances_that_were_written_out(data: st.DataObject, n: int) -> None:
    successes = data.draw(st.integers(0, n))
    tested = stats.binomtest(successes, n)
    for ours, method in ((rates.wilson, "wilson"), (rates.clopper_pearson, "exact")):
        theirs = tested.proportion_ci(0.95, method)
        assert ours(successes, n) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
    k = data.draw(st.integers(1, n))
    expected = stats.hypergeom(n, successes, k)
    assert rates.pass_at_k(n, successes, k) == pytest.approx(expected.sf(0), abs=1e-9)
    assert rates.pass_hat_k(n, successes, k) == pytest.approx(expected.pmf(k), abs=1e-9)


def test_loading_the_formulas_loads_neither_scipy_nor_numpy() -> None:
    code = (
        "import sys; import lab.analysis.resolve, lab.analysis.pairs, lab.analysis.spending;"
        "print(sorted({'scipy', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
