"""Every operation of the API × tokens of every role, and whatever else somebody may send in place of one."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import time_machine
from django.http import HttpRequest
from django.test import Client
from ninja import NinjaAPI, Router
from ninja.testing import TestClient

from lab.api import errors
from lab.api.security import NobodyDecided
from lab.api.urls import api
from lab.models import ApiToken, Membership, Role, Run
from lab.services import people, tokens
from tests import builders
from tests.access.people import visitors
from tests.access.walking import client_of

pytestmark = pytest.mark.django_db


class Operation(NamedTuple):
    """One operation as the API knows it; `decisions` are what its authentications say."""

    method: str
    path: str
    decisions: tuple[Any, ...]

    def of(self, run: Run) -> str:
        address = f"/api/v1{self.path}".replace("{run_id}", str(run.pk))
        assert "{" not in address, f"{self.path}: say what its parameters are"
        return address


def walk(found: NinjaAPI) -> Iterator[Operation]:
    for prefix, router in found._routers:
        for path, view in router.path_operations.items():
            for operation in view.operations:
                decisions = tuple(getattr(one, "access", None) for one in operation.auth_callbacks)
                for method in operation.methods:
                    yield Operation(method, f"{prefix}{path}", decisions)


OPERATIONS = list(walk(api))
# What each operation that changes something is sent.
BODIES = {"/runs/{run_id}/controls": {"control": "pause"}}


def send(operation: Operation, run: Run, authorization: str, *, client: Client | None = None) -> Any:
    return (client or Client(enforce_csrf_checks=True)).generic(
        operation.method,
        operation.of(run),
        data=json.dumps(BODIES.get(operation.path, {})),
        content_type="application/json",
        headers={"Authorization": authorization} if authorization else {},
    )


def test_the_api_has_operations_and_each_names_one_role() -> None:
    assert {operation.path for operation in OPERATIONS} >= {"/runs/{run_id}", "/runs/{run_id}/events"}
    undecided = [
        one for one in OPERATIONS if len(one.decisions) != 1 or not isinstance(one.decisions[0], Role)
    ]
    assert undecided == [], "give them auth=TokenOf(role)"


def test_what_changes_something_needs_an_operator() -> None:
    changing = [one for one in OPERATIONS if one.method != "GET"]
    assert changing
    assert all(one.decisions[0].includes(Role.OPERATOR) for one in changing)
    assert {one.path for one in changing} == set(BODIES)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one.method} {one.path}")
def test_a_token_may_use_the_operation_or_not_as_decided(operation: Operation) -> None:
    needed: Role = operation.decisions[0]
    run = builders.run()
    builders.believable(run) if operation.method == "GET" else builders.start(run)
    for person_role in Role:
        person = builders.person(person_role)
        for token_role in Role:
            if not person_role.includes(token_role):
                continue
            token = tokens.make(by=person, name=f"as {token_role}", role=token_role).secret
            answer = send(operation, run, f"Bearer {token}")
            if token_role.includes(needed):
                assert answer.status_code in (200, 202), (person_role, token_role, answer.content)
            else:
                assert answer.status_code == 403, (person_role, token_role)
                message = answer.json()["errors"][0]["message"]
                assert f"needs the role {needed}; yours is {token_role}" in message


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one.method} {one.path}")
def test_nothing_but_a_token_that_holds_lets_anybody_in(operation: Operation) -> None:
    run = builders.run()
    made = tokens.make(by=builders.person(Role.ADMIN), name="revoked", role="admin")
    tokens.revoke(by=made.token.user, token=made.token)
    wrong = ["", "Bearer", "Bearer ", "Bearer made-up", f"Bearer {tokens.PREFIX}{'x' * 43}", "Basic YTpi"]
    wrong += [
        f"Bearer {made.secret}",
        f"Token {made.secret}",
        f"Bearer {made.token.token_hash}",
        "Bearer \xe9",
    ]
    for authorization in wrong:
        answer = send(operation, run, authorization)
        assert answer.status_code == 401, authorization
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        (problem,) = answer.json()["errors"]
        assert problem["field"] == "Authorization"
        assert "Settings, API tokens" in problem["message"]
        assert made.secret not in answer.content.decode()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one.method} {one.path}")
def test_a_session_signs_nobody_in_here(operation: Operation) -> None:
    run = builders.run()
    for visitor in visitors():
        assert send(operation, run, "", client=client_of(visitor)).status_code == 401


def test_a_token_ends_with_its_time_and_with_its_person() -> None:
    run, operation = builders.run(), OPERATIONS[0]
    admin, person = builders.person(Role.ADMIN), builders.person(Role.OPERATOR)

    def status(secret: str) -> int:
        return int(send(operation, run, f"Bearer {secret}").status_code)

    brief = tokens.make(by=person, name="brief", role="viewer", days="1").secret
    lasting = tokens.make(by=person, name="lasting", role="operator").secret
    assert (status(brief), status(lasting)) == (200, 200)
    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(days=1, minutes=1)):
        assert (status(brief), status(lasting)) == (401, 200)
    people.set_role(by=admin, person=person, role="viewer")
    assert status(lasting) == 200
    people.deactivate(by=admin, person=person)
    assert status(lasting) == 401
    people.reactivate(by=admin, person=person)
    assert status(lasting) == 401
    again = tokens.make(by=person, name="again", role="viewer").secret
    assert status(again) == 200
    Membership.objects.filter(user=person).delete()
    assert status(again) == 401


def test_a_demoted_persons_token_may_do_no_more_than_the_person() -> None:
    run = builders.run()
    person = builders.person(Role.ADMIN)
    builders.person(Role.ADMIN)
    secret = tokens.make(by=person, name="mighty", role="admin").secret
    Membership.objects.filter(user=person).update(role=Role.VIEWER)
    asking = next(one for one in OPERATIONS if one.method == "POST")
    assert send(asking, run, f"Bearer {secret}").status_code == 403
    assert send(OPERATIONS[0], run, f"Bearer {secret}").status_code == 200


def test_the_use_of_a_token_is_recorded_at_most_once_a_minute() -> None:
    run = builders.run()
    made = tokens.make(by=builders.person(Role.VIEWER), name="used", role="viewer")

    def used() -> dt.datetime | None:
        send(OPERATIONS[0], run, f"Bearer {made.secret}")
        return ApiToken.objects.get(pk=made.token.pk).last_used_at

    assert ApiToken.objects.get(pk=made.token.pk).last_used_at is None
    first = used()
    assert first is not None
    assert used() == first
    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(minutes=2)):
        later = used()
    assert later is not None
    assert later > first


def test_an_operation_that_names_no_role_is_refused() -> None:
    new, router = NinjaAPI(urls_namespace="undecided", auth=NobodyDecided(), docs_url=None), Router()
    errors.register(new)

    @router.get("/undecided")
    def undecided(request: HttpRequest) -> str:
        return "secret"

    new.add_router("/new", router)
    token = tokens.make(by=builders.person(Role.ADMIN), name="any", role="admin").secret
    answer = TestClient(new).get("/new/undecided", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 401
    assert "Nobody has decided who may use" in answer.json()["errors"][0]["message"]


def test_the_api_as_a_whole_lets_nobody_in() -> None:
    assert isinstance(api.auth, NobodyDecided) or isinstance(api.auth[0], NobodyDecided)
