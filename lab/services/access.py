"""Who may do what. One lab is one team: whoever is signed in sees every run."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser, User

from lab.models import Membership, Role
from lab.services.errors import AccessDeniedError


def role_of(user: User | AnonymousUser) -> Role | None:
    """The person's role in the lab, None for somebody who is not signed in or no longer belongs to it.

    Read once for each user object, which lives as long as a request.
    """
    membership = membership_of(user)
    return Role(membership.role) if membership else None


def membership_of(user: User | AnonymousUser) -> Membership | None:
    """Role and settings of the person, None as for `role_of`."""
    if not user.is_authenticated or not user.is_active:
        return None
    return getattr(user, "membership", None)


def require(user: User | AnonymousUser, role: Role) -> Role:
    """The person's role, when it includes `role`.

    Raises:
        AccessDeniedError: not signed in, no member of the lab, or a lesser role; says which role is needed.
    """
    own = role_of(user)
    if own is None:
        raise AccessDeniedError("Sign in first; `manage.py login_link` prints a link.")
    if not own.includes(role):
        raise AccessDeniedError(
            f"This needs the role {role.value}; yours is {own.value}. Ask an admin of the lab."
        )
    return own
