"""A sandbox in a container: its own file system from an image, its own processes, no network unless asked."""

from __future__ import annotations

import contextlib
import posixpath
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import docker as sdk

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes import docker_client, docker_program, docker_usage, docker_watch, starter
from lab.engine.sandboxes.base import (
    ExecResult,
    Image,
    IsOrphan,
    Progress,
    ResourceUsage,
    SandboxFacts,
    SandboxSpec,
)
from lab.engine.sandboxes.docker_connection import Exchange, Stream
from lab.engine.sandboxes.docker_container import (
    CAPABILITIES,
    LAB,
    LABEL,
    READY_SECONDS,
    STARTER,
    create,
    further_shell,
    image_config,
    kill_from_outside,
    lab_of,
    remove,
    variables,
    why_lost,
)
from lab.engine.sandboxes.docker_images import ensure_image
from lab.engine.sandboxes.docker_shell import ContainerShells, Outside, await_answers, greet
from lab.engine.sandboxes.ending import Ended, refused
from lab.engine.sandboxes.file_access import write_body
from lab.engine.sandboxes.shell_program import quote, unexportable
from lab.engine.sandboxes.shell_sandbox import FILE_SECONDS, ShellSandbox
from lab.engine.stop import StopSignal

# How much of a file or an input is sent at a time; a new piece only after the one before has arrived.
_PIECE = 1024 * 1024


class _Container(NamedTuple):
    """A container and the daemon that runs it."""

    client: sdk.DockerClient
    identifier: str


class DockerProvider:
    """Starts sandboxes of kind "docker"."""

    kind = "docker"

    def __init__(self, host: str = "", image_budget_bytes: int | None = None) -> None:
        """`host` is the daemon's address, "" for DOCKER_HOST or the usual socket.

        `image_budget_bytes` is what images that this lab brings may take of the daemon's disk.
        """
        self._host = host
        self._image_budget_bytes = image_budget_bytes

    def available(self) -> str | None:
        try:
            client = docker_client.connected(self._host)
            system = client.version().get("Os", "linux")
        except SandboxLostError as error:
            return str(error)
        except docker_client.ERRORS as error:
            return str(docker_client.explained(error, "The Docker daemon cannot be used"))
        return None if system == "linux" else f"the Docker daemon runs {system} containers, not linux"

    def workspace(self, spec: SandboxSpec) -> str:
        return spec.workspace

    def prepare(
        self, spec: SandboxSpec, *, progress: Progress | None = None, stop: StopSignal | None = None
    ) -> Image:
        client = docker_client.connected(self._host)
        return ensure_image(client, spec, progress=progress, stop=stop, budget_bytes=self._image_budget_bytes)

    def start(self, spec: SandboxSpec) -> DockerSandbox:
        client = docker_client.connected(self._host)
        image = self.prepare(spec)
        try:
            config = image_config(client, image.identifier)
            identifier = create(client, spec, image, config)
        except docker_client.ERRORS as error:
            raise docker_client.explained(error, f"No container can be made of {image.reference}") from error
        try:
            return _started(client, identifier, spec, image, config)
        except BaseException:
            remove(client, identifier)
            raise

    def reap(self, scratch_root: Path, is_orphan: IsOrphan) -> list[str]:
        """Raises: SandboxLostError: the daemon does not answer."""
        client = docker_client.connected(self._host)
        lab = lab_of(scratch_root)
        try:
            found = client.api.containers(all=True, filters={"label": [LABEL, LAB, STARTER]})
        except docker_client.ERRORS as error:
            raise docker_client.explained(error, "Left containers cannot be looked for") from error
        removed = []
        for one in found:
            labels = one.get("Labels") or {}
            label = str(labels.get(LABEL))
            ours = lab in str(labels.get(LAB)).split(",")
            if ours and is_orphan(label, starter.mark_lives(labels[STARTER])) and remove(client, one["Id"]):
                removed.append(label)
        return sorted(removed)


def _started(
    client: sdk.DockerClient, identifier: str, spec: SandboxSpec, image: Image, config: Mapping[str, Any]
) -> DockerSandbox:
    """Raises: SandboxLostError: the container could not be started, or its shell does not answer."""
    user = spec.user or str(config.get("User") or "")
    owner = "" if _is_root(user) else user
    environment = _environment(spec, config)
    most = spec.limits.processes
    began = time.monotonic()

    def begin(token: bytes) -> bytes:
        return docker_program.environment_text(environment, most) + b"; " + docker_program.ready_text(token)

    def set_up(token: bytes) -> bytes:
        return docker_program.setup_text(token, spec.workspace, environment["PATH"], owner)

    doing = f"The container of {image.reference} cannot be started"
    with contextlib.ExitStack() as undo:
        try:
            first = Stream(docker_client.attach(client, identifier))
            undo.callback(first.close)
            asked = greet(first, [set_up, begin])
            client.api.start(identifier)
            ready = await_answers(first, asked, READY_SECONDS)
            if not ready or asked[0].answer != [b"S"]:
                raise _not_ready(client, identifier, doing, asked, spec)
            facts = _facts(client, identifier, spec, image, owner, config)
        except docker_client.ERRORS as error:
            raise docker_client.explained(error, doing) from error
        undo.pop_all()
    outside = Outside(
        another=lambda: further_shell(client, identifier, owner or "0", begin),
        kill_all=lambda: kill_from_outside(client, identifier),
        why_lost=lambda: why_lost(client, identifier),
    )
    shells = ContainerShells(first, outside, runs_commands=not owner)
    counters = docker_usage.Counters(client, identifier)
    sandbox = DockerSandbox(facts, shells, _Container(client, identifier), counters, environment, began)
    docker_watch.watch().add(client, identifier, spec.limits.disk_bytes, shells.abandon)
    return sandbox


def _not_ready(
    client: sdk.DockerClient, identifier: str, doing: str, asked: Sequence[Exchange], spec: SandboxSpec
) -> SandboxLostError:
    said = b"".join(one.stderr.result().head + one.stdout.result().head for one in asked)
    text = " ".join(said.decode("utf-8", "replace").split())[-300:]
    if asked[0].answer == [b"B"]:
        return SandboxLostError(
            f"{doing}: its working directory {spec.workspace} could not be made ({text})", retryable=False
        )
    if "format error" in text:
        return SandboxLostError(
            f"{doing}: the image was made for another architecture than the daemon's machine; take one for "
            f"that machine (it says: {text})",
            retryable=False,
        )
    return SandboxLostError(f"{doing}: its shell does not answer. {text or why_lost(client, identifier)}")


class DockerSandbox(ShellSandbox):
    """See `lab.engine.sandboxes.base.Sandbox`."""

    host_workspace: Path | None = None

    def __init__(
        self,
        facts: SandboxFacts,
        shells: ContainerShells,
        container: _Container,
        counters: docker_usage.Counters,
        environment: Mapping[str, str],
        began: float,
    ) -> None:
        super().__init__(unexportable(environment))
        self.facts = facts
        self._shells = shells
        self._container = container
        self._counters = counters
        self._began = began
        self._final: ResourceUsage | None = None
        # stop() may come from the run, the lease thread and the reaper at once.
        self._stopping = threading.Lock()

    def _raise_if_lost(self) -> None:
        self._shells.raise_if_lost()

    def _memory_kills(self) -> int:
        return self._shells.memory_kills

    def _run_command(
        self,
        argv: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        stdin: bytes,
        timeout: float,
        output_limit: int,
        stop: StopSignal | None,
    ) -> Ended | ExecResult:
        if docker_program.is_too_long(argv, environment):
            return refused(f"exec: {argv[0][:100]}: Argument list too long")
        text = docker_program.command_text(argv, folder, environment)
        with self._stored(stdin) as source:
            return self._shells.run(
                text, timeout=timeout, output_limit=output_limit, source=source, stop=stop
            )

    @contextlib.contextmanager
    def _stored(self, data: bytes) -> Iterator[bytes]:
        """A file inside with the command's input, as a shell word."""
        if not data:
            yield b"/dev/null"
            return
        path = f"/tmp/.input-{secrets.token_hex(8)}"  # noqa: S108 (inside the sandbox, where all is the agent's)
        ended = self._write(path, data, None)
        if ended.code != 0:
            raise SandboxLostError(
                "The input of a command could not be stored in the sandbox: "
                f"{ended.stderr.head.decode('utf-8', 'replace').strip()[-200:]}"
            )
        try:
            yield quote(path)
        finally:
            with contextlib.suppress(SandboxLostError):
                self._run_body(b"PATH=/usr/bin:/bin\nexec rm -f -- %s" % quote(path), 4096)

    def _run_body(self, body: bytes, output_limit: int) -> Ended:
        return self._shells.run(body, timeout=FILE_SECONDS, output_limit=output_limit)

    def _write(self, path: str, data: bytes, mode: int | None) -> Ended:
        workspace = self.facts.workspace
        if posixpath.isabs(path):
            # Also where the workspace is gone.
            workspace = "/"
        if not data:
            return self._run_body(write_body(workspace, path, mode), 4096)
        for begin in range(0, len(data), _PIECE):
            piece = data[begin : begin + _PIECE]
            source = docker_program.receive(len(piece))
            last = begin + _PIECE >= len(data)
            body = write_body(workspace, path, mode if last else None, source=source, add=begin > 0)
            ended = self._shells.receive(body, piece, timeout=FILE_SECONDS)
            if ended.code != 0:
                break
        return ended

    def usage(self) -> ResourceUsage:
        if self._final is not None:
            return self._final
        peak, cpu, source = self._counters.now()
        return ResourceUsage(peak, cpu, time.monotonic() - self._began, source)

    def stop(self) -> ResourceUsage:
        with self._stopping:
            if self._final is None:
                self._shells.abandon("The sandbox was stopped.")
                docker_watch.watch().remove(self._container.identifier)
                used = self.usage()
                remove(self._container.client, self._container.identifier)
                self._shells.close()
                self._final = used
            return self._final


def _environment(spec: SandboxSpec, config: Mapping[str, Any]) -> dict[str, str]:
    usual = {"LANG": "C.UTF-8", "PATH": docker_program.SEARCH_PATH}
    return {**usual, **dict(variables(config)), **spec.environment, "HOME": docker_program.HOME}


def _is_root(user: str) -> bool:
    return user.partition(":")[0] in ("", "0", "root")


def _facts(
    client: sdk.DockerClient,
    identifier: str,
    spec: SandboxSpec,
    image: Image,
    owner: str,
    config: Mapping[str, Any],
) -> SandboxFacts:
    notes = [
        f"Commands run as user {owner or 'root'} of the container, "
        + ("without capabilities." if owner else f"with {', '.join(CAPABILITIES).lower()} alone."),
        *docker_usage.disk_notes(client, spec.limits.disk_bytes, config.get("Volumes")),
    ]
    return SandboxFacts(
        kind=DockerProvider.kind,
        isolation="container",
        identifier=identifier,
        workspace=spec.workspace,
        network=spec.limits.network,
        notes=tuple(notes),
        image=image,
        limits=spec.limits,
    )
