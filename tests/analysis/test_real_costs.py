"""500 real runs of one model on SWE-bench Verified: rate and cost, to figures that were worked out apart."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import IO, Any

import pytest
import zstandard

from lab.analysis import costs, rates, resolve, run_costs, spending
from lab.analysis.costs import Ratio
from lab.analysis.counting import Trial
from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.observations import Observation
from tests.analysis.observed import run
from tests.analysis.test_rates import near

ARM = "1.1."


@pytest.fixture(scope="module")
def runs() -> list[Observation]:
    data = os.environ.get("LAB_TEST_DATA")
    archive = Path(data or "") / "trajectories" / "mini-swe-agent" / "swe-bench-verified-500.tar.zst"
    if not data or not archive.is_file():
        pytest.skip("absent data: LAB_TEST_DATA names no folder with the 500 runs of mini-SWE-agent")
    with archive.open("rb") as file:
        return _runs(file)


def _runs(file: IO[bytes]) -> list[Observation]:
    stats: dict[str, Any] = {}
    resolved: dict[str, bool] = {}
    stream = zstandard.ZstdDecompressor().stream_reader(file)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None and member.name.endswith(".traj.json"):
                trajectory = json.load(content)
                stats[trajectory["instance_id"]] = trajectory["info"]["model_stats"]
            elif content is not None and member.name.endswith("/report.json"):
                resolved[Path(member.name).parent.name] = json.load(content)["resolved"]
    return [
        run(
            number,
            arm=ARM,
            task=task,
            repository=task.rsplit("-", 1)[0],
            verdict="resolved" if resolved.get(task) else "unresolved",
            cost=found["instance_cost"],
            cost_basis="reported",
            requests=found["api_calls"],
        )
        for number, (task, found) in enumerate(sorted(stats.items()), start=1)
    ]


def test_the_rate(runs: list[Observation]) -> None:
    found = resolve.of_arm(ARM, runs)
    assert (found.rate.resolved, found.rate.runs, found.rate.tasks) == (371, 500, 500)
    interval = Interval(near(0.701906), near(0.778404))  # type: ignore[arg-type]
    assert found.rate.estimate == Estimate(0.742, interval, 500, "Wilson")
    assert not isinstance(found.clustered, Unknown)
    assert (found.clustered.error, found.clustered.clusters) == (near(0.024922), 12)
    assert rates.standard_error([float(one.resolved) for one in runs]) == near(0.019587)


def test_the_cost_per_resolved_issue(runs: list[Observation]) -> None:
    found = spending.of_arm(ARM, runs)
    assert found.whole.dollars == near(229.978759)
    assert found.coverage.requests == 20_163
    cost = found.by_attempt.cost
    assert isinstance(cost, Ratio)
    assert (cost.value, cost.error, cost.clustered) == (near(0.619889), near(0.028864), near(0.048928))
    assert found.by_attempt.method == "log-delta"
    assert found.by_attempt.interval == Interval(near(0.565820), near(0.679124))  # type: ignore[arg-type]
    assert cost.fieller == Interval(near(0.565253), near(0.678913))  # type: ignore[arg-type]
    # One run a task: both bases say the same.
    assert found.by_issue.cost == cost


def test_the_bootstrap_of_the_cost(runs: list[Observation]) -> None:
    trials = [Trial(one, one.resolved) for one in runs]
    found = costs.bootstrap_ratio(run_costs.task_pairs(trials, by_issue=False))
    assert isinstance(found, Interval)
    assert (found.low, found.high) == pytest.approx((0.567902, 0.679221), abs=0.015)


def test_what_failures_cost(runs: list[Observation]) -> None:
    found = spending.of_arm(ARM, runs)
    means = [
        one.value for one in (found.mean, found.mean_resolved, found.mean_failed) if isinstance(one, Estimate)
    ]
    assert means == [near(0.459958), near(0.410003), near(0.603626)]
    assert isinstance(found.failures_share, Estimate)
    assert found.failures_share.value == near(0.338587)
    assert len(found.dearest_failures) == 10
    dearest = max((one for one in runs if not one.resolved), key=lambda one: one.cost or 0)
    assert found.dearest_failures[0].run == dearest.run


def test_what_is_resolved_within_a_budget(runs: list[Observation]) -> None:
    (curve,) = spending.curves([ARM], runs)
    assert (curve.tasks, curve.left_out, curve.steps[-1].share) == (500, 0, near(0.742))
    assert curve.steps[-1].interval == Interval(near(0.701906), near(0.778404))  # type: ignore[arg-type]
    cheap = [one for one in runs if one.resolved and (one.cost or 0) <= 0.4]
    assert max(step.share for step in curve.steps if step.dollars <= 0.4) == near(len(cheap) / 500)
