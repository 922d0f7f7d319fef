"""Archives of workspace changes: what a tool call changed, as a tar that can be put over the state before it.

Paths under `files/` are as they are after the change; the member `deleted` lists, separated by NUL, what is
gone or became another kind of thing. The same change gives the same bytes. Paths are bytes
throughout, because a file's name need not be text.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

_DELETED = "deleted"
_FILES = "files/"


class Item(NamedTuple):
    """One path of a workspace: its tar header (kind, mode, time, link) and a regular file's content."""

    header: tarfile.TarInfo
    content: bytes


class FoldedArchives(NamedTuple):
    """Archives put over each other: paths to remove from the snapshot first, then paths to write."""

    deleted: set[bytes]
    items: dict[bytes, Item]


def read_tar(data: bytes) -> dict[bytes, Item]:
    """The members of a tar by path, without a leading `./`. What is cut off at the end is left out."""
    items: dict[bytes, Item] = {}
    try:
        with tarfile.open(
            fileobj=io.BytesIO(data), mode="r:", encoding="utf-8", errors="surrogateescape"
        ) as tar:
            for header in tar:
                stream = tar.extractfile(header) if header.isreg() else None
                path = os.fsencode(header.name).removeprefix(b"./")
                items[path] = Item(header, stream.read() if stream else b"")
    except tarfile.ReadError:
        return items
    return items


def write_tar(items: Mapping[bytes, Item], *, prefix: str = "", deleted: Iterable[bytes] = ()) -> bytes:
    """A tar of `items`, sorted by path, without owners; `deleted` is its first member if there are any."""
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as tar:
        names = sorted(deleted)
        if names:
            header = tarfile.TarInfo(_DELETED)
            header.size = len(listed := b"\0".join(names))
            tar.addfile(header, io.BytesIO(listed))
        for path in sorted(items):
            before, content = items[path]
            header = tarfile.TarInfo(prefix + os.fsdecode(path))
            header.type, header.mode, header.mtime = before.type, before.mode, int(before.mtime)
            header.linkname, header.size = before.linkname, len(content)
            tar.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


def pack_change(items: Mapping[bytes, Item], deleted: Iterable[bytes]) -> bytes:
    """The archive of one change."""
    return write_tar(items, prefix=_FILES, deleted=deleted)


def fold(archives: Iterable[bytes]) -> FoldedArchives:
    """Several changes, oldest first, as one."""
    folded = FoldedArchives(set(), {})
    for archive in archives:
        members = read_tar(archive)
        listed = members.pop(_DELETED.encode(), None)
        for path in listed.content.split(b"\0") if listed else ():
            folded.deleted.add(path)
            folded.items.pop(path, None)
        for path, item in members.items():
            folded.items[path.removeprefix(_FILES.encode())] = item
    return folded


# A loose object of git: compressed, so that nothing in it is seen from outside.
_GIT_OBJECT = re.compile(rb"(?:^|/)\.git/objects/[0-9a-f]{2}/[0-9a-f]{38,62}$")
_GIT_OBJECT_BYTES = 50_000_000


def rewritten(archive: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The archive with `change` applied to names, links and contents; itself where nothing changes.

    `change` keeps the number of bytes. It is applied by member: a changed header would have a wrong checksum,
    and of a long name the header holds a piece. A loose git object whose inner bytes would change is emptied;
    what other files compress (archives, git's packs) is not looked into.
    """
    changed = change(archive)
    if changed == archive and b".git/objects/" not in archive:
        return archive
    items = read_tar(archive)
    if not items:
        return changed
    clean = {change(path): _rewritten_item(path, item, change) for path, item in items.items()}
    if changed == archive and all(clean[path] is item for path, item in items.items()):
        return archive
    return write_tar(clean)


def _rewritten_item(path: bytes, item: Item, change: Callable[[bytes], bytes]) -> Item:
    header, content = item
    link, data = os.fsdecode(change(os.fsencode(header.linkname))), change(content)
    if _GIT_OBJECT.search(path):
        inner = _inflated(content)
        data = content if change(inner) == inner else b""
    if link == header.linkname and data == content:
        return item
    header.linkname = link
    return Item(header, data)


def _inflated(content: bytes) -> bytes:
    with contextlib.suppress(zlib.error):
        return zlib.decompressobj().decompress(content, _GIT_OBJECT_BYTES)
    return b""


def shown(path: bytes) -> str:
    """A path as text; bytes that are no UTF-8 as escapes."""
    return path.decode("utf-8", "backslashreplace")
