"""Why an image cannot be had, in words: what the Docker daemon or a registry meant, and the way out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.base import SandboxSpec
from lab.engine.sandboxes.docker_client import explained


class _Reason(NamedTuple):
    """A sign in a daemon's message, what it means, and whether another try may end otherwise."""

    sign: re.Pattern[str]
    meaning: str
    retryable: bool


def _reason(sign: str, meaning: str, *, retryable: bool = False) -> _Reason:
    return _Reason(re.compile(sign, re.IGNORECASE), meaning, retryable)


_REASONS = (
    _reason(
        "no space left on device",
        "the disk of the Docker daemon is full; make room there (`docker system df` says what takes it)",
    ),
    _reason(
        "no matching manifest|does not match the (?:specified|detected|expected) platform|exec format error",
        "it is not there for this machine's architecture; name an image for it, or run the lab where it is",
    ),
    _reason(
        "pull access denied|requested access to the resource is denied",
        "no registry gives it out: it does not exist there, or only to those who log in; mend the name, run "
        "`docker login` as the lab's user, or bring it by `docker pull` or `docker load`",
    ),
    _reason(
        r"unauthorized|authentication required|no basic auth credentials|forbidden|\b40[13]\b",
        "the registry wants to know who asks; run `docker login` for it as the lab's user",
    ),
    _reason(
        "toomanyrequests|rate limit",
        "the registry gives out no more for now; wait, or run `docker login` for it as the lab's user",
        retryable=True,
    ),
    _reason(
        "gave HTTP response to HTTPS client",
        "the registry speaks no TLS; add it to insecure-registries of the Docker daemon, or give it a "
        "certificate",
    ),
    _reason(
        "x509|certificate", "the registry's certificate is not trusted; give its authority to the daemon"
    ),
    _reason(
        "no such host|server misbehaving|network is unreachable|no route to host|connection (?:refused|reset)"
        r"|i/o timeout|TLS handshake timeout|request canceled while waiting|proxyconnect|\bEOF\b",
        "the Docker daemon does not reach its registry; mend the network or the address, or bring the image "
        "by `docker load`",
        retryable=True,
    ),
    _reason(
        "manifest unknown|manifest for .* not found|repository .* not found|name unknown|not found",
        "the registry does not have it; mend name and tag",
    ),
    _reason("invalid reference format|invalid tag", "no image can have this name; mend it"),
)


def explanation(error: Exception) -> str:
    """What the daemon said, without the request around it."""
    return str(getattr(error, "explanation", "") or error)


def _meaning(message: str) -> _Reason | None:
    return next((reason for reason in _REASONS if reason.sign.search(message)), None)


def cannot_be_had(reference: str, message: str) -> SandboxLostError:
    """It could not be pulled or looked at; `message` is the daemon's own."""
    reason = _meaning(message)
    said = f"the image {reference} cannot be had: "
    if reason is None:
        return SandboxLostError(f"{said}{message}; bring it by `docker pull` or `docker load`")
    return SandboxLostError(
        f"{said}{reason.meaning} (the daemon said: {message})", retryable=reason.retryable
    )


def build_failed(reference: str, spec: SandboxSpec, message: str, log: Sequence[str]) -> SandboxLostError:
    """Its build ended with `message`; `log` are the last lines that were said."""
    text = "\n".join(log)
    reason = _meaning(message)
    way_out = reason.meaning if reason is not None else "mend the Dockerfile or what it needs"
    if not spec.build_network and _needs_network(f"{text}\n{message}"):
        way_out = "its commands reach no network; write build_network = true in the task's [environment]"
    return SandboxLostError(
        f"the image {reference} cannot be built from {str(spec.build)!r}: {message}; {way_out}. "
        f"The end of what the build said:\n{text or '(nothing)'}",
        retryable=reason.retryable if reason is not None else False,
    )


_NO_NETWORK = re.compile(
    "temporary failure (?:in name resolution|resolving)|could not resolve host|bad address"
    "|network is unreachable|name or service not known",
    re.IGNORECASE,
)


def _needs_network(text: str) -> bool:
    return _NO_NETWORK.search(text) is not None


def does_not_fit(reference: str, size: int, budget: int, over: int, at_least: str = "") -> SandboxLostError:
    """It would pass the budget by `over` bytes, everything that can go being gone."""
    gigabyte = 1e9
    return SandboxLostError(
        f"the image {reference} does not fit: it takes {at_least}{size / gigabyte:.2f} GB, images of this "
        f"lab may take {budget / gigabyte:.2f} GB, and that would be passed by {over / gigabyte:.2f} GB, "
        "with all removed that nobody needs; set LAB_DOCKER_DISK_GB higher, or wait for runs to end",
        retryable=False,
    )


def no_answer(reference: str, error: Exception) -> SandboxLostError:
    """The daemon did not answer at all."""
    return explained(error, f"The image {reference} cannot be had")


def broken_off(reference: str) -> SandboxLostError:
    """The stop signal was set meanwhile."""
    return SandboxLostError(f"getting the image {reference} was broken off")
