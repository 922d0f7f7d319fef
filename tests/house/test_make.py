"""`make run` and `make test` set themselves up, and say what is missing where they cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.tree import ROOT

pytestmark = pytest.mark.requires("make")

TOO_OLD = """#!/bin/sh
[ "$1" = --version ] && echo "Python 3.9.2" && exit 0
exit 1
"""
WITHOUT_ENSUREPIP = """#!/bin/sh
case "$2" in
  *ensurepip*) exit 1 ;;
  *version_info*print*|*print*version_info*) echo 3.11 ;;
esac
exit 0
"""


def make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkout"
    (folder / "tests").mkdir(parents=True)
    (folder / "deploy").mkdir()
    for name in ("Makefile", "requirements.lock", "deploy/requirements.lock", "tests/requirements.lock"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def programs(folder: Path, python: str) -> str:
    """A PATH with what the Makefile uses and `python` as python3."""
    folder.mkdir()
    for name in ("make", "sh", "cmp", "cp", "echo", "rm"):
        (folder / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    (folder / "python3").write_text(python)
    (folder / "python3").chmod(0o755)
    return str(folder)


def test_a_python_that_is_too_old_is_named_with_the_way_out(checkout: Path, tmp_path: Path) -> None:
    result = make(checkout, "run", PATH=programs(tmp_path / "bin", TOO_OLD))
    assert result.returncode != 0
    assert "needs Python 3.11 or newer; found: Python 3.9.2." in result.stderr
    assert "apt-get install python3 python3-venv" in result.stderr
    assert not (checkout / ".venv").exists()


def test_a_python_without_ensurepip_is_named_with_the_package_that_has_it(
    checkout: Path, tmp_path: Path
) -> None:
    result = make(checkout, "run", PATH=programs(tmp_path / "bin", WITHOUT_ENSUREPIP))
    assert result.returncode != 0
    assert "Python 3.11 is here but cannot make virtual environments" in result.stderr
    assert "apt-get install python3-venv" in result.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.long
def test_a_fresh_checkout_installs_once_with_an_empty_home(checkout: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    first = make(checkout, "environment", HOME=str(home))
    assert first.returncode == 0, first.stdout + first.stderr
    assert "Installing what requirements.lock lists" in first.stdout
    again = make(checkout, "environment", HOME=str(home))
    assert (again.returncode, again.stdout) == (0, "")
    grown_up = make(checkout, "grown-up", HOME=str(home))
    assert "Installing what deploy/requirements.lock lists" in grown_up.stdout
    for target in ("grown-up", "environment"):
        assert make(checkout, target, HOME=str(home)).stdout == ""
    with (checkout / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    assert "Installing" in make(checkout, "environment", HOME=str(home)).stdout
