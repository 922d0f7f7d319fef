"""In CI a failure is told when it happens: whoever ends the suite from outside still learns of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

SUITE = """
import time

def test_fails():
    print("what it said")
    assert 6 * 9 == 42

def test_never_ends():
    time.sleep(3600)
"""


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_failure_is_told_with_its_output_before_the_suite_has_ended(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-n", processes),
        *("-p", "no:django", "-p", "no:cacheprovider", "-p", "tests.conftest", str(tmp_path)),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LAB_TEST_REQUIRE_ALL": "1",
        "PYTHONUNBUFFERED": "1",
    }
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as suite:
        assert suite.stdout is not None
        try:
            told = ""
            for line in suite.stdout:
                told += line
                if "what it said\n" in told:
                    break
        finally:
            os.killpg(suite.pid, 9)
    assert "FAILED (call) test_it.py::test_fails\n" in told
    assert "assert (6 * 9) == 42" in told
