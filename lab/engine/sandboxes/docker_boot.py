"""From a specification to a container whose shell is ready: one made for it, or one prepared before.

A prepared container holds nothing of a task: its shell has its key and waits. What a sandbox is given beside
its image, limits and network it is told when it is handed out. Docker's labels cannot be changed, so that a
prepared container is then renamed: its name holds the label by which a reaper finds it.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import docker as sdk

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes import docker_client, docker_program
from lab.engine.sandboxes.base import Image, SandboxSpec
from lab.engine.sandboxes.docker_connection import Exchange, Stream
from lab.engine.sandboxes.docker_container import READY_SECONDS, create, remove, why_lost
from lab.engine.sandboxes.docker_shell import await_answers, greet, tell

# The label of a container that nobody uses yet, and what its name then begins with.
PREPARED = "prepared"
_NAME = "trajectory-lab."
_PLAIN = re.compile(r"[A-Za-z0-9-]")
# As a shell says them, each behind the mark of what was asked.
_ANSWERS = re.compile(rb"\0[0-9a-f]{16} [^\n]*\n?")
# How long a prepared container may take to answer; one that does not is replaced by another.
_HAND_OUT_SECONDS = 10.0


class Booted(NamedTuple):
    """A container that runs, the daemon that runs it, and the connection to its first shell."""

    client: sdk.DockerClient
    identifier: str
    first: Stream

    def discard(self) -> None:
        self.first.close()
        remove(self.client, self.identifier)


class Source(NamedTuple):
    """What a sandbox is started from: `config` is what the image says about containers of it."""

    client: sdk.DockerClient
    spec: SandboxSpec
    image: Image
    config: Mapping[str, Any]


class Orders(NamedTuple):
    """What the first shell of a sandbox is told before any command: shell text, made with a token."""

    set_up: Callable[[bytes], bytes]
    begin: Callable[[bytes], bytes]


def boot(source: Source, orders: Orders) -> Booted:
    """A container made for this specification, its orders carried out.

    Raises: SandboxLostError: it could not be made or started, or its shell does not answer.
    """
    made, asked = _boot(source, [orders.set_up, orders.begin], label=source.spec.label)
    try:
        _require_set_up(made, asked, source)
    except BaseException:
        made.discard()
        raise
    return made


def prepare(source: Source) -> Booted:
    """A container for any specification that says the same of image, limits and network.

    Raises: as `boot`.
    """
    name = f"{_NAME}{secrets.token_hex(8)}"
    made, _ = _boot(source, [docker_program.ready_text], label=PREPARED, name=name)
    return made


def hand_out(made: Booted, source: Source, orders: Orders) -> bool:
    """Whether a prepared container carried out these orders. One that did not has to be discarded."""
    try:
        asked = tell(made.first, [orders.set_up, orders.begin])
        if not await_answers(made.first, asked, _HAND_OUT_SECONDS):
            return False
        _require_set_up(made, asked, source)
    except (SandboxLostError, *docker_client.ERRORS):
        return False
    return True


def name_after(made: Booted, label: str) -> None:
    """Give the container the name in which `label_of` finds the label.

    Raises: one of docker_client.ERRORS; nothing when the container is gone.
    """
    name = f"{_NAME}{secrets.token_hex(8)}.{_encoded(label)}"
    try:
        made.client.api.rename(made.identifier, name)
    except docker_client.ERRORS as error:
        if not docker_client.is_missing(error):
            raise


def label_of(label: str, names: Sequence[str]) -> str:
    """The label of a sandbox, from that of its container and the names of it that the daemon says."""
    if label != PREPARED:
        return label
    for name in names:
        _, mark, rest = name.partition(_NAME)
        _, dot, encoded = rest.partition(".")
        if mark and dot:
            return _decoded(encoded)
    return label


def _encoded(label: str) -> str:
    """A label in the few characters that a name may have."""
    characters = (text if _PLAIN.fullmatch(text) else f"_{text.encode().hex()}." for text in label)
    return "".join(characters)


def _decoded(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        return bytes.fromhex(found[1]).decode("utf-8", "replace")

    return re.sub(r"_((?:[0-9a-f]{2})+)\.", character, text)


def _boot(
    source: Source, texts: Sequence[Callable[[bytes], bytes]], *, label: str, name: str | None = None
) -> tuple[Booted, list[Exchange]]:
    """Make and start a container whose first shell is told these texts, the last of which makes it ready.

    Raises: SandboxLostError.
    """
    client, image = source.client, source.image
    try:
        identifier = create(client, source.spec, image, source.config, label=label, name=name)
    except docker_client.ERRORS as error:
        raise docker_client.explained(error, f"No container can be made of {image.reference}") from error
    with contextlib.ExitStack() as undo:
        undo.callback(remove, client, identifier)
        try:
            first = Stream(docker_client.attach(client, identifier))
            undo.callback(first.close)
            asked = greet(first, texts)
            client.api.start(identifier)
            made = Booted(client, identifier, first)
            if not await_answers(first, asked, READY_SECONDS):
                raise _not_ready(made, asked, image)
        except docker_client.ERRORS as error:
            raise docker_client.explained(error, _doing(image)) from error
        undo.pop_all()
    return made, asked


def _doing(image: Image) -> str:
    return f"The container of {image.reference} cannot be started"


def _said(asked: Sequence[Exchange]) -> str:
    """What came that answers nothing: the last one asked was given all of it, with the others' answers."""
    last = asked[-1]
    said = _ANSWERS.sub(b"", last.stderr.result().head + last.stdout.result().head)
    return " ".join(said.decode("utf-8", "replace").replace("\0", " ").split())[-300:]


def _require_set_up(made: Booted, asked: Sequence[Exchange], source: Source) -> None:
    """Raises: SandboxLostError: the first of the orders, to set up, was not carried out."""
    if asked[0].answer == [b"B"]:
        raise SandboxLostError(
            f"environment.working_directory: {source.spec.workspace!r} could not be made in the image "
            f"{source.image.reference} ({_said(asked)}); name a folder that it has, or a path where one can "
            "be made",
            retryable=False,
        )
    if asked[0].answer != [b"S"]:
        raise _not_ready(made, asked, source.image)


def _not_ready(made: Booted, asked: Sequence[Exchange], image: Image) -> SandboxLostError:
    text = _said(asked)
    if "format error" in text:
        return SandboxLostError(
            f"{_doing(image)}: the image was made for another architecture than the daemon's machine; take "
            f"one for that machine (it says: {text})",
            retryable=False,
        )
    reason = text or why_lost(made.client, made.identifier)
    return SandboxLostError(f"{_doing(image)}: its shell does not answer. {reason}")
