"""Who may use an operation of the API: a Bearer token, which acts for a person in the role it was given."""

from __future__ import annotations

from typing import ClassVar, NoReturn, cast

from django.contrib.auth.models import User
from django.http import HttpRequest
from ninja.security import HttpBearer

from lab.models import Role
from lab.services import access, tokens


class NoTokenError(Exception):
    """The request carries no token that lets anybody in; it is answered by 401 and this text."""


class TokenOf(HttpBearer):
    """Tokens of this role or a higher one, of people who still hold it."""

    def __init__(self, role: Role) -> None:
        super().__init__()
        self.access: access.Decision = role

    def __call__(self, request: HttpRequest) -> User:
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise NoTokenError(
                "Send a token: “Authorization: Bearer tlab_…”. Make one under Settings, API tokens."
            )
        return self.authenticate(request, secret.strip())

    def authenticate(self, request: HttpRequest, token: str) -> User:
        """The person the token acts for, who may do no more than the token's role.

        Raises:
            NoTokenError: unknown, revoked or expired, or its person was shut out.
            AccessDeniedError: the role is not enough.
        """
        try:
            user = tokens.person_of(secret=token)
        except tokens.TokenError as error:
            raise NoTokenError(str(error)) from error
        access.require(user, cast(Role, self.access))
        return user


class NobodyDecided(HttpBearer):
    """What an operation has that names no role of its own: nobody may use it."""

    access: ClassVar[None] = None

    def __call__(self, request: HttpRequest) -> NoReturn:
        raise NoTokenError(f"Nobody has decided who may use {request.path}; this is a fault of the lab.")

    def authenticate(self, request: HttpRequest, token: str) -> NoReturn:
        self(request)


def person_of(request: HttpRequest) -> User:
    """The person whose token the request carries."""
    return cast(User, request.auth)  # type: ignore[attr-defined]  # ninja puts there what TokenOf returned
