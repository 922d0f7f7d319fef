from __future__ import annotations

import datetime as dt

import pytest
import time_machine
from django.contrib.auth.models import AnonymousUser, User

from lab.engine.errors import InvalidValueError
from lab.models import Role, SignInLink
from lab.services import access, people
from lab.services.errors import AccessDeniedError
from tests.services.builders import person

BASE = "http://127.0.0.1:8000"


def token_of(link: str) -> str:
    return link.rstrip("/").rsplit("/", 1)[1]


def test_the_first_link_makes_an_admin_and_signs_them_in(db: None) -> None:
    link = people.make_login_link(base_url=BASE + "/")
    assert link.startswith(f"{BASE}/sign-in/")
    user = people.use_login_link(token=token_of(link))
    assert user.username == "admin"
    assert access.role_of(user) is Role.ADMIN
    assert not user.has_usable_password()


def test_a_link_works_once(db: None) -> None:
    token = token_of(people.make_login_link(base_url=BASE))
    people.use_login_link(token=token)
    with pytest.raises(people.SignInLinkError, match="has been used"):
        people.use_login_link(token=token)


def test_a_link_expires_after_a_day(db: None) -> None:
    token = token_of(people.make_login_link(base_url=BASE))
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=24, minutes=1)
    with time_machine.travel(later), pytest.raises(people.SignInLinkError, match="expired"):
        people.use_login_link(token=token)


def test_a_link_that_replaces_makes_earlier_ones_worthless_and_others_do_not(db: None) -> None:
    first = token_of(people.make_login_link(base_url=BASE))
    second = token_of(people.make_login_link(base_url=BASE))
    third = token_of(people.make_login_link(base_url=BASE, replace=True))
    for old in (first, second):
        with pytest.raises(people.SignInLinkError, match="not known"):
            people.use_login_link(token=old)
    more = token_of(people.make_login_link(base_url=BASE))
    assert people.use_login_link(token=third) == people.use_login_link(token=more)


def test_the_token_itself_is_not_stored(db: None) -> None:
    token = token_of(people.make_login_link(base_url=BASE))
    assert token not in str(list(SignInLink.objects.values()))


@pytest.mark.parametrize("token", ["", "x", "\ud800", "a" * 5000])
def test_a_made_up_token_signs_nobody_in(db: None, token: str) -> None:
    with pytest.raises(people.SignInLinkError, match="login_link"):
        people.use_login_link(token=token)


def test_nobody_has_a_role_before_signing_in(db: None) -> None:
    assert access.role_of(AnonymousUser()) is None
    with pytest.raises(AccessDeniedError, match="Sign in first"):
        access.require(AnonymousUser(), Role.VIEWER)


@pytest.mark.parametrize("held", list(Role))
def test_a_role_may_do_what_the_ones_before_it_may_and_no_more(db: None, held: Role) -> None:
    user = person(held, "carol")
    order = list(Role)
    for needed in order:
        if order.index(needed) <= order.index(held):
            assert access.require(user, needed) is held
        else:
            with pytest.raises(AccessDeniedError, match=f"role {needed.value}; yours is {held.value}"):
                access.require(user, needed)


def test_a_person_who_was_shut_out_has_no_role(alice: User) -> None:
    alice.is_active = False
    assert access.role_of(alice) is None


def test_theme_and_single_keys_are_kept_for_the_person(alice: User, bob: User) -> None:
    people.set_theme(by=alice, theme="dark")
    people.set_single_keys(by=alice, on=False)
    alice.membership.refresh_from_db()
    bob.membership.refresh_from_db()
    assert (alice.membership.theme, alice.membership.single_keys) == ("dark", False)
    assert (bob.membership.theme, bob.membership.single_keys) == ("", True)


def test_an_unknown_theme_is_refused(alice: User) -> None:
    with pytest.raises(InvalidValueError, match="theme: 'pink' is not known; choose light, dark"):
        people.set_theme(by=alice, theme="pink")
