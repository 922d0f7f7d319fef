"""Published rates are shown beside runs of the same benchmark, and of no part of it."""

from __future__ import annotations

import pytest

from lab.analysis import reference_points


@pytest.mark.parametrize(
    "name", ["swe-bench-verified", "SWE-bench_Verified", "princeton-nlp/SWE-bench_Verified"]
)
def test_a_task_set_is_a_benchmark_by_its_whole_name(name: str) -> None:
    found = reference_points.of_task_sets([name, "other tasks"])
    assert found == reference_points.of_benchmark(reference_points.VERIFIED)
    assert found


@pytest.mark.parametrize("name", ["swe-bench-verified-mini-50", "my swe-bench-verified", "verified", ""])
def test_a_part_of_a_benchmark_or_more_than_it_has_no_published_rate(name: str) -> None:
    assert reference_points.of_task_sets([name]) == []
