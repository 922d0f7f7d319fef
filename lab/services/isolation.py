"""Which sandbox a run gets, and what a person must agree to first."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.contrib.auth.models import User

from lab.engine.errors import LabError
from lab.engine.sandboxes import docker_use
from lab.engine.sandboxes.base import SandboxLimits, SandboxProvider
from lab.models import Consent, Role, Task
from lab.services.access import for_role

WITHOUT_ISOLATION = "run without isolation"
ISOLATED = "bubblewrap"
PLAIN = "process"
DOCKER = "docker"
_WITHOUT_IMAGES = (ISOLATED, PLAIN)
_SECONDS_KNOWN = 30
_NAMED = 3


class IsolationMissingError(LabError):
    """No isolating sandbox works here and nobody agreed to do without; the text names the ways out."""


class Isolation(NamedTuple):
    """`kind` is the sandbox runs get; `available` whether it isolates; `reason` what is missing.

    `consented` says that an admin agreed to runs without isolation; `forced` that the setting names the kind,
    whatever works here and whatever was agreed.
    """

    kind: str
    available: bool
    reason: str
    consented: bool
    forced: bool = False

    @property
    def keeps_runs_back(self) -> bool:
        """Whether there are runs that cannot start here."""
        return bool(self.reason) and (self.forced or not self.consented)


def isolation() -> Isolation:
    """How runs are kept apart from this machine, as things stand; tasks that bring an image are apart."""
    missing = _missing()
    wanted = settings.LAB_SANDBOX
    kind = wanted or (PLAIN if missing else ISOLATED)
    return Isolation(
        kind=kind,
        available=kind != PLAIN and not missing,
        reason=missing,
        consented=_consented(),
        forced=bool(wanted),
    )


def sandbox_kind(*, lab_commands_only: bool, brings_image: bool = False) -> str:
    """The kind of sandbox for a run. Whether a kind that was chosen works is `check`'s question.

    `lab_commands_only` says that every command comes from the lab itself (a scripted model on a practice
    task): such runs may use a plain process without being asked for. `brings_image`: the task names what its
    sandboxes are made from.

    Raises:
        IsolationMissingError: nothing isolates here and no admin agreed to do without, or the setting names
            a kind that knows no images.
    """
    wanted = str(settings.LAB_SANDBOX)
    if brings_image and wanted in _WITHOUT_IMAGES:
        raise IsolationMissingError(
            f"sandbox: the task brings an image, which needs docker, and LAB_SANDBOX is {wanted}; unset it: "
            "then such tasks get docker, and the others what they had"
        )
    if wanted or brings_image:
        return wanted or DOCKER
    missing = _missing()
    if not missing:
        return ISOLATED
    if lab_commands_only or _consented():
        return PLAIN
    raise IsolationMissingError(
        f"sandbox: no isolation here: {missing.rstrip('.')}. Or an admin chooses “Run without isolation”."
    )


def check(*, tasks: Sequence[Task], lab_commands_only: bool) -> None:
    """Whether runs of these tasks can get a sandbox here, before anything is launched.

    Raises:
        IsolationMissingError: what is missing, for which tasks, and the way out.
    """
    bringing = [task for task in tasks if task.brings_image]
    if bringing:
        _check_images(bringing)
    if len(bringing) == len(tasks):
        return
    kind = sandbox_kind(lab_commands_only=lab_commands_only)
    if kind == DOCKER and (missing := _works_not(kind)):
        raise IsolationMissingError(
            f"sandbox: LAB_SANDBOX is {kind}, which does not work here: {missing.rstrip('.')}. Or unset it."
        )


def _check_images(tasks: Sequence[Task]) -> None:
    names = ", ".join(task.slug for task in tasks[:_NAMED])
    more = f" and {len(tasks) - _NAMED} more" if len(tasks) > _NAMED else ""
    whose = "brings an image of its own" if len(tasks) == 1 else "bring images of their own"
    try:
        kind = sandbox_kind(lab_commands_only=False, brings_image=True)
        missing = _works_not(kind)
    except IsolationMissingError:
        kind, missing = DOCKER, f"LAB_SANDBOX is {settings.LAB_SANDBOX}; unset it"
    if missing:
        raise IsolationMissingError(
            f"sandbox: {names}{more} {whose}, which needs {kind}: {missing.rstrip('.')}. "
            "Or choose tasks without an image."
        )


def limits(kind: str) -> SandboxLimits:
    """What a sandbox of this kind may use where its task says nothing else."""
    if kind in _WITHOUT_IMAGES:
        # They cannot hold it, and would say so in every run's log.
        return SandboxLimits()
    return SandboxLimits(disk_bytes=int(settings.LAB_SANDBOX_DISK_GB * 1e9))


@functools.cache
def provider(kind: str) -> SandboxProvider:
    """The provider of this kind, set up as the settings say. One a process: it remembers what works here.

    Raises:
        InvalidValueError: a kind nobody knows, or a uid that may not be used.
    """
    if kind == DOCKER:
        docker_use.note(Path(settings.LAB_DATA_DIR))
    return made(kind)


def made(kind: str) -> SandboxProvider:
    """A provider of this kind that is only asked: nothing is started with it.

    Raises: as `provider`.
    """
    if kind == ISOLATED:
        from lab.engine.sandboxes.bubblewrap import BubblewrapProvider

        return BubblewrapProvider(uid=settings.LAB_SANDBOX_UID)
    if kind == PLAIN:
        from lab.engine.sandboxes.process import ProcessProvider

        return ProcessProvider(uid=settings.LAB_SANDBOX_UID)
    if kind == DOCKER:
        from lab.engine.sandboxes.docker import DockerProvider

        return DockerProvider(
            host=settings.LAB_DOCKER_HOST,
            image_budget_bytes=int(settings.LAB_DOCKER_DISK_GB * 1e9),
            prepared_containers=settings.LAB_PREPARED_CONTAINERS,
        )
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
    """What keeps the sandbox of tasks without an image from working here, "" when it works."""
    kind = settings.LAB_SANDBOX or ISOLATED
    return "" if kind == PLAIN else _works_not(kind)


def _works_not(kind: str) -> str:
    """Why this kind does not work here, "" when it does. Remembered: trying costs a process or a question."""
    return _try(kind, int(time.monotonic() // _SECONDS_KNOWN))


@functools.lru_cache(maxsize=4)
def _try(kind: str, period: int) -> str:
    # A new provider each time: what was missing may have been installed meanwhile.
    return made(kind).available() or ""
