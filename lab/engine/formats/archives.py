"""Unpacks what was given, so that readers find files on the local disk.

Archives come from anybody. Members are written under numbers, so that no name in an archive ever becomes a
path on this machine; what they are called there is a document's `path`. Everything is counted before it is
written, and an unpacking that fails leaves nothing behind.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from lab.engine.errors import InvalidValueError
from lab.engine.formats import zip_members
from lab.engine.formats.archive_streams import (
    BROKEN_ARCHIVE,
    Compression,
    CountedStream,
    Rejoined,
    decompressed,
    is_tar,
    kind_of,
    next_member,
    open_tar,
    pieces,
    read_whole,
    safe_path,
    shown,
)
from lab.engine.formats.base import Document, FormatError
from lab.engine.formats.trajectory import Problem

# Told how many bytes of the source are done, of how many. What it raises breaks the unpacking off.
Progress = Callable[[int, int], None]
LimitName = Literal["bytes", "ratio", "files", "nesting"]

# Below it no ratio is looked at: a small file of repeats is no bomb.
_RATIO_FROM_BYTES = 64 * 1024 * 1024
_INDEX = "index.jsonl"


@dataclass(frozen=True)
class ArchiveLimits:
    """What an archive may become. Sizes in bytes, of everything in it, nested archives included.

    `ratio` is unpacked bytes to those of the archive, looked at from 64 MB on. `nesting` counts archives
    inside the archive: one that lies deeper is passed over.
    """

    bytes: int = 50 * 1024**3
    ratio: int = 250
    files: int = 200_000
    nesting: int = 1


class ArchiveLimitError(FormatError):
    """An archive goes beyond a limit; nothing of it is kept."""

    def __init__(self, archive: str, member: str, limit: str, allowed: int, found: str) -> None:
        self.archive, self.member, self.limit, self.allowed = archive, member, limit, allowed
        super().__init__(
            f"{archive}: at {member} it has {found}, more than the {allowed:,} of the limit on {limit}. "
            "Nothing was kept: unpack it by hand and give the folder, or give it in parts"
        )


class Unpacked(NamedTuple):
    """What was in the archive: a document each, in its order, and what was passed over, with why."""

    documents: list[Document]
    problems: list[Problem]


def unpack(
    source: Path,
    into: Path,
    *,
    name: str = "",
    limits: ArchiveLimits = ArchiveLimits(),
    progress: Progress | None = None,
) -> Unpacked:
    """Everything in a `.zip`, `.tar`, `.tar.gz`, `.tar.zst`, `.gz` or `.zst` as files in the folder `into`.

    `name` is what errors call it, by default the file's own name. The folder is there when all is done and
    never before; one that a finished unpacking left is taken as it is. Links, devices, pipes and members
    whose path would leave the folder are passed over with a problem, as is a damaged member of a ZIP file.

    Raises:
        FormatError: no archive, or a damaged one. ArchiveLimitError: it goes beyond a limit.
        InvalidValueError: `into` holds something else.
        OSError: nothing can be read or written (a full disk).
    """
    if into.exists() and any(into.iterdir()):
        return _finished(into)
    partial = into.with_name(into.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        called = name or source.name
        unpacking = _Unpacking(called, source.stat().st_size, partial, limits, progress)
        unpacking.take(source, "", called, depth=0)
        unpacking.write_index()
        partial.rename(into)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return _finished(into)


def _finished(folder: Path) -> Unpacked:
    """
    Raises:
        InvalidValueError: no unpacking made this folder.
    """
    try:
        lines = (folder / _INDEX).read_text().splitlines()
    except OSError:
        raise InvalidValueError(
            "into", str(folder), "holds other files; name a folder that is empty"
        ) from None
    unpacked = Unpacked([], [])
    for line in lines:
        entry = json.loads(line)
        if "local" in entry:
            unpacked.documents.append(Document(entry["path"], folder / entry["local"]))
        else:
            unpacked.problems.append(Problem(**entry))
    return unpacked


@dataclass
class _Unpacking:
    """One run of `unpack`: what was written so far, in numbers and names."""

    archive: str
    size: int
    folder: Path
    limits: ArchiveLimits
    progress: Progress | None
    written: int = 0
    seen: int = 0
    documents: list[Document] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    paths: dict[str, int] = field(default_factory=dict)

    def take(self, source: Path, prefix: str, name: str, *, depth: int) -> None:
        kind = kind_of(source)
        if kind == "zip":
            self._take_zip(source, prefix, depth)
        elif kind == "tar":
            with source.open("rb") as stream:
                counted = CountedStream(stream)
                self._take_tar(counted, counted, prefix, depth)
        elif kind in ("gzip", "zstd"):
            self._take_compressed(source, kind, prefix, name, depth)
        else:
            raise FormatError(f"{self.archive} is no archive: it is none of ZIP, tar, gzip and Zstandard")

    # --- what an archive is made of

    def _take_zip(self, source: Path, prefix: str, depth: int) -> None:
        try:
            for number, name in enumerate(zip_members.names(source), start=self.seen + 1):
                if number > self.limits.files:
                    self._beyond(name, "files", f"{number:,} entries")
            with zip_members.opened(source) as archive:
                done = 0
                for member in archive.infolist():
                    self._count(member.filename)
                    if not member.filename.endswith("/"):
                        self._take_zip_member(archive, member, prefix, depth)
                    done += member.compress_size
                    if not depth:
                        self._report(done)
        except zip_members.BrokenZipError as error:
            raise FormatError(
                f"{self.archive} cannot be unpacked: {error}. Nothing was kept; pack it again"
            ) from None

    def _take_zip_member(
        self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, prefix: str, depth: int
    ) -> None:
        mode = member.external_attr >> 16
        if mode & 0o170000 not in (0, 0o100000):
            self._pass_over(prefix + member.filename, "is a link or a device, which are not followed")
            return
        if member.file_size > self.limits.bytes - self.written:
            self._beyond(member.filename, "bytes", f"{member.file_size:,} bytes more")
        try:
            self._store(prefix, member.orig_filename, zip_members.chunks(archive, member), depth)
        except zip_members.BrokenZipError as error:
            self._pass_over(prefix + member.filename, str(error))

    def _take_compressed(self, source: Path, kind: Compression, prefix: str, name: str, depth: int) -> None:
        with source.open("rb") as raw:
            counted = CountedStream(raw)
            with decompressed(counted, kind) as stream:
                with self._broken_named(name):
                    head = read_whole(stream, tarfile.BLOCKSIZE)
                joined = Rejoined(head, stream)
                if is_tar(head):
                    self._take_tar(CountedStream(joined), counted, prefix, depth)
                    return
                inner = name.removesuffix(".gz").removesuffix(".zst") or "document"
                self._count(inner)
                with self._broken_named(name):
                    self._store(prefix, inner, pieces(joined), depth)

    def _take_tar(self, stream: CountedStream, source: CountedStream, prefix: str, depth: int) -> None:
        with self._broken_named("its first header"):
            tar = open_tar(stream)
        last = "its first header"
        while True:
            with self._broken_named(f"what follows {last}"):
                member = next_member(tar, stream)
            if member is None:
                break
            last = member.name
            self._count(last)
            with self._broken_named(last):
                self._take_tar_member(tar, member, prefix, depth)
            if not depth:
                self._report(source.read_bytes)
        if stream.last.strip(b"\0"):
            self._pass_over(
                prefix + last, "is the last member, and no end mark follows: it may be cut off here"
            )

    def _take_tar_member(
        self, tar: tarfile.TarFile, member: tarfile.TarInfo, prefix: str, depth: int
    ) -> None:
        if member.size < 0:
            raise tarfile.ReadError("a size below 0")
        if member.isdir():
            return
        if member.size > self.limits.bytes - self.written:
            self._beyond(member.name, "bytes", f"{member.size:,} bytes more")
        if not member.isreg() or member.issparse():
            if member.type not in tarfile.SUPPORTED_TYPES:
                self._account(member.name, member.size)
            kind = "is a link" if member.issym() or member.islnk() else "is no plain file"
            self._pass_over(prefix + member.name, f"{kind}: only files are unpacked")
            return
        content = tar.extractfile(member)
        if content is not None:
            self._store(prefix, member.name, pieces(content), depth)

    # --- what is done with a member

    def _store(self, prefix: str, name: str, chunks: Iterator[bytes], depth: int) -> None:
        path, refusal = safe_path(name)
        if refusal:
            self._pass_over(prefix + name, refusal)
            return
        local = self.folder / f"{len(self.documents):07d}"
        try:
            self._write(local, path, chunks)
        except zip_members.BrokenZipError:
            local.unlink(missing_ok=True)
            raise
        if kind_of(local) is None:
            self.documents.append(Document(self._own(prefix + path), local))
            return
        inner = local.rename(self.folder / f"nested-{depth}")
        if depth < self.limits.nesting:
            self._take_nested(inner, f"{prefix}{path}/", path, depth)
        else:
            self._pass_over(
                prefix + path,
                f"is an archive {depth + 1} deep inside others, and the limit on nesting is "
                f"{self.limits.nesting}: unpack it by hand and give its files",
            )
        inner.unlink()

    def _take_nested(self, inner: Path, prefix: str, path: str, depth: int) -> None:
        """A damaged archive inside another costs its own files alone: all that came before it stays."""
        documents = len(self.documents)
        try:
            self.take(inner, prefix, path.rsplit("/", 1)[-1], depth=depth + 1)
        except ArchiveLimitError:
            raise
        except FormatError as error:
            for document in self.documents[documents:]:
                document.local.unlink(missing_ok=True)
            del self.documents[documents:]
            self._pass_over(prefix.rstrip("/"), str(error))

    def _write(self, local: Path, path: str, chunks: Iterator[bytes]) -> None:
        with local.open("wb") as stream:
            for chunk in chunks:
                self._account(path, len(chunk))
                stream.write(chunk)

    def _account(self, path: str, size: int) -> None:
        """Counts bytes before they are written."""
        after = self.written + size
        if after > self.limits.bytes:
            self._beyond(path, "bytes", f"{after:,} bytes")
        if after > _RATIO_FROM_BYTES and after > self.size * self.limits.ratio:
            self._beyond(path, "ratio", f"{after:,} bytes from {self.size:,}")
        self.written = after

    def _own(self, path: str) -> str:
        """A path of its own: an archive may hold one twice, and both are kept."""
        found = path
        while found in self.paths:
            # Counted on, so that one name a hundred thousand times takes no longer than other names.
            self.paths[path] += 1
            found = f"{path} ({self.paths[path]})"
        self.paths[found] = 1
        return found

    def _count(self, member: str) -> None:
        self.seen += 1
        if self.seen > self.limits.files:
            self._beyond(member, "files", f"{self.seen:,} entries")

    def _pass_over(self, path: str, why: str) -> None:
        self.problems.append(Problem(file=self.archive, place=shown(path), message=why))

    def _beyond(self, member: str, limit: LimitName, found: str) -> None:
        allowed: int = getattr(self.limits, limit)
        raise ArchiveLimitError(self.archive, shown(member), limit, allowed, found)

    def _report(self, done: int) -> None:
        if self.progress is not None:
            self.progress(min(done, self.size), self.size)

    @contextmanager
    def _broken_named(self, member: str) -> Iterator[None]:
        try:
            yield
        except zip_members.BrokenZipError:
            raise
        except BROKEN_ARCHIVE as error:
            raise FormatError(
                f"{self.archive} is damaged or cut off at {shown(member)}: {error or type(error).__name__}. "
                "Nothing was kept; pack it again"
            ) from None

    def write_index(self) -> None:
        with (self.folder / _INDEX).open("w") as stream:
            for document in self.documents:
                stream.write(json.dumps({"path": document.path, "local": document.local.name}) + "\n")
            for problem in self.problems:
                stream.write(json.dumps(vars(problem)) + "\n")
