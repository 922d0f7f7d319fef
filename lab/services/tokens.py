"""API tokens: a program acts for a person, in a role no higher than that person's. Only hashes are kept."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from lab.engine.errors import InvalidValueError, LabError
from lab.engine.limits import as_typed
from lab.models import ApiToken, Role
from lab.services.access import cap_role, for_role, holds, require, role_of
from lab.services.errors import AccessDeniedError, FieldErrorCollector

# A mark, so that people and programs that look for leaked keys recognise one.
PREFIX = "tlab_"
LONGEST_DAYS = 3650
# The time of the last use is written at most this often: reading costs no write.
USE_RECORDED_EVERY = dt.timedelta(minutes=1)
_BEGINNING = 10


class Made(NamedTuple):
    """A new token and its text, which nobody can read again."""

    token: ApiToken
    secret: str


class TokenError(LabError):
    """The token lets nobody in; the text says why and what to do."""


@for_role(Role.VIEWER)
def make(*, by: User, name: str, role: str, days: str = "") -> Made:
    """A token of one's own.

    `days` is for how many days it holds, "" for as long as nobody revokes it.

    Raises:
        AccessDeniedError: `by` does not belong to the lab.
        FieldErrors: for "name", "role" and "days".
    """
    errors = FieldErrorCollector()
    name = name.strip()
    if not name:
        errors.say("name", "name: nothing was written; write what the token is for, such as nightly-report")
    elif len(name) > 100 or not name.isprintable():
        reason = "is too long or holds signs that cannot be seen; use at most 100 visible characters"
        errors.add(InvalidValueError("name", as_typed(name), reason))
    chosen = _role(by, role, errors)
    until = _until(days.strip(), errors)
    errors.raise_if_any()
    secret = PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        # Locked, so that of two forms with one name the second is told.
        User.objects.select_for_update().get(pk=by.pk)
        if _usable().filter(user=by, name=name).exists():
            reason = "is the name of a token that you have; choose another name or revoke that one"
            errors.add(InvalidValueError("name", as_typed(name), reason))
        errors.raise_if_any()
        token = ApiToken.objects.create(
            user=by,
            name=name,
            role=chosen,
            token_hash=_hash(secret),
            beginning=secret[:_BEGINNING],
            expires_at=until,
        )
    return Made(token, secret)


@for_role(Role.VIEWER)
def revoke(*, by: User, token: ApiToken) -> None:
    """The token lets nobody in from now on. One revokes one's own, an admin everybody's.

    Raises:
        AccessDeniedError: it is somebody else's.
    """
    if token.user_id != by.pk:
        require(by, Role.ADMIN)
    ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now())


def revoke_all_of(*, user: User) -> None:
    """No token of the person lets anybody in from now on."""
    ApiToken.objects.filter(user=user, revoked_at=None).update(revoked_at=timezone.now())


@for_role(Role.VIEWER)
def visible(*, by: User) -> QuerySet[ApiToken]:
    """The tokens a person sees, newest first: their own, an admin everybody's."""
    tokens = ApiToken.objects.select_related("user__membership")
    return tokens if holds(by, Role.ADMIN) else tokens.filter(user=by)


def person_of(*, secret: str) -> User:
    """Whom the token acts for: that person, who may do no more than the token's role. Its use is recorded.

    Raises:
        TokenError: unknown, revoked or expired, or its person does not belong to the lab any more.
    """
    token = (
        ApiToken.objects.select_related("user__membership").filter(token_hash=_hash(secret)).first()
        if secret.startswith(PREFIX)
        else None
    )
    if token is None:
        raise TokenError("This token is not known. Make one under Settings, API tokens.")
    if token.revoked_at is not None:
        raise TokenError(f"The token {token.name!r} was revoked. Make another under Settings, API tokens.")
    now = timezone.now()
    if token.expires_at is not None and token.expires_at <= now:
        raise TokenError(
            f"The token {token.name!r} expired at {token.expires_at:%Y-%m-%d %H:%M} UTC. Make another under "
            "Settings, API tokens."
        )
    if role_of(token.user) is None:
        raise TokenError("The person of this token does not belong to the lab any more; ask an admin of it.")
    used_long_ago = Q(last_used_at=None) | Q(last_used_at__lt=now - USE_RECORDED_EVERY)
    ApiToken.objects.filter(used_long_ago, pk=token.pk).update(last_used_at=now)
    return cap_role(token.user, Role(token.role))


def _usable() -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), revoked_at=None)


def _role(by: User, text: str, errors: FieldErrorCollector) -> Role:
    try:
        role = Role(text)
        require(by, role)
    except ValueError:
        known = ", ".join(Role)
        errors.add(InvalidValueError("role", as_typed(text), f"is no role; choose one of {known}"))
    except AccessDeniedError:
        reason = f"is more than your own role; choose {role_of(by)} or a lesser one"
        errors.add(InvalidValueError("role", as_typed(text), reason))
    else:
        return role
    return Role.VIEWER


def _until(days: str, errors: FieldErrorCollector) -> dt.datetime | None:
    if not days:
        return None
    if days.isascii() and days.isdecimal() and len(days) < 6 and 1 <= int(days) <= LONGEST_DAYS:
        return timezone.now() + dt.timedelta(days=int(days))
    reason = f"is no whole number of days from 1 to {LONGEST_DAYS}; write 90, or leave it empty for no end"
    errors.add(InvalidValueError("days", as_typed(days), reason))
    return None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
