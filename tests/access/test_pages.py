"""Every page × every method × everybody: who is let in is what the page's decision says.

The list is made by walking the addresses, so that a new page without a decision, or without an object to show
here, fails. A decision stands at the view (`for_role`, `for_everyone`).
"""

from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from lab.models import ApiToken, Role, Run
from lab.services import access, tokens
from lab.web.http import AccessMiddleware
from tests.access.people import NOBODY, Visitor, visitors
from tests.access.walking import PAGES, Addresses, Page, client_of, outcome, whole_run

pytestmark = pytest.mark.django_db

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# What a person may change without being an operator: what is theirs alone.
OWN = {"settings", "theme", "password", "tokens", "token_revoke"}
# What people do with their own labels.
OWN |= {f"label_{name}" for name in ("edit", "undo", "redo", "submit", "skip", "discard", "alive", "correct")}
OWN |= {"label_run", "label_keys", "queue_next"}
# Whoever asks may use these, and nothing else. The last answers 404.
OPEN = {"sign_in", "sign_in_by_link", "sign_out", "healthz", "readyz", "api:openapi-json", "api:api-root"}


@pytest.fixture
def run() -> Run:
    return whole_run()


def expected(decision: access.Decision, visitor: Visitor) -> str:
    if decision == access.EVERYONE:
        return "let in"
    if visitor.kind == NOBODY:
        return "sign in"
    return "let in" if visitor.holds(Role(decision)) else "refused"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_somebody_has_decided_who_may_use_the_page(page: Page) -> None:
    assert page.decision is not None, f"put for_role or for_everyone on the view of {page.route}"
    assert (page.decision == access.EVERYONE) == (page.name in OPEN)
    by_token = page.name == "otlp_traces" or (page.name.startswith("api:") and page.name not in OPEN)
    assert (page.decision == access.PER_OPERATION) == by_token


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.decision != access.PER_OPERATION], ids=lambda page: page.name
)
def test_everybody_is_let_in_or_refused_as_decided_by_every_method(page: Page, run: Run) -> None:
    assert page.decision is not None
    everybody = visitors()
    for visitor in everybody:
        # Tokens belong to whoever looks, where they may have one.
        address = Addresses(run, visitor if visitor.holds(Role.VIEWER) else everybody[-1]).of(page)
        client = client_of(visitor)
        for method in METHODS:
            with transaction.atomic():
                # The cookie stays what it was, also after signing out.
                cookies = client.cookies.copy()
                answer = client.generic(method, address)
                client.cookies = cookies
                transaction.set_rollback(True)
            told = (page.name, method, visitor.kind, answer.status_code)
            assert outcome(answer, method) == expected(page.decision, visitor), told
            assert answer.status_code < 500 or page.name == "readyz", told
            if outcome(answer, method) == "let in" and page.name != "api:api-root":
                assert answer.status_code != 404, told


def test_whoever_may_only_read_or_label_changes_nothing_but_what_is_theirs(run: Run) -> None:
    everybody = visitors()
    addresses = Addresses(run, everybody[-1])
    changing = set()
    for page in PAGES:
        if page.decision in (access.EVERYONE, access.PER_OPERATION):
            continue
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            with transaction.atomic():
                answer = client_of(everybody[-1]).generic(method, addresses.of(page))
                transaction.set_rollback(True)
            if answer.status_code != 405:
                changing.add(page.name)
                assert Role(page.decision).includes(Role.OPERATOR) or page.name in OWN, (page.name, method)
    assert changing >= {
        "launch",
        "run_cancel",
        "endpoint_new",
        "people",
        "person_role",
        "person_deactivate",
        *OWN,
    }


def test_reading_changes_no_row(run: Run) -> None:
    everybody = visitors()
    addresses = Addresses(run, everybody[-1])
    client = client_of(everybody[-1])
    for page in PAGES:
        if page.name == "sign_in_by_link" or page.decision == access.PER_OPERATION:
            continue
        with CaptureQueriesContext(
            connection,
        ) as queries:
            client.get(addresses.of(page))
        writes = [
            query["sql"]
            for query in queries
            if query["sql"].startswith(("INSERT", "UPDATE", "DELETE"))
            and "django_session" not in query["sql"]
        ]
        assert writes == [], page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_takes_a_form_that_comes_without_its_token(page: Page, run: Run) -> None:
    everybody = visitors()
    addresses = Addresses(run, everybody[-1])
    for visitor in (everybody[0], everybody[-1]):
        with transaction.atomic():
            client = Client(enforce_csrf_checks=True)
            if visitor.user is not None:
                client.force_login(visitor.user)
            for headers in ({}, {"origin": "https://evil.example"}):
                answer = client.post(addresses.of(page), {"theme": "dark"}, headers=headers)
                if page.decision == access.PER_OPERATION:
                    # No cookie signs anybody in here.
                    assert answer.status_code in (401, 405), (page.name, visitor.kind)
                else:
                    assert answer.status_code == 403, (page.name, visitor.kind)
                    assert "Not sent" in answer.content.decode()
            transaction.set_rollback(True)


def test_a_page_that_nobody_decided_about_is_refused_to_an_admin_too() -> None:
    def undecided(request: HttpRequest) -> HttpResponseBase:
        return HttpResponse("secret")

    middleware = AccessMiddleware(undecided)
    request = RequestFactory().get("/new/")
    everybody = visitors()
    request.user = everybody[0].asked
    answer = middleware.process_view(request, undecided, (), {})
    assert answer is not None
    assert answer.status_code == 302
    request.user = everybody[-1].asked
    with pytest.raises(PermissionDenied, match="Nobody has decided who may use /new/"):
        middleware.process_view(request, undecided, (), {})


def test_a_part_of_a_page_is_refused_by_401_and_no_page_is_put_in_its_place() -> None:
    for headers in ({"HX-Request": "true"}, {"X-Requested-With": "fetch"}):
        assert Client().get("/runs/1/map", headers=headers).status_code == 401


def test_an_absent_run_is_not_found_and_tells_a_stranger_nothing(run: Run) -> None:
    """One lab is one team: its members see every run, others learn not even which exist."""
    everybody = {visitor.kind: visitor for visitor in visitors()}
    for path in (
        "/runs/{}/",
        "/runs/{}/steps",
        "/runs/{}/events/1/body",
        "/runs/{}/events/1/raw",
        "/runs/{}/patch",
    ):
        for visitor in everybody.values():
            there = client_of(visitor).get(path.format(run.pk))
            absent = client_of(visitor).get(path.format(987_654_321))
            if visitor.holds(Role.VIEWER):
                assert absent.status_code == 404
            else:
                assert there.status_code == absent.status_code != 200
                assert outcome(there) == outcome(absent) != "let in"


def test_somebody_elses_token_is_not_found_by_who_is_no_admin(run: Run) -> None:
    everybody = visitors()
    token = tokens.make(by=everybody[-1].user, name="admin's", role="viewer").token
    operator = next(visitor for visitor in everybody if visitor.kind == Role.OPERATOR)
    for pk in (token.pk, 987_654_321):
        assert client_of(operator).post(f"/settings/tokens/{pk}/revoke").status_code == 404
    assert ApiToken.objects.get(pk=token.pk).revoked_at is None
    assert "admin&#x27;s" not in client_of(operator).get("/settings/tokens/").content.decode()
