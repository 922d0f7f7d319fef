"""The command imports by itself, without a worker, and says by its exit code whether all was read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from lab.models import Import, Run
from lab.services import import_reading
from tests.services.leaf_files import trajectory, write

pytestmark = pytest.mark.django_db(transaction=True)


def imported(*arguments: object) -> int:
    """The exit code."""
    try:
        call_command("import_trajectories", *map(str, arguments))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_files_and_folders_are_imported_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a/1.json", trajectory("a"))
    write(tmp_path / "b.json", trajectory("b"))
    assert imported(tmp_path / "a", tmp_path / "b.json", "--name", "old runs") == 0
    said = capsys.readouterr().out
    run = Run.objects.first()
    assert run is not None
    assert f"Imported 2 runs into experiment {run.experiment.pk}." in said
    assert "leaf: 2 files, 2 imported" in said
    assert "missing: model (leaf), 2 runs: the model stands in config.json" in said
    assert run.experiment.name == "old runs"


def test_what_is_there_already_is_said_with_its_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.json", trajectory())
    imported(tmp_path)
    capsys.readouterr()
    assert imported(tmp_path) == 0
    said = capsys.readouterr().out
    assert "Imported no run." in said
    assert f"Known already: 1, in experiment {Run.objects.get().experiment_id}." in said


def test_what_could_not_be_read_is_exit_code_1_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.json", trajectory())
    (tmp_path / "b.json").write_text('{"trajectory_format": "leaf-function-calling", "messages": 3}')
    assert imported(tmp_path) == 1
    complained = capsys.readouterr().err
    assert f"{tmp_path.name}/b.json: {tmp_path.name}/b.json has no list `messages`" in complained
    assert Run.objects.count() == 1


def test_a_path_that_is_not_there_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert imported(tmp_path / "nowhere") == 1
    assert "nowhere: is not there; check the path" in capsys.readouterr().err


def test_as_json_nothing_else_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.json", trajectory())
    assert imported(tmp_path, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["report"]["imported"]) == ("ended", 1)
    assert told["experiment"] == Run.objects.get().experiment_id


def test_following_finished_files_ends_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert imported(write(tmp_path / "a.json", trajectory()), "--follow") == 0
    assert Run.objects.get().status == Run.Status.ENDED
    assert "Imported 1 runs" in capsys.readouterr().out


def test_paths_that_another_process_reads_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.json", trajectory())
    import_reading.taken_for_command(paths=[tmp_path], worker="elsewhere/1/1", name="", follows=False)
    with pytest.raises(CommandError, match="is being read already; wait for its end"):
        imported(tmp_path)


def test_an_import_whose_process_was_killed_is_finished_by_the_same_command(tmp_path: Path) -> None:
    write(tmp_path / "a.json", trajectory())
    import_reading.taken_for_command(paths=[tmp_path], worker="elsewhere/1/1", name="x", follows=False)
    Import.objects.update(lease_until="2020-01-01T00:00:00Z")
    assert imported(tmp_path) == 0
    assert (Import.objects.count(), Run.objects.count()) == (1, 1)
    shutil.rmtree(tmp_path)
