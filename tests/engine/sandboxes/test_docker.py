"""What is Docker's own: images of all sorts, how a container is made, and what is read of what it used."""

from __future__ import annotations

import io
import re
import shutil
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes import docker_client, docker_program, docker_usage
from lab.engine.sandboxes.base import SandboxLimits, SandboxSpec
from lab.engine.sandboxes.docker import LAB, LABEL, STARTER, DockerProvider, DockerSandbox
from tests import docker_host
from tests.engine.sandboxes.conftest import eventually, everything, processes_naming, shell
from tests.timing import SOON, odd_seconds, when

pytestmark = pytest.mark.requires("docker")
LONG = odd_seconds(9)
StartIn = Callable[..., DockerSandbox]
MakeImage = Callable[..., str]


@pytest.fixture
def make_image() -> Iterator[MakeImage]:
    """An image of our own out of the small one, or of the files given: make_image(User="agent", …)."""
    client = docker_client.connected()
    made: list[str] = []

    def make(files: dict[str, bytes] | None = None, **config: Any) -> str:
        name = f"lab-test/docker-own:{len(made)}-{threading.get_ident()}"
        if files is None:
            changed = client.api.create_container(docker_host.busybox_image(), ["true"])
            try:
                client.api.commit(changed["Id"], *name.split(":"), conf=config)
            finally:
                client.api.remove_container(changed["Id"])
        else:
            client.api.import_image_from_data(_packed(files), *name.split(":"))
        made.append(name)
        return name

    yield make
    for name in made:
        client.images.remove(name, force=True)


def _packed(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
def start_in(scratch: Path, make_image: MakeImage) -> Iterator[StartIn]:
    """Start a sandbox in an image, the small one by default; it is stopped after the test.

    Before its image is removed: one that a container is made from would lose its name alone.
    """
    started: list[DockerSandbox] = []

    def start(image: str = "", **fields: Any) -> DockerSandbox:
        values = {"label": "docker-own", "scratch": scratch / "sandboxes", **fields}
        spec = SandboxSpec(image=image or docker_host.busybox_image(), **values)
        started.append(DockerProvider().start(spec))
        return started[-1]

    yield start
    for sandbox in started:
        sandbox.stop()


def test_an_entrypoint_a_command_and_a_health_check_of_the_image_are_not_run(
    start_in: StartIn, make_image: MakeImage
) -> None:
    image = make_image(
        Entrypoint=["/bin/false"], Cmd=["nonsense"], Healthcheck={"Test": ["CMD", "touch", "/checked"]}
    )
    sandbox = start_in(image)
    assert shell(sandbox, "pwd; ls /checked 2>/dev/null || echo none") == "/workspace\nnone\n"


def test_variables_of_the_image_reach_commands_and_not_the_kept_shell(
    start_in: StartIn, make_image: MakeImage
) -> None:
    image = make_image(Env=["ONE=1", "IFS=x", "BASH_ENV=/nowhere", "PATH=/opt/x:/bin:/usr/bin", "HOME=/x"])
    sandbox = start_in(image, environment={"ONE": "changed"})
    text = sandbox.exec(["env"], timeout=30).stdout.text()
    seen = dict(line.split("=", 1) for line in text.splitlines())
    assert seen["ONE"] == "changed"
    assert seen["BASH_ENV"] == "/nowhere"
    assert seen["PATH"] == "/opt/x:/bin:/usr/bin"
    assert seen["HOME"] == docker_program.HOME
    assert "HOSTNAME" not in seen
    assert shell(sandbox, "tr '\\0' '\\n' < /proc/1/environ | grep -c ONE || true") == "0\n"


def test_a_user_of_the_image_gets_the_workspace_and_has_no_capability(
    start_in: StartIn, make_image: MakeImage
) -> None:
    sandbox = start_in(make_image(User="agent"), workspace="/made/for/agent")
    assert shell(sandbox, "id -u; touch here && stat -c %u . here ~").split() == ["1000"] * 4
    assert "CapEff:\t0000000000000000" in shell(sandbox, "cat /proc/self/status")
    sandbox.write("below/file", b"x")
    assert shell(sandbox, "stat -c %u below/file") == "1000\n"
    assert "agent" in sandbox.facts.notes[0]


def test_a_workspace_of_the_image_is_left_as_it_is(start_in: StartIn) -> None:
    assert shell(start_in(workspace="/bin"), "pwd; test -x busybox && echo there") == "/bin\nthere\n"


def test_an_image_without_a_shell_is_told_and_leaves_nothing(scratch: Path, make_image: MakeImage) -> None:
    image = make_image({"hello": b"just a file"})
    spec = SandboxSpec(label="no-shell", scratch=scratch / "sandboxes", image=image)
    with pytest.raises(SandboxLostError, match="no /bin/sh") as told:
        DockerProvider().start(spec)
    assert not told.value.retryable
    assert docker_host.labelled("no-shell") == []


def test_a_shell_for_another_processor_is_told_and_leaves_nothing(
    scratch: Path, make_image: MakeImage
) -> None:
    image = make_image({"bin/sh": b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xf3\x00" + bytes(44)})
    spec = SandboxSpec(label="other-processor", scratch=scratch / "sandboxes", image=image)
    with pytest.raises(SandboxLostError, match="architecture") as told:
        DockerProvider().start(spec)
    assert not told.value.retryable
    assert docker_host.labelled("other-processor") == []


def test_a_missing_image_is_told_without_a_container(scratch: Path) -> None:
    spec = SandboxSpec(label="missing", scratch=scratch / "sandboxes", image="127.0.0.1:9/no/such:image")
    with pytest.raises(SandboxLostError, match="no/such"):
        DockerProvider().start(spec)
    assert docker_host.labelled("missing") == []


@pytest.mark.parametrize(
    ("user", "reason"),
    [("nobodyhere", "find user"), ("agent:nogroup2", "find group"), ("-1:0", "range")],
    ids=["user", "group", "number"],
)
def test_a_user_that_the_image_does_not_have_is_told_by_field_value_and_way_out(
    start_in: StartIn, user: str, reason: str
) -> None:
    sandbox = start_in(user=user)
    with pytest.raises(SandboxLostError, match="name a user") as told:
        sandbox.exec(["id"], timeout=60)
    assert f"environment.user: {user!r}" in str(told.value)
    assert reason in str(told.value)
    assert not told.value.retryable


@pytest.mark.parametrize("workspace", ["/etc/passwd", "/etc/passwd/below", "/proc/nowhere"])
def test_a_working_directory_that_cannot_be_made_is_told_once_and_leaves_nothing(
    scratch: Path, workspace: str
) -> None:
    spec = SandboxSpec(
        label="no-folder",
        scratch=scratch / "sandboxes",
        image=docker_host.busybox_image(),
        workspace=workspace,
    )
    with pytest.raises(SandboxLostError, match="name a folder") as told:
        DockerProvider().start(spec)
    text = str(told.value)
    assert f"environment.working_directory: {workspace!r}" in text
    assert text.isprintable()
    assert text.count("mkdir:") == 1
    # Nothing stands between what mkdir said and the bracket's end.
    assert re.search(r"(File exists|Not a directory|No such file or directory)\)", text)
    assert not told.value.retryable
    assert docker_host.labelled("no-folder") == []


def test_a_container_is_made_without_rights_mounts_logs_or_swap(start_in: StartIn) -> None:
    limits = SandboxLimits(memory_bytes=128 * 1024**2, processes=50, cpu_cores=0.5)
    sandbox = start_in(limits=limits)
    found = docker_client.connected().api.inspect_container(sandbox.facts.identifier)
    host = found["HostConfig"]
    assert (found["Mounts"], host["Binds"], host["Privileged"]) == ([], None, False)
    assert (host["CapDrop"], host["SecurityOpt"]) == (["ALL"], ["no-new-privileges"])
    assert (host["NetworkMode"], host["LogConfig"]["Type"]) == ("none", "none")
    assert host["Memory"] == host["MemorySwap"] == 128 * 1024**2
    assert host["PidsLimit"] >= 50
    assert host["CpuQuota"] / host["CpuPeriod"] == 0.5
    labels = found["Config"]["Labels"]
    assert labels[LABEL] == "docker-own"
    assert labels[LAB]
    assert labels[STARTER].count(":") == 2


def test_what_is_left_writing_is_cut_off_when_it_floods_and_commands_go_on(start_in: StartIn) -> None:
    sandbox = start_in()
    shell(sandbox, f"(yes {LONG} &) ; sleep 0.1")
    assert eventually(lambda: shell(sandbox, "echo mine; sleep 0.2") == "mine\n" and not _flooding())


@pytest.mark.requires("debian image")
@pytest.mark.parametrize("user", ["", docker_host.IMAGE_USER], ids=["root", "user"])
def test_the_command_after_those_that_left_as_many_processes_as_may_be_runs(
    start_in: StartIn, user: str
) -> None:
    sandbox = start_in(docker_host.debian_image(), limits=SandboxLimits(processes=40), user=user)
    for _ in range(2):
        # Their output stays open, so that the shell that ran them cannot be used.
        assert sandbox.exec(
            ["sh", "-c", f"for i in $(seq 100); do sleep {LONG} & done"], timeout=60
        ).exit_code
        assert sandbox.exec(["echo", "well"], timeout=60).stdout.head == b"well\n"


@pytest.mark.requires("debian image")
@pytest.mark.parametrize("image", [docker_host.debian_image, docker_host.busybox_image], ids=["bash", "sh"])
def test_time_outs_at_the_moment_of_a_commands_end_disturb_no_later_command(
    start_in: StartIn, image: Callable[[], str]
) -> None:
    sandbox = start_in(image())
    taken = sorted(_seconds_of(sandbox, "0.05") for _ in range(9))[4]
    ends = set()
    for number in range(60):
        result = sandbox.exec(["sleep", "0.05"], timeout=taken * (0.8 + number / 150))
        ends.add((result.exit_code, result.timed_out))
        assert shell(sandbox, f"echo {number}") == f"{number}\n"
    assert ends <= {(0, False), (None, True)}
    began = time.monotonic()
    assert sandbox.exec(["sh", "-c", f"sleep {LONG} & sleep {LONG}"], timeout=0.2).timed_out
    assert time.monotonic() - began < SOON
    assert not processes_naming(LONG)


def _seconds_of(sandbox: DockerSandbox, seconds: str) -> float:
    return sandbox.exec(["sleep", seconds], timeout=60).seconds


@pytest.mark.parametrize("user", ["", "agent"], ids=["root", "user"])
def test_a_time_out_spares_what_the_command_before_left_whatever_ran_before_that(
    start_in: StartIn, user: str
) -> None:
    sandbox = start_in(user=user)
    for _ in range(3):
        shell(sandbox, "true")
    shell(sandbox, f"sleep {LONG} >/dev/null 2>&1 &")
    assert sandbox.exec(["sleep", "100"], timeout=0.3).timed_out
    assert len(processes_naming(LONG)) == 1


def _flooding() -> bool:
    return bool(processes_naming(LONG))


def test_a_command_that_kills_its_shell_is_told_so_and_the_next_one_works(start_in: StartIn) -> None:
    sandbox = start_in(user="agent")
    began = time.monotonic()
    result = sandbox.exec(["sh", "-c", f"kill -9 $PPID; sleep {LONG}"], timeout=120)
    assert result.exit_code == 137
    assert "ended the shell" in result.stderr.text()
    assert time.monotonic() - began < SOON
    assert shell(sandbox, "echo next") == "next\n"
    assert eventually(lambda: not _flooding())


@pytest.mark.requires("debian image")
def test_a_shell_that_learns_of_a_signal_and_of_its_commands_end_at_once_goes_on(start_in: StartIn) -> None:
    sandbox = start_in(docker_host.debian_image())
    first = sandbox.facts.identifier

    def hold() -> None:
        docker_host.kill(first, signal.SIGSTOP)
        eventually(lambda: not processes_naming(LONG))
        docker_host.kill(first, signal.SIGCONT)

    # The shell is held while it waits; what it holds then goes on together.
    script = f"until grep -q 'State:.T' /proc/1/status; do sleep 0.05; done; kill 1; exit 3; {LONG}"
    holder = when(lambda: processes_naming(LONG), hold)
    result = sandbox.exec(["sh", "-c", script], timeout=60)
    holder.join()
    assert result.exit_code == 3, result
    assert shell(sandbox, "echo next") == "next\n"


@pytest.mark.requires("debian image")
def test_no_signal_from_inside_ends_the_first_shell(start_in: StartIn) -> None:
    sandbox = start_in(docker_host.debian_image())
    # Bash catches more of them from the first time on that it has waited for a command that stands still.
    assert sandbox.exec(["sh", "-c", "kill -STOP $$"], timeout=1).timed_out
    script = "n=1; while [ $n -le 64 ]; do kill -$n 1; n=$((n + 1)); done; exit 5"
    assert sandbox.exec(["sh", "-c", script], timeout=60).exit_code == 5
    assert shell(sandbox, "echo next") == "next\n"


def test_what_the_lab_sends_is_not_taken_for_commands_when_nobody_reads_it(start_in: StartIn) -> None:
    sandbox = start_in()
    with pytest.raises(IsADirectoryError):
        sandbox.write("/bin", b"touch /tmp/taken\n" * 1000)
    assert shell(sandbox, "ls /tmp/taken 2>/dev/null || echo none") == "none\n"


def test_too_long_a_command_is_refused_and_nothing_is_sent(start_in: StartIn) -> None:
    sandbox = start_in()
    result = sandbox.exec(["echo", "x" * (docker_program.LONGEST_COMMAND + 1)], timeout=30)
    assert result.exit_code == 126
    assert "too long" in result.stderr.text()


FULL = "rm -rf /tmp && ln -s /dev/shm /tmp && ! dd if=/dev/zero of=/dev/shm/fill bs=1M 2>/dev/null"
NO_ROOM = {
    "a full disk": (FULL, "No space left on device"),
    "a file in the folder's place": ("rm -rf /tmp && touch /tmp", "Not a directory"),
}


@pytest.mark.parametrize(("script", "reason"), NO_ROOM.values(), ids=NO_ROOM.keys())
def test_input_for_which_there_is_no_room_fails_its_command_and_not_the_sandbox(
    start_in: StartIn, script: str, reason: str
) -> None:
    sandbox = start_in()
    shell(sandbox, script)
    result = sandbox.exec(["cat"], stdin=b"x" * 100_000, timeout=60)
    assert result.exit_code == 126
    assert reason in result.stderr.text()
    assert shell(sandbox, "echo well; ls -A /dev/shm | grep -c input || true") == "well\n0\n"
    shell(sandbox, "rm -rf /tmp /dev/shm/fill; mkdir /tmp")
    assert sandbox.exec(["cat"], stdin=b"again", timeout=60).stdout.head == b"again"


def test_a_container_made_and_not_started_is_reaped_by_its_label(start_in: StartIn, scratch: Path) -> None:
    sandbox = start_in()
    client = docker_client.connected()
    labels = docker_host.labels(sandbox.facts.identifier) or {}
    made = client.api.create_container(
        docker_host.busybox_image(), ["true"], labels={**labels, LABEL: "half", STARTER: "1:1:gone"}
    )
    asked: list[tuple[str, bool]] = []

    def note(label: str, starter_lives: bool) -> bool:
        asked.append((label, starter_lives))
        return not starter_lives

    assert DockerProvider().reap(scratch / "sandboxes", note) == ["half"]
    assert sorted(asked) == [("docker-own", True), ("half", False)]
    assert not docker_host.exists(made["Id"])
    assert DockerProvider().reap(scratch / "another", everything) == []


def test_use_is_read_from_the_control_group_or_else_asked_of_the_daemon(
    start_in: StartIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    near = start_in()
    assert near.usage().source.startswith("cgroup v")
    monkeypatch.setattr(docker_usage, "MOUNT", tmp_path)
    far = start_in()
    used = far.stop()
    assert used.source.startswith("docker stats")
    assert used.cpu_seconds is not None
    assert used.peak_memory_bytes is not None


def test_the_daemons_answer_under_version_2_has_no_peak_and_this_is_said() -> None:
    # Written by hand after the documentation of the daemon's API, not recorded: the machines that these tests
    # ran on until now have version 1.
    said = {
        "memory_stats": {"usage": 7_340_032, "limit": 2_147_483_648, "stats": {"anon": 90_112}},
        "cpu_stats": {"cpu_usage": {"total_usage": 35_117_000, "usage_in_usermode": 12_000_000}},
    }
    assert docker_usage.used_of(said) == (7_340_032, 0.035117, "docker stats, memory as last seen")
    assert docker_usage.used_of({})[:2] == (None, None)


def test_a_control_group_of_version_2_is_found_where_systemd_puts_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Files written by hand in the form the kernel documents, not copied from a machine with version 2.
    folder = tmp_path / "system.slice" / "docker-0123abcd.scope"
    folder.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (folder / "memory.peak").write_text("5242880\n")
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n")
    (folder / "cpu.stat").write_text("usage_usec 250000\nuser_usec 200000\nsystem_usec 50000\n")
    monkeypatch.setattr(docker_usage, "MOUNT", tmp_path)
    counters = docker_usage.Counters(docker_client.connected(), "0123abcd")
    assert counters.now() == (5_242_880, 0.25, "cgroup v2")


@pytest.mark.parametrize("shell_words", [["busybox", "sh"], ["dash"], ["bash"]], ids=" ".join)
def test_an_answer_that_waits_for_room_while_a_process_ends_is_told_all_the_same(
    shell_words: list[str],
) -> None:
    if shutil.which(shell_words[0]) is None:
        pytest.skip(f"missing: {shell_words[0]}")
    program = docker_program.shell_argv()[-1]
    with subprocess.Popen(
        [*shell_words, "-c", program, "lab"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as kept:
        assert kept.stdin is not None
        assert kept.stdout is not None
        # The pipe is full, so that the shell stands in the middle of its answer when its child ends.
        fill = "head -c 65536 /dev/zero | tr '\\0' x"
        kept.stdin.write(f"key\nkey {fill}; sleep 0.5 & lab_token=token; lab_say X\n")
        kept.stdin.close()
        time.sleep(1.5)
        assert kept.stdout.read() == "x" * 65536 + "\0token X\n"
