from __future__ import annotations

from pathlib import Path

import pytest
from django.db import OperationalError, connection
from django.test import Client
from pytest_django.fixtures import Settings

from lab.services import heartbeats

POLICY = "default-src 'self'; script-src 'self'; style-src 'self'"


@pytest.mark.django_db
def test_healthz_answers_anybody() -> None:
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.fixture
def _own_folder(settings: Settings, tmp_path: Path) -> None:
    settings.LAB_DATA_DIR = tmp_path


@pytest.mark.usefixtures("_own_folder")
@pytest.mark.django_db
def test_readyz_names_what_is_missing() -> None:
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    tick = "no tick has reported lately: nobody takes runs back from dead workers"
    assert answer.json() == {"ready": False, "missing": ["no worker has reported lately", tick]}
    heartbeats.beat(name="runs@here")
    assert Client().get("/readyz").json() == {"ready": False, "missing": [tick]}
    heartbeats.beat(name="tick")
    assert Client().get("/readyz").json() == {"ready": True, "missing": []}


@pytest.mark.parametrize("path", ["/", "/nowhere/", "/launch/", "/healthz", "/sign-in/"])
def test_every_answer_carries_the_policy(viewer: Client, path: str) -> None:
    policy = viewer.get(path).headers["Content-Security-Policy"]
    assert policy.startswith(POLICY)
    assert "frame-ancestors 'none'" in policy


def test_readyz_says_that_the_database_is_away_and_not_what_its_driver_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise OperationalError('connection to server at "db.internal", user "lab", password "hidden" failed')

    monkeypatch.setattr(connection, "cursor", refuse)
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert "the database does not answer" in answer.content.decode()
    assert "internal" not in answer.content.decode()
