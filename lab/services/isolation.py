"""Which sandbox a run gets, and what a person must agree to first."""

from __future__ import annotations

import functools
import time
from typing import NamedTuple

from django.conf import settings
from django.contrib.auth.models import User

from lab.engine.errors import LabError
from lab.engine.sandboxes.base import SandboxProvider
from lab.models import Consent, Role
from lab.services.access import for_role

WITHOUT_ISOLATION = "run without isolation"
ISOLATED = "bubblewrap"
PLAIN = "process"
_SECONDS_KNOWN = 30


class IsolationMissingError(LabError):
    """No isolating sandbox works here and nobody agreed to do without; the text names the ways out."""


class Isolation(NamedTuple):
    """`kind` is the sandbox runs get; `available` whether it isolates; `reason` what is missing.

    `consented` says that an admin agreed to runs without isolation.
    """

    kind: str
    available: bool
    reason: str
    consented: bool


def isolation() -> Isolation:
    """How runs are kept apart from this machine, as things stand."""
    missing = _missing()
    wanted = settings.LAB_SANDBOX
    kind = wanted or (PLAIN if missing else ISOLATED)
    return Isolation(
        kind=kind, available=kind != PLAIN and not missing, reason=missing, consented=_consented()
    )


def sandbox_kind(*, lab_commands_only: bool) -> str:
    """The kind of sandbox for a run.

    `lab_commands_only` says that every command comes from the lab itself (a scripted model on a practice
    task): such runs may use a plain process without being asked for.

    Raises:
        IsolationMissingError: nothing isolates here and no admin agreed to do without.
    """
    if settings.LAB_SANDBOX:
        return str(settings.LAB_SANDBOX)
    missing = _missing()
    if not missing:
        return ISOLATED
    if lab_commands_only or _consented():
        return PLAIN
    raise IsolationMissingError(
        f"sandbox: no isolation here: {missing.rstrip('.')}. Or an admin chooses “Run without isolation”."
    )


@functools.cache
def provider(kind: str) -> SandboxProvider:
    """The provider of this kind, set up as the settings say. One a process: it remembers what works here.

    Raises:
        InvalidValueError: a kind nobody knows, or a uid that may not be used.
    """
    if kind == ISOLATED:
        from lab.engine.sandboxes.bubblewrap import BubblewrapProvider

        return BubblewrapProvider(uid=settings.LAB_SANDBOX_UID)
    if kind == PLAIN:
        from lab.engine.sandboxes.process import ProcessProvider

        return ProcessProvider(uid=settings.LAB_SANDBOX_UID)
    from lab.engine import registry

    return registry.provider(kind)


@for_role(Role.ADMIN)
def consent_without_isolation(*, by: User) -> None:
    """An admin agrees, once for the lab, to runs whose commands are not isolated from this machine.

    Raises:
        AccessDeniedError: not an admin.
    """
    Consent.objects.get_or_create(name=WITHOUT_ISOLATION, defaults={"person": by})


def look_again() -> None:
    """Forget what was found out about this machine."""
    _try.cache_clear()


def _consented() -> bool:
    return Consent.objects.filter(name=WITHOUT_ISOLATION).exists()


def _missing() -> str:
    """What keeps bubblewrap from working here, "" when it works. Remembered: trying costs a process."""
    kind = settings.LAB_SANDBOX or ISOLATED
    return "" if kind == PLAIN else _try(kind, int(time.monotonic() // _SECONDS_KNOWN))


@functools.lru_cache(maxsize=4)
def _try(kind: str, period: int) -> str:
    # A new provider each time: what was missing may have been installed meanwhile.
    return provider.__wrapped__(kind).available() or ""
