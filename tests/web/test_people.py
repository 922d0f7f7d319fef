from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from lab.models import Membership, Role
from lab.services.people import make_login_link

PAGES = [
    "/",
    "/experiments/",
    "/tasks/",
    "/harnesses/",
    "/endpoints/",
    "/endpoints/new/",
    "/settings/",
    "/settings/people/",
    "/settings/tokens/",
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


def add(admin: Client, name: str, role: str = "viewer") -> User:
    assert admin.post("/settings/people/", {"name": name, "role": role}).status_code == 200
    return User.objects.get(username=name)


def test_an_admin_adds_a_person_whose_link_is_shown_once(admin: Client) -> None:
    answer = admin.post("/settings/people/", {"name": "carol", "role": "operator"})
    (link,) = re.findall(r'value="(http://testserver/sign-in/[^"]+)"', answer.content.decode())
    assert "no-store" in answer.headers["Cache-Control"]
    assert "/sign-in/" not in admin.get("/settings/people/").content.decode()
    carol = Client()
    assert carol.get(link.removeprefix("http://testserver")).url == "/"
    assert "You are carol, operator" in carol.get("/settings/").content.decode()


def test_a_value_that_cannot_be_used_is_said_beside_its_field_and_stays(admin: Client) -> None:
    answer = admin.post("/settings/people/", {"name": "a <b>", "role": "king"})
    html = answer.content.decode()
    assert answer.status_code == 422
    assert "“a &lt;b&gt;” holds other characters" in html
    assert "“king” is no role; choose one of" in html
    assert 'value="a &lt;b&gt;"' in html
    assert html.count('aria-invalid="true"') == 2
    assert User.objects.count() == 1


def test_a_role_is_changed_at_once_in_open_sessions_too(admin: Client) -> None:
    carol = add(admin, "carol")
    client = Client()
    client.force_login(carol)
    assert client.post("/launch/").status_code == 403
    answer = admin.post(f"/settings/people/{carol.pk}/role", {"role": "operator"}, follow=True)
    assert "carol is operator now." in answer.content.decode()
    assert client.post("/launch/").status_code == 422


def test_the_last_admin_is_told_beside_their_row_and_stays_admin(admin: Client) -> None:
    add(admin, "carol")
    own = Membership.objects.get(role=Role.ADMIN)
    for action, typed in (("role", {"role": "annotator"}), ("deactivate", {})):
        answer = admin.post(f"/settings/people/{own.user_id}/{action}", typed)
        html = answer.content.decode()
        assert answer.status_code == 422
        assert "is the last active admin; make somebody else admin first" in html
        assert html.count('class="error"') == 1
    assert (
        '<option value="annotator" selected>'
        in admin.post(f"/settings/people/{own.user_id}/role", {"role": "annotator"}).content.decode()
    )
    assert Membership.objects.get(pk=own.pk).role == Role.ADMIN


def test_an_admin_who_gives_the_role_up_is_led_where_they_may_be(admin: Client) -> None:
    carol = add(admin, "carol")
    own = Membership.objects.get(role=Role.ADMIN).user_id
    admin.post(f"/settings/people/{carol.pk}/role", {"role": "admin"})
    answer = admin.post(f"/settings/people/{own}/role", {"role": "viewer"}, follow=True)
    assert answer.status_code == 200
    assert admin.get("/settings/people/").status_code == 403


def test_a_person_is_deactivated_gets_no_link_and_is_let_in_again(admin: Client) -> None:
    carol = add(admin, "carol")
    assert (
        "signed out and shut out"
        in admin.post(f"/settings/people/{carol.pk}/deactivate", follow=True).content.decode()
    )
    answer = admin.post(f"/settings/people/{carol.pk}/link")
    assert answer.status_code == 422
    assert "“carol” is not active, and no link signs them in" in answer.content.decode()
    assert "deactivated" in admin.get("/settings/people/").content.decode()
    admin.post(f"/settings/people/{carol.pk}/reactivate")
    html = admin.post(f"/settings/people/{carol.pk}/link").content.decode()
    assert "http://testserver/sign-in/" in html


def test_who_does_not_belong_to_the_lab_has_no_row(admin: Client) -> None:
    stranger = User.objects.create_user("stranger")
    assert "stranger" not in admin.get("/settings/people/").content.decode()
    for action in ("role", "link", "deactivate", "reactivate"):
        assert admin.post(f"/settings/people/{stranger.pk}/{action}").status_code == 404


@pytest.mark.django_db
def test_a_form_that_comes_without_its_token_says_what_to_do() -> None:
    answer = Client(enforce_csrf_checks=True).post("/launch/")
    assert answer.status_code == 403
    assert "Go back, reload the page, and send it again" in answer.content.decode()
