"""Reading and writing files through the contract, the same for every kind of sandbox."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from lab.engine.sandboxes.base import Sandbox
from tests.engine.sandboxes.conftest import Start, shell
from tests.engine.sandboxes.places import Place


@pytest.mark.parametrize("size", [0, 1, 2048, 5_000_000])
def test_what_was_written_is_read_byte_for_byte(shared: Sandbox, size: int) -> None:
    data = os.urandom(size)
    shared.write("file", data)
    assert shared.read("file") == data
    assert shared.read(f"{shared.facts.workspace}/file") == data


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
def test_any_name_works(shared: Sandbox, name: str) -> None:
    shared.write(name, b"1")
    shared.write(f"deep/{name}/{name}", b"2")
    assert (shared.read(name), shared.read(f"deep/{name}/{name}")) == (b"1", b"2")
    assert shell(shared, "find . -mindepth 1 -maxdepth 1 -print0 | tr -dc '\\0' | wc -c").strip() == "2"


def test_modes_are_set_kept_and_sensible(shared: Sandbox) -> None:
    shared.write("plain", b"")
    shared.write("script", b"#!/bin/sh\necho ran\n", mode=0o755)
    assert shell(shared, "stat -c %a plain script; ./script") == "644\n755\nran\n"
    shared.write("script", b"#!/bin/sh\necho again\n")
    assert shell(shared, "stat -c %a script; ./script") == "755\nagain\n"


def test_overwriting_keeps_hard_links_and_follows_links(shared: Sandbox) -> None:
    shell(shared, "echo old > one; ln one two; ln -s one three; ln -s new four")
    shared.write("three", b"new")
    shared.write("four", b"made")
    assert shell(shared, "cat two new; readlink three; readlink four") == "newmadeone\nnew\n"
    assert shared.read("three") == b"new"


def test_what_goes_wrong_is_the_error_of_a_local_file(shared: Sandbox) -> None:
    shell(shared, "mkdir folder; echo x > file; ln -s loop loop; ln -s nowhere dangling")
    with pytest.raises(FileNotFoundError) as missing:
        shared.read("missing")
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
            shared.read(path)
    for path, error in {
        "folder": IsADirectoryError,
        "file/below": NotADirectoryError,
        "file/below/deeper": NotADirectoryError,
        "loop": OSError,
    }.items():
        with pytest.raises(error):
            shared.write(path, b"")
    with pytest.raises(ValueError, match="NUL"):
        shared.read("a\0b")


def test_missing_rights_are_told(place: Place, start: Start) -> None:
    # Where root is the user, nothing is closed.
    sandbox = start() if "a chosen user" in place.not_held else start(user="agent")
    shell(sandbox, "echo x > closed; chmod 000 closed; mkdir shut; chmod 000 shut")
    for path in ("closed", "/etc/shadow-of-nobody/x"):
        with pytest.raises((PermissionError, FileNotFoundError)):
            sandbox.read(path)
    with pytest.raises(PermissionError):
        sandbox.read("closed")
    with pytest.raises(PermissionError):
        sandbox.write("shut/file", b"")
    with pytest.raises(OSError, match="Permission denied|Read-only file system"):
        sandbox.write("/proc/version", b"")


def test_fifos_devices_and_the_like_are_refused_without_waiting(shared: Sandbox) -> None:
    shell(shared, "mkfifo pipe; ln -s pipe to-pipe")
    began = time.monotonic()
    for path in ("pipe", "to-pipe", "/dev/zero", "/dev/stdin", "/dev/full"):
        with pytest.raises((ValueError, OSError)):
            shared.read(path)
        with pytest.raises((ValueError, OSError)):
            shared.write(path, b"x")
    assert time.monotonic() - began < 60
    assert shell(shared, "echo next") == "next\n"


def test_a_file_larger_than_the_limit_is_refused(shared: Sandbox) -> None:
    shared.write("file", b"x" * 1001)
    assert len(shared.read("file", limit=1001)) == 1001
    with pytest.raises(ValueError, match="larger than 1000 bytes"):
        shared.read("file", limit=1000)
    shell(shared, "truncate -s 5G huge")
    with pytest.raises(ValueError, match="larger than"):
        shared.read("huge")


def test_a_command_sees_what_was_written_as_its_own(shared: Sandbox) -> None:
    shared.write("a/b/file", b"1")
    assert shell(shared, "echo 2 >> a/b/file; rm a/b/file; rmdir a/b a; ls -A") == ""


def test_the_paths_of_commands_do_not_decide_how_files_are_read(shared: Sandbox) -> None:
    for name in ("cat", "head", "mkdir"):
        shared.write(f"bin/{name}", b"#!/bin/sh\necho fake\n", mode=0o755)
    shell(shared, "cp bin/* ~/ 2>/dev/null || true")
    shared.write("folder/file", b"real")
    assert shared.read("folder/file") == b"real"


def test_a_removed_workspace_is_a_missing_file(shared: Sandbox) -> None:
    workspace = shared.facts.workspace
    shared.exec(["rm", "-rf", workspace], timeout=30)
    with pytest.raises(FileNotFoundError):
        shared.read("file")
    assert shared.exec(["true"], timeout=30, cwd="/").exit_code == 0


@pytest.mark.promises("its own file system")
def test_files_of_the_machine_are_out_of_reach_also_through_links_and_proc(
    shared: Sandbox, scratch: Path
) -> None:
    secret = scratch / "secret.txt"
    secret.write_text("the lab's own")
    secret.chmod(0o666)
    scratch.chmod(0o777)
    script = "ln -s $0 link; ln -s $1 folder; ln -s /proc/self/root/$0 around; ln -s /proc/1/root/$0 first"
    shared.exec(["sh", "-c", script, str(secret), str(scratch)], timeout=30)
    paths = ("link", "folder/secret.txt", "around", "first", str(secret), f"../../../../../..{secret}")
    for path in paths:
        with pytest.raises(OSError):
            shared.read(path)
        assert shared.exec(["cat", path], timeout=30).exit_code != 0
    for path in paths:
        with contextlib.suppress(OSError):
            shared.write(path, b"overwritten")
    assert secret.read_text() == "the lab's own"


@pytest.mark.promises("its own file system")
def test_a_link_that_is_swapped_while_files_are_read_and_written_never_leads_out(
    shared: Sandbox, scratch: Path
) -> None:
    secret = scratch / "secret.txt"
    secret.write_text("the lab's own")
    secret.chmod(0o666)
    scratch.chmod(0o777)
    swap = (
        "mkdir here; echo inside > here/secret.txt; echo inside > plain; ln -s $0/secret.txt out; "
        "(while :; do ln -sfn here at; ln -sfn $0 at; ln -f plain file; ln -f out file; done "
        ">/dev/null 2>&1 &)"
    )
    shared.exec(["sh", "-c", swap, str(scratch)], timeout=30)
    for number in range(40):
        for path in ("at/secret.txt", "file"):
            with contextlib.suppress(OSError, ValueError):
                assert b"lab's" not in shared.read(path)
            with contextlib.suppress(OSError, ValueError):
                shared.write(path, b"written %d" % number)
    assert secret.read_text() == "the lab's own"


def test_what_the_kernel_offers_as_files_can_be_read_and_is_bounded(shared: Sandbox) -> None:
    assert b"Name:" in shared.read("/proc/self/status")
    for path in ("/proc/kmsg", "/proc/kcore", "/proc/self/mem", "/dev/tty", "/dev/random"):
        with contextlib.suppress(OSError, ValueError):
            shared.read(path, limit=4096)
    assert shell(shared, "echo next") == "next\n"


def test_files_written_by_the_lab_belong_to_the_user_of_the_commands(shared: Sandbox) -> None:
    shared.write("deep/er/file", b"x")
    owners = shell(shared, "id -u; stat -c %u deep deep/er deep/er/file").split()
    assert len(set(owners)) == 1


def test_folders_full_of_files_are_no_trouble(shared: Sandbox) -> None:
    shell(shared, "mkdir many; cd many; seq 20000 | xargs touch", timeout=200)
    shared.write("many/one-more", b"x")
    assert shared.read("many/one-more") == b"x"
    assert shell(shared, "ls many | wc -l").strip() == "20001"
