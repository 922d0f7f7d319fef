from __future__ import annotations

import datetime as dt

import pytest
import time_machine
from django.contrib.auth.models import User

from lab.engine.key_shapes import mask_key_shapes
from lab.models import ApiToken, Role
from lab.services import tokens
from lab.services.access import role_of
from lab.services.errors import FieldErrors
from tests.services.builders import person


@pytest.fixture
def olga(db: None) -> User:
    """An operator."""
    return person(Role.OPERATOR, "olga")


def test_a_token_acts_for_its_person_in_its_role_and_only_its_hash_is_kept(olga: User) -> None:
    made = tokens.make(by=olga, name="  nightly report ", role="viewer", days="30")
    acting = tokens.person_of(secret=made.secret)
    assert (acting, role_of(acting)) == (olga, Role.VIEWER)
    row = ApiToken.objects.values().get()
    assert made.secret not in str(row)
    assert made.secret.startswith(f"{row['beginning']}")
    assert len(row["beginning"]) < len(made.secret) / 3
    assert (row["name"], row["expires_at"].date()) == (
        "nightly report",
        (dt.datetime.now(dt.UTC) + dt.timedelta(days=30)).date(),
    )


def test_two_tokens_are_never_alike(olga: User) -> None:
    made = [tokens.make(by=olga, name=f"n{number}", role="viewer").secret for number in range(20)]
    assert len(set(made)) == 20
    assert all(len(secret) >= 48 for secret in made)


def test_a_token_that_somebody_prints_is_masked_where_it_is_shown(olga: User) -> None:
    secret = tokens.make(by=olga, name="printed", role="viewer").secret
    assert secret not in mask_key_shapes(f"found {secret} in a file")


@pytest.mark.parametrize(
    ("typed", "field", "said"),
    [
        ({"name": "  "}, "name", "nothing was written"),
        ({"name": "x" * 101}, "name", "at most 100"),
        ({"name": "a\nb"}, "name", "cannot be seen"),
        ({"role": "admin"}, "role", "'admin' is more than your own role; choose operator or a lesser one"),
        ({"role": "king"}, "role", "'king' is no role; choose one of viewer, annotator, operator, admin"),
        ({"role": ""}, "role", "is no role"),
        ({"days": "0"}, "days", "'0' is no whole number of days from 1 to 3650; write 90"),
        ({"days": "-1"}, "days", "'-1' is no whole number"),
        ({"days": "3651"}, "days", "'3651' is no whole number"),
        ({"days": "1.5"}, "days", "'1.5' is no whole number"),
        ({"days": "٣"}, "days", "'٣' is no whole number"),
        ({"days": "9" * 5000}, "days", "is no whole number"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_and_makes_no_token(
    olga: User, typed: dict[str, str], field: str, said: str
) -> None:
    with pytest.raises(FieldErrors) as refusal:
        tokens.make(by=olga, **({"name": "nightly", "role": "viewer"} | typed))
    assert list(refusal.value.errors) == [field]
    assert said in refusal.value.errors[field]
    assert not ApiToken.objects.exists()


def test_everything_that_is_wrong_is_said_at_once(olga: User) -> None:
    with pytest.raises(FieldErrors) as refusal:
        tokens.make(by=olga, name="", role="king", days="x")
    assert set(refusal.value.errors) == {"name", "role", "days"}


def test_a_name_is_free_again_when_its_token_ended(olga: User) -> None:
    first = tokens.make(by=olga, name="nightly", role="viewer", days="1")
    with pytest.raises(FieldErrors, match="is the name of a token that you have"):
        tokens.make(by=olga, name="nightly", role="viewer")
    tokens.make(by=person(Role.VIEWER, "other"), name="nightly", role="viewer")
    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(days=2)):
        second = tokens.make(by=olga, name="nightly", role="viewer")
    tokens.revoke(by=olga, token=second.token)
    tokens.revoke(by=olga, token=first.token)
    tokens.make(by=olga, name="nightly", role="viewer")


def test_one_sees_ones_own_tokens_and_an_admin_everybodys(olga: User) -> None:
    admin = person(Role.ADMIN, "ann")
    made = [tokens.make(by=somebody, name="mine", role="viewer").token for somebody in (olga, admin)]
    assert list(tokens.visible(by=olga)) == made[:1]
    assert list(tokens.visible(by=admin)) == made[::-1]


@pytest.mark.parametrize(
    "secret", ["", "x", "tlab_", "tlab_" + "a" * 43, "\ud800", "tlab_\ud800", "a" * 100_000]
)
def test_a_made_up_token_lets_nobody_in(db: None, secret: str) -> None:
    with pytest.raises(tokens.TokenError, match="not known"):
        tokens.person_of(secret=secret)
