"""Files hold gold patches and hidden tests beside what an agent did: those are for operators here too."""

from __future__ import annotations

import dataclasses
import io
import zipfile
from pathlib import Path

import pytest
from django.test import Client

from lab.engine.formats.trajectory import Grading, HarnessUsed, Origin, Trajectory, Turn
from lab.engine.verify.base import Outcome
from lab.models import Event, Role, Run
from lab.services.exports import CHOICES, export
from lab.services.records import after
from tests import builders
from tests.services.test_import_extremes import imported

pytestmark = pytest.mark.django_db(transaction=True)

GOLD, PRINTED = "the gold patch", "what hidden tests printed"
FOUND = Trajectory(
    origin=Origin(format="given", file="given", sha256="c" * 64),
    harness=HarnessUsed(name="loop"),
    instance_id="x",
    task_kept={"repo": "a/b", "patch": GOLD},
    items=(Turn(message={"role": "assistant", "content": "Done."}),),
    patch="",
    gradings=(Grading(rule="report", outcome=Outcome.RESOLVED, kept={"test_output": PRINTED}),),
    kept={"session": "s1"},
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.objects.get(experiment=imported(tmp_path, FOUND).experiment)


def exported(run: Run, name: str, *, sees_hidden: bool) -> str:
    if name == "parquet":
        pytest.importorskip("pyarrow")
    made = export(runs=[run.pk], name="run", format_name=name, sees_hidden=sees_hidden)
    data = b"".join(made.pieces)
    if made.content_type != "application/zip":
        return data.decode()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return "".join(archive.read(member).decode(errors="replace") for member in archive.namelist())


@pytest.mark.parametrize("name", [choice.name for choice in CHOICES])
def test_no_export_of_a_viewer_holds_what_the_file_said_of_task_and_grading(run: Run, name: str) -> None:
    text = exported(run, name, sees_hidden=False)
    assert GOLD not in text
    assert PRINTED not in text


def test_operators_export_all_of_it(run: Run) -> None:
    for name in ("trajectory-lab", "atif"):
        text = exported(run, name, sees_hidden=True)
        assert GOLD in text
        assert PRINTED in text


def test_the_program_interface_gives_it_to_operators_alone(run: Run) -> None:
    for role, shown in ((Role.VIEWER, False), (Role.OPERATOR, True)):
        text = str(after(by=builders.person(role), run=run, seq=0, limit=500).records)
        assert (GOLD in text, PRINTED in text) == (shown, shown)
        assert "s1" in text


def test_pages_show_it_to_operators_who_ask_for_it(run: Run) -> None:
    kept = [event for event in Event.objects.filter(run=run, kind="source_kept") if event.step is None]
    assert {event.payload["about"] for event in kept} == {"task_record", "grading"}
    for role, status in ((Role.VIEWER, 403), (Role.OPERATOR, 200)):
        client = Client()
        client.force_login(builders.person(role))
        page = client.get(f"/runs/{run.pk}/").content.decode()
        assert "s1" in page
        assert GOLD not in page
        assert PRINTED not in page
        for event in kept:
            place = f"/runs/{run.pk}/events/{event.seq}"
            assert place in page
            assert client.get(f"{place}/body?part=kept").status_code == status
            assert client.get(f"{place}/raw?part=kept").status_code == status


def test_the_task_of_a_run_that_goes_on_may_still_be_told_more(tmp_path: Path) -> None:
    partial = dataclasses.replace(FOUND, partial=True, task_kept={}, gradings=(), patch=None)
    imported(tmp_path, partial)
    imported(tmp_path, dataclasses.replace(FOUND, origin=dataclasses.replace(FOUND.origin, sha256="d" * 64)))
    run = Run.objects.get()
    assert (run.status, GOLD in exported(run, "trajectory-lab", sees_hidden=True)) == ("ended", True)
