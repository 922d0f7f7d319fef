"""Lists every path of a workspace with what tells a changed file: kind, size, time, inode, mode."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from lab.engine.errors import InfrastructureError
from lab.engine.sandboxes.base import Sandbox
from lab.engine.scripts import broken_script, run_program, run_script

LISTING_LIMIT_BYTES = 64_000_000


class Entry(NamedTuple):
    """A path as `find` shows it. `kind` is b"f", b"d", b"l", …; `stamp` is modification time and inode."""

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


# Without a shell around it: this runs after every tool call, and starting a shell takes a third of its time.
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

    Raises:
        SandboxLostError: the sandbox is gone.
        InfrastructureError: `find` is missing or the list is larger than 64 MB.
    """
    globs = [glob for glob in cache_globs if not _FOLDER_GLOB.fullmatch(glob)]
    cached_folders = [match[1] for glob in cache_globs if (match := _FOLDER_GLOB.fullmatch(glob))]
    words = ["find", ".", "-mindepth", "1"]
    for name in cached_folders:
        words += ["-type", "d", "-name", name, "-prune", "-o"]
    result = run_program(sandbox, [*words, "-printf", _LINE], output_limit=LISTING_LIMIT_BYTES)
    if result.exit_code != 0 and not result.stdout.head and b"printf" in result.stderr.head:
        prune = "".join(f"-type d -name '{name}' -prune -o " for name in cached_folders)
        script = _LIST_PORTABLY.replace("PRUNE", prune)
        result = run_script(sandbox, script, output_limit=LISTING_LIMIT_BYTES)
    listing = result.stdout.head
    if result.exit_code is None or (not listing and result.exit_code != 0):
        raise broken_script(sandbox, result, "the workspace could not be listed")
    if result.stdout.truncated:
        raise InfrastructureError(f"the workspace has more paths than fit into {LISTING_LIMIT_BYTES} bytes")
    cached = re.compile("|".join(_glob_pattern(glob) for glob in globs).encode() or rb"(?!)", re.DOTALL)
    entries = {path: entry for path, entry in _read_listing(listing) if not cached.fullmatch(path)}
    closed = tuple(
        path + b"/" for path, entry in entries.items() if entry.kind == b"d" and entry.mode & 0o500 != 0o500
    )
    for path, entry in before.items():
        if closed and path not in entries and path.startswith(closed):
            entries[path] = entry
    return entries


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
