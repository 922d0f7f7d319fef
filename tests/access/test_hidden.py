"""What hides a task's solution: gold patch, hidden tests and plans, over everything that can be asked for."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from itertools import product

import pytest
from django.test import Client

from lab.models import Event, Role, Run, TestResult
from lab.services import exports, records, tokens, trajectories
from lab.services.access import PER_OPERATION
from tests import builders
from tests.access.people import Visitor, visitors
from tests.access.walking import GOLD, PAGES, PLAN, Addresses, client_of, whole_run

pytestmark = pytest.mark.django_db

SOURCE = "# hidden source"
MARKS = {"gold patch": GOLD, "hidden tests": SOURCE, "plans": PLAN}
# Names that somebody could try beside those that are known.
GUESSES = ("tests", "tests.0.log", "messages.0.content", "event.log", "log.", " log", "LOG")
PARTS = (*trajectories._PLACES, *GUESSES)


def everything_readable(visitor: Visitor, run: Run) -> Iterator[tuple[str, str]]:
    """Address and text of whatever a person can ask for about a run, its task and its log."""
    client, addresses = client_of(visitor), Addresses(run, visitor)
    for page in PAGES:
        if page.decision != PER_OPERATION and page.name != "sign_in_by_link":
            address = addresses.of(page)
            yield address, text_of(client, address)
    for seq, part, kind in product([_graded(run)], PARTS, ("body", "raw")):
        address = f"/runs/{run.pk}/events/{seq}/{kind}?part={part}"
        yield address, text_of(client, address)
    for seq in Event.objects.filter(run=run).values_list("seq", flat=True):
        address = f"/runs/{run.pk}/events/{seq}/raw?part=log"
        yield address, text_of(client, address)
    for test in TestResult.objects.all():
        address = f"/runs/tests/{test.pk}/log"
        yield address, text_of(client, address)
    for choice, what in product(exports.CHOICES, (f"runs/{run.pk}", f"experiments/{run.experiment_id}")):
        address = f"/{what}/export?format={choice.name}"
        yield address, unpacked(client, address)


def unpacked(client: Client, address: str) -> str:
    """A download as text, an archive file by file."""
    answer = client.get(address)
    if answer.status_code != 200:
        return ""
    data = answer.getvalue()
    if answer.headers["Content-Type"] != "application/zip":
        return data.decode()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return "".join(archive.read(name).decode("utf-8", "replace") for name in archive.namelist())


def _graded(run: Run) -> int:
    """The number of the event that holds what the hidden tests printed."""
    return Event.objects.get(run=run, kind="verification_finished").seq


def text_of(client: Client, address: str, **headers: str) -> str:
    answer = client.get(address, headers=headers)
    if answer.headers.get("Content-Type") == "application/zip":
        return unpacked(client, address)
    return answer.content.decode() if answer.status_code == 200 else ""


@pytest.mark.parametrize("role", list(Role))
def test_only_operators_and_admins_read_what_hides_the_solution(role: Role) -> None:
    run = whole_run()
    visitor = next(one for one in visitors() if one.kind == role)
    seen: dict[str, set[str]] = {what: set() for what in MARKS}
    for address, text in everything_readable(visitor, run):
        for what, mark in MARKS.items():
            if mark in text:
                seen[what].add(address.partition("?")[0].split("/")[1])
    sees = role.includes(Role.OPERATOR)
    assert {what: bool(where) for what, where in seen.items()} == {
        "gold patch": sees,
        "hidden tests": sees,
        "plans": False,
    }, seen


@pytest.mark.parametrize("role", list(Role))
def test_a_token_shows_no_more_than_its_role(role: Role) -> None:
    run = whole_run()
    admin = builders.person(Role.ADMIN)
    token = tokens.make(by=admin, name="reader", role=role).secret
    text = text_of(Client(), f"/api/v1/runs/{run.pk}/events?limit=500", Authorization=f"Bearer {token}")
    assert '"kind": "verification_finished"' in text
    assert (SOURCE in text) == role.includes(Role.OPERATOR)
    assert (records.FOR_OPERATORS in text) == (not role.includes(Role.OPERATOR))
    assert "assert 3 == 2" in text
    assert GOLD not in text
