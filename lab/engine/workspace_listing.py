"""Lists every path of a workspace with what tells a changed file: kind, size, time, inode, mode."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from lab.engine.errors import InfrastructureError
from lab.engine.sandboxes.base import Sandbox
from lab.engine.scripts import broken_script, open_workspace, run_program, run_script

LISTING_LIMIT_BYTES = 64_000_000


class Entry(NamedTuple):
    """A path as it was found. `kind` is b"f", b"d", b"l", …; `stamp` is modification time and inode."""

    kind: bytes
    mode: int
    size: int
    stamp: bytes

    def differs(self, other: Entry | None) -> bool:
        # A folder's size and time change with what is in it, and that is looked at for itself.
        if other is not None and self.kind == other.kind == b"d":
            return self.mode != other.mode
        return self != other


Entries = dict[bytes, Entry]


# Without a shell around it: starting one takes a third of the time.
_LINE = r"%y %m %s %T@,%i %P\0"

# For a find without -printf: the paths, then a line of numbers for each;
# the raw mode holds kind and permissions.
_LIST_PORTABLY = r"""
find . -mindepth 1 PRUNE -print0
printf '\0'
find . -mindepth 1 PRUNE -print0 | xargs -0 -r stat -c '%f %s %Y,%i' --
"""

_KINDS = {0x8: b"f", 0x4: b"d", 0xA: b"l", 0x1: b"p", 0xC: b"s", 0x2: b"c", 0x6: b"b"}


def list_entries(sandbox: Sandbox, cache_globs: Iterable[str], before: Mapping[bytes, Entry]) -> Entries:
    """Every path of the workspace but cached ones. What lies in a closed folder stays as it was `before`.

    A workspace that is closed itself is opened: no command of the agent would begin in it any more.

    Raises:
        SandboxLostError: the sandbox is gone.
        InfrastructureError: `find` is missing or the list is larger than 64 MB.
    """
    globs = [glob for glob in cache_globs if not _FOLDER_GLOB.fullmatch(glob)]
    cached_folders = [match[1] for glob in cache_globs if (match := _FOLDER_GLOB.fullmatch(glob))]
    if _is_closed_on_host(sandbox.host_workspace):
        open_workspace(sandbox)
    found = _list_on_host(sandbox.host_workspace, cached_folders)
    listed = _list_inside(sandbox, cached_folders) if found is None else found
    cached = re.compile("|".join(_glob_pattern(glob) for glob in globs).encode() or rb"(?!)", re.DOTALL)
    entries = {path: entry for path, entry in listed if not cached.fullmatch(path)}
    closed = tuple(
        path + b"/" for path, entry in entries.items() if entry.kind == b"d" and entry.mode & 0o500 != 0o500
    )
    for path, entry in before.items():
        if closed and path not in entries and path.startswith(closed):
            entries[path] = entry
    return entries


def _is_closed_on_host(folder: Path | None) -> bool:
    try:
        return folder is not None and folder.lstat().st_mode & 0o500 != 0o500
    except OSError:
        return False


def _list_on_host(folder: Path | None, cached_folders: list[str]) -> list[tuple[bytes, Entry]] | None:
    """The paths below a folder of this machine, None where it cannot be listed from here.

    A tenth of what a program in the sandbox costs, and it runs after every tool call. Folders are opened one
    below the other without following links, so that a link put in their place meanwhile leads nowhere.
    """
    if folder is None:
        return None
    cached = re.compile("|".join(fnmatch.translate(name) for name in cached_folders) or "(?!)")
    found: list[tuple[bytes, Entry]] = []
    try:
        top = os.open(folder, _FOLDER)
    except OSError:
        return None
    try:
        _walk(top, b"", cached, found)
    except OSError:
        return None
    finally:
        os.close(top)
    return found


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_MOST_PATHS = LISTING_LIMIT_BYTES // 64
# Each level holds two descriptors, and the rest of the process needs some too.
_MOST_LEVELS = 100


def _walk(descriptor: int, prefix: bytes, cached: re.Pattern[str], found: list[tuple[bytes, Entry]]) -> None:
    with os.scandir(descriptor) as items:
        for item in items:
            is_folder = item.is_dir(follow_symlinks=False)
            if is_folder and cached.match(item.name):
                continue
            path = prefix + os.fsencode(item.name)
            facts = item.stat(follow_symlinks=False)
            kind = _KINDS.get(facts.st_mode >> 12, b"?")
            stamp = b"%d,%d" % (facts.st_mtime_ns, facts.st_ino)
            found.append((path, Entry(kind, facts.st_mode & 0o7777, facts.st_size, stamp)))
            if len(found) > _MOST_PATHS:
                raise InfrastructureError(f"the workspace has more than {_MOST_PATHS} paths")
            if is_folder:
                _walk_below(item.name, descriptor, path + b"/", cached, found)


def _walk_below(
    name: str, parent: int, prefix: bytes, cached: re.Pattern[str], found: list[tuple[bytes, Entry]]
) -> None:
    if prefix.count(b"/") > _MOST_LEVELS:
        raise OSError(errno.EMFILE, "too many folders in each other to be listed from here")
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        return  # closed: what lies in it stays as it was
    try:
        _walk(descriptor, prefix, cached, found)
    finally:
        os.close(descriptor)


def _list_inside(sandbox: Sandbox, cached_folders: list[str]) -> Iterator[tuple[bytes, Entry]]:
    """The same by a program in the sandbox."""
    words = ["find", ".", "-mindepth", "1"]
    for name in cached_folders:
        words += ["-type", "d", "-name", name, "-prune", "-o"]
    words += ["-printf", _LINE]
    result = run_program(sandbox, words, output_limit=LISTING_LIMIT_BYTES)
    if result.exit_code != 0 and not result.stdout.head and open_workspace(sandbox):
        result = run_program(sandbox, words, output_limit=LISTING_LIMIT_BYTES)
    if result.exit_code != 0 and not result.stdout.head and b"printf" in result.stderr.head:
        prune = "".join(f"-type d -name '{name}' -prune -o " for name in cached_folders)
        script = _LIST_PORTABLY.replace("PRUNE", prune)
        result = run_script(sandbox, script, output_limit=LISTING_LIMIT_BYTES)
    listing = result.stdout.head
    if result.exit_code is None or (not listing and result.exit_code != 0):
        raise broken_script(sandbox, result, "the workspace could not be listed")
    if result.stdout.truncated:
        raise InfrastructureError(f"the workspace has more paths than fit into {LISTING_LIMIT_BYTES} bytes")
    return _read_listing(listing)


def _read_listing(listing: bytes) -> Iterator[tuple[bytes, Entry]]:
    paths, separator, numbers = listing.partition(b"\0\0")
    if not separator:
        for line in listing.split(b"\0")[:-1]:
            kind, mode, size, stamp, path = line.split(b" ", 4)
            yield path, Entry(kind, int(mode, 8), int(size), stamp)
        return
    for path, line in zip(paths.split(b"\0"), numbers.splitlines(), strict=False):
        raw, size, stamp = line.split(b" ")
        number = int(raw, 16)
        kind = _KINDS.get(number >> 12, b"?")
        yield path.removeprefix(b"./"), Entry(kind, number & 0o7777, int(size), stamp)


_FOLDER_GLOB = re.compile(r"\*\*/([\w.*?-]+)/\*\*")


def _glob_pattern(glob: str) -> str:
    """A task's cache glob as a regular expression over relative paths: `**/` is any folders, `*` no slash."""
    parts = re.split(r"(\*\*/|/\*\*$|\*|\?)", glob)
    known = {"**/": "(?:.*/)?", "/**": "/.*", "*": "[^/]*", "?": "[^/]"}
    return "".join(known.get(part, re.escape(part)) for part in parts)
