"""Real results of six models on one benchmark: every pair agrees with statsmodels called directly."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from statsmodels.stats.contingency_tables import mcnemar  # type: ignore[import-untyped]
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]
from statsmodels.stats.proportion import proportion_confint  # type: ignore[import-untyped]

from lab.analysis import paired, rates
from lab.analysis.estimates import Interval, Unknown
from lab.analysis.paired import Discordance
from tests.analysis.test_rates import near

Results = dict[str, dict[str, bool]]


@pytest.fixture(scope="module")
def results() -> Results:
    data = os.environ.get("LAB_TEST_DATA")
    folder = Path(data or "") / "results" / "swe-bench-pro"
    if not data or not folder.is_dir():
        pytest.skip("absent data: LAB_TEST_DATA names no folder with results/swe-bench-pro")
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def table_of(first: dict[str, bool], second: dict[str, bool]) -> Discordance:
    """Instances differ a little between the files: those that both hold."""
    pairs = [(first[name], second[name]) for name in sorted(first.keys() & second.keys())]
    return Discordance(*(pairs.count(kind) for kind in itertools.product((True, False), repeat=2)))


def test_the_published_counts(results: Results) -> None:
    counted = {name: (sum(found.values()), len(found)) for name, found in results.items()}
    assert counted["claude-45sonnet-10132025"] == (319, 730)
    assert counted["gpt-5-250-turns-10132025"] == (265, 729)
    assert counted["gpt-4o-paper"] == (36, 619)


def test_each_rates_interval(results: Results) -> None:
    for found in results.values():
        resolved, n = sum(found.values()), len(found)
        low, high = proportion_confint(resolved, n, 0.05, "wilson")
        assert rates.wilson(resolved, n) == Interval(near(low), near(high))  # type: ignore[arg-type]


def test_each_pair(results: Results) -> None:
    ours: list[float | Unknown] = []
    theirs: list[float] = []
    for first, second in itertools.combinations(results.values(), 2):
        table = table_of(first, second)
        assert table.n == len(first.keys() & second.keys())
        tested = paired.mcnemar(table)
        assert not isinstance(tested, Unknown)
        both, one, other, neither = table
        expected = float(mcnemar([[both, one], [other, neither]], exact=True).pvalue)
        assert tested.p == pytest.approx(expected, rel=1e-9)
        interval = paired.tango(table)
        assert isinstance(interval, Interval)
        assert interval.low <= table.difference <= (interval.high or 0)
        ours.append(tested.p)
        theirs.append(expected)
    assert len(ours) == 15
    assert paired.corrected(ours) == [
        pytest.approx(p, rel=1e-9) for p in multipletests(theirs, method="holm")[1]
    ]
