"""A lab's own log is taken over as it is: written again, it is the same to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engine.formats.lab_log import LabLog
from lab.models import Attempt, Event, HarnessVersion, Import, Run
from lab.services import harnesses, import_reading, interchange
from lab.services.exported_runs import Loading
from tests import builders

pytestmark = pytest.mark.django_db(transaction=True)


def written(*runs: Run) -> bytes:
    return b"".join(LabLog().pieces(Loading(sees_hidden=True).logs([run.pk for run in runs])))


def imported(path: Path) -> Import:
    return import_reading.import_now(paths=[path], worker="w/1/1", formats=(LabLog(),))


def records(run: Run) -> list[tuple[int, str, object]]:
    rows = Event.objects.filter(run=run).order_by("seq")
    return [(row.attempt, row.kind, row.payload) for row in rows]


def in_another_lab(*runs: Run) -> None:
    """From here on it is a lab in which these runs never were."""
    Run.objects.filter(pk__in=[run.pk for run in runs]).delete()


def test_a_log_of_this_lab_is_known_in_it_and_not_counted_twice(tmp_path: Path) -> None:
    own, other = builders.run(), builders.run()
    builders.believable(own)
    builders.believable(other, outcome="resolved")
    file = tmp_path / "runs.lab.jsonl"
    file.write_bytes(written(own, other))
    report = interchange.report_of(imported(file))
    assert (report.imported, report.known) == (0, 2)
    assert {one.example_run for one in report.known_before} <= {own.pk, other.pk}
    assert Run.objects.count() == 2


def test_a_run_that_was_imported_is_known_by_its_log(tmp_path: Path) -> None:
    own = builders.run()
    builders.believable(own)
    file = tmp_path / "run.lab.jsonl"
    file.write_bytes(written(own))
    in_another_lab(own)
    first = imported(file)
    taken = Run.objects.get(experiment=first.experiment)
    again = tmp_path / "again.lab.jsonl"
    again.write_bytes(written(taken) + b"\n")
    assert interchange.report_of(imported(again)).imported == 0


def test_a_log_that_came_from_a_lab_is_written_again_as_it_was(tmp_path: Path) -> None:
    own, other = builders.run(), builders.run()
    builders.believable(own)
    builders.believable(other, outcome="resolved")
    file = tmp_path / "runs.lab.jsonl"
    file.write_bytes(written(own, other))
    before, verdict = records(own), own.facts.verdict
    in_another_lab(own, other)
    row = imported(file)
    assert interchange.report_of(row).problem_count == 0
    first, second = Run.objects.filter(experiment=row.experiment).order_by("pk")
    assert records(first) == before
    assert first.facts.verdict == verdict
    assert (first.status, first.exit_reason, first.seed) == ("ended", "agent", 1)
    assert written(first, second) == file.read_bytes()
    again = imported(file)
    assert interchange.report_of(again).known == 2


def test_attempts_are_kept_apart_and_a_run_that_went_on_stands_still(tmp_path: Path) -> None:
    own = builders.run()
    builders.start(own)
    builders.append(own, *builders.bash_step(1, "ls", "a\n"))
    builders.start(own, attempt=2)
    builders.append(own, *builders.bash_step(1, "ls", "b\n"), attempt=2)
    file = tmp_path / "run.lab.jsonl"
    file.write_bytes(written(own))
    in_another_lab(own)
    row = imported(file)
    run = Run.objects.get(experiment=row.experiment)
    assert list(Attempt.objects.filter(run=run).values_list("n", flat=True)) == [1, 2]
    assert (run.status, run.facts.steps) == (Run.Status.PAUSED, 1)
    assert written(run) == file.read_bytes()


def test_a_harness_that_is_recorded_whole_is_the_labs_own_version(tmp_path: Path) -> None:
    own = builders.run()
    preset = harnesses.sync_presets()[0]
    own.arm.harness_version = preset
    own.arm.save()
    builders.start(own)
    started = Event.objects.get(run=own, kind="attempt_started")
    started.payload["harness"] = {"name": preset.harness.name, "config": preset.config}
    started.save()
    builders.append(own, *builders.ending())
    file = tmp_path / "run.lab.jsonl"
    file.write_bytes(written(own))
    in_another_lab(own)
    row = imported(file)
    assert Run.objects.get(experiment=row.experiment).arm.harness_version == preset
    assert HarnessVersion.objects.filter(digest=None).count() == 0
