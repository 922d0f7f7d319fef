"""Makes and removes the containers of sandboxes, and does from outside what their shells cannot."""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import docker as sdk
from docker.types import LogConfig

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes import docker_client, docker_program, docker_usage, starter
from lab.engine.sandboxes.base import Image, SandboxLimits, SandboxSpec
from lab.engine.sandboxes.docker_connection import Stream
from lab.engine.sandboxes.docker_shell import await_answers, greet

LABEL = "trajectory-lab.label"
LAB = "trajectory-lab.lab"
STARTER = "trajectory-lab.starter"
# Root inside may give files to others, pass by their modes, become another user and end what runs as one, as
# installing packages and `su` need; all of it within the container. It cannot look into other users'
# processes, mount, open raw sockets, make device files or leave its root.
CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"]
# The kept shells and the guard of a command must always find a place.
_SPARE_PROCESSES = 8
_CPU_PERIOD_MICROSECONDS = 100_000
# What the daemon says of a user or group that is not in the image, or of a number that none can have.
_NO_USER = re.compile(r"unable to find (user|group)|uids and gids must be", re.IGNORECASE)
READY_SECONDS = 20.0
_GONE_SECONDS = 25.0


# What an image says of itself never changes; asked for once, as a start is measured in milliseconds.
_configs: dict[str, Mapping[str, Any]] = {}


def image_config(client: sdk.DockerClient, identifier: str) -> Mapping[str, Any]:
    """What an image says about containers of it. Raises: one of docker_client.ERRORS."""
    if identifier not in _configs:
        _configs[identifier] = client.api.inspect_image(identifier)["Config"] or {}
    return _configs[identifier]


def create(
    client: sdk.DockerClient,
    spec: SandboxSpec,
    image: Image,
    config: Mapping[str, Any],
    *,
    label: str,
    name: str | None = None,
) -> str:
    """Make a container that will run the kept shell, and nothing else of its image. Returns its identifier.

    Of `spec` it takes the limits, and where the lab's sandboxes are made; `name` is its own, None: docker's
    choice.

    Raises: one of docker_client.ERRORS.
    """
    made = client.api.create_container(
        image.identifier,
        entrypoint=docker_program.shell_argv(),
        command=[],
        # A name alone takes the image's variable away: the shells get it with the command's environment.
        environment=[name for name, _ in variables(config)],
        user="0",
        working_dir="/",
        hostname="sandbox",
        stdin_open=True,
        healthcheck={"test": ["NONE"]},
        stop_signal="SIGKILL",
        labels={LABEL: label, LAB: labs_of(spec.scratch), STARTER: starter.own_mark()},
        host_config=_host_config(client, spec.limits),
        name=name,
    )
    return str(made["Id"])


def _host_config(client: sdk.DockerClient, limits: SandboxLimits) -> dict[str, Any]:
    """What a container may use of the machine, and what it may not. Raises: one of docker_client.ERRORS."""
    config: dict[str, Any] = client.api.create_host_config(
        network_mode="bridge" if limits.network else "none",
        cap_drop=["ALL"],
        cap_add=CAPABILITIES,
        security_opt=["no-new-privileges"],
        mem_limit=limits.memory_bytes,
        memswap_limit=limits.memory_bytes,
        pids_limit=limits.processes + _SPARE_PROCESSES if limits.processes is not None else -1,
        cpu_period=_CPU_PERIOD_MICROSECONDS if limits.cpu_cores is not None else None,
        cpu_quota=int(limits.cpu_cores * _CPU_PERIOD_MICROSECONDS) if limits.cpu_cores is not None else None,
        # What a command writes is read over the connection; the daemon must not keep it too.
        log_config=LogConfig(type=LogConfig.types.NONE),
        storage_opt=docker_usage.storage_options(client, limits.disk_bytes),
    )
    return config


def further_shell(
    client: sdk.DockerClient, identifier: str, user: str, begin: Callable[[bytes], bytes]
) -> Stream:
    """Another kept shell in a container that runs, told `begin` and ready for commands of `user`.

    Raises: SandboxLostError: it could not be started, or the image has no such user.
    """
    stream = None
    try:
        stream = Stream(docker_client.execute(client, identifier, docker_program.shell_argv(), user))
        try:
            asked = greet(stream, [begin])
        except SandboxLostError:
            _require_user(client, identifier, user)
            raise
        if await_answers(stream, asked, READY_SECONDS):
            return stream
        _require_user(client, identifier, user)
        said = asked[0].stderr.result().head + asked[0].stdout.result().head
        reason = said.decode("utf-8", "replace").strip()[-300:] or why_lost(client, identifier)
        raise SandboxLostError(f"No further shell could be started in the sandbox: {reason}")
    except docker_client.ERRORS as error:
        raise docker_client.explained(error, "No further shell could be started in the sandbox") from error
    finally:
        if stream is not None and not stream.pid:
            stream.close()


def _require_user(client: sdk.DockerClient, identifier: str, user: str) -> None:
    """Raises: SandboxLostError: the image has no such user; one of docker_client.ERRORS: anything else.

    Tried with a process that nobody listens to: of that the daemon says in its answer what is wrong, and
    not in a stream that may be gone before it was read.
    """
    try:
        made = client.api.exec_create(identifier, ["/bin/sh", "-c", ":"], user=user, workdir="/")
        client.api.exec_start(made["Id"], detach=True)
    except sdk.errors.APIError as error:
        if not _NO_USER.search(str(error)):
            raise
        raise SandboxLostError(
            f"environment.user: {user!r} is no user of the image (docker says: {docker_client.said(error)}); "
            'name a user and a group that its /etc/passwd and /etc/group hold, or numbers as in "1000:1000"',
            retryable=False,
        ) from error


def kill_from_outside(client: sdk.DockerClient, identifier: str) -> None:
    """A shell of its own, where the guard of a command is gone, kills all but the first and itself."""
    with contextlib.suppress(*docker_client.ERRORS, SandboxLostError):
        stream = Stream(docker_client.execute(client, identifier, docker_program.shell_argv(), "0"))
        try:
            await_answers(stream, greet(stream, [docker_program.purge_text]), READY_SECONDS)
        finally:
            stream.close()


def why_lost(client: sdk.DockerClient, identifier: str) -> str:
    """Why the connection to a container ended, in a sentence."""
    try:
        state = client.api.inspect_container(identifier)["State"]
    except docker_client.ERRORS as error:
        if docker_client.is_missing(error):
            return "The sandbox is gone: somebody removed its container."
        return f"{docker_client.explained(error, 'The connection to the sandbox broke')}"
    if state.get("Running"):
        return "The connection to the sandbox broke, as it does when the Docker daemon is restarted."
    why = "the kernel killed it for memory" if state.get("OOMKilled") else "somebody or the daemon ended it"
    return f"The sandbox's container has ended with code {state.get('ExitCode')}: {why}."


def remove(client: sdk.DockerClient, identifier: str) -> bool:
    """Kill and remove a container; True when it was this call that did, False when it was gone already.

    What a daemon that does not answer leaves is the reaper's.
    """
    deadline = time.monotonic() + _GONE_SECONDS
    while time.monotonic() < deadline:
        try:
            client.api.remove_container(identifier, force=True, v=True)
        except docker_client.ERRORS as error:
            if docker_client.is_missing(error):
                return False
            if not docker_client.is_being_removed(error):
                return False
            # Somebody else removes it at this moment: gone is gone only when it is gone.
            time.sleep(0.02)
        else:
            return True
    return False


def variables(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The variables an image brings."""
    pairs = (str(one).partition("=") for one in config.get("Env") or [])
    return [(name, value) for name, _, value in pairs if name]


def labs_of(scratch: Path) -> str:
    """Of a scratch folder and the one around it: a reaper may look in either."""
    return f"{lab_of(scratch)},{lab_of(scratch.parent)}"


def lab_of(scratch: Path) -> str:
    """Which lab a scratch folder belongs to: the same for as long as the folder around it is the same."""
    machine = place = ""
    with contextlib.suppress(OSError):
        scratch = scratch.absolute().resolve()
        # Its device and number tell two folders of one name apart, in two containers of one machine.
        found = scratch.parent.stat()
        place = f"{found.st_dev}:{found.st_ino}"
    with contextlib.suppress(OSError):
        machine = Path("/etc/machine-id").read_text().strip()
    return hashlib.sha256(f"{machine}\0{scratch}\0{place}".encode()).hexdigest()[:32]
