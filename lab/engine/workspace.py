"""A workspace: watched for what tool calls change, rebuilt after a crash."""

from __future__ import annotations

import difflib
import hashlib
import os
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from lab.engine.errors import InfrastructureError
from lab.engine.events import FileChange
from lab.engine.preparing import Base
from lab.engine.sandboxes.base import Sandbox
from lab.engine.scripts import run_script
from lab.engine.tasks.spec import TaskSpec
from lab.engine.workspace_archive import Item, fold, pack_change, read_tar, shown, write_tar
from lab.engine.workspace_listing import Entries, Entry, list_entries

ARCHIVE_LIMIT_BYTES = 100_000_000
# Lines are counted against a file's text before the call; it is kept for files of a size that people write.
TEXT_LIMIT_BYTES = 256_000
TEXTS_LIMIT_BYTES = 64_000_000
_COMPARED_LINES = 2_000
_NAMED = 50


class WorkspaceDelta(NamedTuple):
    """What changed since the last look.

    `changes` is for people: files and links, what lies in a `.git` left out. `archive` has everything, None
    when nothing changed. `problem` says what could not be kept and why, "" when all was: a workspace rebuilt
    from the archives would not be exact.
    """

    changes: list[FileChange]
    archive: bytes | None
    problem: str = ""


# Kinds that an archive can hold: files, folders, links, named pipes. A socket is nothing without its process.
_KEPT_KINDS = frozenset({b"f", b"d", b"l", b"p"})


class WorkspaceTracker:
    """Finds what changed between two looks: one exec when nothing did, two when something did.

    A path changed when kind, size, modification time, inode or mode differ; only then its content is read.
    The task's cache globs are left out. `base` is what `prepare_workspace` gave: a file that is neither in
    it nor in what was seen since has no text before, and any difference of it is a change.
    """

    def __init__(self, sandbox: Sandbox, task: TaskSpec, base: Base | None = None) -> None:
        self._sandbox = sandbox
        self._task = task
        self._base = base or Base("")
        self._entries: Entries = {}
        self._hashes: dict[bytes, str] = {}
        self._texts: dict[bytes, bytes] = {}
        self._texts_size = 0
        self._snapshot_is_known = False

    def baseline(self, archives: Iterable[bytes] = ()) -> None:
        """Take the workspace as it is now for the state before the next change.

        `archives` are those the workspace was rebuilt from, if it was.

        Raises:
            SandboxLostError: the sandbox is gone.
            InfrastructureError: the workspace cannot be listed.
        """
        self._learn_snapshot()
        for path, item in fold(archives).items.items():
            self._learn(path, item)
        self._entries = list_entries(self._sandbox, self._task.cache_globs, {})

    def changes(self) -> WorkspaceDelta:
        """What changed since the last call, or since `baseline`.

        Raises: as `baseline`.
        """
        before = self._entries
        after = list_entries(self._sandbox, self._task.cache_globs, before)
        self._entries = after
        gone = sorted(before.keys() - after.keys())
        touched = sorted(path for path, entry in after.items() if entry.differs(before.get(path)))
        if not gone and not touched:
            return WorkspaceDelta([], None)
        readable = [path for path in touched if after[path].kind in _KEPT_KINDS]
        size = sum(after[path].size for path in readable)
        too_large = size > ARCHIVE_LIMIT_BYTES
        items = {} if too_large else _fetch(self._sandbox, readable, after)
        unread = [path for path in readable if path not in items]
        changed = {path: item for path, item in items.items() if self._really(path, item, before, after)}
        changes = [*self._listed(gone, changed, before), *self._listed_unread(unread, before, after)]
        problem = (
            f"{size} bytes changed, more than the {ARCHIVE_LIMIT_BYTES} that are kept" if too_large else ""
        )
        if unread and not too_large:
            more = f" and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
            problem = f"could not be read: {', '.join(shown(path) for path in unread[:_NAMED])}{more}"
        for path, item in changed.items():
            self._learn(path, item)
        if too_large or not (changed or gone):
            return WorkspaceDelta(changes, None, problem)
        replaced = [path for path in changed if path in before and before[path].kind != after[path].kind]
        return WorkspaceDelta(changes, pack_change(changed, [*gone, *replaced]), problem)

    def _really(self, path: bytes, item: Item, before: Entries, after: Entries) -> bool:
        """Whether more than times and inode changed."""
        old, new = before.get(path), after[path]
        if old is None or (old.kind, old.mode) != (new.kind, new.mode):
            return True
        return new.kind != b"d" and self._hashes.get(path) != _hash(item)

    def _listed(
        self, gone: list[bytes], changed: Mapping[bytes, Item], before: Entries
    ) -> Iterator[FileChange]:
        for path in sorted({*gone, *changed}):
            item = changed.get(path)
            kind_before = before[path].kind if path in before else b""
            if _is_internal(path) or (kind_before in (b"", b"d") and (item is None or item.header.isdir())):
                continue
            old = self._texts.get(path, b"" if path not in before else None)
            if item is None or item.header.isdir():
                added, removed = count_lines(old, b"")
                yield FileChange(path=shown(path), change="deleted", added=added, removed=removed)
                continue
            yield self._file_change(path, item, old, new=kind_before in (b"", b"d"))

    def _file_change(self, path: bytes, item: Item, old: bytes | None, *, new: bool) -> FileChange:
        header, content = item
        change: Literal["added", "modified", "mode"] = "added" if new else "modified"
        if not new and self._hashes.get(path) == _hash(item):
            change = "mode"
        readable = header.isreg() and len(content) <= TEXT_LIMIT_BYTES
        added, removed = count_lines(old, content) if readable else (None, None)
        return FileChange(
            path=shown(path),
            change=change,
            size=len(content) if header.isreg() else None,
            mode=header.mode,
            sha256=_hash(item) if header.isreg() else None,
            link=header.linkname.encode("utf-8", "surrogateescape").decode("utf-8", "replace") or None,
            added=added,
            removed=removed,
        )

    def _listed_unread(self, unread: list[bytes], before: Entries, after: Entries) -> Iterator[FileChange]:
        for path in unread:
            if not _is_internal(path) and after[path].kind != b"d":
                yield FileChange(
                    path=shown(path),
                    change="modified" if path in before else "added",
                    size=after[path].size,
                    mode=after[path].mode,
                )

    def _learn_snapshot(self) -> None:
        if not self._snapshot_is_known:
            self._snapshot_is_known = True
            for path, item in read_tar(self._base.files(self._task)).items():
                self._learn(path, item)

    def _learn(self, path: bytes, item: Item) -> None:
        self._hashes[path] = _hash(item)
        self._texts_size -= len(self._texts.pop(path, b""))
        fits = len(item.content) <= min(TEXT_LIMIT_BYTES, TEXTS_LIMIT_BYTES - self._texts_size)
        if item.header.isreg() and fits and not _is_internal(path):
            self._texts[path] = item.content
            self._texts_size += len(item.content)


def restore(sandbox: Sandbox, archives: Iterable[bytes], *, task: TaskSpec) -> None:
    """Put the stored changes, oldest first, over a workspace that `prepare_workspace` just made.

    Raises:
        SandboxLostError: the sandbox is gone.
        InfrastructureError: the result is not what the archives say; the text lists the paths that differ.
    """
    deleted, items = fold(archives)
    if deleted:
        run_script(
            sandbox, "xargs -0 -r rm -rf --", stdin=b"\0".join(b"./" + path for path in sorted(deleted))
        )
    if items:
        run_script(sandbox, "tar -xpf -", stdin=write_tar(items))
    entries = list_entries(sandbox, task.cache_globs, {})
    wrong = [path for path, item in items.items() if not _is_restored(entries.get(path), item)]
    wrong += [path for path in deleted if path in entries and path not in items]
    if wrong:
        names = ", ".join(shown(path) for path in sorted(wrong)[:50])
        raise InfrastructureError(f"the workspace could not be restored exactly; these paths differ: {names}")


def _is_restored(entry: Entry | None, item: Item) -> bool:
    header = item.header
    if entry is None:
        return False
    if header.issym():
        return entry.kind == b"l" and entry.size == len(header.linkname.encode("utf-8", "surrogateescape"))
    kind = b"d" if header.isdir() else b"p" if header.isfifo() else b"f"
    return entry.kind == kind and entry.mode == header.mode and (kind != b"f" or entry.size == header.size)


def _fetch(sandbox: Sandbox, paths: list[bytes], entries: Entries) -> dict[bytes, Item]:
    """The paths as they are now; one that cannot be read is missing."""
    folders = {path: _folder(path, entries[path].mode) for path in paths if entries[path].kind == b"d"}
    others = [b"./" + path for path in paths if path not in folders]
    if not others:
        return folders
    result = run_script(
        sandbox,
        "exec tar -cf - --format=gnu --no-recursion --hard-dereference --null -T -",
        stdin=b"\0".join(others),
        output_limit=2 * ARCHIVE_LIMIT_BYTES,
    )
    return folders | read_tar(result.stdout.head)


def _folder(path: bytes, mode: int) -> Item:
    header = tarfile.TarInfo(os.fsdecode(path))
    header.type, header.mode = tarfile.DIRTYPE, mode
    return Item(header, b"")


def count_lines(old: bytes | None, new: bytes) -> tuple[int | None, int | None]:
    """Lines added and removed between two contents; None for both where one is unknown or binary."""
    if old is None or b"\0" in old or b"\0" in new:
        return None, None
    left, right = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if len(left) + len(right) > _COMPARED_LINES:
        # Exact comparison takes quadratic time; counting equal lines misses only lines that moved.
        return (Counter(right) - Counter(left)).total(), (Counter(left) - Counter(right)).total()
    blocks = difflib.SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    kept = sum(block.size for block in blocks)
    return len(right) - kept, len(left) - kept


def _hash(item: Item) -> str:
    content = item.header.linkname.encode("utf-8", "surrogateescape") if item.header.issym() else item.content
    return hashlib.sha256(content).hexdigest()


def _is_internal(path: bytes) -> bool:
    return b".git" in path.split(b"/")
