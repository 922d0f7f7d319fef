"""Running commands: what goes in, what comes out, how they end. The same for every kind of sandbox."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

from lab.engine.sandboxes.base import Sandbox
from tests.engine.sandboxes.conftest import Start, shell


def test_a_new_workspace_is_empty_and_the_working_directory(sandbox: Sandbox) -> None:
    assert shell(sandbox, "pwd; ls -A") == f"{sandbox.facts.workspace}\n"


def test_streams_are_kept_apart_and_the_exit_code_is_told(shared: Sandbox) -> None:
    result = shared.exec(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout=30)
    assert (result.exit_code, result.stdout.text(), result.stderr.text()) == (7, "out\n", "err\n")
    assert (result.timed_out, result.interrupted, result.out_of_memory) == (False, False, False)
    assert 0 < result.seconds < 30


def test_a_death_by_signal_is_128_and_its_number(shared: Sandbox) -> None:
    for number in (9, 15, 2, 6, 1, 13):
        assert shared.exec(["sh", "-c", f"kill -{number} $$"], timeout=30).exit_code == 128 + number


def test_words_arrive_byte_for_byte(shared: Sandbox) -> None:
    every = bytes(range(1, 256)).decode("utf-8", "surrogateescape")
    words = [
        "",
        "a b",
        "it's",
        '"$HOME"',
        "$(echo x)`id`",
        "-n",
        "two\nlines",
        "\\",
        "*",
        "ä€😀",
        every,
        "~",
        "!!",
    ]
    result = shared.exec(["printf", "%s\\0", *words], timeout=30)
    assert result.stdout.head == b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)


def test_a_lone_surrogate_or_nul_in_a_command_is_no_crash(shared: Sandbox) -> None:
    assert shared.exec(["printf", "\ud83d\\n"], timeout=30).stdout.head == b"?\n"
    result = shared.exec(["echo", "a\0b"], timeout=30)
    assert result.exit_code == 126
    assert "NUL byte" in result.stderr.text()


def test_long_scripts_work_and_too_long_words_are_the_commands_failure(shared: Sandbox) -> None:
    assert shared.exec(["sh", "-c", f": {'x' * 120_000}; echo done"], timeout=30).stdout.text() == "done\n"
    result = shared.exec(["echo", "x" * 300_000], timeout=30)
    assert result.exit_code == 126
    assert "too long" in result.stderr.text().lower()


def test_what_cannot_be_started_is_the_commands_failure(shared: Sandbox) -> None:
    missing = shared.exec(["no-such-program"], timeout=30)
    assert missing.exit_code == 127
    assert re.search("no-such-program: .*not found", missing.stderr.text())
    shared.write("plain.txt", b"text")
    refused = shared.exec(["./plain.txt"], timeout=30)
    assert refused.exit_code == 126
    assert "permission denied" in refused.stderr.text().lower()


def test_a_command_reads_its_input_and_nothing_without_it(shared: Sandbox) -> None:
    data = os.urandom(3_000_000)
    assert shared.exec(["sha256sum"], timeout=30, stdin=data).stdout.text().split()[0] == (
        hashlib.sha256(data).hexdigest()
    )
    assert shared.exec(["cat", "/dev/stdin"], timeout=30, stdin=b"x").stdout.head == b"x"
    assert shared.exec(["wc", "-c"], timeout=30).stdout.text().strip() == "0"


def test_the_folder_of_a_command_can_be_chosen(shared: Sandbox) -> None:
    shared.write("sub dir/file", b"")
    workspace = shared.facts.workspace
    assert shared.exec(["pwd"], timeout=30, cwd="sub dir").stdout.text() == f"{workspace}/sub dir\n"
    assert shared.exec(["pwd"], timeout=30, cwd="/usr").stdout.text() == "/usr\n"
    missing = shared.exec(["pwd"], timeout=30, cwd="nowhere")
    assert missing.exit_code == 126
    assert "nowhere" in missing.stderr.text()


def test_the_environment_is_the_specs_and_nothing_of_the_labs(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_TEST_SECRET", "hunter2-hunter2")
    given = {
        "ONE": "1 '\"$x",
        "LC_ALL": "C",
        "IFS": "x",
        "TMOUT": "1",
        "POSIXLY_CORRECT": "1",
        "odd.name": "2",
        "UID": "7",
    }
    sandbox = start(environment=given)
    text = sandbox.exec(
        ["env", "-0"], timeout=30, environment={"TWO": "2\n3", "ONE": "changed"}
    ).stdout.text()
    seen = dict(entry.split("=", 1) for entry in text.rstrip("\0").split("\0"))
    assert seen.items() >= {**given, "ONE": "changed", "TWO": "2\n3"}.items()
    assert "/bin" in seen["PATH"].split(":")
    assert "hunter2" not in text
    known = {
        "PATH",
        "HOME",
        "PWD",
        "LANG",
        "USER",
        "LOGNAME",
        "TMPDIR",
        "LAB_SANDBOX",
        "HOSTNAME",
        "_",
        "TWO",
    }
    assert set(seen) - known == set(given)
    again = sandbox.exec(["env"], timeout=30).stdout.text()
    assert "ONE=1 '\"$x\n" in again
    assert "TWO" not in again


def test_a_login_shell_has_a_home_and_a_folder_for_temporary_files(shared: Sandbox) -> None:
    script = "cd && touch mine && ls -A ~; touch /tmp/mine && echo tmp"
    result = shared.exec(["sh", "-lc", script], timeout=30)
    assert {"mine", "tmp"} <= set(result.stdout.text().splitlines())
    assert result.stderr.total == 0


@pytest.mark.promises("a path prefix")
def test_the_path_prefix_is_first_in_commands_and_in_login_shells(start: Start) -> None:
    sandbox = start(path_prefix=["/opt/first"])
    for words in (["sh", "-c"], ["bash", "-lc"]):
        path = sandbox.exec([*words, "echo $PATH"], timeout=30).stdout.text()
        assert path.startswith("/opt/first:")


@pytest.mark.promises("a chosen user")
@pytest.mark.parametrize(("user", "number"), [("agent", "1000"), ("1000", "1000"), ("54321", "54321")])
def test_commands_run_as_the_chosen_user_and_own_what_they_and_the_lab_write(
    start: Start, user: str, number: str
) -> None:
    sandbox = start(user=user)
    sandbox.write("written/below", b"x")
    script = "touch made && echo more >> written/below && id -u && stat -c %u made written written/below ."
    assert shell(sandbox, script).split() == [number] * 5
    assert sandbox.read("written/below") == b"xmore\n"


@pytest.mark.promises("an image")
def test_the_file_system_is_that_of_the_image_and_starts_anew_each_time(start: Start) -> None:
    one = start()
    shell(one, "echo changed > ~/of-one; test -e /etc/passwd")
    two = start()
    assert two.exec(["sh", "-c", "test -e ~/of-one"], timeout=30).exit_code == 1
    assert one.facts.image is not None
    assert one.facts.image == two.facts.image
    assert one.facts.image.identifier.startswith("sha256:")


def test_every_command_is_a_process_group_of_its_own(shared: Sandbox) -> None:
    assert shared.exec(["sh", "-c", "trap 'exit 3' TERM; kill 0; sleep 5"], timeout=30).exit_code == 3
    assert shell(shared, "echo next") == "next\n"


def test_output_over_the_limit_keeps_head_tail_size_and_hash(shared: Sandbox) -> None:
    script = (
        "head -c 300000 /dev/zero | tr '\\0' a; head -c 100000 /dev/zero | tr '\\0' b; "
        "printf end; printf e >&2"
    )
    result = shared.exec(["sh", "-c", script], timeout=30, output_limit=1000)
    whole = b"a" * 300_000 + b"b" * 100_000 + b"end"
    assert result.stdout.head == b"a" * 1000
    assert result.stdout.tail == whole[-64_000:]
    assert result.stdout.total == len(whole)
    assert result.stdout.sha256 == hashlib.sha256(whole).hexdigest()
    assert result.stdout.truncated
    assert "bytes of output were dropped here" in result.stdout.text()
    assert result.stderr.head == b"e"


def test_binary_output_is_kept_byte_for_byte(shared: Sandbox) -> None:
    data = bytes(range(256)) * 100
    shared.write("data", data)
    result = shared.exec(["cat", "data"], timeout=30)
    assert result.stdout.head == data
    assert "�" in result.stdout.text()


def test_a_hundred_megabytes_cost_bounded_memory(shared: Sandbox) -> None:
    Path("/proc/self/clear_refs").write_text("5")
    before = _high_water()
    result = shared.exec(["head", "-c", "100000000", "/dev/zero"], timeout=120)
    assert result.stdout.total == 100_000_000
    assert _high_water() - before < 16_000_000


def _high_water() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
