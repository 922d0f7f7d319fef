"""The page of label files."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from lab.models import Role
from tests import builders

pytestmark = pytest.mark.django_db


def client(role: Role = Role.OPERATOR) -> Client:
    found = Client()
    found.force_login(builders.person(role))
    return found


def test_files_are_imported_and_what_is_left_is_listed() -> None:
    csv = b"instance_id,category,rationale\nnowhere-<b>,wrong_solution,why\n"
    given = [SimpleUploadedFile("judge.csv", csv), SimpleUploadedFile("other.json", b"{}")]
    answer = client().post("/annotate/files/import/", {"files": given, "annotator": "Somebody"})
    page = answer.content.decode()
    assert answer.status_code == 200
    assert "0 imported" in page
    assert "nowhere-&lt;b&gt;" in page
    assert "its run is not in this lab" in page
    assert "holds no labels that the lab reads" in page
    assert 'value="Somebody"' in page


def test_nothing_given_is_said_and_what_was_typed_stays() -> None:
    answer = client().post("/annotate/files/import/", {"annotator": "Somebody", "experiment": "x"})
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "choose at least one file" in page
    assert "“x” is no number" in page
    assert 'value="Somebody"' in page


def test_an_export_says_how_many_labels_are_hidden() -> None:
    answer = client(Role.VIEWER).get("/annotate/files/export/?format=lab-csv")
    assert answer.status_code == 200
    assert answer["Content-Disposition"] == 'attachment; filename="labels-lab-csv.csv"'
    assert (answer["X-Labels"], answer["X-Labels-Hidden"]) == ("0", "0")
    assert client().get("/annotate/files/export/?format=xml").status_code == 422


def test_a_viewer_reads_the_page_and_imports_nothing() -> None:
    viewer = client(Role.VIEWER)
    page = viewer.get("/annotate/files/").content.decode()
    assert "Import labels" not in page
    assert "Export labels" in page
    assert viewer.post("/annotate/files/import/").status_code == 403
