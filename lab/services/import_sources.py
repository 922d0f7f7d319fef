"""Which documents an import holds: its files, those in its folders, and those in its archives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lab.engine.formats import detection
from lab.engine.formats.archive_streams import kind_of, shown
from lab.engine.formats.archives import unpack
from lab.engine.formats.base import Document, FormatError
from lab.engine.formats.trajectory import Problem
from lab.models import Import
from lab.services import interchange, space

# Told what is being unpacked, and how many bytes of it are done, of how many. What it raises breaks off.
OnUnpack = Callable[[str, int, int], None]


@dataclass
class Gathered:
    """Documents in a stable order, each path once, and what could not be looked into.

    `given` are the paths of those that were named themselves, and not found in a folder or an archive.
    """

    documents: list[Document] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    given: set[str] = field(default_factory=set)
    _paths: set[str] = field(default_factory=set)

    def add(self, path: str, local: Path, *, given: bool) -> None:
        own, number = path, 2
        while own in self._paths:
            own, number = f"{path} ({number})", number + 1
        self._paths.add(own)
        self.documents.append(Document(own, local))
        if given:
            self.given.add(own)


def gather(imported: Import, *, on_unpack: OnUnpack = lambda name, done, total: None) -> Gathered:
    """Everything that was given; archives are unpacked beside it.

    Raises:
        OSError: the data folder is full or cannot be written.
    """
    found = Gathered()
    for number, (name, local) in enumerate(sources_of(imported)):
        into = interchange.folder_of(imported) / "unpacked" / str(number)
        if not local.exists() and finished_name(local).exists():
            local = finished_name(local)
            name = local.name
        if not local.exists():
            found.problems.append(Problem(file=name, place="", message="is not there; check the path"))
        elif local.is_dir():
            for path, file in files_in(local, found.problems):
                _take(found, f"{name}/{path}", file, into.with_name(f"{number}-{path_key(path)}"), on_unpack)
        else:
            # Of a folder that a browser sends each file comes by itself, with the folder in its name.
            _take(found, name, local, into, on_unpack, given="/" not in name)
    return found


def sources_of(imported: Import) -> Iterator[tuple[str, Path]]:
    """What was given: the name of each, and where it lies."""
    paths = imported.options.get("paths")
    if paths is not None:
        for path in paths:
            yield shown(Path(path).name or path), Path(path)
        return
    for source in imported.sources:
        yield source["name"], interchange.given_folder(imported) / source["file"]


def finished_name(path: Path) -> Path:
    """What a file is called that was written as `….partial.json`, once it is finished."""
    return path.with_name(path.name.replace(".partial", "", 1))


def files_in(folder: Path, problems: list[Problem]) -> Iterator[tuple[str, Path]]:
    """The files of a folder, by name, with the path of each in it. Links are named and not followed."""

    def unreadable(error: OSError) -> None:
        message = f"cannot be looked into ({error.strerror})"
        problems.append(Problem(file=shown(str(error.filename)), place="", message=message))

    for place, folders, files in os.walk(folder, onerror=unreadable):
        folders.sort()
        for name in sorted(files):
            file = Path(place) / name
            path = shown(file.relative_to(folder).as_posix())
            if file.is_symlink():
                problems.append(Problem(file=path, place="", message="is a link, which is not followed"))
            elif file.is_file():
                yield path, file


def path_key(path: str) -> str:
    """A path as the name of a folder of the lab's own."""
    return os.fsencode(path).hex()[-100:]


def _take(
    found: Gathered, name: str, local: Path, into: Path, on_unpack: OnUnpack, *, given: bool = False
) -> None:
    """
    Raises:
        OSError: what was unpacked cannot be written.
    """
    try:
        archive = kind_of(local) is not None
    except OSError as error:
        found.problems.append(Problem(file=name, place="", message=cannot_be_read(error)))
        return
    if not archive:
        found.add(name, local, given=given)
        return
    try:
        unpacked = unpack(local, into, progress=lambda done, total: on_unpack(name, done, total))
    except FormatError as error:
        # Named as it is called where it comes from, not as it lies here.
        message = str(error).replace(local.name, name)
        found.problems.append(Problem(file=name, place="", message=message))
        return
    except OSError as error:
        if space.is_full(error) or error.filename != str(local):
            raise
        found.problems.append(Problem(file=name, place="", message=cannot_be_read(error)))
        return
    for document in unpacked.documents:
        found.add(f"{name}/{document.path}", document.local, given=False)
    for problem in unpacked.problems:
        found.problems.append(Problem(file=name, place=problem.place, message=problem.message))


def why_unreadable(document: Document) -> str:
    """What is wrong with a file of no format that was meant to be of one; "" where that cannot be said."""
    try:
        return detection.why_unreadable(document)
    except OSError as error:
        return cannot_be_read(error)


def cannot_be_read(error: OSError) -> str:
    """What the report says of a file that the system does not give."""
    if isinstance(error, FileNotFoundError):
        return "is gone: the folder was changed while it was read; import it again"
    if isinstance(error, PermissionError):
        return "cannot be read: the lab has no permission; change its mode and import it again"
    return f"cannot be read ({error.strerror or error})"
