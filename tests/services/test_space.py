from __future__ import annotations

import contextlib
import errno
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import OperationalError
from pytest_django.fixtures import Settings

from lab.services import space


@pytest.fixture
def small_disk(tmp_path: Path, settings: Settings) -> Iterator[Path]:
    """A data folder on a disk of 8 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=True)
    settings.LAB_DATA_DIR = folder
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 65_536):
            pass


@pytest.mark.requires("root")
def test_the_reserve_makes_room_on_a_full_disk_and_is_taken_again_once_there_is_space(
    small_disk: Path,
) -> None:
    space.keep_reserve()
    space.keep_reserve()
    assert [path.name for path in small_disk.iterdir()] == ["reserve"]
    fill(small_disk)
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "end").write_bytes(b"x" * 500_000)
    space.give_up_reserve()
    space.give_up_reserve()
    (small_disk / "end").write_bytes(b"x" * 500_000)
    space.keep_reserve()
    assert not (small_disk / "reserve").exists()
    (small_disk / "filler").unlink()
    space.keep_reserve()
    assert (small_disk / "reserve").stat().st_size == space.RESERVE_BYTES


@pytest.mark.requires("root")
def test_a_database_that_does_not_fit_on_its_disk_says_so_in_words_that_are_known(small_disk: Path) -> None:
    database = sqlite3.connect(small_disk / "d", isolation_level=None)
    database.execute("CREATE TABLE t (x)")
    with pytest.raises(sqlite3.OperationalError) as full:
        database.execute("INSERT INTO t VALUES (zeroblob(9000000))")
    database.close()
    assert space.is_full(OperationalError(*full.value.args))


def test_what_is_no_full_disk_is_not_taken_for_one() -> None:
    assert not space.is_full(OperationalError("database is locked"))
    assert not space.is_full(OSError(errno.EACCES, "Permission denied"))
    assert space.is_full(OSError(errno.EDQUOT, "Disk quota exceeded"))
