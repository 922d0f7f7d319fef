from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings as lab_settings

from lab.services import blobs

PROJECT = Path(__file__).resolve().parents[2]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def django_program(data: Path, code: str) -> None:
    subprocess.run(
        [sys.executable, "-c", "import django; django.setup()\n" + code],
        env={
            **os.environ,
            "PYTHONPATH": str(PROJECT),
            "DJANGO_SETTINGS_MODULE": "lab.settings",
            "LAB_DATA_DIR": str(data),
            "DATABASE_URL": "",
        },
        umask=0o022,
        timeout=150,
        check=True,
    )


WRITE = """
from django.db import connection
connection.cursor().execute("CREATE TABLE t (n int)")
import os, stat
for name in ("lab.sqlite3", "lab.sqlite3-wal", "lab.sqlite3-shm"):
    path = os.path.join(os.environ["LAB_DATA_DIR"], name)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, name
"""


def test_a_new_data_folder_can_be_walked_through_and_not_listed_by_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    django_program(data, WRITE)
    assert mode(data) == 0o711
    assert mode(data / "secret_key") == 0o600


def test_a_database_that_everybody_could_read_is_closed_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "lab.sqlite3").touch(mode=0o644)
    django_program(tmp_path, WRITE)


def test_stored_bodies_are_the_owners_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_settings, "LAB_DATA_DIR", tmp_path)
    (tmp_path / "blobs").mkdir(mode=0o755)
    blobs.store_file(b"x")
    assert mode(tmp_path / "blobs") == 0o700
