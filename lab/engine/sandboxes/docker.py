"""A sandbox in a container: its own file system from an image, its own processes, no network unless asked."""

from __future__ import annotations

import contextlib
import functools
import posixpath
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes import (
    docker_client,
    docker_pool,
    docker_program,
    docker_usage,
    docker_watch,
    starter,
)
from lab.engine.sandboxes.base import (
    ExecResult,
    Image,
    IsOrphan,
    Progress,
    ResourceUsage,
    SandboxFacts,
    SandboxSpec,
)
from lab.engine.sandboxes.docker_boot import (
    Booted,
    Orders,
    Source,
    boot,
    hand_out,
    label_of,
    name_after,
    prepare,
)
from lab.engine.sandboxes.docker_container import (
    CAPABILITIES,
    LAB,
    LABEL,
    STARTER,
    further_shell,
    image_config,
    kill_from_outside,
    lab_of,
    labs_of,
    remove,
    variables,
    why_lost,
)
from lab.engine.sandboxes.docker_images import ensure_image
from lab.engine.sandboxes.docker_shell import ContainerShells, Outside
from lab.engine.sandboxes.ending import Ended, refused
from lab.engine.sandboxes.file_access import raise_for, write_body
from lab.engine.sandboxes.shell_program import quote, unexportable
from lab.engine.sandboxes.shell_sandbox import FILE_SECONDS, ShellSandbox
from lab.engine.stop import StopSignal

# How much of a file or an input is sent at a time; a new piece only after the one before has arrived.
_PIECE = 1024 * 1024


class DockerProvider:
    """Starts sandboxes of kind "docker"."""

    kind = "docker"

    def __init__(
        self, host: str = "", image_budget_bytes: int | None = None, prepared_containers: int = 0
    ) -> None:
        """`host` is the daemon's address, "" for DOCKER_HOST or the usual socket.

        `image_budget_bytes` is what images that this lab brings may take of the daemon's disk.
        `prepared_containers` is how many a process keeps for its next sandboxes, one for each kind.
        """
        self._host = host
        self._image_budget_bytes = image_budget_bytes
        self._prepared_containers = prepared_containers

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
        source = self._source(spec)
        began = time.monotonic()
        handed_out = self._handed_out(source)
        made = handed_out or boot(source, _orders(source))
        try:
            sandbox = _sandbox_in(made, source, began)
        except docker_client.ERRORS as error:
            made.discard()
            raise docker_client.explained(error, f"The container of {source.image.reference}") from error
        except BaseException:
            made.discard()
            raise
        if handed_out is not None:
            sandbox.take_name(spec.label)
        if self._prepared_containers > 0:
            sandbox.while_used(docker_pool.pool(), _kind(source))
            self._have_prepared(source, later=docker_pool.LATER_SECONDS)
        return sandbox

    def _source(self, spec: SandboxSpec) -> Source:
        client = docker_client.connected(self._host)
        image = self.prepare(spec)
        try:
            config = image_config(client, image.identifier)
        except docker_client.ERRORS as error:
            raise docker_client.explained(error, f"No container can be made of {image.reference}") from error
        return Source(client, spec, image, config)

    def _handed_out(self, source: Source) -> Booted | None:
        """The container that was prepared for this; None where there is none, or it came to nothing."""
        if self._prepared_containers <= 0:
            return None
        kept = docker_pool.pool()
        made = kept.take(_kind(source))
        if made is None:
            return None
        if not hand_out(made, source, _orders(source)):
            kept.discard(made)
            return None
        return made

    def _have_prepared(self, source: Source, *, later: float = 0.0) -> None:
        make = functools.partial(prepare, source)
        docker_pool.pool().want(_kind(source), make, self._prepared_containers, later=later)

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
            label = label_of(str(labels.get(LABEL)), one.get("Names") or [])
            ours = lab in str(labels.get(LAB)).split(",")
            if ours and is_orphan(label, starter.mark_lives(labels[STARTER])) and remove(client, one["Id"]):
                removed.append(label)
        return sorted(removed)


def _kind(source: Source) -> docker_pool.Kind:
    address, spec = source.client.api.base_url, source.spec
    return docker_pool.Kind(
        address, source.image.identifier, spec.limits, _owner(source), labs_of(spec.scratch)
    )


def _orders(source: Source) -> Orders:
    spec, environment, owner = source.spec, _environment(source), _owner(source)

    def begin(token: bytes) -> bytes:
        return docker_program.environment_text(environment, spec.limits.processes) + (
            b"; " + docker_program.ready_text(token)
        )

    def set_up(token: bytes) -> bytes:
        return docker_program.setup_text(token, spec.workspace, environment["PATH"], owner)

    return Orders(set_up, begin)


def _sandbox_in(made: Booted, source: Source, began: float) -> DockerSandbox:
    """The sandbox in a container whose orders were carried out. Raises: one of docker_client.ERRORS."""
    client, identifier, first = made
    owner, begin = _owner(source), _orders(source).begin
    outside = Outside(
        another=lambda: further_shell(client, identifier, owner or "0", begin),
        kill_all=lambda: kill_from_outside(client, identifier),
        why_lost=lambda: why_lost(client, identifier),
    )
    facts = _facts(identifier, source)
    shells = ContainerShells(first, outside, runs_commands=not owner)
    counters = docker_usage.Counters(client, identifier)
    sandbox = DockerSandbox(facts, shells, made, counters, _environment(source), began)
    docker_watch.watch().add(client, identifier, source.spec.limits.disk_bytes, shells.abandon)
    return sandbox


class DockerSandbox(ShellSandbox):
    """See `lab.engine.sandboxes.base.Sandbox`."""

    host_workspace: Path | None = None

    def __init__(
        self,
        facts: SandboxFacts,
        shells: ContainerShells,
        container: Booted,
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
        self._released: Callable[[], None] | None = None
        # stop() may come from the run, the lease thread and the reaper at once.
        self._stopping = threading.Lock()

    def take_name(self, label: str) -> None:
        """Have the container named after its label, beside the caller, as a daemon writes that to its disk.

        A sandbox that cannot be found by its label must not go on.
        """

        def name() -> None:
            try:
                name_after(self._container, label)
            except docker_client.ERRORS as error:
                told = docker_client.explained(error, "The sandbox's container could not be named")
                self._shells.abandon(str(told))

        threading.Thread(target=name, name="docker-name", daemon=True).start()

    def while_used(self, kept: docker_pool.Pool, kind: docker_pool.Kind) -> None:
        """Until it is stopped, what was prepared for the next sandbox of its kind stays."""
        kept.hold(kind)
        self._released = lambda: kept.release(kind)

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
        with contextlib.ExitStack() as stored:
            try:
                source = stored.enter_context(self._stored(stdin))
            except OSError as error:
                # As on a full disk, which a command without input meets only when it writes.
                return refused(f"exec: the command's input cannot be stored: {error.strerror}")
            return self._shells.run(
                text, timeout=timeout, output_limit=output_limit, source=source, stop=stop
            )

    @contextlib.contextmanager
    def _stored(self, data: bytes) -> Iterator[bytes]:
        """A file inside with the command's input, as a shell word.

        Raises: OSError: the sandbox's file system does not take it.
        """
        if not data:
            yield b"/dev/null"
            return
        path = f"/tmp/.input-{secrets.token_hex(8)}"  # noqa: S108 (inside the sandbox, where all is the agent's)
        try:
            ended = self._write(path, data, None)
            if ended.code is None:
                raise SandboxLostError("The input of a command could not be stored in the sandbox.")
            raise_for(ended.code, ended.stderr.head, path)
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
                # A daemon waits long for the end of output that nobody takes.
                self._shells.hang_up()
                remove(self._container.client, self._container.identifier)
                self._shells.close()
                self._final = used
                if self._released is not None:
                    self._released()
            return self._final


def _environment(source: Source) -> dict[str, str]:
    usual = {"LANG": "C.UTF-8", "PATH": docker_program.SEARCH_PATH}
    of_image = dict(variables(source.config))
    return {**usual, **of_image, **source.spec.environment, "HOME": docker_program.HOME}


def _owner(source: Source) -> str:
    """Whom commands run as and the workspace belongs to; "" for root."""
    user = source.spec.user or str(source.config.get("User") or "")
    return "" if user.partition(":")[0] in ("", "0", "root") else user


def _facts(identifier: str, source: Source) -> SandboxFacts:
    """Raises: one of docker_client.ERRORS."""
    client, spec, image, config = source
    owner = _owner(source)
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
