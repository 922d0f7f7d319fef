"""The sample lab: recorded runs become runs like any other, marked as demo, and leave without a trace."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings

from lab.engine.events import AttemptStarted, VerificationFinished
from lab.engine.harnesses.conversation import rebuild_inputs
from lab.models import Blob, Call, Event, Experiment, Run, RunFacts, Verification
from lab.services import blobs, facts, lab, log, overview, queue, sample, stored_bodies
from lab.services.errors import AccessDeniedError
from lab.services.sample import SampleBusyError, SampleState
from tests import builders
from tests.services.builders import launched


@pytest.fixture(autouse=True)
def _own_folder(settings: Settings, tmp_path: Path) -> None:
    settings.LAB_DATA_DIR = tmp_path


class Killed(Exception):
    """Something ended the process just now."""


def load_some(runs: int) -> None:
    """Load so many more runs, and die."""
    before = sample.state().loaded

    def die(now: SampleState) -> None:
        if now.loaded == before + runs:
            raise Killed

    with pytest.raises(Killed):
        sample.play(on_progress=die)


def rows() -> dict[str, int]:
    """How many rows each of the lab's tables holds."""
    return {
        model.__name__: model._default_manager.count() for model in apps.get_app_config("lab").get_models()
    }


def files(folder: Path) -> list[Path]:
    return [file for file in (folder / "blobs").rglob("*") if file.is_file()]


def test_every_recorded_run_becomes_a_run_that_has_ended(alice: User) -> None:
    started = timezone.now()
    told: list[int] = []
    now = sample.play(launched_by=alice, on_progress=lambda state: told.append(state.loaded))
    assert (now.loaded, now.total, now.complete) == (96, 96, True)
    assert told == list(range(1, 97))
    experiment = Experiment.objects.get()
    assert now.experiment == experiment
    assert (experiment.kind, experiment.state, experiment.launched_by) == ("demo", "ended", alice)
    assert [str(arm) for arm in experiment.arms.all()] == [
        "leaf-compatible v1 × scripted/solver",
        "leaf-compatible v1 × scripted/struggler",
        "leaf-bash-only v1 × scripted/solver",
        "leaf-bash-only v1 × scripted/struggler",
        "r2e v1 × scripted/solver",
        "r2e v1 × scripted/struggler",
        "mini v1 × scripted/solver",
        "mini v1 × scripted/struggler",
    ]
    assert set(Run.objects.values_list("status", flat=True)) == {"ended"}
    assert Verification.objects.count() == 96
    assert (
        Call.objects.filter(state="finished").count()
        == Event.objects.filter(kind="model_call_finished").count()
    )
    for run in Run.objects.select_related("facts"):
        assert run.started_at is not None
        assert run.ended_at is not None
        assert run.created_at <= run.started_at < run.ended_at <= started
        assert (started - run.started_at).total_seconds() < 86_400
        attempt = run.attempts.get()
        assert (attempt.exit_reason, attempt.ended_at is not None) == (run.exit_reason, True)
        assert list(run.events.values_list("seq", flat=True)) == list(range(1, run.last_seq + 1))
    # Asked for once more, there is nothing to do.
    before = rows()
    assert sample.play() == now
    assert rows() == before


def test_what_pages_say_comes_from_the_same_fold_and_every_input_can_be_rebuilt(db: None) -> None:
    load_some(4)
    for run in Run.objects.select_related("facts"):
        stored = RunFacts.objects.filter(pk=run.pk).values().get()
        facts.rebuild_facts(run_id=run.pk)
        assert RunFacts.objects.filter(pk=run.pk).values().get() == stored
        records = log.read_records(run_id=run.pk)
        made = list(rebuild_inputs(records))
        assert made
        assert all(each.sha256_actual == each.sha256_expected for each in made)
        first = records[0].event
        assert isinstance(first, AttemptStarted)
        assert first.task["set"] == "practice"
        assert (first.harness["version"], first.model["endpoint"]) == (1, run.arm.model.endpoint.name)


def test_a_load_that_was_killed_goes_on_where_it_was(db: None) -> None:
    load_some(3)
    assert sample.state()[1:] == (3, 96)
    load_some(2)
    runs = Run.objects.values_list("arm", "task", "seed")
    assert len(runs) == len(set(runs)) == 5
    assert Experiment.objects.count() == 1


def test_a_piece_of_the_load_gets_further_and_ends_when_asked(alice: User) -> None:
    first = sample.load(by=alice, seconds=0.0)
    assert first.loaded == 1
    second = sample.load(by=alice, seconds=0.3)
    assert 1 < second.loaded < 96
    assert second.experiment == first.experiment


@pytest.mark.django_db(transaction=True)
def test_two_loads_at_once_are_one() -> None:
    sample.play(seconds=0.0)
    errors: list[BaseException] = []

    def load() -> None:
        try:
            sample.play(seconds=2.0)
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    runs = Run.objects.values_list("arm", "task", "seed")
    assert len(runs) == len(set(runs)) > 0
    assert all(run.last_seq == run.events.count() for run in Run.objects.all())


def test_no_worker_takes_a_run_of_it(db: None) -> None:
    load_some(2)
    assert queue.claim_next(worker="w") is None
    assert queue.startable_runs() == 0


def test_it_is_in_no_total_of_the_labs_own(alice: User) -> None:
    load_some(5)
    assert lab.state().spent_today == "$0.00, no call yet"
    assert overview.slots()[1:] == (lab.settings.LAB_RUN_SLOTS, 0, 0, 5)
    assert overview.forecasts() == {}
    standing = overview.latest_experiment()
    assert standing is not None
    assert standing.experiment.demo
    own = launched(alice, runs_wanted=2)
    standing = overview.latest_experiment()
    assert standing is not None
    assert standing.experiment == own


def test_removed_it_leaves_no_row_and_no_file(db: None, tmp_path: Path) -> None:
    sample.play(seconds=0.0)
    sample.clear()
    empty = rows()
    load_some(6)
    stored = Blob.objects.count()
    assert stored == len(files(tmp_path)) > 0
    assert sample.clear() == (6, stored)
    assert rows() == empty
    assert files(tmp_path) == []
    assert sample.clear() == (0, 0)
    assert sample.state() == (None, 0, 96)


def test_what_another_run_refers_to_stays(db: None, tmp_path: Path) -> None:
    load_some(6)
    body = next(sha256 for sha256, use in stored_bodies.all_uses() if use.kind == "verification_finished")
    text = blobs.blob_text(body)
    own = builders.run()
    builders.start(own)
    graded = VerificationFinished(rule="swe-bench", outcome="resolved", log=text, seconds=1.0)
    builders.append(own, graded)
    sample.clear()
    assert blobs.blob_text(body) == text
    assert [use.run_id for sha256, use in stored_bodies.all_uses() if sha256 == body] == [own.pk]
    assert Blob.objects.count() == len(files(tmp_path))


def test_a_body_that_a_worker_is_just_storing_stays(db: None) -> None:
    load_some(6)
    body = next(sha256 for sha256, use in stored_bodies.all_uses() if use.kind == "verification_finished")
    # A worker has a run, and has stored the body; its event comes after the removal.
    builders.start(builders.run())
    blobs.store_file(blobs.blob_bytes(sha256=body))
    sample.clear()
    assert blobs.blob_bytes(sha256=body)


def test_a_removal_that_was_killed_is_completed_by_the_next(
    db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_some(4)

    def killed(**_: object) -> int:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(stored_bodies, "remove_unused", killed)
        with pytest.raises(Killed):
            sample.clear()
    assert Run.objects.count() == 0
    assert files(tmp_path)
    sample.clear()
    assert files(tmp_path) == []
    assert Blob.objects.count() == 0


def test_it_is_not_removed_under_a_run_that_goes_on(db: None) -> None:
    load_some(1)
    Run.objects.update(status=Run.Status.RUNNING)
    with pytest.raises(SampleBusyError, match="cancel it first"):
        sample.clear()
    assert Run.objects.count() == 1


def test_loading_and_removing_are_an_operators(bob: User) -> None:
    with pytest.raises(AccessDeniedError, match="needs the role operator"):
        sample.load(by=bob)
    with pytest.raises(AccessDeniedError, match="needs the role operator"):
        sample.remove(by=bob)


def test_a_full_disk_leaves_whole_runs(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    load_some(2)

    def full(data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(blobs, "store_file", full)
        with pytest.raises(OSError, match="No space left"):
            sample.play()
    assert sample.state().loaded == 2
    assert all(run.last_seq == run.events.count() for run in Run.objects.all())
