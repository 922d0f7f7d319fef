"""The switch that CI sets: what is missing fails the suite instead of thinning it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

SUITE = """
import pytest

def test_passes():
    pass

{}
"""
MISSING = "def test_skips():\n    pytest.skip('missing: a thing')"
ABSENT = "def test_skips():\n    pytest.skip('absent data: a folder')"
OTHER = "def test_skips():\n    pytest.skip('not today')"
WHOLE_FILE = "pytest.skip('missing: a thing', allow_module_level=True)"
LONG = "@pytest.mark.long\ndef test_long():\n    assert False"


def run(folder: Path, test: str, *arguments: str, require_all: bool) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(SUITE.format(test))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = long: takes minutes\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LAB_TEST_REQUIRE_ALL": "1" if require_all else "0"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:django",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.conftest",
    ]
    return subprocess.run(
        [*command, *arguments, str(folder)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("test", [MISSING, OTHER, WHOLE_FILE])
def test_a_skip_is_a_failure_when_everything_must_be_there(tmp_path: Path, test: str) -> None:
    assert run(tmp_path, test, require_all=False).returncode in (0, 5)
    result = run(tmp_path, test, require_all=True)
    assert result.returncode not in (0, 5)
    assert "allows no skip but 'absent data: …'" in result.stdout


def test_data_that_only_some_people_own_may_be_absent(tmp_path: Path) -> None:
    result = run(tmp_path, ABSENT, require_all=True)
    assert result.returncode == 0
    assert "1 passed, 1 skipped" in result.stdout


def test_long_tests_run_only_when_asked_for(tmp_path: Path) -> None:
    assert run(tmp_path, LONG, require_all=True).returncode == 0
    assert run(tmp_path, LONG, "--long", require_all=True).returncode == 1
