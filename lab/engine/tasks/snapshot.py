"""The snapshot of a task's repository: which files it has, its digest, and the archive a sandbox unpacks."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lab.engine.errors import InfrastructureError
from lab.engine.llm.base import canonical_sha256
from lab.engine.tasks.spec import TaskSpec

REGULAR, EXECUTABLE, LINK = 0o100644, 0o100755, 0o120000
_CACHE_FOLDERS = frozenset({"__pycache__", ".pytest_cache"})


class SnapshotFile(NamedTuple):
    """One file: its relative POSIX path, one of git's three modes, its bytes (of a link: the target)."""

    path: str
    mode: int
    content: bytes


def snapshot_files(folder: Path) -> list[SnapshotFile]:
    """Every file below `folder`, sorted by path, without interpreter caches and empty folders.

    Modes are reduced to git's three (plain, executable, link), because the rest depends on the umask of
    whoever checked the files out.

    Raises:
        InfrastructureError: the folder is missing or cannot be read; another attempt would not help.
    """
    if not folder.is_dir():
        raise InfrastructureError(
            f"repository: {str(folder)!r} is no folder; put the task's repository snapshot back "
            "or reload the task set, then launch again",
            retryable=False,
        )
    try:
        return sorted(_walk(folder))
    except OSError as error:
        raise InfrastructureError(
            f"repository: {str(folder)!r} cannot be read ({error.strerror}: {error.filename}); "
            "give the lab's user read access to all of it",
            retryable=False,
        ) from error


def _walk(folder: Path) -> Iterator[SnapshotFile]:
    def fail(error: OSError) -> None:
        raise error

    for parent, folders, files in os.walk(folder, onerror=fail):
        here = Path(parent)
        folders[:] = [name for name in folders if name not in _CACHE_FOLDERS]
        links = [name for name in folders if (here / name).is_symlink()]
        for name in [*files, *links]:
            if not name.endswith(".pyc"):
                yield _snapshot_file(folder, here / name)


def _snapshot_file(folder: Path, path: Path) -> SnapshotFile:
    relative = path.relative_to(folder).as_posix()
    if path.is_symlink():
        return SnapshotFile(relative, LINK, os.fsencode(path.readlink()))
    if not path.is_file():
        raise InfrastructureError(
            f"repository: {str(path)!r} is neither file, folder nor link; remove it from the snapshot",
            retryable=False,
        )
    mode = EXECUTABLE if path.stat().st_mode & 0o100 else REGULAR
    return SnapshotFile(relative, mode, path.read_bytes())


def digest_of(files: list[SnapshotFile]) -> str:
    """SHA-256 over paths, modes and content hashes: equal on every machine that has the same snapshot."""
    return canonical_sha256(
        [[file.path, f"{file.mode:o}", hashlib.sha256(file.content).hexdigest()] for file in files]
    )


def repository_files(task: TaskSpec) -> list[SnapshotFile]:
    """The files of the task's repository, checked against the digest the task was loaded with.

    Raises:
        InfrastructureError: the snapshot is missing, unreadable or no longer what it was; not retryable.
    """
    files = snapshot_files(task.repository)
    if task.repository_digest and digest_of(files) != task.repository_digest:
        raise InfrastructureError(
            f"repository: {str(task.repository)!r} of task {task.id!r} changed since the task was loaded; "
            "restore it, or load the task set again so that the change gets a digest of its own",
            retryable=False,
        )
    return files


def pack_repository(task: TaskSpec) -> bytes:
    """The task's repository as an uncompressed tar; the same bytes for the same snapshot on every machine.

    Paths are relative to the repository's root; parents are implied; owner is 0, time is 0.

    Raises:
        InfrastructureError: as `repository_files`.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in repository_files(task):
            entry = tarfile.TarInfo(file.path)
            entry.mode = 0o755 if file.mode == EXECUTABLE else 0o644
            if file.mode == LINK:
                entry.type = tarfile.SYMTYPE
                entry.linkname = os.fsdecode(file.content)
                archive.addfile(entry)
            else:
                entry.size = len(file.content)
                archive.addfile(entry, io.BytesIO(file.content))
    return buffer.getvalue()
