"""Where the suite runs, and the one table of what a provider does not promise."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.engine import registry
from lab.engine.sandboxes.base import Sandbox, SandboxProvider
from tests import docker_host

# A test of one of these is marked with it, `@pytest.mark.promises("…")`, and runs where it is kept.
PROMISES = {
    "bash": "bash is installed inside, so that a script may use it",
    "its own file system": "files of the machine are neither seen nor reached",
    "its own processes": "processes of the machine are neither seen nor reached",
    "no network": "without `limits.network` nothing outside the sandbox is reached",
    "its own loopback": "with `limits.network` too, what listens on the machine's loopback is not reached",
    "a path prefix": "`path_prefix` names folders of this machine that stand first on PATH inside",
    "a chosen user": "commands run as `spec.user`",
    "an image": "the file system is made from `spec.image`",
    "outlives a fork bomb": "one that its command leaves running costs time, and not the sandbox",
    "limited disk": "`limits.disk_bytes` bounds what is written",
    "a folder on this machine": "`host_workspace` is where the workspace lies here",
}


@dataclass(frozen=True)
class Place:
    """A provider, with what it is given to start from.

    `needs` are names for `requires`. `not_held` are the promises it does not keep, and why. `image` makes
    what `spec.image` names.
    """

    name: str
    kind: str
    needs: tuple[str, ...] = ()
    not_held: Mapping[str, str] = field(default_factory=dict)
    image: Callable[[], str] | None = None
    make_provider: Callable[[], SandboxProvider] | None = None

    def provider(self) -> SandboxProvider:
        return registry.provider(self.kind) if self.make_provider is None else self.make_provider()

    def fields(self) -> dict[str, Any]:
        """What a specification must say here beside what every one says."""
        return {} if self.image is None else {"image": self.image()}


def _provider_of_prepared() -> SandboxProvider:
    from tests.engine.sandboxes.prepared import PreparedProvider

    return PreparedProvider()


_ON_THIS_MACHINE = {
    "its own loopback": "with the network it has the machine's, loopback included",
    "a chosen user": "the lab chooses one user of this machine for all",
    "an image": "its file system is the machine's",
    "limited disk": "what it writes lies in a folder of the machine's file system",
}
_APART = {
    "a folder on this machine": "its files lie in a container",
    "a path prefix": "folders of this machine are not there",
}
PLACES = [
    Place(
        "process",
        "process",
        not_held={
            **_ON_THIS_MACHINE,
            "its own file system": "commands are plain processes: file modes alone hold them back",
            "its own processes": "commands are plain processes",
            "no network": "commands are plain processes",
            "outlives a fork bomb": "on a busy machine it may fork faster than it is stopped",
        },
    ),
    Place("bubblewrap", "bubblewrap", ("bubblewrap",), _ON_THIS_MACHINE),
    Place("docker", "docker", ("docker", "debian image"), _APART, docker_host.debian_image),
    Place(
        "docker, prepared",
        "docker",
        ("docker", "debian image"),
        _APART,
        docker_host.debian_image,
        _provider_of_prepared,
    ),
    Place(
        "docker, busybox",
        "docker",
        ("docker",),
        {**_APART, "bash": "busybox has a POSIX shell"},
        docker_host.busybox_image,
    ),
]


def kill(sandbox: Sandbox) -> None:
    """Kill what holds the sandbox together, as the kernel or a person does it behind the lab's back."""
    if sandbox.facts.kind == "docker":
        docker_host.kill(sandbox.facts.identifier)
    else:
        os.kill(sandbox._parts.first.pid, signal.SIGKILL)  # type: ignore[attr-defined]


def take_away(sandbox: Sandbox) -> None:
    """Remove the sandbox behind the lab's back."""
    if sandbox.facts.kind == "docker":
        docker_host.remove(sandbox.facts.identifier)
    else:
        subprocess.run(["rm", "-rf", str(sandbox._parts.folders.top)], check=True)  # type: ignore[attr-defined]
        kill(sandbox)


def is_there(sandbox: Sandbox) -> bool:
    """Whether what holds the sandbox together still runs."""
    if sandbox.facts.kind == "docker":
        return docker_host.is_running(sandbox.facts.identifier)
    parts = sandbox._parts  # type: ignore[attr-defined]
    return Path(f"/proc/{parts.root if parts.own_numbers else parts.shell.pid}").exists()


def left_of(sandbox: Sandbox) -> list[str]:
    """What this machine still holds of a sandbox: containers, folders, control groups."""
    identifier = sandbox.facts.identifier
    found = groups_of(identifier)
    if sandbox.facts.kind == "docker":
        return found + ([f"container {identifier}"] if docker_host.exists(identifier) else [])
    return found + [str(path) for path in [sandbox._parts.folders.top] if path.exists()]  # type: ignore[attr-defined]


def groups_of(identifier: str) -> list[str]:
    """The control groups of a sandbox. Those of others may go while this one looks."""
    walked = os.walk("/sys/fs/cgroup")
    return [os.path.join(folder, identifier) for folder, below, _ in walked if identifier in below]  # noqa: PTH118


def identifiers_of(kind: str, label: str, scratch: Path) -> list[str]:
    """The sandboxes with this label, half started ones too."""
    if kind == "docker":
        return docker_host.labelled(label)
    found = []
    for marker in scratch.glob("*/*/sandbox.json"):
        with contextlib.suppress(OSError, ValueError):
            content = json.loads(marker.read_text())
            if content["label"] == label:
                found.append(content["identifier"])
    return found


def kill_half_started(kind: str, identifier: str) -> None:
    """Kill the first process of it, which may still have to appear."""
    if kind == "docker":
        docker_host.remove(identifier)
        return
    until = time.monotonic() + 20
    while time.monotonic() < until:
        found = [path for path in Path("/proc").iterdir() if _is_of(path, identifier)]
        for path in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.name), signal.SIGKILL)
        if found:
            return
        time.sleep(0.001)


def _is_of(process: Path, identifier: str) -> bool:
    """Whether a folder of /proc is that of a process of this sandbox."""
    with contextlib.suppress(OSError):
        words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        return identifier.encode() in words and process.name != str(os.getpid())
    return False
