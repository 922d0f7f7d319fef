"""Whoever may come to the lab: one of each role, somebody who does not belong to it, and nobody."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser, User

from lab.models import Role
from tests import builders

NOBODY, STRANGER = "nobody", "stranger"
# In rising order.
EVERYBODY = (NOBODY, STRANGER, *(str(role) for role in Role))


@dataclass(frozen=True)
class Visitor:
    """Somebody by what they are; `user` is None for nobody."""

    kind: str
    user: User | None

    @property
    def asked(self) -> User | AnonymousUser:
        return self.user or AnonymousUser()

    def holds(self, role: Role) -> bool:
        return self.kind in list(Role) and Role(self.kind).includes(role)


def visitors() -> list[Visitor]:
    """One of each, made anew."""
    found = [Visitor(NOBODY, None), Visitor(STRANGER, User.objects.create_user(username="stranger"))]
    return found + [Visitor(str(role), builders.person(role, name=f"the-{role}")) for role in Role]
