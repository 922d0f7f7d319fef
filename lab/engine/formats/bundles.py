"""Several files as one: a ZIP archive that is written as it is read, whatever its size."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator

from lab.engine.formats.exported import Member

# The same files make the same archive, whenever it is made.
_DATE = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644 << 16
_PIECE_BYTES = 64 * 1024


class _Written(io.RawIOBase):
    """Holds what was written until it is taken. It cannot be gone back in."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        self._pieces.append(piece)
        return len(piece)

    def taken(self) -> bytes:
        found, self._pieces = b"".join(self._pieces), []
        return found


def zipped(members: Iterable[Member]) -> Iterator[bytes]:
    """The archive of these files in pieces."""
    target = _Written()
    with zipfile.ZipFile(target, "w") as archive:
        for member in members:
            entry = zipfile.ZipInfo(member.name, _DATE)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, _MODE
            with archive.open(entry, "w", force_zip64=True) as stream:
                for piece in member.pieces:
                    stream.write(piece)
                    yield target.taken()
            yield target.taken()
    yield target.taken()


def in_larger_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of at least 64 KiB, so that a connection is not given every line by itself."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if size:
        yield b"".join(held)
