from __future__ import annotations

import contextlib
import datetime as dt
import threading

import pytest
import time_machine
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection

from lab.engine.errors import InvalidValueError
from lab.models import Membership, Role, SignInLink
from lab.services import access, people
from lab.services.errors import AccessDeniedError, FieldErrors
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


def test_the_command_makes_a_link_for_a_person_by_name(alice: User, bob: User) -> None:
    link = people.make_login_link(base_url=BASE, person="bob")
    assert people.use_login_link(token=token_of(link)) == bob
    with pytest.raises(
        InvalidValueError, match=r"person: 'eve' is nobody who may sign in; known are alice, bob"
    ):
        people.make_login_link(base_url=BASE, person="eve")
    people.deactivate(by=alice, person=bob)
    with pytest.raises(InvalidValueError, match="'bob' is nobody who may sign in; known are alice"):
        people.make_login_link(base_url=BASE, person="bob")


def test_somebody_new_signs_in_by_the_link_in_the_role_they_were_given(alice: User) -> None:
    invited = people.add(by=alice, name=" Ｃarol ", role="operator", base_url=BASE)
    assert invited.person.username == "Carol"
    assert not invited.person.has_usable_password()
    user = people.use_login_link(token=token_of(invited.link))
    assert (user, access.role_of(user)) == (invited.person, Role.OPERATOR)


@pytest.mark.parametrize(
    ("name", "role", "field", "said"),
    [
        ("", "viewer", "name", "nothing was written"),
        ("x" * 151, "viewer", "name", "has 151 characters; use at most 150"),
        ("a b", "viewer", "name", "'a b' holds other characters than letters, digits and @ . + - _"),
        ("<b>", "viewer", "name", "holds other characters"),
        ("a\0b", "viewer", "name", "holds other characters"),
        ("bob", "viewer", "name", "'bob' is somebody's name already"),
        ("BOB", "viewer", "name", "is somebody's name already"),
        ("carol", "boss", "role", "'boss' is no role; choose one of viewer, annotator, operator, admin"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_and_adds_nobody(
    alice: User, bob: User, name: str, role: str, field: str, said: str
) -> None:
    with pytest.raises(FieldErrors) as refusal:
        people.add(by=alice, name=name, role=role, base_url=BASE)
    assert list(refusal.value.errors) == [field]
    assert said in refusal.value.errors[field]
    assert User.objects.count() == 2


def test_another_link_makes_earlier_ones_worthless(alice: User, bob: User) -> None:
    first = token_of(people.invite_again(by=alice, person=bob, base_url=BASE).link)
    second = token_of(people.invite_again(by=alice, person=bob, base_url=BASE).link)
    with pytest.raises(people.SignInLinkError, match="newer one has replaced it"):
        people.use_login_link(token=first)
    assert people.use_login_link(token=second) == bob
    people.deactivate(by=alice, person=bob)
    bob.refresh_from_db()
    with pytest.raises(FieldErrors, match="'bob' is not active"):
        people.invite_again(by=alice, person=bob, base_url=BASE)


def test_the_last_active_admin_stays_one(alice: User, bob: User) -> None:
    with pytest.raises(FieldErrors, match="role: 'viewer' cannot be: alice is the last active admin"):
        people.set_role(by=alice, person=alice, role="viewer")
    with pytest.raises(FieldErrors, match="person: 'alice' cannot be: alice is the last active admin"):
        people.deactivate(by=alice, person=alice)
    people.set_role(by=alice, person=bob, role="admin")
    people.deactivate(by=alice, person=bob)
    with pytest.raises(FieldErrors, match="last active admin"):
        people.deactivate(by=alice, person=alice)
    people.reactivate(by=alice, person=bob)
    people.set_role(by=alice, person=alice, role="viewer")
    alice.refresh_from_db()
    assert access.role_of(User.objects.get(pk=alice.pk)) is Role.VIEWER


@pytest.mark.django_db(transaction=True)
def test_two_admins_who_demote_each_other_at_once_leave_one() -> None:
    pair = [person(Role.ADMIN, "one"), person(Role.ADMIN, "two")]
    ready = threading.Barrier(2)

    def demote(by: User, other: User) -> None:
        ready.wait()
        with contextlib.suppress(FieldErrors):
            people.set_role(by=by, person=other, role="viewer")
        connection.close()

    threads = [threading.Thread(target=demote, args=(pair[at], pair[1 - at])) for at in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Membership.objects.filter(role=Role.ADMIN).count() == 1


def test_who_can_run_a_command_gets_in_again_whatever_happened(alice: User) -> None:
    User.objects.update(is_active=False)
    user = people.use_login_link(token=token_of(people.make_login_link(base_url=BASE)))
    assert access.role_of(user) is Role.ADMIN
