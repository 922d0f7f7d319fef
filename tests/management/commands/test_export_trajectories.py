"""`manage.py export_trajectories`: runs as one file, in any format."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import atif
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from lab.models import Run
from lab.services import exports
from tests import builders

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    made = builders.run()
    builders.believable(made, outcome="resolved")
    return Run.objects.get(pk=made.pk)


def command(*arguments: object) -> str:
    out = io.StringIO()
    call_command("export_trajectories", *map(str, arguments), stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("name", [choice.name for choice in exports.CHOICES])
def test_a_run_is_written_in_every_format(run: Run, tmp_path: Path, name: str) -> None:
    if name == "parquet":
        pytest.importorskip("pyarrow")
    target = tmp_path / "out"
    said = command("--run", run.pk, "--format", name, "--out", target)
    assert said == f"1 run, {target.stat().st_size:,} bytes: {target}\n"
    assert target.stat().st_size > 100
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_is_given_the_files_own_name(run: Run, tmp_path: Path) -> None:
    command("--run", run.pk, "--format", "atif", "--out", tmp_path)
    found = json.loads((tmp_path / f"run-{run.pk}.atif.json").read_text())
    atif.Trajectory.model_validate(found)


def test_an_experiment_is_an_archive_with_a_file_a_run(run: Run, tmp_path: Path) -> None:
    other = builders.another_run(run, seed=2)
    builders.believable(other)
    waiting = builders.another_run(run, seed=3)
    target = tmp_path / "runs.zip"
    command("--experiment", run.experiment_id, "--format", "atif", "--out", target)
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
        *documents, notes = archive.namelist()
        assert documents == [f"run-{one.pk}-dst-schedule.atif.json" for one in (run, other)]
        for name in documents:
            atif.Trajectory.model_validate_json(archive.read(name))
        told = archive.read(notes).decode()
    assert f"run {waiting.pk} is not there: no attempt of it has begun" in told
    assert "not carried: " in told


def test_several_runs_are_written_in_the_order_of_their_numbers(run: Run, tmp_path: Path) -> None:
    other = builders.another_run(run, seed=2)
    builders.believable(other)
    target = tmp_path / "out.jsonl"
    said = command("--run", other.pk, run.pk, run.pk, "--format", "swe-bench", "--out", target)
    assert said.startswith("2 runs, ")
    names = [json.loads(line)["model_name_or_path"] for line in target.read_text().splitlines()]
    assert [name[-6:] for name in names] == ["seed-1", "seed-2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--run", "999999", "--format", "atif"], "--run: 999999 is no run of this lab"),
        (["--experiment", "999999", "--format", "atif"], "--experiment: 999999 is no experiment"),
        (["--experiment", "{experiment}", "--format", "xml"], "--format: 'xml' is no format of an export"),
        (["--run", "{waiting}", "--format", "atif"], "has no trajectory yet"),
    ],
)
def test_a_wrong_argument_is_named_with_a_way_out(
    run: Run, tmp_path: Path, arguments: list[str], said: str
) -> None:
    waiting = builders.another_run(run, seed=2)
    known = {"experiment": run.experiment_id, "waiting": waiting.pk}
    with pytest.raises(CommandError, match=said):
        command(*[one.format(**known) for one in arguments], "--out", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_already_stays_as_it_is(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("mine")
    with pytest.raises(CommandError, match="is there already"):
        command("--run", run.pk, "--format", "atif", "--out", target)
    assert target.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [target]


def test_a_path_that_cannot_be_written_is_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written"):
        command("--run", run.pk, "--format", "atif", "--out", tmp_path / "missing" / "out.json")
