"""Reading an import: each trajectory is a run, once; what cannot be read is told and stops nothing else."""

from __future__ import annotations

import json
import shutil
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone
from pytest_django.fixtures import Settings

from lab.engine.errors import ExitReason
from lab.engine.events import ToolCallFinished
from lab.engine.formats.base import Document
from lab.engine.formats.leaf import Leaf
from lab.engine.formats.trajectory import (
    Found,
)
from lab.engine.stop import StopSignal
from lab.models import (
    Arm,
    Call,
    Event,
    Experiment,
    HarnessVersion,
    Import,
    ImportedTrajectory,
    Model,
    Role,
    Run,
)
from lab.services import (
    endpoints,
    harnesses,
    import_reading,
    interchange,
    lab,
    log,
    queue,
    runs,
    tasks,
    upkeep,
)
from lab.services.errors import FieldErrors
from lab.services.facts import rebuild_facts
from lab.services.import_holding import Holding
from tests import builders
from tests.services.import_lines import FORMATS, imported, lines, report, runs_of
from tests.services.leaf_files import trajectory, write

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def given(tmp_path: Path) -> Path:
    folder = tmp_path / "given"
    folder.mkdir()
    return folder


def test_a_file_becomes_a_run_that_is_ended_with_arm_task_verdict_and_everything_of_its_log(
    given: Path,
) -> None:
    write(given / "a.json", trajectory(steps=2))
    row = imported(given, name="old runs")
    assert (row.state, row.error) == (Import.State.ENDED, "")
    assert row.experiment is not None
    assert (row.experiment.name, row.experiment.kind, row.experiment.state) == (
        "old runs",
        Experiment.Kind.IMPORTED,
        Experiment.State.ENDED,
    )
    (run,) = runs_of(row)
    assert (run.status, run.exit_reason, run.seed, run.task.slug) == ("ended", "agent", 1, "owner__project-1")
    assert (run.facts.steps, run.facts.calls, run.facts.verdict) == (3, 3, "resolved")
    assert run.arm.harness_version.harness.name == "Leaf (imported)"
    assert run.arm.harness_version.digest is None
    assert run.arm.letter == "A"
    kinds = list(Event.objects.filter(run=run).order_by("seq").values_list("kind", flat=True))
    assert kinds[:2] == ["attempt_started", "trajectory_imported"]
    assert kinds[-2:] == ["attempt_ended", "run_ended"]
    folded = {name: value for name, value in vars(run.facts).items() if name != "_state"}
    again = {name: value for name, value in vars(rebuild_facts(run_id=run.pk)).items() if name != "_state"}
    assert folded == again


def test_the_same_trajectory_again_adds_nothing_and_is_told_where_it_is(given: Path) -> None:
    write(given / "a.json", trajectory())
    first = imported(given)
    write(given / "under another name.txt", trajectory())
    second = imported(given)
    assert Run.objects.count() == 1
    assert second.experiment is None
    told = report(second)
    assert (told.imported, told.known) == (0, 2)
    assert [(known.experiment, known.trajectories) for known in told.known_before] == [
        (first.experiment_id, 2)
    ]
    assert Experiment.objects.count() == 1


def test_the_same_trajectory_twice_in_one_import_is_one_run(given: Path) -> None:
    write(given / "a.json", trajectory())
    shutil.copy(given / "a.json", given / "b.json")
    told = report(imported(given))
    assert (told.imported, told.known, Run.objects.count()) == (1, 1, 1)


def test_two_imports_of_the_same_trajectory_at_once_make_one_run(given: Path, tmp_path: Path) -> None:
    for number in range(6):
        write(given / f"{number}.json", trajectory(f"task-{number}"))
    other = tmp_path / "other"
    shutil.copytree(given, other)
    rows: list[Import] = []
    start = threading.Barrier(2)

    def work(folder: Path) -> None:
        start.wait()
        try:
            rows.append(imported(folder))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(folder,)) for folder in (given, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    told = [report(row) for row in rows]
    assert [one.problem_count for one in told] == [0, 0]
    assert Run.objects.count() == 6
    assert sum(one.imported for one in told) == 6
    assert sum(one.known for one in told) == 6


def test_a_bad_line_is_a_problem_with_its_place_and_the_next_ones_are_read(given: Path) -> None:
    lines(given / "a.jsonl", {"mind": "x"}, "{broken", {"mind": "y", "says": "a\x00b \ud800"}, {"mind": "z"})
    row = imported(given)
    told = report(row)
    assert told.imported == 3
    assert [(problem.file, problem.place) for problem in told.problems] == [("given/a.jsonl", "line 2")]
    assert "is not JSON" in told.problems[0].message


def test_numbers_that_no_store_can_hold_are_texts_and_keep_nothing_out(given: Path) -> None:
    huge = "9" * 5000
    lines(
        given / "a.jsonl",
        '{"mind": "x", "limit": 1e999}',
        '{"mind": "y", "limit": -1e999, "says": "NaN", "seed": NaN}',
        f'{{"mind": "z", "limit": {huge}, "seed": {huge}}}',
        '{"mind": "w", "seed": -3}',
        '{"mind": "v", "seed": 99999999999999}',
    )
    row = imported(given)
    assert (report(row).imported, report(row).problem_count) == (5, 0)
    assert [run.seed for run in runs_of(row)] == [1] * 5
    configs = HarnessVersion.objects.filter(harness__name="loop (imported)").order_by("pk")
    assert [version.config["recorded"]["limit"] for version in configs] == ["1e999", "-1e999", huge, 5]


def test_a_reader_that_makes_a_mistake_costs_the_rest_of_its_own_file_alone(given: Path) -> None:
    lines(given / "a.jsonl", {"mind": "x"}, {"mind": "y", "breaks": True}, {"mind": "z"})
    lines(given / "b.jsonl", {"mind": "w"})
    told = report(imported(given))
    assert told.imported == 2
    assert "ZeroDivisionError" in told.problems[0].message


def test_files_that_no_format_knows_are_named_by_their_endings(given: Path) -> None:
    write(given / "a.json", trajectory())
    for name in ("notes.txt", "more.txt", "table.csv"):
        (given / name).write_text("a,b\n")
    (given / "half.json").write_text('{"a": ')
    told = report(imported(given))
    found = {one.ending: one.files for one in told.unrecognised}
    assert found == {".txt": 2, ".csv": 1, ".json": 1}
    (broken,) = told.problems
    assert (broken.file, broken.message) == ("given/half.json", "line 1, is not JSON: Expecting value")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        ('{"mind": "x"}'.encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        (b'{"a": "\xe9"}', "is not UTF-8: byte 7"),
        (b'{"a": [{"b": 1}, {"c"', "is not JSON"),
        (b'{"a": ' * 100_000, "is nested too deeply"),
        (b"[INFO] started", "is of no format the lab knows"),
    ],
)
def test_a_file_of_no_format_is_told_what_is_wrong_with_it(given: Path, content: bytes, message: str) -> None:
    (given / "it.json").write_bytes(content)
    (problem,) = report(imported(given / "it.json")).problems
    assert message in problem.message


def test_files_of_a_folder_that_a_browser_sent_are_no_problems_where_no_format_knows_them() -> None:
    person = builders.person(Role.OPERATOR)
    row = interchange.start(by=person)
    for name in ("night/notes.txt", "alone.txt"):
        interchange.add_file(by=person, imported=row, name=name, chunks=[b"hello"])
    taken = interchange.take(interchange.submit(by=person, imported=row), worker="this")
    assert taken is not None
    told = report(import_reading.conduct(imported=taken))
    assert [problem.file for problem in told.problems] == ["alone.txt"]
    assert told.unrecognised_count == 2


def test_a_file_that_was_named_itself_and_is_of_no_format_is_a_problem(given: Path) -> None:
    (given / "notes.txt").write_text("hello")
    told = report(imported(given / "notes.txt"))
    assert "is of no format the lab knows; it knows lines, leaf" in told.problems[0].message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "nowhere", "is not there"),
        (lambda folder: folder, "holds no file"),
    ],
)
def test_nothing_to_read_is_said(given: Path, make: Any, message: str) -> None:
    row = imported(make(given))
    assert row.state == Import.State.ENDED
    assert message in report(row).problems[0].message


def test_links_out_of_a_folder_are_not_followed(given: Path, tmp_path: Path) -> None:
    write(tmp_path / "secret.json", trajectory())
    (given / "link.json").symlink_to(tmp_path / "secret.json")
    told = report(imported(given))
    assert told.imported == 0
    assert "is a link, which is not followed" in told.problems[0].message


def test_archives_are_unpacked_and_what_was_given_is_removed_afterwards(given: Path, tmp_path: Path) -> None:
    write(given / "a.json", trajectory())
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
        archive.add(given, "runs")
    row = imported(tmp_path / "all.tar.gz")
    assert report(row).imported == 1
    assert ImportedTrajectory.objects.get().file == "all.tar.gz/runs/a.json"
    assert not interchange.folder_of(row).exists()


def test_a_damaged_archive_costs_nothing_else(given: Path, tmp_path: Path) -> None:
    write(given / "a.json", trajectory())
    (given / "b.tar.gz").write_bytes(b"\x1f\x8b nonsense")
    told = report(imported(given))
    assert (told.imported, told.problem_count) == (1, 1)
    assert told.problems[0].file == "given/b.tar.gz"


def test_of_an_archive_that_is_a_bomb_nothing_is_imported_and_everything_else_is(
    given: Path, tmp_path: Path
) -> None:
    write(tmp_path / "inside/a.json", trajectory("inside"))
    (tmp_path / "inside/b.json").write_bytes(bytes(80 * 1024 * 1024))
    with tarfile.open(given / "bomb.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "inside", "inside")
    write(given / "beside.json", trajectory("beside"))
    row = imported(given)
    assert [run.task.slug for run in runs_of(row)] == ["beside"]
    (problem,) = report(row).problems
    assert problem.file == "given/bomb.tar.gz"
    assert "the limit on ratio" in problem.message
    assert not interchange.folder_of(row).exists()


def test_hostile_names_and_texts_are_stored_as_they_are_or_escaped(given: Path, tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>.json", "a\nb.json", "\x1b[31mred.json", "\u202egpj.json"]
    for number, name in enumerate(names):
        write(given / name, trajectory(f"<b>{number}</b>", text="\x00\x1b]8;;x\x07" + "é" * 3000))
    with tarfile.open(tmp_path / "out.tar", "w") as archive:
        archive.add(given / names[0], "../../escaped.json", recursive=False)
    row = imported(given, tmp_path / "out.tar")
    assert report(row).imported == len(names)
    files = set(ImportedTrajectory.objects.values_list("file", flat=True))
    assert {"given/<script>alert(1)</script>.json", "given/a\\nb.json"} <= files
    assert all(file.isprintable() for file in files)
    assert [problem.file for problem in report(row).problems] == ["out.tar"]
    assert not (tmp_path.parent / "escaped.json").exists()
    records = [record.event for record in log.read_records(run_id=runs_of(row)[0].pk)]
    seen = [event.observation for event in records if isinstance(event, ToolCallFinished)]
    assert "\N{SYMBOL FOR NULL}\x1b]8;;x\x07" + "é" * 3000 in seen[0]


def test_two_files_that_claim_one_seed_are_both_kept_and_both_marked(given: Path) -> None:
    write(given / "a.json", trajectory(seed=3, says="First"))
    write(given / "b.json", trajectory(seed=3, says="Second"))
    row = imported(given)
    first, second = runs_of(row)
    assert (first.seed, second.seed) == (3, 1)
    told = report(row)
    assert [(one.run, one.recorded, one.given, one.other_run) for one in told.renumbered] == [
        (second.pk, 3, 1, first.pk)
    ]
    mark = Event.objects.filter(run=first, kind="source_kept", payload__about="seed").get()
    assert f"run {second.pk}" in mark.payload["kept"]
    noted = Event.objects.get(run=second, kind="trajectory_imported").payload["notes"]
    assert f"recorded as 3, given 1: run {first.pk} has it already, with other content" in [
        note["detail"] for note in noted
    ]


def test_a_seed_that_is_not_recorded_is_the_next_free_one_and_said_to_be_guessed(given: Path) -> None:
    lines(given / "a.jsonl", {"mind": "x", "says": "1"}, {"mind": "x", "says": "2"})
    row = imported(given)
    assert [run.seed for run in runs_of(row)] == [1, 2]
    (note,) = [note for note in report(row).notes if note.field == "seed"]
    assert (note.kind, note.runs, note.example_run) == ("guessed", 2, runs_of(row)[0].pk)


def test_calls_are_priced_again_and_the_recorded_cost_stands_beside(given: Path) -> None:
    lines(
        given / "a.jsonl",
        {"mind": "x"},
        {"mind": "y", "model": "nobody-knows"},
    )
    row = imported(given)
    priced, unknown = (Call.objects.get(run=run) for run in runs_of(row))
    assert priced.cost is not None
    assert (priced.cost_basis, priced.cost) == ("table", priced.cost)
    assert "the provider is taken from the model's name" in priced.price["note"]
    assert "priced as of the import" in priced.price["note"]
    assert (unknown.cost, unknown.price["note"]) == (None, "the model's provider is not recorded")


def test_a_recorded_model_is_no_version_of_the_labs_own(given: Path) -> None:
    own = builders.run()
    own.arm.model.name = "openai/gpt-4o"
    own.arm.model.save()
    lines(given / "a.jsonl", {"mind": "x"})
    imported(given)
    assert set(Model.objects.in_use()) == {own.arm.model}
    assert Model.objects.get(name="openai/gpt-4o (imported)").endpoint.name == "recorded elsewhere"


def test_each_configuration_of_a_harness_is_a_version_of_it_and_an_arm(given: Path) -> None:
    lines(given / "a.jsonl", {"mind": "x"}, {"mind": "y", "limit": 9}, {"mind": "z"})
    row = imported(given)
    versions = HarnessVersion.objects.filter(harness__name="loop (imported)")
    assert sorted(versions.values_list("version", flat=True)) == [1, 2]
    assert list(Arm.objects.filter(experiment=row.experiment).values_list("letter", flat=True)) == ["A", "B"]
    lines(given / "a.jsonl", {"mind": "another"})
    imported(given)
    assert versions.count() == 2


def test_a_task_that_the_lab_has_is_the_task_of_the_run(given: Path) -> None:
    own = builders.run()
    lines(given / "a.jsonl", {"mind": own.task.slug}, {"mind": "elsewhere"})
    row = imported(given)
    here, elsewhere = runs_of(row)
    assert here.task == own.task
    assert (elsewhere.task.task_set.name, elsewhere.task.statement) == ("imported", "Mend elsewhere")


def test_tasks_that_came_with_imported_runs_are_not_offered_and_cannot_be_launched(
    given: Path, alice: User
) -> None:
    practice = tasks.sync_practice()
    lines(given / "a.jsonl", {"mind": "elsewhere"})
    (run,) = runs_of(imported(given))
    task_set = run.task.task_set
    assert tasks.newest_sets() == [practice]
    assert tasks.launchable_set(task_set.pk) == practice
    version = harnesses.sync_presets()[0]
    with pytest.raises(FieldErrors, match="the lab has no repository of them"):
        runs.launch(
            by=alice, tasks=[run.task], harness_versions=[version], models=endpoints.sync_scripted()[:1]
        )


def test_a_known_secret_of_the_lab_is_stored_nowhere(
    given: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "zq9-very-secret-value-77"
    run = builders.run()
    run.arm.model.endpoint.headers = {"Authorization": f"Bearer {secret}"}
    run.arm.model.endpoint.save()
    lines(given / "a.jsonl", {"mind": f"task {secret}", "says": secret, "model": f"m {secret}"})
    row = imported(given, name=secret)
    (made,) = runs_of(row)
    stored = [str(record) for record in log.read_records(run_id=made.pk)]
    stored += [made.task.slug, made.task.statement, made.arm.model.name, str(row.report)]
    assert not any(secret in text for text in stored)
    assert "[redacted" in made.task.slug


def test_imported_calls_of_today_are_not_what_this_lab_spent(given: Path) -> None:
    lines(given / "a.jsonl", {"mind": "x"})
    imported(given)
    assert Call.objects.get().started_at.date() == timezone.now().date()
    assert lab._spent_today() == "$0.00, no call yet"


def test_a_cancel_is_heard_between_two_trajectories_and_what_is_there_stays(given: Path) -> None:
    for number in range(4):
        write(given / f"{number}.json", trajectory(f"task-{number}"))

    class Cancelling(Leaf):
        def read(self, documents: Sequence[Document]) -> Iterator[Found]:
            if documents[0].path.endswith("2.json"):
                Import.objects.update(cancel_asked=True)
                end = time.monotonic() + 60
                while not holding.cancelled and time.monotonic() < end:
                    time.sleep(0.05)
            yield from super().read(documents)

    row = interchange.made_for_command(name="", paths=[given], follows=False, worker="w/1/1")
    with Holding(row, StopSignal()) as holding:
        import_reading.Reading(row, holding, lambda row: None, (Cancelling(),)).read()
    read = Import.objects.get()
    assert read.state == Import.State.CANCELLED
    assert (report(read).imported, Run.objects.count()) == (2, 2)


def test_an_orderly_stop_leaves_the_import_to_whoever_comes_next_who_makes_the_same_report(
    given: Path, alice: User
) -> None:
    row = interchange.start(by=alice)
    for number in range(3):
        document = json.dumps(trajectory(f"task-{number}")).encode()
        interchange.add_file(by=alice, imported=row, name=f"{number}.json", chunks=[document])
    interchange.submit(by=alice, imported=row)
    stop = StopSignal()

    class Stopping(Leaf):
        def read(self, documents: Sequence[Document]) -> Iterator[Found]:
            yield from super().read(documents)
            stop.set(ExitReason.INFRASTRUCTURE_ERROR)

    taken = interchange.claim_next(worker="w/1/1")
    assert taken is not None
    stopped = import_reading.conduct(imported=taken, stop=stop, formats=(Stopping(),))
    assert (stopped.state, Run.objects.count()) == (Import.State.QUEUED, 1)
    taken = interchange.claim_next(worker="w/2/2")
    assert taken is not None
    read = import_reading.conduct(imported=taken, formats=FORMATS)
    told = report(read)
    assert (read.state, told.imported, told.known) == (Import.State.ENDED, 3, 0)
    assert [run.seed for run in runs_of(read)] == [1, 1, 1]


def test_the_tick_takes_an_import_from_a_reader_that_is_gone_and_rings_for_it(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[str] = []
    monkeypatch.setattr(interchange, "ring_for_imports", lambda: rung.append("import"))
    row = interchange.start(by=alice)
    interchange.add_file(by=alice, imported=row, name="a.json", chunks=[json.dumps(trajectory()).encode()])
    interchange.submit(by=alice, imported=row)
    taken = interchange.claim_next(worker="gone/1/1")
    assert taken is not None
    upkeep.Upkeep(is_dead=lambda worker: worker == "gone/1/1", is_frozen=lambda worker: False).tick()
    assert Import.objects.get().state == Import.State.QUEUED
    assert rung == ["import", "import"]
    read = import_reading.advance(worker="w/1/1")
    assert read is not None
    assert (read.state, report(read).imported) == (Import.State.ENDED, 1)
    assert import_reading.advance(worker="w/1/1") is None


def test_a_reader_that_lost_its_lease_writes_nothing_more(given: Path) -> None:
    for number in range(3):
        write(given / f"{number}.json", trajectory(f"task-{number}"))

    class Losing(Leaf):
        def read(self, documents: Sequence[Document]) -> Iterator[Found]:
            if documents[0].path.endswith("1.json"):
                row = Import.objects.get()
                assert interchange.take(row, worker="another/1/1") is not None
            yield from super().read(documents)

    row = interchange.made_for_command(name="", paths=[given], follows=False, worker="w/1/1")
    import_reading.conduct(imported=row, formats=(Losing(),))
    now = Import.objects.get()
    assert (now.state, now.options["worker"], Run.objects.count()) == (
        Import.State.READING,
        "another/1/1",
        1,
    )


def test_a_full_disk_ends_the_import_with_the_way_out_and_nothing_half_imported(
    given: Path, monkeypatch: pytest.MonkeyPatch, alice: User
) -> None:
    write(given / "1.json", trajectory("task-1"))
    write(given / "2.json", trajectory("task-2", text="x" * 5000))

    def full(data: bytes) -> None:
        raise OSError(28, "No space left on device")

    from lab.services import blobs

    with monkeypatch.context() as patched:
        patched.setattr(blobs, "store_file", full)
        row = imported(given)
    assert row.state == Import.State.FAILED
    assert "is full: make room and try again. 1 runs were imported whole" in row.error
    assert Run.objects.count() == 1
    interchange.again(by=alice, imported=row)
    taken = interchange.claim_next(worker="w/1/1")
    assert taken is not None
    read = import_reading.conduct(imported=taken, formats=FORMATS)
    assert (read.state, report(read).imported, report(read).known) == (Import.State.ENDED, 2, 0)


def test_an_imported_run_is_no_workers(given: Path) -> None:
    write(given / "a.json", trajectory(partial=True))
    row = imported(given)
    (run,) = runs_of(row)
    assert run.status == Run.Status.PAUSED
    assert not queue.anything_goes_on()
    assert queue.settle_abandoned() == []
    assert queue.claim_next(worker="w/1/1") is None


def test_what_a_lab_had_imported_and_exported_is_not_marked_twice(given: Path) -> None:
    lines(given / "a.jsonl", {"mind": "x", "model": "openai/gpt-4o (imported)"})
    (run,) = runs_of(imported(given))
    assert run.arm.model.name == "openai/gpt-4o (imported)"
