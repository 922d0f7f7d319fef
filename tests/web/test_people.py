from __future__ import annotations

import pytest
from django.test import Client

from lab.models import Membership
from lab.services.people import make_login_link

PAGES = [
    "/",
    "/experiments/",
    "/tasks/",
    "/harnesses/",
    "/endpoints/",
    "/endpoints/new/",
    "/settings/",
    "/runs/1/",
]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.django_db
def test_every_page_is_behind_the_sign_in(path: str) -> None:
    answer = Client().get(path)
    assert (answer.status_code, answer.url) == (302, f"/sign-in/?next={path}")


@pytest.mark.django_db
def test_a_link_signs_in_once_and_then_says_why_not() -> None:
    path = make_login_link(base_url="http://testserver").removeprefix("http://testserver")
    client, other = Client(), Client()
    assert client.get(path).url == "/"
    assert client.get("/").status_code == 200
    refused = other.get(path)
    assert refused.status_code == 403
    assert "has been used; each works once" in refused.content.decode()
    assert "manage.py login_link" in refused.content.decode()
    assert other.get("/").status_code == 302
    assert "not known" in other.get("/sign-in/made-up/").content.decode()


def test_signing_out_ends_the_session(viewer: Client) -> None:
    assert viewer.get("/sign-out/").status_code == 405
    assert viewer.post("/sign-out/").url == "/sign-in/"
    assert viewer.get("/").status_code == 302


def test_theme_and_keys_are_kept_for_the_person(viewer: Client) -> None:
    viewer.post("/settings/theme/", {"theme": "dark", "next": "/tasks/"})
    html = viewer.get("/tasks/").content.decode()
    assert 'data-theme="dark"' in html
    viewer.post("/settings/", {"theme": "light"})
    html = viewer.get("/").content.decode()
    assert 'data-theme="light"' in html
    assert 'data-single-keys="off"' in html


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_changing_the_theme_leads_nowhere_else(viewer: Client, target: str) -> None:
    assert viewer.post("/settings/theme/", {"theme": "dark", "next": target}).url == "/"


@pytest.mark.parametrize("path", ["/settings/theme/", "/settings/"])
def test_an_unknown_theme_is_refused(viewer: Client, path: str) -> None:
    answer = viewer.post(path, {"theme": "pink"}, follow=True)
    assert answer.status_code == 200
    assert "pink" in answer.content.decode()
    assert Membership.objects.get().theme == ""


@pytest.mark.django_db
def test_a_form_without_its_token_is_refused() -> None:
    assert Client(enforce_csrf_checks=True).post("/launch/").status_code in (302, 403)
