from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from importlib import import_module

import pytest
import time_machine
from django.conf import LazySettings, global_settings, settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection

from lab.models import Membership, Role, SignInFailure, SignInLink
from lab.services import people, sign_in
from lab.services.errors import FieldErrors
from tests.services.builders import person
from tests.timing import seconds_of

PASSWORD, WRONG = "correct horse battery", "wrong"
HERE, THERE = "192.0.2.1", "198.51.100.7"


@pytest.fixture(autouse=True)
def still_clock() -> Iterator[None]:
    """Comparing a password takes seconds on a busy machine, and waits are short."""
    with time_machine.travel(dt.datetime.now(dt.UTC), tick=False):
        yield


@pytest.fixture
def carol(db: None) -> User:
    """An admin with a password."""
    user = person(Role.ADMIN, "carol")
    user.set_password(PASSWORD)
    user.save()
    return user


def fail(times: int, *, name: str = "carol", address: str = HERE) -> None:
    """Failures that were made a moment ago, without the time that comparing a password costs."""
    SignInFailure.objects.bulk_create(SignInFailure(name=name, address=address) for _ in range(times))


def try_it(*, name: str = "carol", password: str = WRONG, address: str = HERE) -> User:
    return sign_in.with_password(name=name, password=password, address=address)


def test_name_and_password_sign_in_and_failures_before_are_forgotten(carol: User) -> None:
    fail(3)
    assert try_it(name=" carol ", password=PASSWORD) == carol
    assert not SignInFailure.objects.exists()


@pytest.mark.parametrize("name", ["carol", "nobody-at-all", "", "Carol", "x" * 5000, "näme"])
def test_a_wrong_name_or_password_says_the_same_and_is_counted(carol: User, name: str) -> None:
    with pytest.raises(sign_in.SignInError, match="Name or password is wrong"):
        try_it(name=name)
    assert SignInFailure.objects.count() == 1


def test_who_has_no_password_is_deactivated_or_no_member_does_not_sign_in(carol: User) -> None:
    linked = person(Role.VIEWER, "linked")
    assert not linked.has_usable_password() or linked.password == ""
    for name in ("linked", "carol", "former"):
        if name == "carol":
            User.objects.filter(pk=carol.pk).update(is_active=False)
        if name == "former":
            former = User.objects.create_user("former", password=PASSWORD)
            assert not Membership.objects.filter(user=former).exists()
        with pytest.raises(sign_in.SignInError, match="Name or password is wrong"):
            try_it(name=name, password=PASSWORD)


def test_five_failures_for_a_name_make_one_wait_and_say_how_long(carol: User) -> None:
    fail(4)
    with pytest.raises(sign_in.SignInError, match="is wrong"):
        try_it()
    with pytest.raises(
        sign_in.SignInThrottledError, match=r"for this name\. Try again in 2 s, or use a sign-in link"
    ):
        try_it(password=PASSWORD, address=THERE)
    assert SignInFailure.objects.count() == 5
    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=3)):
        assert try_it(password=PASSWORD, address=THERE) == carol


def test_the_wait_doubles_up_to_five_minutes_and_nobody_is_shut_out_for_good(carol: User) -> None:
    fail(60)
    with pytest.raises(sign_in.SignInThrottledError, match="Try again in 5 min") as refusal:
        try_it(password=PASSWORD)
    assert refusal.value.seconds == sign_in.LONGEST_WAIT_SECONDS
    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(minutes=5, seconds=1)):
        assert try_it(password=PASSWORD) == carol
    fail(9)
    with pytest.raises(sign_in.SignInThrottledError) as refusal:
        try_it()
    assert refusal.value.seconds == 32


def test_a_link_works_whatever_was_guessed(carol: User) -> None:
    fail(200)
    token = people.make_login_link(base_url="http://lab", person="carol").rstrip("/").rsplit("/", 1)[1]
    assert people.use_login_link(token=token) == carol


def test_tries_with_many_names_are_slowed_by_their_address_and_others_are_not(carol: User) -> None:
    for number in range(20):
        fail(1, name=f"guess-{number}")
    with pytest.raises(sign_in.SignInThrottledError, match="from this address"):
        try_it(password=PASSWORD)
    assert try_it(password=PASSWORD, address=THERE) == carol


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("", "", True),
    ],
)
def test_of_a_long_address_the_subscribers_network_counts(first: str, second: str, same: bool) -> None:
    assert (sign_in.network_of(first) == sign_in.network_of(second)) == same


def test_writings_of_one_name_are_one_name(carol: User) -> None:
    fail(5)
    for name in ("CAROL", "ｃａｒｏｌ", " carol"):
        with pytest.raises(sign_in.SignInThrottledError):
            try_it(name=name)


@pytest.mark.django_db(transaction=True)
def test_a_hundred_tries_at_once_are_no_more_than_one_by_one() -> None:
    compared: list[str] = []

    def attempt() -> None:
        try:
            sign_in._slowed("dave", HERE, lambda: compared.append("once"))  # type: ignore[func-returns-value, arg-type]
        except sign_in.SignInThrottledError:
            pass
        finally:
            connection.close()

    threads = [threading.Thread(target=attempt) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compared) <= 5
    # Tries that had to wait were not counted.
    assert SignInFailure.objects.count() == len(compared)


@pytest.fixture
def slow_hasher(settings: LazySettings) -> None:
    settings.PASSWORD_HASHERS = global_settings.PASSWORD_HASHERS


@pytest.mark.serial
def test_a_name_that_nobody_has_takes_as_long_as_one_with_a_wrong_password(
    slow_hasher: None, carol: User
) -> None:
    def fails(name: str) -> None:
        with pytest.raises(sign_in.SignInError):
            try_it(name=name)
        SignInFailure.objects.all().delete()

    # Of several measurements the one that was disturbed least.
    known, unknown = [
        min(measured)
        for measured in zip(
            *((seconds_of(lambda: fails("carol")), seconds_of(lambda: fails("nobody"))) for _ in range(4)),
            strict=True,
        )
    ]
    # Without the same work a name that nobody has would take about a hundredth.
    assert 0.3 < unknown / known < 3


def test_the_tick_forgets_what_no_longer_counts(carol: User) -> None:
    fail(2)
    people.make_login_link(base_url="http://lab", person="carol")
    store = import_module(settings.SESSION_ENGINE).SessionStore()
    store.set_expiry(60)
    store.create()
    sign_in.forget_old()
    assert (SignInFailure.objects.count(), Session.objects.count(), SignInLink.objects.count()) == (2, 1, 1)
    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(hours=1, minutes=1)):
        sign_in.forget_old()
        assert (SignInFailure.objects.count(), Session.objects.count(), SignInLink.objects.count()) == (
            0,
            0,
            1,
        )
    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(days=32)):
        sign_in.forget_old()
    assert not SignInLink.objects.exists()


def session_of(user: User) -> str:
    store = import_module(settings.SESSION_ENGINE).SessionStore()
    store[SESSION_KEY] = str(user.pk)
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store.create()
    return str(store.session_key)


def test_signing_out_everywhere_ends_the_sessions_of_one_person_alone(carol: User) -> None:
    other = person(Role.VIEWER, "other")
    sessions = [session_of(carol), session_of(carol), session_of(other)]
    people.make_login_link(base_url="http://lab", person="carol")
    people.make_login_link(base_url="http://lab", person="other")
    sign_in.sign_out_everywhere(user=carol)
    assert list(Session.objects.values_list("pk", flat=True)) == [sessions[2]]
    assert SignInLink.objects.get().user == other


@pytest.mark.django_db
def test_a_password_is_set_changed_and_then_the_old_one_is_wrong() -> None:
    dave = person(Role.VIEWER, "dave")
    dave.set_unusable_password()
    dave.save()
    session_of(dave)
    sign_in.set_password(by=dave, address=HERE, current="", new=PASSWORD, again=PASSWORD)
    assert not Session.objects.exists()
    assert try_it(name="dave", password=PASSWORD) == dave
    fresh = User.objects.get(pk=dave.pk)
    sign_in.set_password(
        by=fresh, address=HERE, current=PASSWORD, new="another long one", again="another long one"
    )
    with pytest.raises(sign_in.SignInError):
        try_it(name="dave", password=PASSWORD)
    assert try_it(name="dave", password="another long one") == dave


@pytest.mark.parametrize(
    ("typed", "field", "said"),
    [
        ({"current": "wrong"}, "current", "not your password"),
        ({"current": ""}, "current", "not your password"),
        ({"new": "", "again": ""}, "new", "Write a new password"),
        ({"new": "short", "again": "short"}, "new", "at least 12 characters"),
        ({"new": "password1234", "again": "password1234"}, "new", "too common"),
        ({"new": "918273645102", "again": "918273645102"}, "new", "entirely numeric"),
        ({"new": "x" * 1001, "again": "x" * 1001}, "new", "1,001 characters; use at most 1,000"),
        ({"again": "another long two"}, "again", "differs from the new password"),
    ],
)
def test_a_password_that_cannot_be_used_is_named_and_changes_nothing(
    carol: User, typed: dict[str, str], field: str, said: str
) -> None:
    asked = {"current": PASSWORD, "new": "another long one", "again": "another long one"} | typed
    session = session_of(carol)
    with pytest.raises(FieldErrors) as refusal:
        sign_in.set_password(by=carol, address=HERE, **asked)
    assert said in refusal.value.errors[field]
    assert set(refusal.value.errors) <= {field, "again"}
    assert Session.objects.get().pk == session
    assert User.objects.get(pk=carol.pk).check_password(PASSWORD)


def test_guessing_the_current_password_in_the_settings_is_slowed_too(carol: User) -> None:
    fail(5)
    with pytest.raises(FieldErrors, match="Too many failed sign-ins for this name"):
        sign_in.set_password(
            by=carol, address=THERE, current=PASSWORD, new="another long one", again="another long one"
        )
    assert User.objects.get(pk=carol.pk).check_password(PASSWORD)
