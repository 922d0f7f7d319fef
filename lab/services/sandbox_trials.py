"""A real sandbox, and what a command in it reaches and may use: tried, not believed."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes.base import Sandbox, SandboxFacts, SandboxLimits, SandboxProvider, SandboxSpec
from lab.services.findings import Finding

_MIB = 1024**2
_LIMITS = SandboxLimits(memory_bytes=64 * _MIB, processes=48)
_MEMORY_TRIED = 200_000_000
_PROCESSES_TRIED = 100
IS_ROOT = "is root"
HAS_CAPABILITIES = "has capabilities"
# CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID and SETUID: over the files and processes of its own sandbox.
_HARMLESS_CAPABILITIES = "0xeb"

# What is looked for stands in no argument and no variable of the shell's children: it would find itself.
_REACH = rf"""
read -r port; read -r canary; read -r data
while read -r home; do ls -A "$home" 2>/dev/null | grep -q . && echo "reads $home"; done
for file in secret_key lab.sqlite3; do
  head -c 1 "$data/$file" 2>/dev/null | grep -q . && echo "reads the lab's $file"
done
for file in /proc/[0-9]*/environ; do
  while IFS= read -r -d '' entry; do
    [ "$entry" = "LAB_CANARY=$canary" ] && echo "reads the lab's environment"
  done <"$file"
done 2>/dev/null
(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && echo "reaches this machine's network"
[ "$(id -u)" = 0 ] && echo "{IS_ROOT}"
while read -r name mask; do
  [ "$name" = CapEff: ] && (( 16#$mask )) && echo "{HAS_CAPABILITIES}"
  [ "$name" = CapEff: ] && (( 16#$mask & ~{_HARMLESS_CAPABILITIES} )) && echo "may do what root may"
done </proc/self/status
exit 0
"""
_USE_MEMORY = f"head -c {_MEMORY_TRIED} /dev/zero | tail -c {_MEMORY_TRIED} | wc -c"
_START_PROCESSES = (
    f"i=0; while [ $i -lt {_PROCESSES_TRIED} ]; do sleep 5 & i=$((i+1)); echo $i; done 2>/dev/null"
)


class Trial(NamedTuple):
    """What a command in a sandbox reaches that it should not, and which limits did not hold."""

    reaches: tuple[str, ...]
    unlimited: tuple[str, ...]
    facts: SandboxFacts


def try_sandbox(provider: SandboxProvider, *, image: str = "") -> Trial:
    """Start a real sandbox, of `image` if one is named, and let commands in it try what they must not do.

    Raises:
        SandboxLostError: it cannot be started, or broke.
        OSError: the data folder or a loopback port cannot be used.
    """
    spec = SandboxSpec(
        label=f"doctor-{os.getpid()}",
        scratch=Path(settings.LAB_DATA_DIR) / "sandboxes",
        limits=_LIMITS,
        image=image,
    )
    sandbox = provider.start(spec)
    try:
        # What lies in the home folders of an image is the image's.
        homes = [] if image else ["/root", str(Path.home())]
        return Trial(_reaches(sandbox, homes), _unlimited(sandbox), sandbox.facts)
    finally:
        sandbox.stop()


def _reaches(sandbox: Sandbox, homes: list[str]) -> tuple[str, ...]:
    canary = secrets.token_hex(16)
    with socket.create_server(("127.0.0.1", 0)) as server, _neighbour(canary):
        told = [str(server.getsockname()[1]), canary, str(settings.LAB_DATA_DIR), *dict.fromkeys(homes)]
        done = sandbox.exec(["bash", "-c", _REACH], timeout=20, stdin="\n".join([*told, ""]).encode())
    if done.exit_code != 0:
        said = " ".join(done.stderr.text().split())[-200:]
        raise SandboxLostError(f"what it reaches could not be tried, which takes bash in it ({said})")
    return tuple(dict.fromkeys(done.stdout.text().splitlines()))


def _unlimited(sandbox: Sandbox) -> tuple[str, ...]:
    found = []
    memory = sandbox.exec(["sh", "-c", _USE_MEMORY], timeout=20)
    if memory.stdout.text().strip() == str(_MEMORY_TRIED):
        found.append("memory")
    processes = sandbox.exec(["sh", "-c", _START_PROCESSES], timeout=5)
    if processes.stdout.text().split()[-1:] == [str(_PROCESSES_TRIED)]:
        found.append("the number of processes")
    return tuple(found)


@contextlib.contextmanager
def _neighbour(canary: str) -> Iterator[None]:
    """A process of the lab's user with something in its environment that no sandbox may see."""
    sleeping = subprocess.Popen(["sleep", "60"], env={**os.environ, "LAB_CANARY": canary})
    try:
        yield
    finally:
        sleeping.kill()
        sleeping.wait()


def with_limits(name: str, message: str, found: Trial) -> Finding:
    """A finding that says too whether the limits held."""
    if not found.unlimited:
        return Finding(name, "ok", f"{message}; limits on memory and processes hold")
    return Finding(
        name,
        "warning",
        f"{message}; but the limit on {' and on '.join(found.unlimited)} does not hold",
        "let this user write a control group: under systemd with Delegate=yes, in a container with "
        "/sys/fs/cgroup mounted for writing",
    )


def listed(what: tuple[str, ...]) -> str:
    """ "a, b and c"."""
    *all_but_last, last = what
    return f"{', '.join(all_but_last)} and {last}" if all_but_last else last
