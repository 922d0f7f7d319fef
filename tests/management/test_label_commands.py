"""Labels from and to the shell."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from lab.models import Annotation
from tests import builders

pytestmark = pytest.mark.django_db

CSV = "instance_id,category,rationale\n{},wrong_solution,why\nnowhere,wrong_solution,why\n"


def test_labels_are_imported_listed_where_left_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = builders.run()
    builders.believable(run)
    given = tmp_path / "judge.csv"
    given.write_text(CSV.format(run.task.slug))
    with pytest.raises(SystemExit) as left:
        call_command("import_labels", str(given), "--annotator", "Some model")
    said = capsys.readouterr()
    assert left.value.code == 1
    assert "1 imported, 0 known already, 1 of them judgements of a model" in said.out
    assert "row 3 nowhere: its run is not in this lab" in said.err
    assert Annotation.objects.get().annotator.name == "Some model"

    out = tmp_path / "labels.jsonl"
    call_command("export_labels", "--out", str(out))
    assert f"1 labels: {out}" in capsys.readouterr().out
    call_command("import_labels", str(out))
    assert "0 imported, 1 known already" in capsys.readouterr().out
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("export_labels", "--out", str(out))


def test_a_file_without_labels_is_named(tmp_path: Path) -> None:
    given = tmp_path / "x.json"
    given.write_text("{}")
    with pytest.raises(CommandError, match=r"x\.json holds no labels"):
        call_command("import_labels", str(given))
    with pytest.raises(CommandError, match="format"):
        call_command("export_labels", "--format", "xml", "--out", str(tmp_path / "y"))
