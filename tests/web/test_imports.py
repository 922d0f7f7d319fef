"""Imports by page: files are given, kept, queued, and what came of them is read."""

from __future__ import annotations

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from lab.models import Experiment, HarnessVersion, Import, Role
from lab.services import interchange
from lab.services.import_reports import ImportReport, NoteCount, ProblemLine, Unrecognised
from tests import builders

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(builders.person(Role.OPERATOR))
    return client


def file(name: str, content: bytes = b"{}") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def given(imported: Import) -> list[tuple[str, int]]:
    return [(one["name"], one["bytes"]) for one in imported.sources]


def test_files_of_a_form_are_kept_and_queued(operator: Client) -> None:
    answer = operator.post("/imports/new/", {"name": "last night", "files": [file("a.json"), file("b.json")]})
    imported = Import.objects.get()
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/imports/{imported.pk}/")
    assert (imported.name, imported.state) == ("last night", Import.State.QUEUED)
    assert given(imported) == [("a.json", 2), ("b.json", 2)]


def test_a_folder_sent_in_portions_is_one_import_with_its_paths(operator: Client) -> None:
    fetch = {"X-Requested-With": "fetch"}
    first = {"key": "k1", "more": "yes", "files": [file("a.json")], "paths": ["runs/1/a.json"]}
    answer = operator.post("/imports/new/", first, headers=fetch)
    assert answer.json() == {"location": None}
    assert Import.objects.get().state == Import.State.RECEIVING
    last = {"key": "k1", "files": [file("a.json")], "paths": ["runs/2/a.json"]}
    answer = operator.post("/imports/new/", last, headers=fetch)
    imported = Import.objects.get()
    assert answer.json() == {"location": f"/imports/{imported.pk}/"}
    assert given(imported) == [("runs/1/a.json", 2), ("runs/2/a.json", 2)]
    assert imported.state == Import.State.QUEUED


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd"])
def test_a_name_that_leaves_its_folder_is_refused_by_name(operator: Client, name: str) -> None:
    answer = operator.post(
        "/imports/new/",
        {"files": [file("a.json")], "paths": [name]},
        headers={"X-Requested-With": "fetch"},
    )
    assert answer.status_code == 422
    assert name in answer.json()["error"]


def test_nothing_chosen_is_said_on_the_page(operator: Client) -> None:
    answer = operator.post("/imports/new/", {"name": "kept name"})
    assert answer.status_code == 422
    assert "choose at least one file" in answer.content.decode()
    assert "kept name" in answer.content.decode()


def test_a_viewer_reads_and_may_not_import(client: Client) -> None:
    client.force_login(builders.person(Role.VIEWER))
    assert "import-form" not in client.get("/imports/").content.decode()
    assert client.post("/imports/new/", {"files": [file("a.json")]}).status_code == 403
    assert not Import.objects.exists()


def test_an_import_that_goes_on_asks_for_itself_and_can_be_cancelled(operator: Client) -> None:
    operator.post("/imports/new/", {"files": [file("a.json")]})
    imported = Import.objects.get()
    page = operator.get(f"/imports/{imported.pk}/").content.decode()
    assert f'hx-get="/imports/{imported.pk}/"' in page
    operator.post(f"/imports/{imported.pk}/cancel/")
    imported.refresh_from_db()
    assert imported.state == Import.State.CANCELLED
    assert "hx-get" not in operator.get(f"/imports/{imported.pk}/").content.decode()


def test_the_report_names_what_was_guessed_lost_and_unreadable(operator: Client) -> None:
    run = builders.run()
    report = ImportReport(
        problems=[ProblemLine(file="x<b>.jsonl", place="line 3", message="is not JSON")],
        problem_count=1,
        notes=[NoteCount(kind="lost", format="atif", field="steps[].extra", runs=2, example_run=run.pk)],
        unrecognised=[Unrecognised(ending=".txt", files=2, examples=["notes.txt"])],
        unrecognised_count=2,
    )
    imported = Import.objects.create(
        state=Import.State.ENDED,
        sources=[{"name": "night.zip", "bytes": 9}],
        found={"imported": 2, "problems": 1, "unread_files": 2},
        report=json.loads(report.model_dump_json()),
    )
    page = operator.get(f"/imports/{imported.pk}/").content.decode()
    assert "x&lt;b&gt;.jsonl" in page
    assert "line 3" in page
    assert "steps[].extra" in page
    assert f'href="/runs/{run.pk}/"' in page
    assert "notes.txt" in page
    assert "read, with problems" in operator.get("/imports/").content.decode()


def test_runs_of_verdicts_alone_are_counted_and_no_problem_is_counted_twice(operator: Client) -> None:
    found = {"verdict_only": 4097, "gradings": 4099, "problems": 3, "unread_files": 5}
    imported = Import.objects.create(state=Import.State.ENDED, sources=[{"name": "a.json"}], found=found)
    page = operator.get(f"/imports/{imported.pk}/").content.decode()
    assert "<b>4097</b> new runs" in page
    assert "4097 of them runs of their own" in page
    listed = operator.get("/imports/").content.decode()
    assert '<td class="number">4097</td><td class="number">0</td><td class="number">3</td>' in listed


def test_one_that_failed_is_read_again_when_asked(operator: Client) -> None:
    operator.post("/imports/new/", {"files": [file("a.json")]})
    imported = Import.objects.get()
    Import.objects.update(state=Import.State.FAILED, error="the data folder was full")
    page = operator.get(f"/imports/{imported.pk}/").content.decode()
    assert "the data folder was full" in page
    operator.post(f"/imports/{imported.pk}/again/")
    assert Import.objects.get().state == Import.State.QUEUED
    assert interchange.report_of(Import.objects.get()).imported == 0


def test_an_imported_run_is_not_replayed_and_its_page_says_why(operator: Client) -> None:
    run = builders.run()
    builders.believable(run)
    assert "/replay/" in operator.get(f"/runs/{run.pk}/").content.decode()
    Experiment.objects.filter(pk=run.experiment_id).update(kind=Experiment.Kind.IMPORTED)
    HarnessVersion.objects.filter(pk=run.arm.harness_version_id).update(digest=None)
    assert "/replay/" not in operator.get(f"/runs/{run.pk}/").content.decode()
    page = operator.get(f"/runs/{run.pk}/replay/").content.decode()
    assert "the lab has no repository of its task" in page
    sent = {"harness_version": run.arm.harness_version_id, "on_difference": "stop", "scope": "run"}
    assert operator.post(f"/runs/{run.pk}/replay/", sent).status_code == 422
    assert operator.post(f"/arms/{run.arm_id}/replay/", sent).status_code == 422
