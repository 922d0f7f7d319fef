from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

SCRIPT = b"export const two = 2;\n"


def make_tarball(folder: Path, version: str, script: bytes) -> None:
    files = {"package.json": json.dumps({"license": "MIT"}).encode(), "dist/two.min.js": script}
    with tarfile.open(folder / f"two-{version}.tgz", "w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


@pytest.fixture
def tarballs(tmp_path: Path) -> Path:
    folder = tmp_path / "tarballs"
    folder.mkdir()
    return folder


@pytest.fixture
def vendor_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "vendor"
    folder.mkdir()
    entry = {"file": "two.js", "source": "dist/two.min.js", "sha256": hashlib.sha256(SCRIPT).hexdigest()}
    package = {"name": "two", "package": "two", "version": "1.0.0", "licence": "", "files": [entry]}
    (folder / "manifest.json").write_text(json.dumps({"packages": [package]}))
    return folder


def vendor(folder: Path, *arguments: str, tarballs: Path | None = None) -> str:
    out = io.StringIO()
    source = ["--from", str(tarballs)] if tarballs else []
    call_command("vendor", "--into", str(folder), *source, *arguments, stdout=out)
    return out.getvalue()


def test_it_copies_the_listed_files_and_records_the_licence(vendor_folder: Path, tarballs: Path) -> None:
    make_tarball(tarballs, "1.0.0", SCRIPT)
    vendor(vendor_folder, tarballs=tarballs)
    assert (vendor_folder / "two.js").read_bytes() == SCRIPT
    assert json.loads((vendor_folder / "manifest.json").read_text())["packages"][0]["licence"] == "MIT"
    assert "1 vendored files are as the manifest says" in vendor(vendor_folder, "--check")


def test_other_bytes_under_the_same_version_are_refused_and_nothing_is_copied(
    vendor_folder: Path, tarballs: Path
) -> None:
    make_tarball(tarballs, "1.0.0", b"alert('changed');")
    with pytest.raises(CommandError, match="the same bytes"):
        vendor(vendor_folder, tarballs=tarballs)
    assert not (vendor_folder / "two.js").exists()


def test_moving_to_another_release_writes_its_version_and_hashes(vendor_folder: Path, tarballs: Path) -> None:
    newer = b"export const two = 1 + 1;\n"
    make_tarball(tarballs, "2.0.0", newer)
    vendor(vendor_folder, "two@2.0.0", tarballs=tarballs)
    package = json.loads((vendor_folder / "manifest.json").read_text())["packages"][0]
    assert package["version"] == "2.0.0"
    assert package["files"][0]["sha256"] == hashlib.sha256(newer).hexdigest()


def test_check_names_changed_missing_and_unlisted_files(vendor_folder: Path) -> None:
    with pytest.raises(CommandError, match="two.js: listed in the manifest and not there"):
        vendor(vendor_folder, "--check")
    (vendor_folder / "two.js").write_bytes(SCRIPT + b"//")
    (vendor_folder / "stray.js").write_bytes(b"")
    with pytest.raises(CommandError) as error:
        vendor(vendor_folder, "--check")
    assert "two.js: SHA-256 is" in str(error.value)
    assert "stray.js: there and not listed" in str(error.value)


@pytest.mark.parametrize(
    ("release", "message"), [("two", "not PACKAGE@VERSION"), ("three@1.0.0", "three: not in .*manifest.json")]
)
def test_a_release_that_cannot_be_used_is_named(vendor_folder: Path, release: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        vendor(vendor_folder, release)
