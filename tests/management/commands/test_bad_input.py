"""What commands answer to input that cannot be used: one message with the way out, and exit code 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]


def refused(data: Path, *arguments: str, **environment: str) -> str:
    """What the command says on its standard error."""
    done = subprocess.run(
        [sys.executable, str(PROJECT / "manage.py"), *arguments],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "lab.settings",
            "LAB_DATA_DIR": str(data),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("command", ["login_link", "check_tasks", "tick --once"])
def test_a_database_that_was_never_made_is_named_with_the_way_out(tmp_path: Path, command: str) -> None:
    said = refused(tmp_path, *command.split(), DATABASE_URL="")
    assert "The database cannot be used: no such table" in said
    assert said.count("\n") == 1
    assert "manage.py migrate" in said


def test_an_address_that_is_none_is_named_with_the_way_out(tmp_path: Path) -> None:
    said = refused(tmp_path, "login_link", "--base-url", "example.org")
    assert "base_url: 'example.org' is no address; write one such as http://127.0.0.1:" in said


def test_a_checkout_that_is_none_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert str(gone) in refused(tmp_path, "import_harness", "--leaf", str(gone))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("LAB_PORT", "eighty", "LAB_PORT: 'eighty' is no port; use a whole number from 1 to 65535"),
        ("LAB_PORT", "0", "LAB_PORT: '0' is no port; use a whole number from 1 to 65535"),
        ("LAB_PORT", "65536", "LAB_PORT: '65536' is no port; use a whole number from 1 to 65535"),
        ("LAB_HOST", "203.0.113.7", "LAB_HOST: '203.0.113.7' is no address of this machine"),
        ("LAB_SECRET_KEY_FILE", "/nowhere/key", "LAB_SECRET_KEY_FILE: /nowhere/key cannot be read"),
        ("LAB_LEASE_SECONDS", "nan", "LAB_LEASE_SECONDS"),
        ("LAB_RETRY_SECONDS", "nan", "LAB_RETRY_SECONDS"),
        ("DATABASE_URL", "nonsense://x", "DATABASE_URL"),
        ("LAB_REDIS_URL", "redis://127.0.0.1:1/0", "LAB_REDIS_URL"),
        ("LAB_SANDBOX_UID", "-3", "LAB_SANDBOX_UID"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(tmp_path: Path, name: str, value: str, words: str) -> None:
    assert words in refused(tmp_path, "up", **{"LAB_PORT": "1", name: value})


def test_a_port_on_the_command_line_is_held_to_the_same_range(tmp_path: Path) -> None:
    assert "LAB_PORT: 70000 is no port; use a whole number from 1 to 65535" in refused(
        tmp_path, "up", "--port", "70000"
    )


@pytest.mark.parametrize("command", ["up", "doctor", "login_link"])
def test_a_file_in_place_of_the_data_folder_is_named_with_the_way_out(tmp_path: Path, command: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    said = refused(file, command)
    assert f"LAB_DATA_DIR: {file} is a file; name a folder: LAB_DATA_DIR=/path/to/folder" in said
    assert said.count("\n") == 1


def test_a_data_folder_below_a_file_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = refused(tmp_path / "file" / "data", "up")
    assert f"LAB_DATA_DIR: {tmp_path}/file/data cannot be written to: Not a directory" in said
    assert "LAB_DATA_DIR=/path/to/folder" in said


def test_sqlite_by_its_address_is_set_up_like_the_built_in_one(tmp_path: Path) -> None:
    program = (
        "import django; django.setup()\n"
        "from django.db import connection, transaction\n"
        "with connection.cursor() as cursor: print(cursor.execute('PRAGMA journal_mode').fetchone()[0])\n"
        "print(connection.settings_dict['OPTIONS']['transaction_mode'])"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "DJANGO_SETTINGS_MODULE": "lab.settings",
        "LAB_DATA_DIR": str(tmp_path),
        "DATABASE_URL": f"sqlite:///{tmp_path}/mine.sqlite3",
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    )
    assert done.stdout.split() == ["wal", "IMMEDIATE"]
