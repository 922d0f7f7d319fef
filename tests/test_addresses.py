"""Addresses of databases, Redis and brokers: what may be written, what is shown, what is said of the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import addresses
from lab.addresses import AddressError
from tests.grown_up import PROJECT

WITHOUT = """
import runpy, sys
sys.modules[sys.argv[1]] = None
sys.argv = ["manage.py", "up"]
runpy.run_path("manage.py", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:hidden@host:6379/0", "redis://:***@host:6379/0"),
        ("postgresql://lab:hid%40den@db/lab?sslmode=require", "postgresql://lab:***@db/lab?sslmode=require"),
        ("postgresql://db/lab?password=hidden&user=lab", "postgresql://db/lab?password=***&user=lab"),
        ("amqp://lab:hidden@host:5672//", "amqp://lab:***@host:5672//"),
        ("redis://host", "redis://host"),
        ("redis://:hidden@[::1", "redis://***"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert addresses.shown(url) == shown


def test_a_password_with_marks_of_an_address_is_written_in_percents() -> None:
    found = addresses.database("postgresql://lab:p%40ss%2Fword@db.example.org:6543/the_lab?sslmode=require")
    assert (found["USER"], found["PASSWORD"]) == ("lab", "p@ss/word")
    assert (found["HOST"], found["PORT"], found["NAME"]) == ("db.example.org", 6543, "the_lab")
    assert found["OPTIONS"]["sslmode"] == "require"


def test_what_libpq_is_told_is_kept_beside_what_the_lab_tells_it() -> None:
    options = addresses.database("postgresql://db/lab?options=-c%20search_path=lab&connect_timeout=20")[
        "OPTIONS"
    ]
    assert "lock_timeout" in options["options"]
    assert options["options"].endswith("-c search_path=lab")
    assert options["connect_timeout"] == 20


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://lab:hidden-word@db/lab", "mysql://lab:***@db/lab is no address of PostgreSQL or SQLite"),
        ("postgresql://lab:hidden-word@db", "names no database; write one behind the last slash"),
        ("postgresql://lab:hidden-word@db:port/lab", "cannot be read"),
        ("hidden-word", "what it holds is no address"),
    ],
)
def test_an_address_that_is_none_is_named_with_the_way_out_and_without_its_password(
    url: str, words: str
) -> None:
    with pytest.raises(AddressError) as refused:
        addresses.database(url)
    said = str(refused.value)
    assert said.startswith("DATABASE_URL: ")
    assert words in said
    assert "postgresql://user@host:5432/name" in said
    assert "hidden-word" not in said


def test_a_redis_is_asked_for_by_its_own_kind_of_address() -> None:
    assert addresses.redis("LAB_REDIS_URL", "rediss://host:6380/1") == "rediss://host:6380/1"
    with pytest.raises(AddressError, match="LAB_REDIS_URL: valkey://host is no address of Redis"):
        addresses.redis("LAB_REDIS_URL", "valkey://host")


@pytest.mark.parametrize(
    ("module", "setting", "value"),
    [
        ("psycopg", "DATABASE_URL", "postgresql://lab:hidden-word@127.0.0.1:1/lab"),
        ("channels_redis", "LAB_REDIS_URL", "redis://:hidden-word@127.0.0.1:1/0"),
        ("redis", "LAB_BROKER_URL", "redis://:hidden-word@127.0.0.1:1/0"),
    ],
)
def test_without_its_client_a_server_cannot_be_used_and_the_start_says_how_to_install_it(
    tmp_path: Path, module: str, setting: str, value: str
) -> None:
    refused = subprocess.run(
        [sys.executable, "-c", WITHOUT, module],
        cwd=PROJECT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "lab.settings",
            "LAB_DATA_DIR": str(tmp_path),
            setting: value,
        },
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert refused.returncode == 1
    assert f"{setting}: " in refused.stderr
    assert f"no {module}" in refused.stderr
    assert "Install them with `make grown-up`" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "hidden-word" not in refused.stderr


def test_a_secret_address_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("mysql://lab:hidden-word@db/lab\n")
    refused = subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=PROJECT,
        env={
            **{name: value for name, value in os.environ.items() if name != "DATABASE_URL"},
            "DJANGO_SETTINGS_MODULE": "lab.settings",
            "LAB_DATA_DIR": str(tmp_path),
            "DATABASE_URL_FILE": str(tmp_path / "url"),
        },
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert "DATABASE_URL: mysql://lab:***@db/lab is no address" in refused.stderr
