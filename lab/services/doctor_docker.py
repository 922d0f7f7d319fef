"""Whether sandboxes in docker work on this machine: its daemon asked, a container tried."""

from __future__ import annotations

import grp
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings

from lab.engine.errors import LabError
from lab.engine.sandboxes import docker_use
from lab.services import isolation
from lab.services.findings import Finding, State
from lab.services.sandbox_trials import HAS_CAPABILITIES, IS_ROOT, Trial, listed, try_sandbox, with_limits

_NAME = "docker"
_INSTALL = "apt-get install docker.io"
_SOCKET = "unix:///var/run/docker.sock"


def check_docker() -> Finding:
    """The daemon that runs would use, its version and storage, and what a command in a container reaches."""
    down = _state_when_down()
    address = settings.LAB_DOCKER_HOST or os.environ.get("DOCKER_HOST") or _SOCKET
    if not _is_there(address) and not (shutil.which("docker") or shutil.which("dockerd")):
        return Finding(_NAME, down, "not installed", _INSTALL)
    from lab.engine.sandboxes import docker_client

    try:
        client = docker_client.connected(settings.LAB_DOCKER_HOST)
        facts = _facts(client.info(), client.version())
        image = _image(client)
        storage = _storage(client, facts)
    except docker_client.ERRORS as error:
        trouble = docker_client.explained(error, "its daemon could not be asked")
        return Finding(_NAME, down, str(trouble), way_in(address))
    except LabError as error:
        return Finding(_NAME, down, str(error), way_in(address))
    return _tried(facts, image, f"{facts.words}; {storage}")


def _state_when_down() -> State:
    if settings.LAB_SANDBOX == isolation.DOCKER:
        return "problem"
    return "warning" if _is_used() else "absent"


def _is_used() -> bool:
    return settings.LAB_SANDBOX == isolation.DOCKER or docker_use.is_noted(Path(settings.LAB_DATA_DIR))


class _Daemon(NamedTuple):
    """What a daemon says of itself. `unprivileged`: root in a container is nobody on its machine."""

    words: str
    storage: str
    unprivileged: bool


def _facts(info: dict[str, Any], version: dict[str, Any]) -> _Daemon:
    options = [str(option) for option in info.get("SecurityOptions") or []]
    rootless = any("rootless" in option for option in options)
    mapped = any("userns" in option for option in options)
    who = "rootless" if rootless else "users mapped" if mapped else "daemon as root"
    backing = dict(info.get("DriverStatus") or []).get("Backing Filesystem", "")
    storage = f"{info.get('Driver', 'unknown storage')}{f' on {backing}' if backing else ''}"
    machine = f"{info.get('Architecture', 'unknown architecture')}{_others()}"
    words = (
        f"Docker {version.get('Version', 'of unknown version')}, {storage}, "
        f"cgroup v{info.get('CgroupVersion', '1')}, {machine}, {who}"
    )
    return _Daemon(words, storage, rootless or mapped)


def _others() -> str:
    """Which other architectures' programs the kernel hands to an emulator."""
    folder = Path("/proc/sys/fs/binfmt_misc")
    try:
        found = sorted(file.name.removeprefix("qemu-") for file in folder.glob("qemu-*"))
    except OSError:
        found = []
    return f" and by emulation {', '.join(found)}" if found else " alone"


def _image(client: Any) -> str:
    """The name of an image that is here and that the lab would use; "" when there is none."""
    here = {tag for image in client.images.list() for tag in image.tags}
    return next((name for name in _candidates(here) if name in here), "")


def _candidates(here: set[str]) -> Iterator[str]:
    yield settings.LAB_PRACTICE_IMAGE
    yield from sorted(tag for tag in here if tag.startswith("trajectory-lab/"))
    yield from _images_of_tasks()


def _images_of_tasks() -> list[str]:
    from lab.models import Task
    from lab.services.doctor_servers import can_be_asked

    # Doctor runs before there is a database, and makes none.
    if not can_be_asked():
        return []
    found = Task.objects.order_by().values_list("environment__image", flat=True).distinct()
    return [str(image) for image in found if image]


def _storage(client: Any, facts: _Daemon) -> str:
    """How what a sandbox writes is limited."""
    from lab.engine.sandboxes.docker_usage import daemon_holds_size

    disk = f"{settings.LAB_SANDBOX_DISK_GB:g} GB a sandbox"
    if daemon_holds_size(client):
        return f"{disk}, held by the storage driver"
    return f"{disk}, held by looking at its size again and again ({facts.storage} is not used with quotas)"


def _tried(facts: _Daemon, image: str, words: str) -> Finding:
    if not image:
        base = settings.LAB_PRACTICE_IMAGE
        message = f"{words}; not tried, for no image is here that this lab would use"
        return Finding(_NAME, "warning" if _is_used() else "absent", message, f"docker pull {base}")
    try:
        found = try_sandbox(isolation.provider(isolation.DOCKER), image=image)
    except (LabError, OSError) as error:
        remedy = (
            f"look at the daemon's log (`journalctl -u docker`), and at the image: docker run --rm {image} sh"
        )
        return Finding(_NAME, "problem", f"{words}; no sandbox of {image} can be used: {error}", remedy)
    return _judged(facts, found, words)


def _judged(facts: _Daemon, found: Trial, words: str) -> Finding:
    # An image's root keeps what installing packages takes; more than that the trial names apart.
    beyond = tuple(one for one in found.reaches if one not in (IS_ROOT, HAS_CAPABILITIES))
    if beyond:
        return Finding(
            _NAME,
            "problem",
            f"{words}; it isolates less than it should: a command in it {listed(beyond)}",
            "run only models whose commands you trust until a newer docker or kernel is there",
        )
    root = ""
    if IS_ROOT in found.reaches and not facts.unprivileged:
        root = (
            "; root in it is root of its machine but for capabilities: userns-remap or a rootless daemon "
            "mends that"
        )
    isolated = (
        f"{words}; isolated: a command in it read nothing of the lab's data and no other process's "
        f"environment, reached no network, and has no capabilities but those over its own files{root}"
    )
    return with_limits(_NAME, isolated, found)


def _is_there(address: str) -> bool:
    if not address.startswith("unix://"):
        return True
    try:
        return Path(address.removeprefix("unix://")).exists()
    except OSError:
        return True


def way_in(address: str) -> str:
    """What to do about a daemon that cannot be asked."""
    if "://" not in address:
        return f"LAB_DOCKER_HOST: write an address such as {_SOCKET} or tcp://host:2376"
    path = Path(address.removeprefix("unix://"))
    try:
        found = path.stat() if address.startswith("unix://") else None
    except FileNotFoundError:
        if address in (_SOCKET, _SOCKET.replace("/var/run/", "/run/")):
            return "systemctl start docker"
        return f"start the daemon that makes {path}, or set LAB_DOCKER_HOST (default: {_SOCKET})"
    except OSError:
        found = None
    if found is None:
        return f"see to it that a daemon can be reached at {address}, or set LAB_DOCKER_HOST"
    if os.access(path, os.R_OK | os.W_OK):
        return "systemctl restart docker, and look at its log: journalctl -u docker"
    group = _group_name(found.st_gid)
    if found.st_gid in os.getgroups() and found.st_mode & stat.S_IWGRP:
        return f"its group {group} is this user's, and it may not be used all the same: see the folders above"
    return (
        f"the socket is for the group {group}: usermod -aG {group} USER and sign in again (who is in it is "
        "root on this machine), or run a rootless daemon as this user: dockerd-rootless-setuptool.sh install"
    )


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
