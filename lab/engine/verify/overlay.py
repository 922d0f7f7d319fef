"""Puts a task's tests over a workspace, whatever a patch made of their paths."""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Mapping

from lab.engine.sandboxes.base import Sandbox
from lab.engine.scripts import broken_script, run_script
from lab.engine.tasks.snapshot import EXECUTABLE, LINK, repository_files
from lab.engine.tasks.spec import TaskSpec, Verification
from lab.engine.workspace_archive import Item, read_tar, write_tar

_TESTS_LIMIT_BYTES = 200_000_000

# Folders first: a patch may have put a link or a file in the place of one. Prints a new, empty folder.
_PUT = r"""
set -eu
folders=$1
shift
while [ "$folders" -gt 0 ]; do
    if [ -L "./$1" ] || { [ -e "./$1" ] && [ ! -d "./$1" ]; }; then rm -rf "./$1"; fi
    shift
    folders=$((folders - 1))
done
for file; do rm -rf "./$file"; done
tar -xpf -
mktemp -d
"""


Files = Mapping[str, tuple[bytes, int]]


def known_files(sandbox: Sandbox, task: TaskSpec) -> Files:
    """Path to content and mode of the files before a patch, as far as expected tests may stand in them.

    They are the task's snapshot, or looked at in a workspace just prepared, where that alone knows them.

    Raises:
        SandboxLostError, InfrastructureError: the sandbox or the snapshot is gone.
    """
    if not task.environment.has_own_base:
        return {
            file.path: (file.content, 0o755 if file.mode == EXECUTABLE else 0o644)
            for file in repository_files(task)
            if file.mode != LINK
        }
    names = b"".join(b"./%s\0" % path.encode() for path in _possible_paths(task.verification))
    # A path that is not there is no error: nothing is put in its place.
    script = "tar -cf - --format=gnu --no-recursion --hard-dereference --null -T - || [ $? -eq 2 ]"
    result = run_script(sandbox, script, stdin=names, output_limit=_TESTS_LIMIT_BYTES)
    if result.exit_code != 0:
        raise broken_script(sandbox, result, "the tests in the workspace could not be read")
    return {
        path.decode(): (item.content, item.header.mode)
        for path, item in read_tar(result.stdout.head).items()
        if item.header.isreg()
    }


def put_tests(sandbox: Sandbox, task: TaskSpec, known: Files) -> str:
    """Write the hidden tests, and of the `known` files every other one an expected test stands in.

    Returns a new folder outside the workspace: whatever is found there later, the test run wrote.

    Raises:
        SandboxLostError, InfrastructureError: the sandbox is gone, its disk is full, `tar` is missing.
    """
    files = protected_files(task, known)
    folders = sorted({parent for path in files for parent in _parents(path)})
    items = {folder.encode(): _item(folder, b"", tarfile.DIRTYPE, 0o755) for folder in folders}
    for path, (content, mode) in files.items():
        items[path.encode()] = _item(path, content, tarfile.REGTYPE, mode)
    result = run_script(sandbox, _PUT, str(len(folders)), *folders, *files, stdin=write_tar(items))
    if result.exit_code != 0:
        raise broken_script(sandbox, result, "the hidden tests could not be written")
    return result.stdout.text().strip()


def protected_files(task: TaskSpec, known: Files) -> dict[str, tuple[bytes, int]]:
    """Path to content and mode of every file whose tests decide, as the task has it."""
    hidden = {path: (text.encode(), 0o644) for path, text in task.verification.test_files.items()}
    both = {**known, **hidden}
    named = {path: both[path] for path in test_paths(task.verification, both) if path in both}
    return named | hidden


def test_paths(verification: Verification, files: Mapping[str, object]) -> list[str]:
    """The files the expected tests stand in, sorted. `files` are the paths there are."""
    ids = (*verification.fail_to_pass, *verification.pass_to_pass)
    if verification.runner == "pytest":
        return sorted({test_id.partition("::")[0] for test_id in ids})
    return sorted({path for test_id in ids if (path := _module_path(test_id, files))})


def _module_path(test_id: str, files: Mapping[str, object]) -> str:
    return next((path for path in _module_paths(test_id) if path in files), "")


def _module_paths(test_id: str) -> list[str]:
    """Where the module of a dotted name may lie, the longest path first."""
    parts = test_id.split(".")
    return [f"{'/'.join(parts[:length])}.py" for length in range(len(parts), 0, -1)]


def _possible_paths(verification: Verification) -> list[str]:
    """Every path at which an expected test may stand."""
    if verification.runner == "pytest":
        return test_paths(verification, {})
    ids = (*verification.fail_to_pass, *verification.pass_to_pass)
    return sorted({path for test_id in ids for path in _module_paths(test_id)})


def test_command(verification: Verification) -> tuple[str, ...]:
    """The task's own command, or its runner on the files of the expected tests."""
    if verification.command:
        return verification.command
    paths = test_paths(verification, verification.test_files)
    if verification.runner == "pytest":
        return ("python", "-m", "pytest", *paths)
    return ("python", "-m", "unittest", "-v", *(path.removesuffix(".py").replace("/", ".") for path in paths))


def _parents(path: str) -> list[str]:
    parents = []
    while path := posixpath.dirname(path):
        parents.append(path)
    return parents


def _item(path: str, content: bytes, kind: bytes, mode: int) -> Item:
    header = tarfile.TarInfo(path)
    header.type, header.mode = kind, mode
    return Item(header, content)
