"""Starting, stopping, being reaped: nothing remains, nothing hangs. The same for every kind of sandbox."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from docker.constants import DEFAULT_NUM_POOLS

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.base import Sandbox, SandboxLimits, SandboxProvider
from tests.conftest import whats_missing
from tests.engine.sandboxes.conftest import MakeSpec, Start, eventually, everything, processes_naming, shell
from tests.engine.sandboxes.places import PLACES, Place, groups_of, identifiers_of, left_of
from tests.timing import odd_seconds, sleeping, when

LONG = odd_seconds(6)
CALLS: dict[str, Callable[[Sandbox], object]] = {
    "exec": lambda sandbox: sandbox.exec(["sleep", LONG], timeout=120),
    "read": lambda sandbox: sandbox.read("file"),
    "write": lambda sandbox: sandbox.write("file", b"x"),
}
DAEMON = f"(setsid sleep {LONG} >/dev/null 2>&1 &)"


def test_its_facts_say_what_it_is(place: Place, start: Start) -> None:
    limits = SandboxLimits(memory_bytes=512 * 1024**2, processes=99)
    facts = start(limits=limits).facts
    assert (facts.kind, bool(facts.isolation), bool(facts.identifier)) == (place.kind, True, True)
    assert facts.workspace.startswith("/")
    assert facts.network == ("no network" in place.not_held)
    assert facts.notes


def test_its_facts_say_of_each_limit_that_it_holds_or_that_it_is_none(start: Start) -> None:
    asked = SandboxLimits(memory_bytes=512 * 1024**2, processes=99, cpu_cores=1.5, disk_bytes=10**9)
    facts = start(limits=asked).facts
    assert facts.limits is not None
    notes = " ".join(facts.notes)
    assert facts.limits.memory_bytes == (None if "limit on memory is not" in notes else 512 * 1024**2)
    assert facts.limits.processes == (None if "limit on number of processes is not" in notes else 99)
    assert facts.limits.cpu_cores == (None if "limit on CPU is not" in notes else 1.5)
    assert facts.limits.disk_bytes == (None if "Disk space is not limited" in notes else 10**9)


def test_the_provider_says_where_the_workspace_will_be(
    provider: SandboxProvider, make_spec: MakeSpec, start: Start
) -> None:
    told = provider.workspace(make_spec(workspace="/deep/er/workspace"))
    found = shell(start(workspace="/deep/er/workspace"), "pwd").strip()
    assert told in (".", found)


def test_preparing_what_is_there_is_quick_and_says_what_it_is(
    provider: SandboxProvider, make_spec: MakeSpec, start: Start
) -> None:
    spec = make_spec()
    told: list[str] = []
    image = provider.prepare(spec, progress=lambda text, done, whole: told.append(text))
    assert told == []
    assert start().facts.image == image


def test_stop_leaves_no_process_no_folder_no_container_and_no_group(start: Start, scratch: Path) -> None:
    sandbox = start()
    shell(sandbox, DAEMON)
    assert eventually(lambda: len(sleeping(LONG)) == 1)
    assert left_of(sandbox) != []
    sandbox.stop()
    assert processes_naming(LONG) == []
    assert processes_naming(sandbox.facts.identifier) == []
    assert left_of(sandbox) == []
    assert list(scratch.iterdir()) == []


def test_stopping_again_and_from_many_threads_is_harmless(start: Start) -> None:
    sandbox = start()
    threads = [threading.Thread(target=sandbox.stop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sandbox.stop() == sandbox.usage()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_every_call_after_stop_says_the_sandbox_is_lost(
    sandbox: Sandbox, call: Callable[[Sandbox], object]
) -> None:
    sandbox.stop()
    for _ in range(2):
        with pytest.raises(SandboxLostError, match="stopped"):
            call(sandbox)


def test_stop_from_another_thread_ends_a_running_command(sandbox: Sandbox) -> None:
    stopping = when(lambda: sleeping(LONG), sandbox.stop)
    with pytest.raises(SandboxLostError):
        sandbox.exec(["sleep", LONG], timeout=150)
    stopping.join(60)
    assert not stopping.is_alive()
    assert processes_naming(LONG) == []


def test_sandboxes_do_not_disturb_each_other(start: Start) -> None:
    one, two = start(label="one"), start(label="two")
    one.write("file", b"1")
    two.write("file", b"2")
    assert one.exec(["sleep", "100"], timeout=0.3).timed_out
    assert (one.read("file"), two.read("file")) == (b"1", b"2")
    one.stop()
    assert two.exec(["cat", "file"], timeout=30).stdout.head == b"2"


def test_a_sandbox_outlives_the_thread_that_started_it(start: Start) -> None:
    started: list[Sandbox] = []
    thread = threading.Thread(target=lambda: started.append(start()))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert started[0].exec(["echo", "alive"], timeout=30).stdout.head == b"alive\n"


OWNER = """
    import sys
    from pathlib import Path
    from lab.engine import registry
    from lab.engine.sandboxes.base import SandboxSpec
    kind, folder, image = sys.argv[1:]
    spec = SandboxSpec(label=Path(folder).name, scratch=Path(folder), image=image)
    sandbox = registry.provider(kind).start(spec)
    sandbox.exec(["sh", "-c", "(setsid sleep %(long)s >/dev/null 2>&1 &)"], timeout=30)
    print(sandbox.facts.identifier, flush=True)
    sandbox.exec(["sh", "-c", "setsid sleep %(long)s & trap '' TERM HUP; sleep %(long)s; true"], timeout=600)
"""


def never(label: str, starter_lives: bool) -> bool:
    return False


def of_the_dead(label: str, starter_lives: bool) -> bool:
    return not starter_lives


def test_nothing_is_left_when_its_owner_is_killed(
    place: Place, provider: SandboxProvider, scratch: Path
) -> None:
    run = f"run-{os.getpid()}"

    def those_left() -> list[str]:
        return [run] if identifiers_of(place.kind, run, scratch) else []

    code, folder = textwrap.dedent(OWNER) % {"long": LONG}, scratch / run
    image = place.fields().get("image", "")
    owner = subprocess.Popen(
        [sys.executable, "-c", code, place.kind, str(folder), image], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    identifier = owner.stdout.readline().strip()
    assert eventually(lambda: len(sleeping(LONG)) == 3)
    assert provider.reap(scratch, of_the_dead) == []
    owner.kill()
    owner.communicate()
    assert eventually(lambda: not processes_naming(LONG)), "commands outlived the lab"
    assert eventually(lambda: not processes_naming(identifier)), "the sandbox outlived the lab"
    assert provider.reap(scratch, never) == []
    assert provider.reap(scratch, lambda label, starter_lives: starter_lives) == []
    assert provider.reap(scratch, lambda label, starter_lives: label == "another") == []
    # A container may go by itself, a moment after its owner.
    left = those_left()
    removed = provider.reap(scratch, lambda label, lives: label == run and not lives)
    assert removed in (left, [])
    assert eventually(lambda: those_left() == [])
    assert eventually(lambda: not processes_naming(LONG))
    assert not processes_naming(identifier)
    assert list(scratch.iterdir()) == []
    assert groups_of(identifier) == []
    assert provider.reap(scratch, everything) == []


def test_the_reaper_kills_what_still_runs_and_leaves_other_kinds_and_other_folders_alone(
    place: Place, provider: SandboxProvider, start: Start, scratch: Path
) -> None:
    sandbox = start(label="run 9")
    shell(sandbox, DAEMON)
    for other in {other.kind: other for other in PLACES if other.kind != place.kind}.values():
        if not any(whats_missing(need) for need in other.needs):
            assert other.provider().reap(scratch, everything) == []
    elsewhere = scratch / "elsewhere"
    elsewhere.mkdir()
    assert provider.reap(elsewhere, everything) == []
    elsewhere.rmdir()
    assert shell(sandbox, "echo alive") == "alive\n"
    assert provider.reap(scratch, everything) == ["run 9"]
    assert processes_naming(LONG) == []
    with pytest.raises(SandboxLostError):
        sandbox.exec(["true"], timeout=10)
    sandbox.stop()


def test_two_reapers_and_the_owner_at_once_remove_each_sandbox_once(
    provider: SandboxProvider, start: Start, scratch: Path
) -> None:
    sandboxes = [start(label=f"run-{number}") for number in range(3)]
    removed: list[str] = []
    work: list[Callable[[], object]] = [
        lambda: removed.extend(provider.reap(scratch, everything)),
        lambda: removed.extend(provider.reap(scratch, everything)),
        *(sandbox.stop for sandbox in sandboxes),
    ]
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive()
    assert set(removed) <= {"run-0", "run-1", "run-2"}
    assert [left for sandbox in sandboxes for left in left_of(sandbox)] == []


def test_a_hundred_commands_leak_no_descriptor_and_no_thread(sandbox: Sandbox) -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    sandbox.exec(["true"], timeout=30, stdin=b"x")
    sandbox.exec(["sleep", "9"], timeout=0.01)
    before, threads = opened(), threading.active_count()
    for _ in range(50):
        sandbox.exec(["true"], timeout=30, stdin=b"x")
        sandbox.exec(["sleep", "9"], timeout=0.01)
    # The SDK keeps a connection for each of the addresses it asked last, and a container has its own.
    kept = DEFAULT_NUM_POOLS if sandbox.facts.kind == "docker" else 0
    # Fewer is fine: what earlier tests left behind may be collected meanwhile.
    assert eventually(lambda: opened() <= before + kept and threading.active_count() <= threads)
