"""Copies front-end files out of npm packages into static/vendor, as the manifest there says."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from pydantic import BaseModel, ConfigDict, ValidationError


class VendoredFile(BaseModel):
    """`file` is the name in static/vendor, `source` the path inside the package, `sha256` of the bytes."""

    model_config = ConfigDict(extra="forbid")

    file: str
    source: str
    sha256: str


class VendoredPackage(BaseModel):
    """One npm release and what is taken from it. `licence` is what its package.json says."""

    model_config = ConfigDict(extra="forbid")

    name: str
    package: str
    version: str
    licence: str
    files: list[VendoredFile]

    @property
    def release(self) -> str:
        return f"{self.package}@{self.version}"


class Manifest(BaseModel):
    """static/vendor/manifest.json."""

    model_config = ConfigDict(extra="forbid")

    packages: list[VendoredPackage]


class Command(BaseCommand):
    help = (
        "Copy the front-end files that static/vendor/manifest.json lists out of their npm packages "
        "(by npm pack). A file without the manifest's SHA-256 is refused. PACKAGE@VERSION moves a package "
        "to another release and writes its hashes. --check fetches nothing: it compares files and manifest."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("release", nargs="*", help="PACKAGE@VERSION to move to, as htmx.org@4.0.1")
        parser.add_argument("--check", action="store_true", help="only compare files and manifest")
        parser.add_argument(
            "--from", dest="folder", type=Path, help="folder with tarballs that npm pack made"
        )
        parser.add_argument("--into", type=Path, help="folder of manifest.json (default: static/vendor)")

    def handle(self, *args: Any, **options: Any) -> None:
        folder: Path = options["into"] or Path(settings.STATICFILES_DIRS[0]) / "vendor"
        manifest = read_manifest(folder)
        if options["check"]:
            if problems := differences(folder, manifest):
                raise CommandError("\n".join(problems))
            self.stdout.write(
                f"{sum(len(p.files) for p in manifest.packages)} vendored files are as the manifest says"
            )
            return
        moves = dict(split_release(release) for release in options["release"])
        if unknown := moves.keys() - {package.package for package in manifest.packages}:
            raise CommandError(
                f"{', '.join(sorted(unknown))}: not in {folder / 'manifest.json'}; add an entry there first"
            )
        with tempfile.TemporaryDirectory() as scratch:
            for package in manifest.packages:
                moved = package.package in moves
                package.version = moves.get(package.package, package.version)
                tarball = find_tarball(package, options["folder"], Path(scratch))
                copy_files(package, tarball, folder, accept_new=moved)
                self.stdout.write(f"{package.release}: {', '.join(f.file for f in package.files)}")
        (folder / "manifest.json").write_text(json.dumps(manifest.model_dump(), indent=2) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Raises: CommandError when manifest.json is missing or malformed."""
    path = folder / "manifest.json"
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise CommandError(f"{path} cannot be used: {error}") from error


def differences(folder: Path, manifest: Manifest) -> list[str]:
    """One sentence for each file that is missing, changed, or not in the manifest."""
    listed = {entry.file: entry.sha256 for package in manifest.packages for entry in package.files}
    there = {
        path.name: digest(path.read_bytes()) for path in folder.iterdir() if path.name != "manifest.json"
    }
    problems = [
        f"{name}: listed in the manifest and not there" for name in sorted(listed.keys() - there.keys())
    ]
    problems += [
        f"{name}: there and not listed in the manifest" for name in sorted(there.keys() - listed.keys())
    ]
    for name in sorted(listed.keys() & there.keys()):
        if listed[name] != there[name]:
            problems.append(f"{name}: SHA-256 is {there[name]}, the manifest says {listed[name]}")
    return problems


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def split_release(release: str) -> tuple[str, str]:
    """Raises: CommandError when `release` is not PACKAGE@VERSION."""
    package, _, version = release.rpartition("@")
    if not package or not version:
        raise CommandError(f"release: {release!r} is not PACKAGE@VERSION, as in htmx.org@4.0.1")
    return package, version


def find_tarball(package: VendoredPackage, folder: Path | None, scratch: Path) -> Path:
    """The package's tarball: out of `folder` when given, else fetched by npm into `scratch`.

    Raises:
        CommandError: npm is missing or fails, or the folder has no such tarball.
    """
    name = f"{package.package.removeprefix('@').replace('/', '-')}-{package.version}.tgz"
    if folder is None:
        command = ["npm", "pack", package.release, "--pack-destination", str(scratch), "--silent"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise CommandError("npm is not installed; apt-get install npm, or use --from FOLDER") from error
        except subprocess.CalledProcessError as error:
            raise CommandError(f"npm pack {package.release} failed: {error.stderr.strip()}") from error
    path = (folder or scratch) / name
    if not path.is_file():
        raise CommandError(f"{path} is not there; `npm pack {package.release}` makes it")
    return path


def copy_files(package: VendoredPackage, tarball: Path, folder: Path, *, accept_new: bool) -> None:
    """Write the package's files into `folder`, and licence and (with `accept_new`) hashes into `package`.

    Raises:
        CommandError: a file is not in the tarball, or its bytes are not those of the manifest.
    """
    contents: dict[str, bytes] = {}
    with tarfile.open(tarball) as archive:
        for source in ["package.json", *(entry.source for entry in package.files)]:
            try:
                member = archive.extractfile(f"package/{source}")
            except KeyError:
                member = None
            if member is None:
                raise CommandError(f"{package.release} has no file {source}")
            contents[source] = member.read()
    for entry in package.files:
        found = digest(contents[entry.source])
        if not accept_new and found != entry.sha256:
            raise CommandError(
                f"{package.release} {entry.source}: SHA-256 is {found}, the manifest says {entry.sha256}. "
                f"The same release must have the same bytes; nothing of it was copied."
            )
        entry.sha256 = found
    package.licence = str(json.loads(contents["package.json"]).get("license", "unknown"))
    for entry in package.files:
        (folder / entry.file).write_bytes(contents[entry.source])
