"""Reading and writing files through the contract, the same for every kind of sandbox."""

from __future__ import annotations

import os
import time

import pytest

from lab.engine.sandboxes.local import LocalSandbox


def bash(sandbox: LocalSandbox, script: str) -> str:
    result = sandbox.exec(["bash", "-c", script], timeout=30)
    assert result.exit_code == 0, result
    return result.stdout.text()


@pytest.mark.parametrize("size", [0, 1, 2048, 5_000_000])
def test_what_was_written_is_read_byte_for_byte(sandbox: LocalSandbox, size: int) -> None:
    data = os.urandom(size)
    sandbox.write("file", data)
    assert sandbox.read("file") == data
    assert sandbox.read(f"{sandbox.facts.workspace}/file") == data


NAMES = [
    "a b",
    "-rf",
    "two\nlines",
    "it's",
    '"',
    "$HOME",
    "*",
    "\\",
    "ä",
    "\udcff\udcfe",
    "!",
    "(",
    "~",
    "x" * 255,
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_works(sandbox: LocalSandbox, name: str) -> None:
    sandbox.write(name, b"1")
    sandbox.write(f"deep/{name}/{name}", b"2")
    assert (sandbox.read(name), sandbox.read(f"deep/{name}/{name}")) == (b"1", b"2")
    assert bash(sandbox, "ls -A | wc -l").strip() == str(2 + name.count("\n"))


def test_modes_are_set_kept_and_sensible(sandbox: LocalSandbox) -> None:
    sandbox.write("plain", b"")
    sandbox.write("script", b"#!/bin/sh\necho ran\n", mode=0o755)
    assert bash(sandbox, "stat -c %a plain script; ./script") == "644\n755\nran\n"
    sandbox.write("script", b"#!/bin/sh\necho again\n")
    assert bash(sandbox, "stat -c %a script; ./script") == "755\nagain\n"


def test_overwriting_keeps_hard_links_and_follows_links(sandbox: LocalSandbox) -> None:
    bash(sandbox, "echo old > one; ln one two; ln -s one three; ln -s new four")
    sandbox.write("three", b"new")
    sandbox.write("four", b"made")
    assert bash(sandbox, "cat two new; readlink three four") == "newmadeone\nnew\n"
    assert sandbox.read("three") == b"new"


def test_what_goes_wrong_is_the_error_of_a_local_file(sandbox: LocalSandbox) -> None:
    bash(sandbox, "mkdir folder; echo x > file; ln -s loop loop; ln -s nowhere dangling")
    with pytest.raises(FileNotFoundError) as missing:
        sandbox.read("missing")
    assert missing.value.filename == "missing"
    for path, error in {
        "dangling": FileNotFoundError,
        "folder": IsADirectoryError,
        "file/below": NotADirectoryError,
        "loop": OSError,
        "y" * 300: OSError,
        "": FileNotFoundError,
    }.items():
        with pytest.raises(error):
            sandbox.read(path)
    for path, error in {
        "folder": IsADirectoryError,
        "file/below": NotADirectoryError,
        "file/below/deeper": NotADirectoryError,
        "loop": OSError,
    }.items():
        with pytest.raises(error):
            sandbox.write(path, b"")
    with pytest.raises(ValueError, match="NUL"):
        sandbox.read("a\0b")


def test_missing_rights_are_told(sandbox: LocalSandbox) -> None:
    if bash(sandbox, "id -u") == "0\n":
        pytest.skip("absent data: root has every right")
    bash(sandbox, "echo x > closed; chmod 000 closed; mkdir shut; chmod 000 shut")
    for path in ("closed", "/etc/shadow-of-nobody/x"):
        with pytest.raises((PermissionError, FileNotFoundError)):
            sandbox.read(path)
    with pytest.raises(PermissionError):
        sandbox.read("closed")
    with pytest.raises(PermissionError):
        sandbox.write("shut/file", b"")
    with pytest.raises(OSError, match="Permission denied|Read-only file system"):
        sandbox.write("/usr/here", b"")


def test_fifos_devices_and_the_like_are_refused_without_waiting(sandbox: LocalSandbox) -> None:
    bash(sandbox, "mkfifo pipe; ln -s pipe to-pipe")
    began = time.monotonic()
    for path in ("pipe", "to-pipe", "/dev/zero", "/dev/stdin", "/dev/full"):
        with pytest.raises((ValueError, OSError)):
            sandbox.read(path)
        with pytest.raises((ValueError, OSError)):
            sandbox.write(path, b"x")
    assert time.monotonic() - began < 60
    assert bash(sandbox, "echo next") == "next\n"


def test_a_file_larger_than_the_limit_is_refused(sandbox: LocalSandbox) -> None:
    sandbox.write("file", b"x" * 1001)
    assert len(sandbox.read("file", limit=1001)) == 1001
    with pytest.raises(ValueError, match="larger than 1000 bytes"):
        sandbox.read("file", limit=1000)
    bash(sandbox, "truncate -s 5G huge")
    with pytest.raises(ValueError, match="larger than"):
        sandbox.read("huge")


def test_a_command_sees_what_was_written_as_its_own(sandbox: LocalSandbox) -> None:
    sandbox.write("a/b/file", b"1")
    assert bash(sandbox, "echo 2 >> a/b/file; rm a/b/file; rmdir a/b a; ls -A") == ""


def test_the_paths_of_commands_do_not_decide_how_files_are_read(sandbox: LocalSandbox) -> None:
    for name in ("cat", "head", "mkdir"):
        sandbox.write(f"bin/{name}", b"#!/bin/sh\necho fake\n", mode=0o755)
    bash(sandbox, "cp bin/* ~/ 2>/dev/null || true")
    sandbox.write("folder/file", b"real")
    assert sandbox.read("folder/file") == b"real"


def test_a_removed_workspace_is_a_missing_file(sandbox: LocalSandbox) -> None:
    workspace = sandbox.facts.workspace
    sandbox.exec(["rm", "-rf", workspace], timeout=30)
    with pytest.raises(FileNotFoundError):
        sandbox.read("file")
    assert sandbox.exec(["true"], timeout=30, cwd="/").exit_code == 0
