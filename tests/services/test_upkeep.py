from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from lab.models import Attempt, Draft, Run
from lab.services import heartbeats, queue, upkeep
from lab.services.processes import is_dead
from tests.services.builders import launched


@pytest.fixture(autouse=True)
def _own_folder(settings: Settings, tmp_path: Path) -> None:
    settings.LAB_DATA_DIR = tmp_path


def test_it_settles_a_dead_workers_run_and_drops_stale_drafts(alice: User) -> None:
    run = launched(alice).runs.get()
    claim = queue.claim_next(worker="w")
    assert claim is not None
    Draft.objects.create(run=run, after_seq=0, step=1)
    Attempt.objects.update(worker="gone", n=queue.MAX_ATTEMPTS)
    upkeep.Upkeep(is_dead=lambda worker: worker == "gone").tick()
    run.refresh_from_db()
    assert run.status == Run.Status.ENDED
    assert not Draft.objects.exists()
    assert heartbeats.ages(prefix="tick")


def test_it_leaves_a_living_workers_run_alone(alice: User) -> None:
    run = launched(alice).runs.get()
    queue.claim_next(worker="w")
    upkeep.Upkeep(is_dead=is_dead).tick()
    run.refresh_from_db()
    assert run.status == Run.Status.PREPARING


def test_it_rings_for_runs_that_nobody_takes_and_less_and_less_often(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(alice, runs_wanted=3)
    rung: list[int] = []
    monkeypatch.setattr(upkeep, "ring_workers", lambda *, runs: rung.append(runs))
    clock = [1000.0]
    monkeypatch.setattr(upkeep.time, "monotonic", lambda: clock[0])
    watcher = upkeep.Upkeep(is_dead=lambda worker: False)
    for _ in range(60):
        watcher.tick()
        clock[0] += 1
    assert rung[0] == 3
    assert 3 <= len(rung) <= 6
