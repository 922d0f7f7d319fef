"""People: who belongs to the lab in which role, links that sign in once, and how pages look for a person."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from typing import NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from lab.engine.errors import InvalidValueError, LabError
from lab.engine.limits import as_typed
from lab.models import Membership, Role, SignInLink
from lab.services import tokens
from lab.services.access import for_role
from lab.services.errors import FieldErrorCollector
from lab.services.sign_in import sign_out_everywhere

LINK_LIFETIME = dt.timedelta(hours=24)
SIGN_IN_PATH = "/sign-in/{token}/"
FIRST_PERSON = "admin"
LONGEST_NAME = 150


class SignInLinkError(LabError):
    """The link does not sign anybody in; the text says why and how to get another."""


class Invited(NamedTuple):
    """Somebody, and the link that signs them in once; nobody can read it again."""

    person: User
    link: str


def lab_address() -> str:
    """Scheme, host and port under which a program on this machine reaches the lab."""
    host = settings.LAB_HOST
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        # A server that listens everywhere is reached by loopback.
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.LAB_PORT}"


def public_address() -> str:
    """Scheme, host and port under which people reach the lab: behind a proxy, its first https origin."""
    if settings.LAB_HTTPS:
        for origin in settings.CSRF_TRUSTED_ORIGINS:
            if origin.startswith("https://") and "*" not in origin:
                return str(origin)
    return lab_address()


def members() -> QuerySet[Membership]:
    """Everybody who belongs to the lab or did, by name."""
    return Membership.objects.select_related("user").order_by("-user__is_active", "user__username")


@transaction.atomic
def make_login_link(*, base_url: str, replace: bool = False, person: str = "") -> str:
    """A link that signs a person in, once, within 24 hours.

    `base_url` is scheme, host and port, such as `http://127.0.0.1:8000`. `person` is somebody's name; "" is
    the first admin, who is made if there is none. `replace` makes earlier unused links of that person
    worthless. Only the token's hash is stored.

    Raises:
        InvalidValueError: `base_url` is no such address, or nobody active has that name.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidValueError("base_url", base_url, f"is no address; write one such as {lab_address()}")
    return _link(_named(person) if person else _first_admin(), base_url, replace=replace)


@for_role(Role.ADMIN)
def add(*, by: User, name: str, role: str, base_url: str) -> Invited:
    """Somebody new belongs to the lab; they sign in by the link and may set a password then.

    Raises:
        AccessDeniedError: `by` is no admin.
        FieldErrors: for "name" and "role".
    """
    errors = FieldErrorCollector()
    name = _checked_name(name, errors)
    chosen = _checked_role(role, errors)
    errors.raise_if_any()
    try:
        with transaction.atomic():
            person = User(username=name)
            person.set_unusable_password()
            person.save()
            Membership.objects.create(user=person, role=chosen)
            return Invited(person, _link(person, base_url))
    except IntegrityError:
        errors.add(_taken(name))
        errors.raise_if_any()
        raise


@for_role(Role.ADMIN)
def invite_again(*, by: User, person: User, base_url: str) -> Invited:
    """Another link for somebody; earlier ones that were not used are worthless.

    Raises:
        AccessDeniedError: `by` is no admin.
        FieldErrors: "person" is not active.
    """
    if not person.is_active:
        errors = FieldErrorCollector()
        reason = "is not active, and no link signs them in; activate them first"
        errors.add(InvalidValueError("person", person.get_username(), reason))
        errors.raise_if_any()
    return Invited(person, _link(person, base_url, replace=True))


@for_role(Role.ADMIN)
def set_role(*, by: User, person: User, role: str) -> None:
    """From now on the person has this role, in the sessions they have open too.

    Raises:
        AccessDeniedError: `by` is no admin.
        FieldErrors: "role" is none, or the lab would be left without an admin.
    """
    errors = FieldErrorCollector()
    chosen = _checked_role(role, errors)
    errors.raise_if_any()
    with transaction.atomic():
        if chosen is not Role.ADMIN:
            _check_another_admin(person, "role", chosen.value, errors)
        Membership.objects.filter(user=person).update(role=chosen)


@for_role(Role.ADMIN)
def deactivate(*, by: User, person: User) -> None:
    """Shut somebody out: sessions end, unused links are worthless and tokens revoked. What they did stays.

    Raises:
        AccessDeniedError: `by` is no admin.
        FieldErrors: "person" is the last active admin.
    """
    with transaction.atomic():
        _check_another_admin(person, "person", person.get_username(), FieldErrorCollector())
        User.objects.filter(pk=person.pk).update(is_active=False)
        sign_out_everywhere(user=person)
        tokens.revoke_all_of(user=person)


@for_role(Role.ADMIN)
def reactivate(*, by: User, person: User) -> None:
    """Let somebody back in, with the role and password they had. Their tokens stay revoked."""
    User.objects.filter(pk=person.pk).update(is_active=True)


def check_login_link(*, token: str) -> User:
    """Whom the link would sign in; it is not used up.

    Raises:
        SignInLinkError: unknown, used or expired.
    """
    link = SignInLink.objects.filter(token_hash=_hash(token)).select_related("user").first()
    if link is None:
        raise SignInLinkError(f"This link is not known, or a newer one has replaced it. {_ANOTHER}")
    if link.used_at is not None:
        raise SignInLinkError(f"This link has been used; each works once. {_ANOTHER}")
    if link.expires_at <= timezone.now() or not link.user.is_active:
        raise SignInLinkError(f"This link has expired; links hold for 24 hours. {_ANOTHER}")
    return link.user


@transaction.atomic
def use_login_link(*, token: str) -> User:
    """The person the link signs in; the link is used up.

    Raises:
        SignInLinkError: unknown, used or expired. Of two people who use it at once one is refused.
    """
    user = check_login_link(token=token)
    won = SignInLink.objects.filter(token_hash=_hash(token), used_at=None).update(used_at=timezone.now())
    if not won:
        raise SignInLinkError(f"This link has been used; each works once. {_ANOTHER}")
    return user


@for_role(Role.VIEWER)
def set_theme(*, by: User, theme: str) -> None:
    """Pages are shown in `theme` for this person: "light", "dark", or "" as the system says.

    Raises:
        InvalidValueError: another word.
    """
    if theme not in ("", "light", "dark"):
        raise InvalidValueError("theme", theme, "is not known; choose light, dark, or leave it empty")
    Membership.objects.filter(user=by).update(theme=theme)


@for_role(Role.VIEWER)
def set_single_keys(*, by: User, on: bool) -> None:
    """Whether single keys drive the pages for this person."""
    Membership.objects.filter(user=by).update(single_keys=on)


_ANOTHER = "Ask an admin of the lab for another, or run `manage.py login_link`."


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _link(person: User, base_url: str, *, replace: bool = False) -> str:
    if replace:
        SignInLink.objects.filter(user=person, used_at=None).delete()
    token = secrets.token_urlsafe(32)
    SignInLink.objects.create(token_hash=_hash(token), user=person, expires_at=timezone.now() + LINK_LIFETIME)
    return base_url.rstrip("/") + SIGN_IN_PATH.format(token=token)


def _named(name: str) -> User:
    membership = members().filter(user__username=name, user__is_active=True).first()
    if membership is None:
        known = ", ".join(
            members().filter(user__is_active=True).values_list("user__username", flat=True)[:20]
        )
        reason = f"is nobody who may sign in; known are {known or 'none yet'}"
        raise InvalidValueError("person", as_typed(name), reason)
    return membership.user


def _checked_name(text: str, errors: FieldErrorCollector) -> str:
    name: str = User.normalize_username(text.strip())
    if not name:
        errors.say("name", "name: nothing was written; write the name the person signs in with")
    elif len(name) > LONGEST_NAME:
        reason = f"has {len(name)} characters; use at most {LONGEST_NAME}"
        errors.add(InvalidValueError("name", as_typed(name), reason))
    else:
        try:
            UnicodeUsernameValidator()(name)
        except ValidationError:
            reason = "holds other characters than letters, digits and @ . + - _; leave those out"
            errors.add(InvalidValueError("name", as_typed(name), reason))
    # A name with a NUL, which PostgreSQL cannot even look for, is refused above.
    if not errors.errors and User.objects.filter(username__iexact=name).exists():
        errors.add(_taken(name))
    return name


def _taken(name: str) -> InvalidValueError:
    return InvalidValueError("name", as_typed(name), "is somebody's name already; choose another")


def _checked_role(text: str, errors: FieldErrorCollector) -> Role:
    try:
        return Role(text)
    except ValueError:
        known = ", ".join(Role)
        errors.add(InvalidValueError("role", as_typed(text), f"is no role; choose one of {known}"))
        return Role.VIEWER


def _check_another_admin(person: User, field: str, value: str, errors: FieldErrorCollector) -> None:
    """Call it in a transaction: the rows stay locked, so that two admins cannot demote each other at once.

    Raises:
        FieldErrors: nobody else is an active admin.
    """
    admins = Membership.objects.select_for_update().filter(role=Role.ADMIN, user__is_active=True)
    active = set(admins.values_list("user_id", flat=True))
    if active == {person.pk}:
        reason = (
            f"cannot be: {person.get_username()} is the last active admin; make somebody else admin first"
        )
        errors.add(InvalidValueError(field, value, reason))
        errors.raise_if_any()


def _first_admin() -> User:
    membership = (
        Membership.objects.filter(role=Role.ADMIN, user__is_active=True)
        .order_by("pk")
        .select_related("user")
        .first()
    )
    if membership is not None:
        return membership.user
    user, made = User.objects.get_or_create(username=FIRST_PERSON)
    if made:
        user.set_unusable_password()
    # Whoever can run a command here owns the lab, and must be able to get in again.
    user.is_active = True
    user.save()
    Membership.objects.update_or_create(user=user, defaults={"role": Role.ADMIN})
    return user
