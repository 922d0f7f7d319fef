"""A file that is still being written is a run that grows; finished, it is the same run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connections

from lab.engine.errors import ExitReason
from lab.engine.formats.leaf import Leaf
from lab.engine.stop import StopSignal
from lab.models import Event, Import, ImportedTrajectory, Run
from lab.services import import_following, import_reading, interchange, queue
from tests.services.leaf_files import trajectory, write

pytestmark = pytest.mark.django_db(transaction=True)

FORMATS = (Leaf(),)
SECONDS = 60.0


class Follower:
    """Follows on a thread, as the command does in its process."""

    def __init__(self, *paths: Path) -> None:
        self.stop = StopSignal()
        self.ended: Import | None = None
        self._thread = threading.Thread(target=self._work, args=(paths,))
        self._thread.start()

    def _work(self, paths: tuple[Path, ...]) -> None:
        try:
            self.ended = import_following.follow(paths=paths, worker="w/1/1", stop=self.stop, formats=FORMATS)
        finally:
            connections.close_all()

    def end(self) -> Import:
        """Wait for its end."""
        self._thread.join(SECONDS)
        assert self.ended is not None
        return self.ended

    def close(self) -> None:
        self.stop.set(ExitReason.CANCELLED)
        self._thread.join(SECONDS)


@pytest.fixture
def following() -> Iterator[Callable[..., Follower]]:
    started: list[Follower] = []

    def follow(*paths: Path) -> Follower:
        started.append(Follower(*paths))
        return started[-1]

    yield follow
    for follower in started:
        follower.close()


@pytest.fixture
def given(tmp_path: Path) -> Path:
    folder = tmp_path / "given"
    folder.mkdir()
    return folder


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"{what} did not come about"
        time.sleep(0.05)


def steps() -> list[int]:
    return list(Run.objects.order_by("pk").values_list("facts__steps", flat=True))


def records(run: Run) -> list[tuple[int, str, object]]:
    rows = Event.objects.filter(run=run).order_by("seq")
    return [(row.seq, row.kind, row.payload) for row in rows]


def test_a_run_grows_with_its_file_and_ends_with_the_finished_one(
    given: Path, following: Callable[..., Follower]
) -> None:
    partial = write(given / "run.partial.json", trajectory(steps=1, partial=True))
    follower = following(partial)
    until(lambda: steps() == [1], "the first step")
    run = Run.objects.get()
    assert run.status == Run.Status.RUNNING
    assert Run.objects.holding_slots().count() == 0
    assert not queue.anything_goes_on()
    assert queue.settle_abandoned() == []
    before = records(run)
    write(partial, trajectory(steps=3, partial=True))
    until(lambda: steps() == [3], "the third step")
    assert records(run)[: len(before)] == before
    write(given / "run.json", trajectory(steps=4))
    partial.unlink()
    row = follower.end()
    run.refresh_from_db()
    assert (Run.objects.count(), run.status, run.facts.steps, run.facts.verdict) == (
        1,
        "ended",
        5,
        "resolved",
    )
    assert records(run)[: len(before)] == before
    assert (row.state, interchange.report_of(row).imported) == (Import.State.ENDED, 1)
    known = ImportedTrajectory.objects.get()
    assert (known.partial, known.file) == (False, "run.json")
    assert row.experiment is not None
    assert row.experiment.task_set == run.task.task_set


def test_runs_of_a_folder_come_as_they_begin_and_stand_still_when_nobody_follows(
    given: Path, following: Callable[..., Follower]
) -> None:
    follower = following(given)
    write(given / "a/1.partial.json", trajectory("a", steps=1, partial=True))
    until(lambda: steps() == [1], "the first run")
    (given / "b.partial.json").write_text('{"trajectory_format": "leaf-function-')
    write(given / "b.partial.json", trajectory("b", steps=2, partial=True))
    until(lambda: steps() == [1, 2], "the second run")
    follower.close()
    row = follower.end()
    assert set(Run.objects.values_list("status", flat=True)) == {Run.Status.PAUSED}
    assert (row.state, interchange.report_of(row).partial) == (Import.State.ENDED, 2)
    write(given / "a/1.json", trajectory("a", steps=2))
    (given / "a/1.partial.json").unlink()
    again = import_reading.import_now(paths=[given], worker="w/1/1", formats=FORMATS)
    ended, still = Run.objects.order_by("pk")
    assert (ended.status, ended.facts.steps, still.status) == ("ended", 3, "paused")
    assert again.experiment is None
    assert Run.objects.count() == 2


def test_a_follower_that_was_killed_leaves_runs_that_stand_still(given: Path) -> None:
    write(given / "a.partial.json", trajectory(steps=1, partial=True))
    row = import_reading.taken_for_command(paths=[given], worker="w/1/1", name="", follows=True)
    holding = import_following.Holding(row, StopSignal())
    import_following.Reading(row, holding, lambda row: None, FORMATS, follows=True)._read_all()
    Run.objects.update(status=Run.Status.RUNNING)
    Import.objects.update(state=Import.State.READING, ended_at=None, lease_token=row.lease_token)
    assert interchange.settle_abandoned(is_dead=lambda worker: worker == "w/1/1") == [row.pk]
    assert Run.objects.get().status == Run.Status.PAUSED
    now = Import.objects.get()
    assert (now.state, "follow it again" in now.error) == (Import.State.ENDED, True)


def test_a_file_that_was_rewritten_keeps_what_was_read_and_is_a_problem(given: Path) -> None:
    write(given / "a.partial.json", trajectory(steps=2, partial=True))
    import_reading.import_now(paths=[given], worker="w/1/1", formats=FORMATS)
    before = records(Run.objects.get())
    other = trajectory(steps=4, partial=True, text="other\n")
    write(given / "a.partial.json", other)
    row = import_reading.import_now(paths=[given], worker="w/1/1", formats=FORMATS)
    assert records(Run.objects.get()) == before
    (problem,) = interchange.report_of(row).problems
    assert "no longer begins with what was read of it before" in problem.message


def test_a_shorter_state_read_late_takes_nothing_back(given: Path) -> None:
    write(given / "a.partial.json", trajectory(steps=3, partial=True))
    import_reading.import_now(paths=[given], worker="w/1/1", formats=FORMATS)
    write(given / "a.partial.json", trajectory(steps=2, partial=True))
    row = import_reading.import_now(paths=[given], worker="w/1/1", formats=FORMATS)
    assert (steps(), interchange.report_of(row).problem_count) == ([3], 0)


def test_a_finished_file_with_other_content_is_a_run_of_its_own(given: Path) -> None:
    write(given / "a.partial.json", trajectory(steps=2, partial=True))
    import_reading.import_now(paths=[given], worker="w/1/1", formats=FORMATS)
    write(given / "a.json", trajectory(steps=2, text="other\n"))
    import_reading.import_now(paths=[given / "a.json"], worker="w/1/1", formats=FORMATS)
    first, second = Run.objects.order_by("pk")
    assert (first.status, second.status) == ("paused", "ended")


def test_a_partial_file_without_a_name_of_its_own_is_told_by_its_place(given: Path) -> None:
    document = trajectory(steps=1, partial=True)
    del document["trajectory_id"]
    write(given / "a.partial.json", document)
    import_reading.import_now(paths=[given], worker="w/1/1", formats=FORMATS)
    longer = trajectory(steps=2, partial=True)
    del longer["trajectory_id"]
    write(given / "a.partial.json", longer)
    import_reading.import_now(paths=[given], worker="w/1/1", formats=FORMATS)
    assert steps() == [2]
