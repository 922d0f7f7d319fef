"""The practice environment: made once, without network, usable by a sandbox's user."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from lab.engine.environments import PracticeEnvironment, practice_environment
from lab.engine.errors import InvalidValueError
from lab.engine.sandboxes.base import SandboxSpec
from lab.engine.sandboxes.bubblewrap import BubblewrapProvider
from lab.engine.sandboxes.process import ProcessProvider

TEST_FILE = b"def test_one():\n    assert 1 + 1 == 2\n\n\ndef test_two():\n    assert [1, 2] == [1, 3]\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> PracticeEnvironment:
    return practice_environment(tmp_path_factory.mktemp("data with space"))


def test_its_python_runs_pytest_and_sees_nothing_of_the_lab(environment: PracticeEnvironment) -> None:
    code = (
        "import sys, pytest, importlib.util as util\n"
        "print(pytest.__version__, sys.prefix, util.find_spec('django'), util.find_spec('lab'))"
    )
    done = subprocess.run(
        [environment.bin / "python", "-c", code], capture_output=True, text=True, env={}, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{pytest.__version__} {environment.bin.parent} None None\n"


def test_a_second_call_gives_the_same_folder_and_changes_nothing(environment: PracticeEnvironment) -> None:
    before = environment.bin.stat().st_ctime_ns
    assert practice_environment(environment.bin.parents[2]) == environment
    assert environment.bin.stat().st_ctime_ns == before


def test_processes_that_ask_at_once_get_one_whole_environment(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3) as pool:
        answers = list(pool.map(practice_environment, [tmp_path] * 3))
    assert answers[0] == answers[1] == answers[2]
    assert [path.name for path in (tmp_path / "environments").iterdir() if path.name != ".lock"] == [
        answers[0].bin.parent.name
    ]


def test_the_interpreter_lies_in_the_paths_that_are_to_be_bound(environment: PracticeEnvironment) -> None:
    interpreter = (environment.bin / "python").resolve()
    assert interpreter.is_relative_to("/usr") or any(
        interpreter.is_relative_to(path) for path in environment.read_only_paths
    )
    assert environment.bin.parent in environment.read_only_paths


def test_nobody_needs_to_be_its_owner_to_read_it(environment: PracticeEnvironment) -> None:
    for path in environment.bin.parent.rglob("*"):
        if not path.is_symlink():
            assert path.stat().st_mode & 0o004, path
            assert path.stat().st_mode & 0o022 == 0, path


@pytest.mark.requires("bubblewrap")
def test_a_login_shell_in_bubblewrap_finds_its_pytest(
    environment: PracticeEnvironment, tmp_path: Path
) -> None:
    _runs_pytest(BubblewrapProvider(), environment, tmp_path)


def test_a_login_shell_in_a_process_sandbox_finds_its_pytest(
    environment: PracticeEnvironment, tmp_path: Path
) -> None:
    _runs_pytest(ProcessProvider(), environment, tmp_path)


def _runs_pytest(
    provider: BubblewrapProvider | ProcessProvider, environment: PracticeEnvironment, scratch: Path
) -> None:
    spec = SandboxSpec(
        label="practice",
        scratch=scratch,
        read_only_paths=environment.read_only_paths,
        path_prefix=[str(environment.bin)],
    )
    sandbox = provider.start(spec)
    try:
        sandbox.write("test_sums.py", TEST_FILE)
        found = sandbox.exec(["bash", "-lc", "pytest -q -rA; type -p python"], timeout=60)
        text = found.stdout.text()
        assert "PASSED test_sums.py::test_one" in text, text + found.stderr.text()
        assert "FAILED test_sums.py::test_two" in text
        assert text.endswith(f"{environment.bin}/python\n")
    finally:
        sandbox.stop()


def test_a_folder_that_cannot_be_written_is_named_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "environments").write_text("in the way")
    with pytest.raises(InvalidValueError, match="LAB_DATA_DIR.*name a folder the lab may write"):
        practice_environment(tmp_path)


def test_the_interpreter_is_the_labs_own(environment: PracticeEnvironment) -> None:
    done = subprocess.run(
        [environment.bin / "python3", "-c", "import sys; print(sys.version)"],
        capture_output=True,
        env=os.environ,
    )
    assert done.stdout.decode().strip() == sys.version
