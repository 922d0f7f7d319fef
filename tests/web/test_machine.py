"""What works on this machine, on a page: it comes at once, and the findings follow."""

from __future__ import annotations

import pytest
from django.test import Client

from lab.services import doctor
from lab.services.findings import Finding


@pytest.fixture(autouse=True)
def _findings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        Finding("bubblewrap", "ok", "isolated <b>"),
        Finding("docker", "absent", "not installed", "apt-get install docker.io"),
        Finding("disk space", "problem", "0.1 GiB free", "free some"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda: found)


def test_the_page_comes_at_once_and_fetches_what_is_tried(operator: Client) -> None:
    html = operator.get("/machine/").content.decode()
    assert 'hx-get="/machine/" hx-trigger="load"' in html
    assert "isolated" not in html
    part = operator.get("/machine/", headers={"HX-Request": "true"}).content.decode()
    assert part.lstrip().startswith('<div class="panel" id="findings">')
    assert "isolated &lt;b&gt;" in part
    assert "apt-get install docker.io" in part
    assert part.count("<tr data-row") == 3


def test_without_script_one_waits_for_it(operator: Client) -> None:
    html = operator.get("/machine/?now=1").content.decode()
    assert "0.1 GiB free" in html
    assert "hx-trigger" not in html.partition("<main")[2].partition("</main>")[0]


def test_it_is_for_operators(viewer: Client, operator: Client, filled: None) -> None:
    assert viewer.get("/machine/").status_code == 403
    assert 'href="/machine/"' not in viewer.get("/").content.decode()
    assert 'href="/machine/"' in operator.get("/").content.decode()
