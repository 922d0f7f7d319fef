from __future__ import annotations

import re

from django.test import Client

from lab.models import ApiToken, Role
from lab.services import tokens
from tests import builders


def test_a_token_is_shown_once_and_its_row_tells_it_apart(operator: Client) -> None:
    answer = operator.post("/settings/tokens/", {"name": "nightly", "role": "viewer", "days": "30"})
    html = answer.content.decode()
    (secret,) = re.findall(r'value="(tlab_[^"]+)"', html)
    assert "no-store" in answer.headers["Cache-Control"]
    later = operator.get("/settings/tokens/").content.decode()
    assert secret not in later
    assert f"{secret[:10]}…" in later
    assert ">never<" in later
    assert Client().get("/api/v1/runs/1", headers={"Authorization": f"Bearer {secret}"}).status_code == 404
    assert ">never<" not in operator.get("/settings/tokens/").content.decode()


def test_only_roles_one_has_are_offered(operator: Client) -> None:
    html = operator.get("/settings/tokens/").content.decode()
    assert re.findall(r'<option value="(\w+)"', html) == ["viewer", "annotator", "operator"]


def test_a_value_that_cannot_be_used_is_said_beside_its_field_and_stays(operator: Client) -> None:
    answer = operator.post("/settings/tokens/", {"name": "nightly", "role": "admin", "days": "5,5"})
    html = answer.content.decode()
    assert answer.status_code == 422
    assert "“admin” is more than your own role; choose operator or a lesser one" in html
    assert "“5,5” is no whole number of days" in html
    assert 'value="nightly"' in html
    assert 'value="5,5"' in html
    assert not ApiToken.objects.exists()


def test_a_token_is_revoked_by_its_person_and_everybodys_by_an_admin(operator: Client, admin: Client) -> None:
    operator.post("/settings/tokens/", {"name": "nightly", "role": "viewer"})
    other = tokens.make(by=builders.person(Role.VIEWER, name="vera"), name="vera's", role="viewer").token
    own = ApiToken.objects.exclude(pk=other.pk).get()
    assert "Revoke nightly" in operator.get("/settings/tokens/").content.decode()
    answer = operator.post(f"/settings/tokens/{own.pk}/revoke", follow=True)
    assert "The token nightly lets nobody in any more" in answer.content.decode()
    html = admin.get("/settings/tokens/").content.decode()
    assert "vera</td>" in html
    assert "Revoke nightly" not in html
    admin.post(f"/settings/tokens/{other.pk}/revoke")
    assert not ApiToken.objects.filter(revoked_at=None).exists()


def test_the_empty_list_says_what_would_be_there(viewer: Client) -> None:
    assert "Here would be the tokens" in viewer.get("/settings/tokens/").content.decode()
