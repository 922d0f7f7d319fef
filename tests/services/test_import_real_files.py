"""What an import makes of real files: the facts that their owners publish, to the digit."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest
from django.db.models import Count, Q, Sum

from lab.analysis import spending
from lab.analysis.costs import Ratio
from lab.models import Call, Import, Run, Verification
from lab.services import analysis, import_reading, interchange

pytestmark = pytest.mark.django_db(transaction=True)


def real(path: str) -> Path:
    data = os.environ.get("LAB_TEST_DATA")
    if not data or not Path(data, path).exists():
        pytest.skip(f"absent data: set LAB_TEST_DATA to a folder with {path}")
    return Path(data, path)


def imported(*paths: Path) -> Import:
    row = import_reading.import_now(paths=paths, worker="w/1/1")
    assert (row.state, row.error) == (Import.State.ENDED, "")
    return row


@pytest.mark.long
def test_500_runs_of_mini_swe_agent_have_their_published_figures() -> None:
    row = imported(real("trajectories/mini-swe-agent/swe-bench-verified-500.tar.zst"))
    report = interchange.report_of(row)
    assert (report.imported, report.problem_count, report.gradings.contradicting_count) == (500, 0, 0)
    runs = Run.objects.filter(experiment=row.experiment)
    assert runs.filter(facts__verdict="resolved").count() == 371
    calls = Call.objects.filter(run__experiment=row.experiment)
    sums = calls.aggregate(calls=Count("pk"), reported=Sum("cost_reported"), priced=Sum("cost"))
    assert sums["calls"] == 20_163
    assert round(sums["reported"], 6) == Decimal("229.978759")
    assert round(sums["reported"] / 371, 6) == Decimal("0.619889")
    assert abs(sums["priced"] / sums["reported"] - 1) < Decimal("0.005")
    failed = Q(tests__status__in=["failed", "missing", "error"])
    unresolved = Verification.objects.filter(
        run__experiment=row.experiment, run__facts__verdict="unresolved", tests__isnull=False
    ).annotate(
        target=Count("tests", filter=failed & Q(tests__group="fail_to_pass")),
        regression=Count("tests", filter=failed & Q(tests__group="pass_to_pass")),
    )
    kinds = [(one.target > 0, one.regression > 0) for one in unresolved]
    assert [kinds.count(kind) for kind in ((True, False), (False, True), (True, True))] == [105, 13, 11]
    observed = analysis.observed(analysis.Selection(experiments=(row.experiment_id,), costs="reported"))
    (arm,) = observed.arms
    spend = spending.of_arm(arm.key, observed.observations)
    assert isinstance(spend.by_attempt.cost, Ratio)
    assert spend.by_attempt.cost.value == pytest.approx(0.619889, abs=5e-7)
    assert spend.by_attempt.cost.error == pytest.approx(0.028864, abs=5e-7)
    assert spend.by_attempt.cost.clustered == pytest.approx(0.048928, abs=5e-7)


def test_runs_of_swe_agent_have_their_recorded_steps_and_cost() -> None:
    row = imported(real("trajectories/swe-agent"))
    runs = Run.objects.filter(experiment=row.experiment)
    assert runs.count() == 6
    for task, steps in (
        ("pandas-dev__pandas.95280573.pr_53652", 37),
        ("pydantic__pydantic.acb0f10f.pr_8316", 22),
    ):
        run = runs.get(task__slug=task)
        assert run.facts.steps == steps
    full = runs.filter(
        task__slug__in=["pandas-dev__pandas.95280573.pr_53652", "pydantic__pydantic.acb0f10f.pr_8316"]
    )
    assert full.values("arm").distinct().count() == 1
