"""Labels of real collections: read to the digit, on the runs they were written about."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.models import Event, Import, Run
from lab.services import import_reading, interchange

pytestmark = pytest.mark.django_db(transaction=True)


def real(path: str) -> Path:
    data = os.environ.get("LAB_TEST_DATA")
    if not data or not Path(data, path).exists():
        pytest.skip(f"absent data: set LAB_TEST_DATA to a folder with {path}")
    return Path(data, path)


def imported(*paths: Path) -> Import:
    row = import_reading.import_now(paths=paths, worker="w/1/1")
    report = interchange.report_of(row)
    assert (row.state, row.error, report.problem_count) == (Import.State.ENDED, "", 0)
    return row


def test_58_logs_of_several_agents_have_a_step_for_each_entry() -> None:
    row = imported(real("labels/who-and-when"))
    runs = Run.objects.filter(experiment=row.experiment)
    assert (runs.count(), runs.filter(facts__verdict="unresolved").count()) == (58, 58)
    assert sum(runs.values_list("facts__steps", flat=True)) == 2993


def test_29_runs_of_tau_bench_have_a_step_for_each_message() -> None:
    row = imported(real("labels/agentrx/tau_dataset_failed.json"))
    runs = Run.objects.filter(experiment=row.experiment)
    assert (runs.count(), runs.filter(facts__verdict="unresolved").count()) == (29, 29)
    asked = Event.objects.filter(run__in=runs, kind="model_call_started")
    assert asked.count() == 284 + 284 + 248 + 219 + 29
