"""System checks: settings that cannot work are named at the start, each with a stable id and the way out."""

from __future__ import annotations

import math
import re
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.http.request import validate_host

from lab import addresses

SANDBOXES = ("", "bubblewrap", "docker", "process")
# How a docker daemon can be reached, as its own clients take it.
_DOCKER_HOST = re.compile(r"unix:///\S+|(tcp|https?)://[^\s/]\S*")
BROKERS = ("amqp", "amqps", "redis", "rediss")


@register()
def check_data_folder(**_: Any) -> list[CheckMessage]:
    # Imported late: every process of the lab registers these checks, and few run them.
    from lab.services import doctor

    finding = doctor.check_data_folder()
    if finding.state == "ok":
        return []
    kind = Error if finding.state == "problem" else Warning
    return [kind(finding.message, hint=finding.remedy, id="lab.E001" if kind is Error else "lab.W001")]


@register()
def check_numbers(**_: Any) -> list[CheckMessage]:
    """Slots, lease and retries must leave a lab that can run something and notice that a worker died."""
    found: list[CheckMessage] = []
    if settings.LAB_RUN_SLOTS < 1:
        found.append(
            Error(
                f"LAB_RUN_SLOTS: {settings.LAB_RUN_SLOTS} leaves no slot for a run",
                hint="use 1 or more; 8 is the default",
                id="lab.E002",
            )
        )
    if settings.LAB_LEASE_SECONDS < 3:
        found.append(
            Error(
                f"LAB_LEASE_SECONDS: {settings.LAB_LEASE_SECONDS:g} is too short: a slow worker "
                "would lose its run",
                hint="use 3 or more; 15 is the default",
                id="lab.E003",
            )
        )
    if settings.LAB_STOP_SECONDS < 0:
        found.append(
            Error(
                f"LAB_STOP_SECONDS: {settings.LAB_STOP_SECONDS:g} is negative",
                hint="use 0 to break off at once what is under way when the lab stops; 5 is the default",
                id="lab.E020",
            )
        )
    if settings.LAB_RETRY_SECONDS < 0:
        found.append(
            Error(
                f"LAB_RETRY_SECONDS: {settings.LAB_RETRY_SECONDS:g} is negative",
                hint="use 0 for no retry of a model call; 900 is the default",
                id="lab.E004",
            )
        )
    return found


@register()
def check_sandbox(**_: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    kind = settings.LAB_SANDBOX
    if kind not in SANDBOXES and ":" not in kind:
        found.append(
            Error(
                f"LAB_SANDBOX: {kind!r} is not known",
                hint="use bubblewrap, docker or process, or leave it empty: docker for tasks that bring an "
                "image, else bubblewrap where it works",
                id="lab.E005",
            )
        )
    if settings.LAB_SANDBOX_UID <= 0:
        found.append(
            Error(
                f"LAB_SANDBOX_UID: {settings.LAB_SANDBOX_UID} is root or nobody's, and no command of an "
                "agent may run as root",
                hint="name an unprivileged uid such as 65534",
                id="lab.E006",
            )
        )
    return found + _docker()


def _docker() -> list[CheckMessage]:
    """What can be said of docker's settings without asking a daemon."""
    found: list[CheckMessage] = []
    host = settings.LAB_DOCKER_HOST
    if host and not _DOCKER_HOST.fullmatch(host):
        found.append(
            Error(
                f"LAB_DOCKER_HOST: {addresses.shown(host)} is no address of a docker daemon",
                hint="write unix:///var/run/docker.sock or tcp://host:2376, or leave it unset: DOCKER_HOST, "
                "else the local daemon",
                id="lab.E021",
            )
        )
    for name, identifier, least, default in (
        ("LAB_DOCKER_DISK_GB", "lab.E022", "no image could be brought", 50),
        ("LAB_SANDBOX_DISK_GB", "lab.E023", "no sandbox could write anything", 10),
    ):
        value = getattr(settings, name)
        if not 0 < value < math.inf:
            found.append(
                Error(
                    f"{name}: {value:g} is no number of gigabytes above 0: {least}",
                    hint=f"use a number such as {default}, the default",
                    id=identifier,
                )
            )
    if settings.LAB_PREPARED_CONTAINERS < 0:
        found.append(
            Error(
                f"LAB_PREPARED_CONTAINERS: {settings.LAB_PREPARED_CONTAINERS} is negative",
                hint="use 0 to prepare none; 1 is the default",
                id="lab.E025",
            )
        )
    # Imported late, as below: it brings pydantic.
    from lab.engine.tasks.spec import is_image_name

    if not is_image_name(settings.LAB_PRACTICE_IMAGE):
        found.append(
            Error(
                f"LAB_PRACTICE_IMAGE: {settings.LAB_PRACTICE_IMAGE!r} is no name of an image",
                hint="write it as in python:3.13-bookworm, an image with python3 and git, or unset it",
                id="lab.E024",
            )
        )
    return found


@register()
def check_broker(**_: Any) -> list[CheckMessage]:
    """A broker must be of a known kind, and Redis needs its clients, which the built-in queue does not."""
    found: list[CheckMessage] = []
    needed = {"LAB_REDIS_URL": ("redis", "channels_redis"), "LAB_BROKER_URL": ("redis",)}
    for name, modules in needed.items():
        url = str(getattr(settings, name))
        lacking = [module for module in modules if find_spec(module) is None]
        if addresses.is_redis(url) and lacking:
            message = f"{name}: Redis cannot be used without its clients (no {' and no '.join(lacking)})"
            found.append(Error(message, hint=addresses.how_to_install("redis"), id="lab.E007"))
    scheme = settings.LAB_BROKER_URL.partition("://")[0]
    if scheme and scheme not in BROKERS:
        found.append(
            Error(
                f"LAB_BROKER_URL: {addresses.shown(settings.LAB_BROKER_URL)} is no broker the lab knows",
                hint="write amqp://user:password@host:5672// for RabbitMQ or redis://host:6379/0, "
                "or unset the variable",
                id="lab.E008",
            )
        )
    return found


@register()
def check_origins(**_: Any) -> list[CheckMessage]:
    """Under which names browsers may reach the lab."""
    found: list[CheckMessage] = []
    if "*" in settings.ALLOWED_HOSTS:
        found.append(
            Warning(
                "LAB_ALLOWED_HOSTS: '*' lets a page of any foreign name that leads here read the lab",
                hint="name the hosts that people use, such as LAB_ALLOWED_HOSTS=lab.example.org",
                id="lab.W002",
            )
        )
    for origin in settings.CSRF_TRUSTED_ORIGINS:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path:
            found.append(
                Error(
                    f"LAB_TRUSTED_ORIGINS: {origin!r} is no origin",
                    hint="write scheme and host without a path, such as https://lab.example.org",
                    id="lab.E009",
                )
            )
        elif "*" not in parts.hostname and not validate_host(parts.hostname, settings.ALLOWED_HOSTS):
            found.append(
                Warning(
                    f"LAB_TRUSTED_ORIGINS: {origin} is not among the hosts that the lab answers, unless a "
                    "proxy changes the Host header",
                    hint=f"add it: LAB_ALLOWED_HOSTS={parts.hostname}",
                    id="lab.W003",
                )
            )
    if settings.LAB_HSTS_SECONDS < 0:
        found.append(
            Error(
                f"LAB_HSTS_SECONDS: {settings.LAB_HSTS_SECONDS} is negative",
                hint="use 0 for not at all; 31536000 (a year) is the default",
                id="lab.E010",
            )
        )
    return found
