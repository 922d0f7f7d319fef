from __future__ import annotations

import pytest
from django.test import Client

from lab.services import heartbeats

POLICY = "default-src 'self'; script-src 'self'; style-src 'self'"


@pytest.mark.django_db
def test_healthz_answers_anybody() -> None:
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_readyz_names_what_is_missing() -> None:
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "missing": ["no worker has reported lately"]}
    heartbeats.beat(name="runs@here")
    assert Client().get("/readyz").json() == {"ready": True, "missing": []}


@pytest.mark.parametrize("path", ["/", "/nowhere/", "/launch/", "/healthz", "/sign-in/"])
def test_every_answer_carries_the_policy(viewer: Client, path: str) -> None:
    policy = viewer.get(path).headers["Content-Security-Policy"]
    assert policy.startswith(POLICY)
    assert "frame-ancestors 'none'" in policy
