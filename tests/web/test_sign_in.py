from __future__ import annotations

import datetime as dt

import pytest
import time_machine
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client

from lab.models import Membership, Role, SignInFailure
from lab.services import people
from lab.services.people import make_login_link
from tests.services.builders import person

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture
def carol() -> User:
    user = person(Role.OPERATOR, "carol")
    user.set_password(PASSWORD)
    user.save()
    return user


def test_name_and_password_lead_to_the_page_one_wanted(carol: User) -> None:
    client = Client()
    form = client.get("/tasks/", follow=True).content.decode()
    assert 'name="next" value="/tasks/"' in form
    answer = client.post("/sign-in/", {"name": "carol", "password": PASSWORD, "next": "/tasks/"})
    assert (answer.status_code, answer.url) == (302, "/tasks/")
    assert client.get("/tasks/").status_code == 200


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example/", "javascript:alert(1)", "\\\\evil", ""]
)
def test_signing_in_leads_nowhere_else(carol: User, target: str) -> None:
    answer = Client().post("/sign-in/", {"name": "carol", "password": PASSWORD, "next": target})
    assert answer.url == "/"


def test_a_wrong_password_keeps_the_name_and_never_shows_the_password(carol: User) -> None:
    answer = Client().post("/sign-in/", {"name": "carol", "password": "wr0ng-one", "next": "/tasks/"})
    html = answer.content.decode()
    assert answer.status_code == 422
    assert "Name or password is wrong" in html
    assert 'value="carol"' in html
    assert 'name="next" value="/tasks/"' in html
    assert "wr0ng-one" not in html
    assert "no-store" in answer.headers["Cache-Control"]


def test_an_empty_field_is_named(carol: User) -> None:
    html = Client().post("/sign-in/", {"name": "", "password": ""}).content.decode()
    assert "write the name you have in this lab" in html
    assert html.count('aria-invalid="true"') == 2
    assert not SignInFailure.objects.exists()
    answer = Client().post("/sign-in/", {"name": "a\0b", "password": "x"})
    assert answer.status_code == 422


def test_whoever_guesses_is_told_how_long_to_wait(carol: User) -> None:
    client = Client(REMOTE_ADDR="192.0.2.1")
    # Comparing a password takes seconds on a busy machine.
    with time_machine.travel(dt.datetime.now(dt.UTC), tick=False):
        for _ in range(5):
            assert client.post("/sign-in/", {"name": "carol", "password": "wrong"}).status_code == 422
        answer = client.post("/sign-in/", {"name": "carol", "password": PASSWORD})
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "2"
    assert "Too many failed sign-ins for this name. Try again in" in answer.content.decode()
    assert {failure.address for failure in SignInFailure.objects.all()} == {"192.0.2.1"}
    link = make_login_link(base_url="http://testserver", person="carol")
    assert client.get(link.removeprefix("http://testserver")).url == "/"


def test_signing_in_gives_a_new_session_key(carol: User) -> None:
    client = Client()
    client.cookies["lab_session"] = "chosen-by-somebody-else"
    client.post("/sign-in/", {"name": "carol", "password": PASSWORD})
    first = client.cookies["lab_session"].value
    assert first != "chosen-by-somebody-else"
    assert Session.objects.get().pk == first
    link = make_login_link(base_url="http://testserver", person="carol")
    other = Client()
    other.cookies["lab_session"] = first
    other.post("/sign-out/")
    other.get(link.removeprefix("http://testserver"))
    assert other.cookies["lab_session"].value != first
    assert client.get("/").status_code == 302


def test_a_session_ends_and_its_cookie_is_no_scripts(carol: User) -> None:
    client = Client()
    client.post("/sign-in/", {"name": "carol", "password": PASSWORD})
    cookie = client.cookies["lab_session"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert 0 < cookie["max-age"] <= 14 * 24 * 3600
    client.get("/sign-in/")
    assert client.cookies["lab_csrf"]["httponly"]


def test_whoever_is_deactivated_is_signed_out_everywhere_and_stays_so(carol: User) -> None:
    admin = person(Role.ADMIN, "ann")
    clients = [Client(), Client()]
    for client in clients:
        client.post("/sign-in/", {"name": "carol", "password": PASSWORD})
        assert client.get("/").status_code == 200
    people.deactivate(by=admin, person=carol)
    assert [client.get("/").status_code for client in clients] == [302, 302]
    people.reactivate(by=admin, person=carol)
    assert [client.get("/").status_code for client in clients] == [302, 302]
    assert clients[0].post("/sign-in/", {"name": "carol", "password": PASSWORD}).url == "/"


def test_who_left_the_lab_may_still_sign_out(carol: User) -> None:
    client = Client()
    client.force_login(carol)
    Membership.objects.all().delete()
    answer = client.get("/")
    assert answer.status_code == 403
    assert "You do not belong to this lab" in answer.content.decode()
    assert client.post("/sign-out/").url == "/sign-in/"
