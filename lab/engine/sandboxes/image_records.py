"""Which images a lab has brought to its daemon, when each was last used, and what they take of the disk.

One small file an image, in a folder of the lab: its time says when the image was last used. An image without
such a file is somebody else's and is never removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import docker

from lab.engine.errors import SandboxLostError
from lab.engine.stop import StopSignal

# Between getting an image and making a container of it nothing shows that it is needed.
_ABOUT_TO_BE_USED_SECONDS = 120.0
_LOOK_SECONDS = 0.1


class _Kept(NamedTuple):
    used_at: float
    reference: str
    identifier: str
    file: Path


class ImageRecords:
    """The records below `folder`, which is made when it is needed.

    Raises:
        SandboxLostError: from any method, the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def alone(self, reference: str, stop: StopSignal, waiting: Callable[[], None]) -> Iterator[bool]:
        """Hold this reference's lock, which the kernel drops when its holder dies; True once it is held.

        `waiting` is called when another holds it. False: `stop` was set before it was free.
        """
        with self._file(f"{_name(reference)}.lock").open("ab") as file:
            told = False
            while not stop.is_set():
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if not told:
                        waiting()
                        told = True
                    stop.wait(_LOOK_SECONDS)
                else:
                    yield True
                    return
            yield False

    def used(self, reference: str) -> None:
        """The image is about to be used; nothing happens when the lab did not bring it."""
        with contextlib.suppress(OSError):
            os.utime(self._folder / f"{_name(reference)}.json")

    def brought(self, reference: str, identifier: str) -> None:
        """The lab has pulled or built this image just now."""
        file = self._file(f"{_name(reference)}.json")
        partial = file.with_suffix(".part")
        partial.write_text(json.dumps({"reference": reference, "identifier": identifier}))
        partial.replace(file)

    def make_room(self, client: docker.DockerClient, budget: int, *, kept: str) -> int:
        """Remove what was used longest ago until the rest fits into `budget` bytes; what is over it still.

        The image `kept` (a reference), what containers and other images are made from, and what was used in
        the last two minutes stay.
        """
        with self._file(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            records = self._all()
            sizes = {one: _size(client, one) for one in records}
            busy = {one["ImageID"] for one in client.api.containers(all=True)}
            # What another is built on takes its place as long as that one is there.
            busy |= {one["ParentId"] for one in client.api.images(all=True)}
            recent = time.time() - _ABOUT_TO_BE_USED_SECONDS
            for one in records:
                spared = one.identifier in busy or one.reference == kept or one.used_at > recent
                if sizes[one] is None:
                    one.file.unlink(missing_ok=True)
                elif _total(sizes) > budget and not spared and _remove(client, one):
                    sizes[one] = None
            return max(0, _total(sizes) - budget)

    def forget(self, client: docker.DockerClient, reference: str) -> None:
        """Remove this image again, unless something is made from it."""
        for one in self._all():
            if one.reference == reference:
                _remove(client, one)

    def _all(self) -> list[_Kept]:
        """Every record, the one used longest ago first."""
        found = []
        for file in self._folder.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                content = json.loads(file.read_text())
                found.append(
                    _Kept(file.stat().st_mtime, str(content["reference"]), str(content["identifier"]), file)
                )
        return sorted(found)

    def _file(self, name: str) -> Path:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SandboxLostError(
                f"what the lab knows of images cannot be kept in {str(self._folder)!r} ({error.strerror}); "
                "let the lab write its data folder",
                retryable=False,
            ) from error
        return self._folder / name


def _total(sizes: Mapping[_Kept, int | None]) -> int:
    """Bytes of all images together, one with two names counted once."""
    return sum({one.identifier: size or 0 for one, size in sizes.items()}.values())


def _size(client: docker.DockerClient, one: _Kept) -> int | None:
    """Bytes of the image on the disk; None when it is gone, or the name stands for another one now."""
    with contextlib.suppress(docker.errors.NotFound):
        found = client.api.inspect_image(one.reference)
        if found["Id"] == one.identifier:
            return int(found["Size"])
    return None


def _remove(client: docker.DockerClient, one: _Kept) -> bool:
    """By its name alone: content that has another name too is somebody else's as well."""
    try:
        client.api.remove_image(one.reference)
    except docker.errors.NotFound:
        pass
    except docker.errors.APIError:
        # A container or another image is made from it.
        return False
    one.file.unlink(missing_ok=True)
    return True


def _name(reference: str) -> str:
    return hashlib.sha256(reference.encode()).hexdigest()[:32]
