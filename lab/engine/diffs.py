"""Unified diffs, read for display by unidiff; what it refuses comes back as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from typing import Literal, NamedTuple

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchedFile, PatchSet

from lab.engine.workspace_archive import shown

Change = Literal["added", "modified", "deleted", "mode"]


class PatchLine(NamedTuple):
    """One line of a hunk. `mark` is " ", "+", "-" or "\\"; numbers from 1, None where the side lacks it."""

    mark: str
    text: str
    old_number: int | None
    new_number: int | None


class PatchHunk(NamedTuple):
    """One hunk. `heading` is what stands behind the second @@."""

    old_start: int
    new_start: int
    heading: str
    lines: tuple[PatchLine, ...]


class FilePatch(NamedTuple):
    """One file of a patch; `raw` is its text. `hunks` is empty for binary files and for what is no diff.

    `path` and `old_path` are relative to the repository; both name the file where it was added or deleted.
    """

    path: str
    old_path: str
    change: Change
    binary: bool
    added: int
    removed: int
    hunks: tuple[PatchHunk, ...]
    raw: str


def parse_patch(patch: str) -> list[FilePatch]:
    """The files of a unified diff, in order, for display. What is no diff comes back as `raw`."""
    return list(_parsed(patch))


def _parsed(patch: str) -> Iterator[FilePatch]:
    for section in re.split(r"(?m)^(?=diff --git )", patch):
        if not section.strip():
            continue
        try:
            files = list(PatchSet(StringIO(section, newline="\n")))
        except UnidiffParseError:
            files = []
        if len(files) > 1:
            # A diff without git's headers: unidiff told the files apart.
            yield from (_file_patch(file, str(file)) for file in files)
        elif files:
            yield _file_patch(files[0], section)
        else:
            yield _unread(section)


def _file_patch(file: PatchedFile, raw: str) -> FilePatch:
    return FilePatch(
        path=unquoted(file.path),
        old_path=_old_path(file),
        change=_kind(raw, bool(file)),
        binary=bool(file.is_binary_file) or "\nGIT binary patch\n" in raw,
        added=file.added,
        removed=file.removed,
        hunks=tuple(_hunk(hunk) for hunk in file),
        raw=raw,
    )


def _old_path(file: PatchedFile) -> str:
    source = unquoted(file.source_file)
    return unquoted(file.path) if source == "/dev/null" else source.removeprefix("a/")


def _hunk(hunk: Hunk) -> PatchHunk:
    lines = tuple(
        PatchLine(line.line_type, line.value.removesuffix("\n"), line.source_line_no, line.target_line_no)
        for line in hunk
    )
    return PatchHunk(hunk.source_start, hunk.target_start, hunk.section_header, lines)


def _kind(raw: str, has_hunks: bool) -> Change:
    header = raw.partition("\n@@ ")[0]
    if "\nnew file mode " in header or "--- /dev/null\n" in header:
        return "added"
    if "\ndeleted file mode " in header or "+++ /dev/null\n" in header:
        return "deleted"
    return "mode" if "\nnew mode " in header and not has_hunks and "\nindex " not in header else "modified"


_NAMES = re.compile(r'^diff --git ("a/(?:[^"\\]|\\.)*"|a/.*?) ("b/(?:[^"\\]|\\.)*"|b/.*)$', re.MULTILINE)


def _unread(section: str) -> FilePatch:
    """A section without hunks (binary, mode, empty file), or one that is no diff at all."""
    names = _NAMES.match(section)
    old, new = (unquoted(name).partition("/")[2] for name in names.groups()) if names else ("", "")
    binary = "\nGIT binary patch\n" in section or "\nBinary files " in section
    return FilePatch(new, old, _kind(section, has_hunks=False), binary, 0, 0, (), section)


_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


def unquoted(name: str) -> str:
    """A path of a diff header without git's quotes: `"b/\\303\\244"` becomes `b/ä`."""
    if not (len(name) > 1 and name.startswith('"') and name.endswith('"')):
        return name
    inner = name[1:-1].encode("utf-8", "surrogateescape")
    return shown(_ESCAPE.sub(_unescape, inner))


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 255]) if len(code) == 3 else _LETTERS.get(code, code)
