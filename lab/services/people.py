"""People: signing in by a link that works once, and how pages look for them."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from lab.engine.errors import InvalidValueError, LabError
from lab.models import Membership, Role, SignInLink

LINK_LIFETIME = dt.timedelta(hours=24)
SIGN_IN_PATH = "/sign-in/{token}/"
FIRST_PERSON = "admin"


class SignInLinkError(LabError):
    """The link does not sign anybody in; the text says why and how to get another."""


def lab_address() -> str:
    """Scheme, host and port under which a person at this machine reaches the lab."""
    host = settings.LAB_HOST
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        # A server that listens everywhere is reached by loopback.
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.LAB_PORT}"


@transaction.atomic
def make_login_link(*, base_url: str, replace: bool = False) -> str:
    """A link that signs the first admin in, once, within 24 hours. That person is made if there is none.

    `base_url` is scheme, host and port, such as `http://127.0.0.1:8000`. `replace` makes earlier unused links
    of that person worthless. Only the token's hash is stored.

    Raises:
        InvalidValueError: `base_url` is no such address.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidValueError("base_url", base_url, f"is no address; write one such as {lab_address()}")
    user = _first_admin()
    if replace:
        SignInLink.objects.filter(user=user, used_at=None).delete()
    token = secrets.token_urlsafe(32)
    SignInLink.objects.create(token_hash=_hash(token), user=user, expires_at=timezone.now() + LINK_LIFETIME)
    return base_url.rstrip("/") + SIGN_IN_PATH.format(token=token)


def check_login_link(*, token: str) -> User:
    """Whom the link would sign in, without using it up: for the page that asks "Sign in?".

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


def set_theme(*, user: User, theme: str) -> None:
    """Pages are shown in `theme` for this person: "light", "dark", or "" as the system says.

    Raises:
        InvalidValueError: another word.
    """
    if theme not in ("", "light", "dark"):
        raise InvalidValueError("theme", theme, "is not known; choose light, dark, or leave it empty")
    Membership.objects.filter(user=user).update(theme=theme)


def set_single_keys(*, user: User, on: bool) -> None:
    """Whether single keys drive the pages for this person."""
    Membership.objects.filter(user=user).update(single_keys=on)


_ANOTHER = "Run `manage.py login_link` for another."


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


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
        user.save()
    Membership.objects.update_or_create(user=user, defaults={"role": Role.ADMIN})
    return user
