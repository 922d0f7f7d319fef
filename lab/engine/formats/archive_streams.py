"""What archives are made of: their kinds, streams that count and stop, and names that are safe to show."""

from __future__ import annotations

import gzip
import io
import itertools
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, Protocol, cast

import zstandard

from lab.engine.formats import zip_members

Compression = Literal["gzip", "zstd"]
ArchiveKind = Literal["zip", "tar", "gzip", "zstd"]

# What reading a damaged archive raises.
BROKEN_ARCHIVE = (gzip.BadGzipFile, tarfile.TarError, RecursionError, *zip_members.BROKEN)
# A ZIP file with more entries is looked at no further: it is no log.
_MOST_LOG_ENTRIES = 100_000
# Headers of one tar member: names and attributes, which tarfile holds in memory.
_MOST_HEADER_BYTES = 8 * 1024 * 1024
_LARGEST_WINDOW = 128 * 1024 * 1024
_LONGEST_PATH = 4096
# Four bytes of Zstandard become 128 KB at the most, so that this is 32 MB at once.
_FED_BYTES = 1024


class Readable(Protocol):
    """Anything with bytes to read."""

    def read(self, size: int = -1, /) -> bytes: ...


def kind_of(source: Path) -> ArchiveKind | None:
    """What the content is, None for no archive. An Inspect log is a ZIP file and a document.

    Raises:
        OSError: the file cannot be read.
    """
    with source.open("rb") as stream:
        head = stream.read(tarfile.BLOCKSIZE)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return None if _is_inspect_file(source) else "zip"
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    # A frame of data, or one to be skipped, whose first byte has sixteen values.
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5):
        return "zstd"
    return "tar" if is_tar(head) else None


def is_tar(head: bytes) -> bool:
    """Whether these first 512 bytes are the header of a tar file."""
    if len(head) < tarfile.BLOCKSIZE or not head.strip(b"\0"):
        return False
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except BROKEN_ARCHIVE:
        return False
    return True


def is_inspect_log(members: Iterable[str]) -> bool:
    """Whether these names in a ZIP file are those of a log of Inspect."""
    header = samples = False
    for name in members:
        if name == "_journal/start.json":
            return True
        header = header or name == "header.json"
        samples = samples or name == "summaries.json" or name.startswith("samples/")
    return header and samples


def _is_inspect_file(source: Path) -> bool:
    try:
        names = list(itertools.islice(zip_members.names(source), _MOST_LOG_ENTRIES + 1))
    except zip_members.BrokenZipError:
        return False
    return len(names) <= _MOST_LOG_ENTRIES and is_inspect_log(names)


class CountedStream:
    """A stream that counts what is read, and keeps the `last` piece.

    `allowed` is how many bytes may still be read, None for any number.
    """

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.read_bytes = 0
        self.allowed: int | None = None
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.read_bytes += len(data)
        self.last = data[-tarfile.BLOCKSIZE :] or self.last
        if self.allowed is not None:
            self.allowed -= len(data)
            if self.allowed < 0:
                raise tarfile.ReadError(f"headers of more than {_MOST_HEADER_BYTES:,} bytes")
        return data


class Rejoined:
    """A stream with the piece that was read from its start put back."""

    def __init__(self, head: bytes, rest: Readable) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int = -1) -> bytes:
        if not self._head:
            return self._rest.read(size)
        taken = self._head if size < 0 else self._head[:size]
        self._head = self._head[len(taken) :]
        return taken


@contextmanager
def decompressed(source: Readable, kind: Compression) -> Iterator[Readable]:
    """What is inside a gzip or Zstandard file of one or several frames."""
    if kind == "gzip":
        with gzip.GzipFile(fileobj=cast(IO[bytes], source)) as stream:
            yield stream
        return
    yield _Zstandard(source)


class _Zstandard:
    """What is inside Zstandard frames. zstandard's own reader takes one that is cut off as whole."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
        self._frame: Any = None
        self._ready = io.BytesIO()

    def read(self, size: int = -1) -> bytes:
        while not (taken := self._ready.read(size)):
            fed = self._source.read(_FED_BYTES)
            if not fed and self._frame is not None:
                raise EOFError("the compressed data is cut off")
            if not fed:
                return b""
            self._feed(fed)
        return taken

    def _feed(self, fed: bytes) -> None:
        found = []
        while fed:
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            found.append(self._frame.decompress(fed))
            fed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None
        self._ready = io.BytesIO(b"".join(found))


def open_tar(stream: CountedStream) -> tarfile.TarFile:
    """
    Raises:
        BROKEN_ARCHIVE: no tar file.
    """
    file = cast(IO[bytes], stream)
    stream.allowed = _MOST_HEADER_BYTES
    tar = tarfile.open(fileobj=file, mode="r|", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    stream.allowed = None
    return tar


def next_member(tar: Any, stream: CountedStream) -> tarfile.TarInfo | None:
    """The next header. tarfile keeps each one it gave, and holds names of any length in memory.

    Raises:
        BROKEN_ARCHIVE: what follows is no header, or one that is too long.
    """
    unread = tar.offset - tar.fileobj.tell()
    stream.allowed = _MOST_HEADER_BYTES + max(0, unread)
    member: tarfile.TarInfo | None = tar.next()
    stream.allowed = None
    tar.members.clear()
    return member


def read_whole(stream: Readable, size: int) -> bytes:
    """The next `size` bytes, fewer only at the end."""
    data = b""
    while len(data) < size and (more := stream.read(size - len(data))):
        data += more
    return data


def pieces(stream: Readable) -> Iterator[bytes]:
    """All bytes, a megabyte at a time."""
    while chunk := stream.read(zip_members.CHUNK_BYTES):
        yield chunk


def safe_path(name: str) -> tuple[str, str]:
    """The path with `/` between folders, and why it is refused, "" if it is not."""
    if "\0" in name:
        return "", "has a NUL in its name"
    parts = name.replace("\\", "/").split("/")
    if not parts[0] or (len(parts[0]) > 1 and parts[0][1] == ":"):
        return "", "has an absolute path: only paths inside the archive are unpacked"
    if ".." in parts:
        return "", "has a path that leaves the archive: only paths inside it are unpacked"
    path = shown("/".join(part for part in parts if part not in ("", ".")))
    if not path:
        return "", "has no name"
    if len(path) > _LONGEST_PATH:
        return "", f"has a name of {len(name):,} characters; the most is {_LONGEST_PATH:,}"
    return path, ""


def shown(path: str) -> str:
    """A path on one line: control characters, and bytes that are no text, as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in path[: 2 * _LONGEST_PATH]
    )
