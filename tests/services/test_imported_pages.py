"""The page of an imported run says what its file holds, and calls what it does not hold not recorded."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from django.template.loader import render_to_string

from lab.engine.formats.to_events import Standing, to_events
from lab.engine.formats.trajectory import HarnessUsed, Note, Origin, Totals, Trajectory, Turn
from lab.engine.llm.base import Cost
from lab.models import Attempt, Experiment, Run
from lab.services import log, run_pages
from tests import builders

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
BARE = Trajectory(
    origin=Origin(format="mini-swe-agent-1.1", file="runs/a.json", sha256="0" * 64),
    harness=HarnessUsed(name="mini"),
    items=(Turn(message={"role": "assistant", "content": "done"}),),
)


def imported(**changes: Any) -> run_pages.Panel:
    run = builders.run()
    Experiment.objects.filter(pk=run.experiment_id).update(kind=Experiment.Kind.IMPORTED)
    Attempt.objects.get_or_create(run=run, n=1)
    standing = Standing(task={}, harness={}, model={}, seed=1, lab_version="1")
    found = replace(BARE, **changes)
    events = to_events(found, standing, price=lambda *_: Cost(), imported_at=NOW)
    log.append(run_id=run.pk, attempt=1, lease_token=None, events=list(events))
    fresh = run_pages.find_run(run.pk)
    assert fresh is not None
    return run_pages.panel(fresh)


def used(panel: run_pages.Panel) -> dict[str, str]:
    return {meter.label: meter.used for meter in panel.limits}


def test_what_is_not_recorded_is_called_so() -> None:
    panel = imported()
    assert panel.run.status == Run.Status.ENDED
    assert used(panel)["Time"] == "not recorded"
    assert used(panel)["Context"] == "not recorded"
    assert panel.source is not None
    assert (panel.source.patch_recorded, panel.source.totals, panel.source.notes) == (False, "", "")


def test_a_verdict_alone_has_neither_no_steps_nor_spent_nothing() -> None:
    panel = imported(items=(), steps_recorded=False)
    assert used(panel)["Steps"] == used(panel)["Cost"] == "not recorded"
    assert panel.basis == "No request is recorded."
    page = render_to_string("runs/_facts.html", {"panel": panel})
    assert "steps not recorded" in page
    assert "0 steps" not in page


def test_the_files_own_totals_and_notes_are_told_in_words() -> None:
    notes = (Note(kind="guessed", field="seed"), Note(kind="lost", field="x"), Note(kind="lost", field="y"))
    totals = Totals(cost=Decimal("0.3439869"), calls=37, input_tokens=256_978)
    panel = imported(notes=notes, totals=totals, patch="")
    assert panel.source is not None
    assert panel.source.totals == "$0.3440, 37 requests, 256,978 tokens in"
    assert panel.source.notes == "1 guessed, 2 lost"
    assert panel.source.patch_recorded is True


def test_a_run_of_the_labs_own_has_no_source() -> None:
    run = builders.run()
    fresh = run_pages.find_run(run.pk)
    assert fresh is not None
    assert run_pages.panel(fresh).source is None
