"""A stored body that is gone or damaged: named by the command, shown as missing, no list is wrong by it."""

from __future__ import annotations

import json
import os
import time
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import Client
from pytest_django.fixtures import Settings

from lab.models import Event, Role, Run, RunFacts
from lab.services import blobs, stored_bodies
from tests import builders
from tests.web.conftest import signed_in_as

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _own_folder(settings: Settings, tmp_path: Path) -> None:
    settings.LAB_DATA_DIR = tmp_path


@pytest.fixture
def run() -> Run:
    """A run with long outputs."""
    run = builders.run()
    builders.start(run)
    builders.append(
        run,
        builders.asked(1),
        builders.answered(1, ("Bash", '{"command": "make"}')),
        builders.called(1, "Bash", {"command": "make"}),
        builders.printed(1, "it compiles\n" * 2000),
    )
    return Run.objects.get(pk=run.pk)


@pytest.fixture
def reader(run: Run) -> Client:
    return signed_in_as(Role.VIEWER)


def check(*options: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("check_data", *options, stdout=out)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


def output_of(run: Run) -> str:
    """The body of what the command of the run printed."""
    return next(sha256 for sha256, use in stored_bodies.all_uses(runs=[run.pk]))


def damage(sha256: str, how: str) -> None:
    path = blobs.path_of(sha256)
    if how == "gone":
        path.unlink()
    elif how == "torn":
        path.write_bytes(path.read_bytes()[:20])
    else:
        other = blobs.path_of(blobs.put(data=b"something else" * 999))
        path.write_bytes(other.read_bytes())
        other.unlink()


def test_sound_data_is_said_to_be_sound(run: Run) -> None:
    code, said = check()
    assert code == 0
    assert said.startswith("ok ")
    assert "0 missing or damaged" in said


@pytest.mark.parametrize(
    ("how", "reason"),
    [("gone", "is gone from the data folder"), ("torn", "blob"), ("swapped", "holds something else now")],
)
def test_a_damaged_body_is_named_with_run_and_event(run: Run, how: str, reason: str) -> None:
    sha256 = output_of(run)
    damage(sha256, how)
    code, said = check()
    assert code == 1
    assert sha256 in said
    assert reason in said
    seq = Event.objects.get(run=run, kind="tool_call_finished").seq
    assert f"run {run.pk} event {seq} (tool_call_finished)" in said
    code, said = check("--json")
    assert code == 1
    (found,) = json.loads(said)["damages"]
    assert found["sha256"] == sha256
    assert {"run_id": run.pk, "seq": seq, "kind": "tool_call_finished"} in found["uses"]


@pytest.mark.parametrize("how", ["gone", "torn", "swapped"])
def test_pages_show_it_as_missing_and_lists_and_costs_stay_right(run: Run, reader: Client, how: str) -> None:
    def lists() -> list[str]:
        row = reader.get(f"/experiments/{run.experiment_id}/").content.decode()
        return [line for line in row.splitlines() if "$" in line or "step" in line]

    before = lists()
    assert before
    seq = Event.objects.get(run=run, kind="tool_call_finished").seq
    for sha256 in {sha256 for sha256, _ in stored_bodies.all_uses(runs=[run.pk])}:
        damage(sha256, how)
    page = reader.get(f"/runs/{run.pk}/")
    assert page.status_code == 200
    assert "body missing" in page.content.decode()
    assert "$0.0058" in page.content.decode()
    assert lists() == before
    part = reader.get(f"/runs/{run.pk}/events/{seq}/body", headers={"HX-Request": "true"})
    assert part.status_code == 200
    assert "body missing" in part.content.decode()


def test_files_that_nothing_refers_to_are_counted_and_removed_on_asking(run: Run) -> None:
    left = blobs.put(data=b"left behind by a killed process" * 99)
    long_ago = time.time() - 7200
    os.utime(blobs.path_of(left), (long_ago, long_ago))
    code, said = check()
    assert code == 0
    assert "1 files (0.0 MB) that nothing refers to: --remove-unused removes them" in said
    code, said = check("--remove-unused")
    assert "1 removed" in said
    assert not blobs.path_of(left).exists()
    assert check()[1].count("nothing refers to") == 0
    assert blobs.blob_bytes(sha256=output_of(run))


def test_a_roll_up_that_its_log_contradicts_is_named_with_the_way_out(run: Run) -> None:
    builders.append(run, *builders.ending())
    assert check()[0] == 0
    RunFacts.objects.filter(pk=run.pk).update(calls=7)
    code, said = check()
    assert code == 1
    assert f"PROBLEM  run {run.pk}: calls is 7 by its roll-up, 1 by its log" in said
    assert f"→ `manage.py rebuild_facts {run.pk}` computes it anew" in said
    (told,) = json.loads(check("--json")[1])["roll_ups"]
    assert told == {"run": run.pk, "field": "calls", "rolled_up": 7, "recounted": 1}
