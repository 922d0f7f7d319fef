"""Signing in with a password: slowed down for whoever guesses, and ended everywhere when it must be.

Passwords are a convenience. A sign-in link works whatever was guessed, so nobody is ever locked out for good.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import math
import unicodedata
from collections.abc import Callable, Mapping
from typing import NamedTuple

from django.contrib.auth import SESSION_KEY, authenticate, password_validation
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Count, Max, QuerySet
from django.utils import timezone

from lab.engine.errors import LabError
from lab.models import Role, SignInFailure, SignInLink
from lab.services.access import for_role, role_of
from lab.services.errors import FieldErrorCollector

# Failures older than this no longer count.
WINDOW = dt.timedelta(hours=1)
FIRST_WAIT_SECONDS = 2.0
LONGEST_WAIT_SECONDS = 300.0
LONGEST_PASSWORD = 1000
_USED_LINKS_KEPT = dt.timedelta(days=30)


class _Tries(NamedTuple):
    """How many failures pass without a wait, and what the wait is for."""

    free: int
    of: str


# An address is shared by a whole office, a name belongs to one person.
_BY_NAME = _Tries(5, "for this name")
_BY_ADDRESS = _Tries(20, "from this address")


class SignInError(LabError):
    """Name and password sign nobody in; the text says what to do."""


class SignInThrottledError(SignInError):
    """Too many failures lately; nothing was compared. `seconds` is how long to wait."""

    def __init__(self, seconds: int, why: str) -> None:
        self.seconds = seconds
        super().__init__(
            f"Too many failed sign-ins {why}. Try again in {_duration(seconds)}, or use a sign-in link: an "
            "admin makes one under Settings, and `manage.py login_link` prints one."
        )


def with_password(*, name: str, password: str, address: str) -> User:
    """The person with this name and password.

    It takes the same time whether the name is known or not. `address` is where the request comes from; of an
    IPv6 address the network of 64 bits counts, which is what one subscriber has.

    Raises:
        SignInThrottledError: too many failures for this name or from this address within the last hour.
        SignInError: name or password is wrong, or the person does not belong to the lab any more.
    """
    # No name holds a NUL, and PostgreSQL cannot look for one.
    name = User.normalize_username(name.replace("\0", "").strip())

    def compare() -> User | None:
        user = authenticate(username=name, password=password[: LONGEST_PASSWORD + 1])
        return user if isinstance(user, User) and role_of(user) is not None else None

    user = _slowed(name, address, compare)
    if user is None:
        raise SignInError("Name or password is wrong. Without a password, use a sign-in link.")
    return user


@for_role(Role.VIEWER)
def set_password(*, by: User, address: str, current: str, new: str, again: str) -> None:
    """Give oneself a password. Every session of the person ends, and links that were not used are worthless.

    `current` is compared when there is a password already.

    Raises:
        FieldErrors: for "current", "new" and "again".
    """
    errors = FieldErrorCollector()
    if by.has_usable_password():
        try:
            if (
                _slowed(by.get_username(), address, lambda: by if by.check_password(current) else None)
                is None
            ):
                errors.say("current", "This is not your password; write the one you sign in with now.")
        except SignInThrottledError as error:
            errors.say("current", str(error))
    _check_new(by, new, errors)
    if new != again:
        errors.say("again", "This differs from the new password; write the same twice.")
    errors.raise_if_any()
    with transaction.atomic():
        by.set_password(new)
        by.save(update_fields=["password"])
        sign_out_everywhere(user=by)


def sign_out_everywhere(*, user: User) -> None:
    """End every session of the person; links that were not used are worthless."""
    SignInLink.objects.filter(user=user, used_at=None).delete()
    key = str(user.pk)
    # A session does not say whose it is before it is decoded; a lab has few.
    own = [row.pk for row in Session.objects.iterator() if row.get_decoded().get(SESSION_KEY) == key]
    Session.objects.filter(pk__in=own).delete()


def forget_old() -> None:
    """Remove what no longer counts: old failures, sessions that have ended, links that sign nobody in."""
    now = timezone.now()
    SignInFailure.objects.filter(at__lt=now - WINDOW).delete()
    Session.objects.filter(expire_date__lt=now).delete()
    SignInLink.objects.filter(expires_at__lt=now - _USED_LINKS_KEPT).delete()


def _slowed(name: str, address: str, compare: Callable[[], User | None]) -> User | None:
    """What `compare` gives, unless this name or address must wait.

    Each try is counted as a failure before it is looked at and taken back afterwards, so that a hundred at
    once are no more than a hundred one by one.

    Raises:
        SignInThrottledError: nothing was compared and nothing was counted.
    """
    name, address = _folded(name), network_of(address)
    # Who must wait leaves no trace: a flood of such tries does not make anybody else's wait longer.
    _refuse(name, address)
    mine = SignInFailure.objects.create(name=name, address=address)
    try:
        _refuse(name, address, but=mine.pk)
    except SignInThrottledError:
        mine.delete()
        raise
    user = compare()
    if user is not None:
        SignInFailure.objects.filter(name=name).delete()
    return user


def _refuse(name: str, address: str, *, but: int = 0) -> None:
    """
    Raises:
        SignInThrottledError: the failures lately, `but` one, are too many for this name or from this address.
    """
    lately = SignInFailure.objects.filter(at__gt=timezone.now() - WINDOW).exclude(pk=but)
    for tries, failures in (
        (_BY_NAME, lately.filter(name=name)),
        (_BY_ADDRESS, lately.filter(address=address)),
    ):
        if seconds := _wait(failures, tries.free):
            raise SignInThrottledError(seconds, tries.of)


def _wait(failures: QuerySet[SignInFailure], free: int) -> int:
    """Seconds still to wait: twice as long after each failure beyond the free ones, five minutes at most."""
    found: Mapping[str, object] = failures.aggregate(count=Count("pk"), last=Max("at"))
    count, last = found["count"], found["last"]
    if not isinstance(count, int) or not isinstance(last, dt.datetime) or count < free:
        return 0
    wait = min(FIRST_WAIT_SECONDS * 2.0 ** min(count - free, 20), LONGEST_WAIT_SECONDS)
    return max(0, math.ceil(wait - (timezone.now() - last).total_seconds()))


def network_of(address: str) -> str:
    """What stands for an address in counts: itself, of IPv6 its network of 64 bits."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if parsed.version == 4:
        return str(parsed)
    if mapped := getattr(parsed, "ipv4_mapped", None):
        return str(mapped)
    return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()[:200]


def _check_new(user: User, new: str, errors: FieldErrorCollector) -> None:
    if not new:
        errors.say("new", "Write a new password.")
    elif len(new) > LONGEST_PASSWORD:
        errors.say("new", f"This has {len(new):,} characters; use at most {LONGEST_PASSWORD:,}.")
    else:
        try:
            password_validation.validate_password(new, user=user)
        except ValidationError as error:
            errors.say("new", " ".join(error.messages))


def _duration(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
