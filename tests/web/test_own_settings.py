from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from lab.models import Role
from tests.web.conftest import signed_in_as

pytestmark = pytest.mark.django_db
PASSWORD, OTHER = "correct horse battery", "staple of the battery"


def test_a_first_password_is_set_without_a_current_one(viewer: Client) -> None:
    assert "You have none, and sign in by links" in viewer.get("/settings/").content.decode()
    answer = viewer.post("/settings/password/", {"new": PASSWORD, "again": PASSWORD}, follow=True)
    assert "The password is set" in answer.content.decode()
    assert 'name="current"' in answer.content.decode()
    name = User.objects.get().username
    assert Client().post("/sign-in/", {"name": name, "password": PASSWORD}).url == "/"


def test_a_change_keeps_this_browser_with_a_new_key_and_ends_the_others(viewer: Client) -> None:
    viewer.post("/settings/password/", {"new": PASSWORD, "again": PASSWORD})
    other = Client()
    other.post("/sign-in/", {"name": User.objects.get().username, "password": PASSWORD})
    key = viewer.cookies["lab_session"].value
    answer = viewer.post("/settings/password/", {"current": PASSWORD, "new": OTHER, "again": OTHER})
    assert answer.url == "/settings/"
    assert viewer.cookies["lab_session"].value != key
    assert viewer.get("/settings/").status_code == 200
    assert other.get("/settings/").status_code == 302
    stolen = Client()
    stolen.cookies["lab_session"] = key
    assert stolen.get("/settings/").status_code == 302


def test_a_password_that_cannot_be_used_is_said_beside_its_field_and_never_sent_back(viewer: Client) -> None:
    answer = viewer.post("/settings/password/", {"new": "sh0rt-one", "again": "an0ther-one"})
    html = answer.content.decode()
    assert answer.status_code == 422
    assert 'id="id_new_error"' in html
    assert "at least 12 characters" in html
    assert "differs from the new password" in html
    assert "sh0rt-one" not in html
    assert "an0ther-one" not in html
    assert not User.objects.get().has_usable_password()


def test_only_admins_are_led_to_the_people() -> None:
    for role in Role:
        html = signed_in_as(role).get("/settings/").content.decode()
        assert ("/settings/people/" in html) == (role is Role.ADMIN)
        assert "/settings/tokens/" in html
