from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from lab.engine.sandboxes.base import SandboxSpec
from lab.engine.sandboxes.folders import create_folders
from lab.models import Attempt, Draft, Run
from lab.services import controls, heartbeats, queue, upkeep
from lab.services.processes import is_dead, is_frozen
from tests.services.builders import launched


@pytest.fixture(autouse=True)
def _own_folder(settings: Settings, tmp_path: Path) -> None:
    settings.LAB_DATA_DIR = tmp_path


def test_it_settles_a_dead_workers_run_and_drops_stale_drafts(alice: User) -> None:
    run = launched(alice).runs.get()
    claim = queue.claim_next(worker="w")
    assert claim is not None
    Draft.objects.create(run=run, after_seq=0, step=1)
    Attempt.objects.update(worker="gone", n=3, workers_lost=queue.MAX_CONTINUATIONS)
    upkeep.Upkeep(is_dead=lambda worker: worker == "gone", is_frozen=is_frozen).tick()
    run.refresh_from_db()
    assert run.status == Run.Status.ENDED
    assert not Draft.objects.exists()
    assert heartbeats.ages(prefix="tick")


def test_it_leaves_a_living_workers_run_alone(alice: User) -> None:
    run = launched(alice).runs.get()
    queue.claim_next(worker="w")
    upkeep.Upkeep(is_dead=is_dead, is_frozen=is_frozen).tick()
    run.refresh_from_db()
    assert run.status == Run.Status.PREPARING


def test_only_sandboxes_that_nobody_needs_are_removed(alice: User, settings: Settings) -> None:
    scratch = Path(settings.LAB_DATA_DIR) / "sandboxes"
    launched(alice)
    held = queue.claim_next(worker="w")
    assert held is not None

    def start(label: str) -> Path:
        return create_folders(
            SandboxSpec(label=label, scratch=scratch), "process", owner=None, passable=False
        ).top

    running, check = start(queue.sandbox_label(held.run.pk, 1, held.lease_token)), start("check-1-gold")
    start("run-77-attempt-1")
    program = (
        "import sys; from pathlib import Path; from lab.engine.sandboxes.base import SandboxSpec\n"
        "from lab.engine.sandboxes.folders import create_folders\n"
        "spec = SandboxSpec(label='cli-1-adds', scratch=Path(sys.argv[1]))\n"
        "create_folders(spec, 'process', owner=None, passable=False)"
    )
    subprocess.run([sys.executable, "-c", program, str(scratch)], check=True, timeout=150)
    assert upkeep.reap_sandboxes() == ["cli-1-adds", "run-77-attempt-1"]
    assert sorted(scratch.iterdir()) == sorted([running, check])
    assert upkeep.reap_sandboxes(all_of_them=True) == [queue.sandbox_label(held.run.pk, 1, held.lease_token)]


def test_a_sandbox_that_is_started_while_others_are_looked_at_stays(
    alice: User, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Path(settings.LAB_DATA_DIR) / "sandboxes"
    spec = SandboxSpec(label="run-77-attempt-1", scratch=scratch)
    create_folders(spec, "process", owner=None, passable=False)
    launched(alice)
    live_labels = queue.live_labels

    def and_a_worker_starts() -> frozenset[str]:
        labels = live_labels()
        if not Attempt.objects.exists():
            held = queue.claim_next(worker="w")
            assert held is not None
            spec = SandboxSpec(label=queue.sandbox_label(held.run.pk, 1, held.lease_token), scratch=scratch)
            create_folders(spec, "process", owner=None, passable=False)
        return labels

    monkeypatch.setattr(queue, "live_labels", and_a_worker_starts)
    assert upkeep.reap_sandboxes() == ["run-77-attempt-1"]


def test_it_rings_for_runs_that_nobody_takes_and_less_and_less_often(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(alice, runs_wanted=3)
    rung: list[int] = []
    monkeypatch.setattr(upkeep, "ring_workers", lambda *, runs: rung.append(runs))
    clock = [1000.0]
    monkeypatch.setattr(upkeep.time, "monotonic", lambda: clock[0])
    watcher = upkeep.Upkeep(is_dead=lambda worker: False, is_frozen=lambda worker: False)
    for _ in range(60):
        watcher.tick()
        clock[0] += 1
    assert rung[0] == 3
    assert 3 <= len(rung) <= 6


def test_a_cancelled_run_of_a_frozen_worker_ends_with_the_first_tick(alice: User) -> None:
    run = launched(alice).runs.get()
    queue.claim_next(worker="frozen")
    watcher = upkeep.Upkeep(is_dead=lambda worker: False, is_frozen=lambda worker: worker == "frozen")
    watcher.tick()
    assert Run.objects.get().status == Run.Status.PREPARING
    controls.ask(run=run, by=alice, control="cancel")
    watcher.tick()
    assert Run.objects.get().exit_reason == "cancelled"


def test_a_cancel_that_its_worker_does_not_hear_for_a_while_ends_the_run(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launched(alice).runs.get()
    queue.claim_next(worker="deaf")
    clock = [1000.0]
    monkeypatch.setattr(upkeep.time, "monotonic", lambda: clock[0])
    watcher = upkeep.Upkeep(is_dead=lambda worker: False, is_frozen=lambda worker: False)
    watcher.tick()
    controls.ask(run=run, by=alice, control="cancel")
    for _ in range(2):
        clock[0] += 1
        watcher.tick()
        assert Run.objects.get().status == Run.Status.PREPARING
    clock[0] += 1
    watcher.tick()
    assert Run.objects.get().exit_reason == "cancelled"


def test_a_tick_that_could_not_look_itself_takes_nothing_from_anybody(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launched(alice).runs.get()
    queue.claim_next(worker="busy")
    clock = [1000.0]
    monkeypatch.setattr(upkeep.time, "monotonic", lambda: clock[0])
    watcher = upkeep.Upkeep(is_dead=lambda worker: False, is_frozen=lambda worker: False)
    controls.ask(run=run, by=alice, control="cancel")
    watcher.tick()
    clock[0] += 30
    watcher.tick()
    assert Run.objects.get().status == Run.Status.PREPARING


def test_a_cancel_that_was_heard_is_left_to_the_worker(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    run = launched(alice).runs.get()
    held = queue.claim_next(worker="w")
    assert held is not None
    controls.ask(run=run, by=alice, control="cancel")
    queue.controls_seen(controls=queue.look(claim=held).controls)
    clock = [1000.0]
    monkeypatch.setattr(upkeep.time, "monotonic", lambda: clock[0])
    watcher = upkeep.Upkeep(is_dead=lambda worker: False, is_frozen=lambda worker: False)
    for _ in range(5):
        clock[0] += 1
        watcher.tick()
    assert Run.objects.get().status == Run.Status.PREPARING


def test_two_ticks_at_once_do_no_harm(alice: User) -> None:
    launched(alice, runs_wanted=2)
    for _ in range(2):
        queue.claim_next(worker="gone")
    both = [upkeep.Upkeep(is_dead=lambda worker: worker == "gone", is_frozen=is_frozen) for _ in range(2)]
    for watcher in both:
        watcher.tick()
    assert [attempt.workers_lost for attempt in Attempt.objects.all()] == [1, 1]
    assert set(Run.objects.values_list("status", flat=True)) == {Run.Status.QUEUED}
