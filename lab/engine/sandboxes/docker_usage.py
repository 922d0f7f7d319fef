"""What a container used, and how much it may write: by its control group, else by what the daemon says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import docker as sdk

from lab.engine.sandboxes import docker_client
from lab.engine.sandboxes.base import SandboxLimits
from lab.engine.sandboxes.cgroup import MOUNT, ControlGroup

# Drivers that can hold a size of a container's own; overlay2 can on xfs with project quotas alone.
_SIZED_DRIVERS = frozenset({"btrfs", "zfs", "devicemapper"})
_holds_size: dict[int, bool] = {}


class Used(NamedTuple):
    """None where nobody says."""

    peak_memory_bytes: int | None
    cpu_seconds: float | None
    source: str


class Counters:
    """Reads what one container has used so far."""

    def __init__(self, client: sdk.DockerClient, identifier: str) -> None:
        self._client = client
        self._identifier = identifier
        self._group = _group_of(identifier)

    def now(self) -> Used:
        """From the control group where this machine has it; else the daemon is asked once."""
        if self._group is not None:
            peak, cpu = self._group.counters()
            if peak is not None or cpu is not None:
                return Used(peak, cpu, f"cgroup v{self._group.version}")
        try:
            said = self._client.api.stats(self._identifier, stream=False, one_shot=True)
        except docker_client.ERRORS:
            return Used(None, None, "not measured: the container is gone or the daemon does not answer")
        return used_of(said)


def used_of(said: Mapping[str, Any]) -> Used:
    """From one answer of the daemon's statistics. Of cgroup v2 it knows no peak: use now stands in."""
    memory = said.get("memory_stats") or {}
    peak = memory.get("max_usage")
    source = "docker stats"
    if peak is None and memory.get("usage") is not None:
        peak, source = memory["usage"], "docker stats, memory as last seen"
    total = ((said.get("cpu_stats") or {}).get("cpu_usage") or {}).get("total_usage")
    return Used(int(peak) if peak is not None else None, total / 1e9 if total is not None else None, source)


def _group_of(identifier: str) -> ControlGroup | None:
    """The control group of a container on this machine; None where there is none to be read."""
    names = (identifier, f"docker-{identifier}.scope")
    if (MOUNT / "cgroup.controllers").is_file():
        found = _find(MOUNT, names)
        return (
            ControlGroup({"memory": found, "cpu": found}, 2, SandboxLimits()) if found is not None else None
        )
    folders = {}
    for controller in ("memory", "cpuacct"):
        found = _find(MOUNT / controller, names)
        if found is not None:
            folders[controller] = found
    return ControlGroup(folders, 1, SandboxLimits()) if folders else None


def _find(hierarchy: Path, names: tuple[str, ...]) -> Path | None:
    """Where a daemon puts its containers: below `docker`, `system.slice` or a group around the daemon."""
    for name in names:
        for above in ("docker", "system.slice", "*/docker", "*/system.slice", "machine.slice"):
            for found in hierarchy.glob(f"{above}/{name}"):
                return found
    return None


def storage_options(client: sdk.DockerClient, disk_bytes: int | None) -> dict[str, str] | None:
    """What makes the daemon hold a container's size itself, where it can."""
    if disk_bytes is None or not daemon_holds_size(client):
        return None
    return {"size": str(disk_bytes)}


def daemon_holds_size(client: sdk.DockerClient) -> bool:
    """Whether the daemon's storage driver can bound what a container writes. Asked once a daemon and process.

    Raises: one of docker_client.ERRORS.
    """
    if id(client) not in _holds_size:
        said = client.info()
        driver = str(said.get("Driver"))
        status = {str(name): str(value) for name, value in said.get("DriverStatus") or []}
        on_xfs = driver == "overlay2" and status.get("Backing Filesystem") == "xfs"
        _holds_size[id(client)] = driver in _SIZED_DRIVERS or (on_xfs and _has_project_quota(said))
    return _holds_size[id(client)]


def _has_project_quota(said: Mapping[str, Any]) -> bool:
    """Whether the daemon's folder lies on this machine, on a file system mounted with project quotas."""
    root = Path(str(said.get("DockerRootDir") or "/nowhere"))
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return False
    mounts = [line.split() for line in lines]
    above = [mount for mount in mounts if root.is_relative_to(mount[1])]
    nearest = max(above, key=lambda mount: len(mount[1]), default=None)
    options = nearest[3].split(",") if nearest is not None else []
    return bool({"pquota", "prjquota"} & set(options))


def disk_notes(client: sdk.DockerClient, disk_bytes: int | None, volumes: object) -> list[str]:
    """What must be known of how the limit on disk space is held.

    Raises: one of docker_client.ERRORS.
    """
    notes = []
    if disk_bytes is None:
        notes.append("Disk space is not limited.")
    elif not daemon_holds_size(client):
        notes.append("Disk space is held by looking again and again: between two looks more can be written.")
    if volumes:
        notes.append("The image declares volumes; what is written there is not counted as disk space.")
    return notes
