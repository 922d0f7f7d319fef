"""Who may do what. One lab is one team: whoever is signed in and belongs to it sees every run.

Each page, socket, operation of the API and action of a service carries one decision, and what carries none
is refused: `lab.web.http.for_role`, `lab.live.routing.guarded`, `lab.api.security.TokenOf`, `for_role` here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, Literal, ParamSpec, TypeVar, cast

from django.contrib.auth.models import AnonymousUser, User

from lab.models import Membership, Role
from lab.services.errors import AccessDeniedError

# Decisions beside the roles: whoever asks, signed in or not; and what the operation's token says (API).
EVERYONE: Final = "everyone"
PER_OPERATION: Final = "per operation"
Decision = Role | Literal["everyone", "per operation"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_CAP = "_lab_role_cap"


def role_of(user: User | AnonymousUser) -> Role | None:
    """The person's role in the lab, None for somebody who is not signed in or no longer belongs to it.

    Read once for each user object, which lives as long as a request.
    """
    membership = membership_of(user)
    if membership is None:
        return None
    own: Role = Role(membership.role)
    cap: Role = getattr(user, _CAP, own)
    return own if cap.includes(own) else cap


def membership_of(user: User | AnonymousUser) -> Membership | None:
    """Role and settings of the person, None as for `role_of`."""
    if not user.is_authenticated or not user.is_active:
        return None
    return getattr(user, "membership", None)


def cap_role(user: User, role: Role) -> User:
    """The same person, who may do no more than `role` as long as this object lives: a token acts for them."""
    setattr(user, _CAP, role)
    return user


def holds(user: User | AnonymousUser, role: Role) -> bool:
    """Whether the person has this role or a higher one."""
    own = role_of(user)
    return own is not None and own.includes(role)


def require(user: User | AnonymousUser, role: Role) -> Role:
    """The person's role, when it includes `role`.

    Raises:
        AccessDeniedError: not signed in, no member of the lab, or a lesser role; says which role is needed.
    """
    own = role_of(user)
    if own is None:
        raise AccessDeniedError(
            "You do not belong to this lab; ask an admin of it."
            if user.is_authenticated
            else "Sign in first; `manage.py login_link` prints a link."
        )
    if not own.includes(role):
        raise AccessDeniedError(
            f"This needs the role {role.value}; yours is {own.value}. Ask an admin of the lab."
        )
    return own


def for_role(role: Role) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """An action that only people of this role or a higher one may take: `by` is asked before anything else.

    The action raises AccessDeniedError for everybody else.
    """

    def decorate(action: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @wraps(action)
        def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            require(cast(User, kwargs["by"]), role)
            return action(*args, **kwargs)

        vars(checked)["access"] = role
        return checked

    return decorate
