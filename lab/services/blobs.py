"""Long texts and archives beside the log: compressed files under the data folder, kept once by content."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import secrets
import threading
from pathlib import Path

import zstandard
from django.conf import settings

from lab.engine.errors import LabError
from lab.models import Blob
from lab.services import tombstones

_READ_SIZE = 65_536
_NAME = re.compile(r"[0-9a-f]{64}")
_local = threading.local()


class BodyMissingError(LabError):
    """A stored body is gone or no longer what it was. Lists, sums and costs do not depend on it."""


class BodyPurgedError(BodyMissingError):
    """A stored body is gone on purpose: it held a leaked secret. The text says when, by whom and why."""


def path_of(sha256: str) -> Path:
    """Where the blob lies: `<data folder>/blobs/ab/cdef…`."""
    # One text and not four joined paths: a page asks for fifty.
    return Path(f"{settings.LAB_DATA_DIR}/blobs/{sha256[:2]}/{sha256[2:]}")


def store_file(data: bytes) -> Blob:
    """Write the bytes unless they are there; the returned row is not saved.

    The file is complete or absent, whatever is killed: it is written beside its place and renamed.

    Raises:
        OSError: the data folder is full or cannot be written.
    """
    digest = hashlib.sha256(data).hexdigest()
    target = path_of(digest)
    try:
        stored = target.stat().st_size
        # Tells whoever removes what nothing refers to (stored_bodies) that somebody is about to.
        with contextlib.suppress(PermissionError):
            os.utime(target)
    except FileNotFoundError:
        packed = _compressor().compress(data)
        stored = len(packed)
        _write_whole(target, packed)
    return Blob(sha256=digest, size=len(data), stored_size=stored)


def save_rows(blobs: list[Blob]) -> None:
    """Record stored files. Rows that exist stay as they are."""
    if blobs:
        # In one order: two writers that each wait for a row of the other would never end.
        Blob.objects.bulk_create(sorted(blobs, key=lambda blob: blob.sha256), ignore_conflicts=True)


def put(*, data: bytes) -> str:
    """Keep bytes; returns their SHA-256.

    Raises:
        OSError: the data folder is full or cannot be written.
    """
    blob = store_file(data)
    save_rows([blob])
    return blob.sha256


def blob_bytes(*, sha256: str) -> bytes:
    """The stored bytes, checked against their hash.

    Raises:
        BodyMissingError: the file is gone, torn or not what its name says.
    """
    try:
        with _open(sha256) as file:
            packed = file.read()
        data = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    except FileNotFoundError:
        raise _gone(sha256) from None
    except (OSError, zstandard.ZstdError) as error:
        raise BodyMissingError(f"body missing: the file of blob {sha256} cannot be read ({error})") from error
    _check(data, sha256)
    return data


def beginning_of(sha256: str, *, limit: int) -> bytes:
    """The first `limit` bytes; cheap also where the whole is large.

    Where they are all there is, they are checked against their hash.

    Raises:
        BodyMissingError: the file is gone, cannot be read, or is not what its name says.
    """
    try:
        with _open(sha256) as packed:
            reader = _decompressor().stream_reader(packed, read_size=_READ_SIZE)
            data = reader.read(limit)
            if not reader.read(1):
                _check(data, sha256)
            return data
    except FileNotFoundError:
        raise _gone(sha256) from None
    except (OSError, zstandard.ZstdError) as error:
        raise BodyMissingError(f"body missing: the file of blob {sha256} cannot be read ({error})") from error


def _check(data: bytes, sha256: str) -> None:
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BodyMissingError(f"body missing: the file of blob {sha256} holds something else now")


def _gone(sha256: str) -> BodyMissingError:
    purged = tombstones.of_body(sha256)
    if purged:
        return BodyPurgedError(purged)
    return BodyMissingError(f"body missing: the file of blob {sha256} is gone from the data folder")


def blob_text(sha256: str) -> str:
    """The stored text.

    Raises:
        BodyMissingError: as `blob_bytes`.
    """
    return blob_bytes(sha256=sha256).decode("utf-8", "surrogatepass")


def _open(sha256: str) -> io.FileIO:
    """The blob's file, opened without following a link: what lies outside the data folder is no body.

    Raises:
        BodyMissingError: the name is no SHA-256.
        OSError: the file is gone, a link, or lies in a folder that is one.
    """
    if not _NAME.fullmatch(sha256):
        raise BodyMissingError(f"body missing: {sha256[:80]!r} is no SHA-256")
    path = path_of(sha256)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return io.FileIO(os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder))
    finally:
        os.close(folder)


def _decompressor() -> zstandard.ZstdDecompressor:
    decompressor: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if decompressor is None:
        decompressor = _local.decompressor = zstandard.ZstdDecompressor()
    return decompressor


def _compressor() -> zstandard.ZstdCompressor:
    # A compressor is not safe for two threads at once.
    compressor: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if compressor is None:
        compressor = _local.compressor = zstandard.ZstdCompressor(level=3)
    return compressor


def _make_private(folder: Path) -> None:
    """The user that agents' commands run as can walk through the data folder, and not into this one."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_mode & 0o077:
        with contextlib.suppress(PermissionError):
            folder.chmod(0o700)


def _write_whole(target: Path, data: bytes) -> None:
    if not target.parent.is_dir():
        _make_private(target.parent.parent)
        target.parent.mkdir(exist_ok=True, mode=0o700)
    beside = target.with_name(f".{target.name[:16]}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        beside.write_bytes(data)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
