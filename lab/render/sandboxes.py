"""A sandbox in words, from the event of its start. What an older log does not say is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lab.render.numbers import plural, size
from lab.render.text import one_line, words_of

SHORT_HASH = 12
_KEPT_APART = {
    "none": "not isolated: its commands are processes of this machine",
    "bubblewrap": "namespaces of its own, no capabilities; of this machine's files the system's, read-only",
    "container": "a container with no file of this machine, no new privileges, few capabilities or none",
}


class ShownImage(NamedTuple):
    """What a sandbox was made from. `hash` is the registry's where there is one, else the content's own.

    `hash_name` says which; `short` is its beginning; `size` is "" where nobody says.
    """

    reference: str
    hash: str
    hash_name: str
    short: str
    size: str
    identifier: str


class ShownSandbox(NamedTuple):
    """`line` says it shortly: "docker, isolated, no network". `limits` "" and `image` None: not recorded."""

    line: str
    isolated: bool
    kept_apart: str
    network: str
    image: ShownImage | None
    limits: str
    notes: tuple[str, ...]


def shown_sandbox(payload: Mapping[str, Any]) -> ShownSandbox | None:
    """A `sandbox_started` payload in words; None for an empty one."""
    if not payload:
        return None
    isolation = words_of(payload.get("isolation"))
    isolated = isolation != "none"
    network = "with network" if payload.get("network") else "no network"
    kept_apart = "isolated" if isolated else "not isolated"
    return ShownSandbox(
        line=f"{one_line(words_of(payload.get('sandbox')), 60)}, {kept_apart}, {network}",
        isolated=isolated,
        kept_apart=_KEPT_APART.get(isolation, ""),
        network="the network can be reached" if payload.get("network") else "no network",
        image=shown_image(payload.get("image")),
        limits=", ".join(f"{name} {words}" for name, words in limit_words(payload.get("limits")).items()),
        notes=tuple(one_line(words_of(note), 400) for note in payload.get("notes") or []),
    )


def shown_image(image: object) -> ShownImage | None:
    """An event's image in words; None where none is recorded."""
    if not isinstance(image, Mapping):
        return None
    digest, identifier = words_of(image.get("digest")), words_of(image.get("identifier"))
    registry = digest.rpartition("@")[2]
    found = registry or identifier
    number = image.get("size_bytes")
    return ShownImage(
        reference=one_line(words_of(image.get("reference")), 300),
        hash=found,
        hash_name="digest" if registry else "content",
        short=short_hash(found),
        size=str(size(number)) if isinstance(number, int) else "",
        identifier=identifier,
    )


def short_hash(text: str) -> str:
    """ "sha256:" and twelve digits: enough to tell images apart by eye."""
    kind, _, digits = text.rpartition(":")
    return f"{kind}:{digits[:SHORT_HASH]}" if kind else digits[:SHORT_HASH]


def limit_words(limits: object) -> dict[str, str]:
    """Each limit of a sandbox in words, by name; none where they are not recorded."""
    if not isinstance(limits, Mapping):
        return {}
    return {name: _limit(key, limits.get(key)) for key, name in _LIMITS.items()}


_LIMITS = {"memory_bytes": "memory", "processes": "processes", "cpu_cores": "CPU", "disk_bytes": "disk"}


def _limit(key: str, value: object) -> str:
    if not isinstance(value, int | float):
        return "no limit" if value is None else "unknown"
    if key.endswith("_bytes"):
        return _as_set(int(value))
    return plural(int(value), "core") if key == "cpu_cores" and value == int(value) else f"{value:,.10g}"


def _as_set(number: int) -> str:
    """A limit in the unit it was set in: whole binary units as 256 MiB or 2 GiB, others as sizes are."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2)):
        if number and number % factor == 0:
            return f"{number // factor:,} {unit}"
    return str(size(number))
