"""Real runs: why 129 graded failures failed, and six models of one harness on the tasks of one benchmark."""

from __future__ import annotations

import json
import os
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard
from statsmodels.stats.contingency_tables import mcnemar  # type: ignore[import-untyped]

from lab.analysis.harness_effect import parts_of, slopes
from lab.analysis.observations import Observation
from lab.analysis.per_task import per_task
from lab.analysis.run_traits import failure_of
from tests.analysis.observed import ALL_IN, run
from tests.analysis.test_real_results import Results, results

__all__ = ["results"]


@pytest.fixture(scope="module")
def reports() -> list[dict[str, Any]]:
    data = os.environ.get("LAB_TEST_DATA")
    archive = Path(data or "") / "trajectories" / "mini-swe-agent" / "swe-bench-verified-500.tar.zst"
    if not data or not archive.is_file():
        pytest.skip("absent data: LAB_TEST_DATA names no folder with the 500 runs of mini-SWE-agent")
    found = []
    with archive.open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file)
        with tarfile.open(fileobj=stream, mode="r|") as members:
            for member in members:
                content = members.extractfile(member) if member.name.endswith("/report.json") else None
                if content is not None:
                    found.append(json.load(content))
    return found


def graded(number: int, report: dict[str, Any]) -> Observation:
    groups = [report["tests_status"][name] for name in ("FAIL_TO_PASS", "PASS_TO_PASS")]
    fixed, kept = ((len(one["success"]), len(one["success"]) + len(one["failure"])) for one in groups)
    verdict = "resolved" if report["resolved"] else "unresolved"
    return run(number, verdict=verdict, fail_to_pass=fixed, pass_to_pass=kept)


def test_each_real_failure_is_in_the_class_that_its_report_says(reports: list[dict[str, Any]]) -> None:
    classes = Counter(failure_of(graded(number, report)) for number, report in enumerate(reports))
    # Published: 105 with target tests failing only, 13 with regressions only, 11 with both. Of these 11 one
    # broke all 80 tests that had passed.
    assert classes == {None: 371, "never_fixed": 105, "regression": 13, "both": 10, "never_ran": 1}


def observed(results: Results) -> list[Observation]:
    return [
        run(
            number * 1000 + place,
            arm=f"1.{number}.aa",
            task=task,
            verdict="resolved" if resolved else "unresolved",
        )
        for number, found in enumerate(results.values(), start=1)
        for place, (task, resolved) in enumerate(found.items())
    ]


def test_six_models_of_one_harness_differ_as_statsmodels_says(results: Results) -> None:
    runs = observed(results)
    arms = [parts_of(f"1.{number}.aa") for number in range(1, 7)]
    (slope,) = slopes(runs, ALL_IN, arms)
    assert (slope.fixed, len(slope.contrasts)) == ("harness", 15)
    by_arm = dict(zip([arm.key for arm in arms], results.values(), strict=True))
    for contrast in slope.contrasts:
        first, second = by_arm[contrast.first.key], by_arm[contrast.second.key]
        shared = first.keys() & second.keys()
        assert (contrast.shared, contrast.first_alone) == (len(shared), len(first) - len(shared))
        table = Counter((first[task], second[task]) for task in shared)
        expected = mcnemar([[table[a, b] for b in (True, False)] for a in (True, False)], exact=True)
        assert contrast.p == pytest.approx(float(expected.pvalue), rel=1e-9)


def test_tasks_of_six_models_inform_where_some_resolve_them_and_some_do_not(results: Results) -> None:
    found = per_task(observed(results), ALL_IN)
    tried: dict[str, list[bool]] = {}
    for one in results.values():
        for task, resolved in one.items():
            tried.setdefault(task, []).append(resolved)
    informing = {task for task, outcomes in tried.items() if len(set(outcomes)) == 2}
    assert {task.task for task in found.tasks if task.informs} == informing
    assert len(found.tasks) == len(tried)
    assert found.bands["untried"] == 0
    assert found.informing.part == len(informing)
