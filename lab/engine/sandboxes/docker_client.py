"""The one place that makes a client of the Docker SDK, and turns its errors into words with a way out."""

from __future__ import annotations

import os
import re
import socket
import threading
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.utils import kwargs_from_env

from lab.engine.errors import SandboxLostError

# A daemon that is asked for something small and does not answer within it is as good as gone.
ANSWER_SECONDS = 25
# What a call to the daemon raises when it fails; ValueError comes from an answer that is no JSON.
ERRORS = (DockerException, requests.RequestException, OSError, ValueError)
DEFAULT_HOST = "unix:///var/run/docker.sock"
INSTALL = "install Docker (on Debian: `apt-get install docker.io`) and start its daemon"
_MEND_ADDRESS = (
    "mend the address in LAB_DOCKER_HOST or DOCKER_HOST (unix:///var/run/docker.sock or tcp://HOST:PORT)"
)

# One client for each daemon and process: a forked child must not use its parent's connections.
_clients: dict[tuple[int, str], docker.DockerClient] = {}
_making = threading.Lock()

_REFUSED = (
    (
        r"exec format error",
        "the image was made for another architecture than this machine's; "
        "take one for this machine, or install an emulator (qemu-user-static)",
    ),
    (
        r"/bin/sh.*(no such file|not found|not a directory|too many levels|permission denied)",
        "the image holds no /bin/sh; sandboxes need an image with a POSIX shell and coreutils",
    ),
    (
        r"(pull access denied|unauthorized|authentication required|denied: )",
        "the registry refuses it; check the image's name, or sign in there with `docker login`",
    ),
    (
        r"(manifest unknown|manifest for .* not found|no such image|repository does not exist)",
        "there is no such image; check its name and tag, or build or import it first",
    ),
    (
        r"(no matching manifest|does not match the specified platform)",
        "the image does not exist for this machine's architecture; take one that does",
    ),
    (r"no space left on device", "its disk is full; `docker system df` says by what"),
    (
        r"(no such host|connection refused|i/o timeout|tls|certificate|dial tcp)",
        "the registry cannot be reached from the daemon; check the image's name and the daemon's network",
    ),
    (r"unable to find user", "the image has no such user; name another, or its number"),
)


# Where no daemon gave an answer of its own: what to do, and whether another attempt makes sense.
_UNREACHED = (
    (
        r"timed out",
        f"the Docker daemon does not answer within {ANSWER_SECONDS} s; it hangs or is overloaded: "
        "see its log (`journalctl -u docker`)",
        True,
    ),
    (
        r"permission denied|PermissionError",
        "its socket may not be used by this user; add the user to the group docker "
        "(who may use the socket is root on that machine) and sign in again",
        False,
    ),
    (
        r"NameResolutionError|failed to resolve|name or service not known|name resolution",
        f"no machine of that name is known; {_MEND_ADDRESS}",
        True,
    ),
    (
        r"no route to host|is unreachable",
        f"that machine cannot be reached from here; look at the network, or {_MEND_ADDRESS}",
        True,
    ),
    (
        r"HTTP request to an HTTPS server",
        "it asks for TLS; set DOCKER_TLS_VERIFY=1, and DOCKER_CERT_PATH to the folder of the certificates",
        False,
    ),
    (
        # As a web server, a proxy or another service answers when it is asked for a daemon's version.
        r"server API version: .*(404 Client Error|<html|<!doctype|expecting value)"
        r"|invalid response from docker daemon|BadStatusLine",
        f"what answers there is no Docker daemon; {_MEND_ADDRESS}",
        True,
    ),
    (r"invalid bind address|paramiko", f"it is of no kind that can be used; {_MEND_ADDRESS}", False),
    (
        r"FileNotFoundError|no such file|refused",
        f"no Docker daemon answers there; {INSTALL}, or set LAB_DOCKER_HOST",
        True,
    ),
)


def connected(host: str = "") -> docker.DockerClient:
    """The client of the daemon at `host`, "" for DOCKER_HOST or the usual socket. Made once a process.

    Raises:
        SandboxLostError: no daemon answers there; the text says why and what to do.
    """
    address = host or os.environ.get("DOCKER_HOST") or DEFAULT_HOST
    key = (os.getpid(), address)
    with _making:
        if key not in _clients:
            try:
                _clients[key] = _made(address)
            except ERRORS as error:
                raise explained(error, f"The Docker daemon at {address} cannot be used") from error
        return _clients[key]


def _made(address: str) -> docker.DockerClient:
    # TLS and its certificates as docker's own programs take them; the address is the caller's choice.
    options = kwargs_from_env(environment={**os.environ, "DOCKER_HOST": address})
    return docker.DockerClient(**options, version="auto", timeout=ANSWER_SECONDS, max_pool_size=32)


def explained(error: BaseException, doing: str) -> SandboxLostError:
    """What went wrong while `doing` (the beginning of a sentence), why, and the way out.

    The result says too whether another attempt makes sense.
    """
    if isinstance(error, SandboxLostError):
        return error
    reason, retryable = _reason(error)
    return SandboxLostError(f"{doing}: {reason}.", retryable=retryable)


def is_missing(error: BaseException) -> bool:
    """True for the answer that there is no such container."""
    return isinstance(error, NotFound)


def is_being_removed(error: BaseException) -> bool:
    """True for the answer that somebody else removes the container at this moment."""
    return isinstance(error, APIError) and error.status_code == 409


def _reason(error: BaseException) -> tuple[str, bool]:
    if isinstance(error, APIError):
        text = said(error)
        for pattern, way_out in _REFUSED:
            if re.search(pattern, text, re.IGNORECASE | re.DOTALL):
                return f"{way_out} (docker says: {text})", False
        if isinstance(error, ImageNotFound):
            return f"there is no such image; pull, build or import it first (docker says: {text})", False
        return f"docker says: {text}", True
    text = str(error)
    if isinstance(error, requests.Timeout | TimeoutError):
        text = f"timed out: {text}"
    for pattern, way_out, retryable in _UNREACHED:
        if re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            return way_out, retryable
    return " ".join(text.split())[-500:].rstrip(".") or type(error).__name__, True


def said(error: APIError) -> str:
    """What the daemon gives as the reason, in one line."""
    return " ".join(str(error.explanation or error).split())[-600:].rstrip(".")


def attach(client: docker.DockerClient, identifier: str) -> socket.socket:
    """The input and output of a container's first process, from its start on: attach before starting it.

    Raises: one of ERRORS.
    """
    wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
    return _bare(client.api.attach_socket(identifier, params=wanted))


def execute(client: docker.DockerClient, identifier: str, argv: list[str], user: str) -> socket.socket:
    """Start another process in a container that runs; its input and output.

    It must write nothing before it has read: what comes with the daemon's answer would be lost.

    Raises: one of ERRORS.
    """
    made = client.api.exec_create(identifier, argv, stdin=True, user=user, workdir="/")
    return _bare(client.api.exec_start(made["Id"], socket=True))


def _bare(wrapped: Any) -> socket.socket:
    """A socket of our own: the SDK's is closed with the answer it came from, and buffers."""
    inner = getattr(wrapped, "_sock", wrapped)
    if not isinstance(inner, socket.socket):
        raise DockerException(
            "the address is of a kind whose streams cannot be used (unix:// and tcp:// can)"
        )
    if hasattr(inner, "pending"):
        # TLS keeps its state beside the descriptor, so that it cannot be doubled.
        inner._lab_kept = wrapped  # type: ignore[attr-defined]
        return inner
    own = inner.dup()
    wrapped.close()
    return own
