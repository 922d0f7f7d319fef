"""The sample lab on pages: offered in an empty lab, loaded with its progress, marked, removed on asking."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from lab.models import Experiment, Run
from lab.services import sample, sample_log
from lab.services.sample_log import SampleLogError
from lab.web import sample as pages
from tests.web.conftest import signed_in_as


@pytest.fixture(autouse=True)
def _own_folder(settings: Settings, tmp_path: Path) -> None:
    settings.LAB_DATA_DIR = tmp_path


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PIECE_SECONDS", 0.0)


def test_an_empty_lab_offers_it_to_whoever_may_load_it(
    operator: Client, viewer: Client, filled: None
) -> None:
    html = operator.get("/").content.decode()
    assert 'action="/sample/load/"' in html
    assert "Load the sample lab</button>" in html
    html = viewer.get("/").content.decode()
    assert 'action="/sample/load/"' not in html
    assert "An operator can load it." in html


def test_loading_says_how_far_it_is_and_goes_on_by_itself(operator: Client, filled: None) -> None:
    html = operator.post("/sample/load/").content.decode()
    assert "1 of 96 runs loaded" in html
    assert 'hx-post="/sample/load/" hx-trigger="load"' in html
    piece = operator.post("/sample/load/", headers={"HX-Request": "true"}).content.decode()
    assert piece.lstrip().startswith('<div id="sample-progress"')
    assert "2 of 96 runs loaded" in piece
    # Without script, and after the page was closed, a button goes on.
    for page in ("/sample/", "/"):
        assert "Go on loading</button>" in operator.get(page).content.decode()


def test_when_all_of_it_is_there_its_experiment_is_shown(
    operator: Client, filled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PIECE_SECONDS", 600.0)
    answer = operator.post("/sample/load/", headers={"HX-Request": "true"})
    experiment = Experiment.objects.get()
    assert answer.headers["HX-Redirect"] == f"/experiments/{experiment.pk}/"
    again = operator.post("/sample/load/")
    assert again.headers["Location"] == f"/experiments/{experiment.pk}/"
    html = operator.get(again.headers["Location"]).content.decode()
    assert "96 of 96 ended" in html
    assert html.count('id="cell-') == 96
    assert 'class="chip demo"' in html
    html = operator.get(f"{again.headers['Location']}?as=list").content.decode()
    assert "96 of 96 ended" in html
    assert html.count('<span class="chip demo">demo</span>') == 96
    assert html.count(" resolved</p>") == 8
    assert Run.objects.count() == 96


def test_wherever_its_runs_are_shown_they_are_marked(operator: Client, filled: None) -> None:
    operator.post("/sample/load/")
    run = Run.objects.get()
    mark = '<span class="chip demo">demo</span>'
    for page in (f"/runs/{run.pk}/", "/", "/experiments/", f"/tasks/{run.task_id}/"):
        assert mark in operator.get(page).content.decode(), page
    assert "demo" in operator.get(f"/experiments/{run.experiment_id}/").content.decode()
    home = operator.get("/").content.decode()
    assert ">1 demo</a>" in home
    assert "no call yet" in home


def test_removing_asks_once_with_the_count(operator: Client, filled: None) -> None:
    operator.post("/sample/load/")
    operator.post("/sample/load/")
    asked = operator.post("/sample/remove/").content.decode()
    assert "2 demo runs" in asked
    assert "Remove 2 runs</button>" in asked
    assert Run.objects.count() == 2
    answer = operator.post("/sample/remove/", {"agreed": "yes"}, follow=True).content.decode()
    assert "The sample lab is removed: 2 runs" in answer
    assert "Load the sample lab</button>" in answer
    assert not Experiment.objects.exists()


def test_a_viewer_may_look_and_not_touch(viewer: Client, filled: None) -> None:
    for page in ("/sample/load/", "/sample/remove/"):
        assert viewer.post(page, {"agreed": "yes"}).status_code == 403
    assert "An operator can load it." in viewer.get("/sample/").content.decode()


def test_a_full_disk_is_said_and_what_is_there_stays(
    operator: Client, filled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.post("/sample/load/")

    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(sample, "play", full)
        answer = operator.post("/sample/load/")
    assert answer.status_code == 422
    html = answer.content.decode()
    assert "No space left on device" in html
    assert "1 of 96 runs loaded" in html


def test_the_first_page_does_without_a_damaged_recording(
    operator: Client, filled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged() -> int:
        raise SampleLogError("gone")

    monkeypatch.setattr(sample_log, "count_runs", damaged)
    answer = operator.get("/")
    assert answer.status_code == 200
    assert "sample lab" not in answer.content.decode()


def test_pages_with_96_runs_take_few_queries(filled: None, monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    from lab.models import Role

    monkeypatch.setattr(pages, "PIECE_SECONDS", 600.0)
    operator = signed_in_as(Role.OPERATOR)
    operator.post("/sample/load/")
    experiment = Experiment.objects.get()
    run = Run.objects.order_by("pk").first()
    assert run is not None
    for page, most in (
        ("/", 40),
        (f"/experiments/{experiment.pk}/", 18),
        (f"/experiments/{experiment.pk}/?as=list", 15),
        (f"/runs/{run.pk}/", 45),
        ("/experiments/", 12),
    ):
        operator.get(page)
        with CaptureQueriesContext(connection) as queries:
            assert operator.get(page).status_code == 200
        assert len(queries) <= most, (page, len(queries), [query["sql"][:150] for query in queries])
