"""Every list of an empty lab says what would be in it, and the one thing to do next."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from django.test import Client

from lab.models import Experiment, Role
from tests.access.walking import PAGES, Page
from tests.web.conftest import signed_in_as

# Where something is missing in an empty lab; the other pages are forms, or hold at least oneself.
LISTS = {"home", "experiments", "tasks", "harnesses", "endpoints", "tokens"}


def readable() -> list[Page]:
    """Every page that needs nothing in its address, and is one for people."""
    return [
        page
        for page in PAGES
        if not page.parameters and not page.name.startswith("api:") and page.name not in ("healthz", "readyz")
    ]


class Lists(HTMLParser):
    """Finds the tables and row lists of a page with how many rows each has, and the notes of empty ones."""

    def __init__(self) -> None:
        super().__init__()
        self.empty_lists: list[str] = []
        self.notes: list[tuple[str, int]] = []
        self._open: list[tuple[str, str, int]] = []
        self._note: list[str] | None = None
        self._actions = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        classes = values.get("class", "").split()
        if tag == "tbody" or (tag == "div" and "rows" in classes):
            self._open.append((tag, values.get("id", ""), 0))
        elif self._open and ("data-row" in values or "row" in classes):
            kind, name, rows = self._open[-1]
            self._open[-1] = (kind, name, rows + 1)
        elif self._open and tag == "div":
            self._open.append(("div", "-", 1))
        if tag == "p" and "empty" in classes and "hidden" not in values:
            self._note, self._actions = [], 0
        elif self._note is not None and "button" in classes:
            self._actions += 1

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == self._open[-1][0]:
            _, name, rows = self._open.pop()
            if rows == 0:
                self.empty_lists.append(name)
        if tag == "p" and self._note is not None:
            self.notes.append((" ".join("".join(self._note).split()), self._actions))
            self._note = None

    def handle_data(self, data: str) -> None:
        if self._note is not None:
            self._note.append(data)


def lists_of(client: Client, address: str) -> Lists:
    answer = client.get(address)
    assert answer.status_code == 200, address
    found = Lists()
    found.feed(answer.content.decode())
    return found


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.ADMIN])
@pytest.mark.parametrize("page", readable(), ids=lambda page: page.name)
def test_no_list_of_an_empty_lab_is_left_blank(page: Page, role: Role, db: None) -> None:
    client = signed_in_as(role)
    answer = client.get(f"/{page.route}")
    if answer.status_code != 200 or not answer.headers["Content-Type"].startswith("text/html"):
        # Not for this role, or nothing to read.
        return
    found = lists_of(client, f"/{page.route}")
    assert len(found.notes) >= len(found.empty_lists), "a list is empty and says nothing"
    if page.name in LISTS - {"home"}:
        assert found.notes, f"{page.route} does not say what would be there"
    for text, actions in found.notes:
        assert actions == 1, f"{page.route}: “{text}” needs one button"
        assert len(text) > 30


def test_every_page_with_an_empty_list_was_found() -> None:
    assert {page.name for page in readable()} >= LISTS


def test_an_empty_first_page_says_where_its_choices_come_from(operator: Client) -> None:
    html = operator.get("/").content.decode()
    assert "brings the set “practice”" in html
    assert "brings the presets" in html
    assert "an admin connects one" in html
    assert "Load the sample lab</button>" in html


def test_lists_of_the_first_page_that_ran_dry_say_so(operator: Client, filled: None) -> None:
    from tests import builders

    builders.run()
    found = lists_of(operator, "/")
    assert [text for text, _ in found.notes] == [
        "Here would be the runs that have ended, newest first. Launch a run"
    ]


def test_a_filter_that_leaves_nothing_is_named_and_can_be_cleared(operator: Client, db: None) -> None:
    Experiment.objects.create(kind=Experiment.Kind.DEMO, name="recorded")
    html = operator.get("/experiments/").content.decode()
    assert re.findall(r'href="\?(?:show=)?(\w*)"[^>]*>(\w+ \d+)<', html) == [
        ("", "all 1"),
        ("own", "own 0"),
        ("demo", "demo 1"),
    ]
    found = lists_of(operator, "/experiments/?show=own")
    assert found.notes == [("No experiment is “own”. Clear the filter", 1)]
    assert "recorded" in operator.get("/experiments/?show=demo").content.decode()
    unknown = operator.get("/experiments/?show=<b>x").content.decode()
    assert "No experiment is “&lt;b&gt;x”." in unknown
    assert 'href="?"' in unknown


def test_a_filter_is_kept_on_the_next_page(
    operator: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lab.web import experiments

    monkeypatch.setattr(experiments, "PAGE", 1)
    for name in ("a", "b"):
        Experiment.objects.create(name=name)
    Experiment.objects.create(kind=Experiment.Kind.DEMO)
    html = operator.get("/experiments/?show=own").content.decode()
    assert 'href="?show=own&amp;page=2"' in html
