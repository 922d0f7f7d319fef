"""Members of a ZIP file: the directory is Python's own, the bytes are also read where they are Zstandard.

Method 93 is what newer programs write and Python's zipfile reads from 3.14 on.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

import zstandard

CHUNK_BYTES = 1024 * 1024
_ZSTANDARD = 93
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, _ZSTANDARD)
_ENCRYPTED = 0x1
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_END, _END64, _LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_LONGEST_COMMENT = 65_535
_ENTRY = struct.Struct("<4s24xHHH12x")
# A larger window than any writer's default would be memory that the file's author decides on.
_LARGEST_WINDOW = 128 * 1024 * 1024
# What the standard library and zstandard raise on bytes that are not what they should be.
BROKEN = (
    zipfile.BadZipFile,
    zstandard.ZstdError,
    zlib.error,
    EOFError,
    # Also what is not implemented: a method or a version of ZIP that nobody reads.
    RuntimeError,
    ValueError,
    OverflowError,
    struct.error,
    LookupError,
)


class BrokenZipError(Exception):
    """The file or the member is no ZIP that can be read; the text says why, without the file's name."""


def names(path: Path) -> Iterator[str]:
    """The names in the directory one by one, so that their number is known before they are in memory.

    Raises:
        BrokenZipError: there is no directory, or it is damaged.
    """
    with path.open("rb", buffering=CHUNK_BYTES) as stream:
        start, size = _directory(stream)
        stream.seek(start)
        passed = 0
        while passed < size:
            header = stream.read(_ENTRY.size)
            if len(header) < _ENTRY.size or not header.startswith(b"PK\x01\x02"):
                raise BrokenZipError("its directory is cut off or overwritten")
            name, extra, comment = _ENTRY.unpack(header)[1:]
            yield stream.read(name).decode("utf-8", "replace")
            stream.seek(extra + comment, io.SEEK_CUR)
            passed += _ENTRY.size + name + extra + comment


def _directory(stream: BinaryIO) -> tuple[int, int]:
    """Where the directory starts and how many bytes it has."""
    size = stream.seek(0, io.SEEK_END)
    tail_at = max(0, size - _LONGEST_COMMENT - 22)
    stream.seek(tail_at)
    tail = stream.read()
    found = tail.rfind(_END)
    if found < 0 or len(tail) - found < 22:
        raise BrokenZipError("its directory at the end is missing: the file is cut off")
    end_at, length = tail_at + found, int.from_bytes(tail[found + 12 : found + 16], "little")
    if found >= 20 and tail[found - 20 : found - 16] == _LOCATOR64:
        end_at -= 76
        stream.seek(max(0, end_at))
        record = stream.read(56)
        if not record.startswith(_END64) or len(record) < 56:
            raise BrokenZipError("its directory at the end is damaged")
        length = int.from_bytes(record[40:48], "little")
    if length > end_at:
        raise BrokenZipError("its directory is longer than the file")
    return end_at - length, length


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """
    Raises:
        BrokenZipError: not a ZIP file, or its directory is damaged.
        OSError: the file cannot be read.
    """
    try:
        archive = zipfile.ZipFile(path)
    except BROKEN as error:
        raise BrokenZipError(str(error) or type(error).__name__) from None
    with archive:
        yield archive


def chunks(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """The member's bytes in pieces of at most a megabyte. Length and checksum are checked at the end.

    Raises:
        BrokenZipError: encrypted, compressed in an unknown way, damaged, or not of the stated length.
    """
    if member.flag_bits & _ENCRYPTED:
        raise BrokenZipError("is encrypted")
    if member.header_offset < 0:
        raise BrokenZipError("is not where the directory says")
    if member.compress_type not in _METHODS:
        raise BrokenZipError(f"is compressed with method {member.compress_type}, which nothing here reads")
    checksum, length = 0, 0
    try:
        for chunk in _raw_chunks(archive, member):
            checksum, length = zlib.crc32(chunk, checksum), length + len(chunk)
            if length > member.file_size:
                raise BrokenZipError(f"is longer than the {member.file_size:,} bytes that are stated")
            yield chunk
    except BROKEN as error:
        raise BrokenZipError(f"is damaged: {error or type(error).__name__}") from None
    if length != member.file_size:
        raise BrokenZipError(f"has {length:,} bytes, stated are {member.file_size:,}")
    if checksum != member.CRC:
        raise BrokenZipError("is damaged: its checksum is another")


def content(archive: zipfile.ZipFile, member: zipfile.ZipInfo, *, most: int) -> bytes:
    """All bytes of a member.

    Raises:
        BrokenZipError: as `chunks`, and above `most` bytes.
    """
    if member.file_size > most:
        raise BrokenZipError(f"is {member.file_size:,} bytes, more than the {most:,} of one document")
    return b"".join(chunks(archive, member))


def _raw_chunks(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    if member.compress_type != _ZSTANDARD:
        with archive.open(member) as stream:
            yield from _pieces(stream)
        return
    file = cast(BinaryIO, archive.fp)
    file.seek(member.header_offset)
    signature, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    if signature != b"PK\x03\x04":
        raise BrokenZipError("is not where the directory says")
    file.seek(name + extra, io.SEEK_CUR)
    compressed = _Part(file, file.tell(), member.compress_size)
    decompressor = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    with decompressor.stream_reader(
        cast(IO[bytes], compressed), read_across_frames=True, closefd=False
    ) as stream:
        yield from _pieces(stream)


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK_BYTES):
        yield chunk


class _Part:
    """A stretch of a file, read by somebody who knows nothing of the rest."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file, self._at, self._end = file, start, start + size

    def read(self, size: int = -1) -> bytes:
        wanted = self._end - self._at if size < 0 else min(size, self._end - self._at)
        # Each time, because another member may have been read meanwhile.
        self._file.seek(self._at)
        data = self._file.read(wanted)
        self._at += len(data)
        return data
