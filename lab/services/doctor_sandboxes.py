"""Which sandboxes work on this machine, and what a command in them really reaches: tried, not believed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

from lab.engine.errors import InvalidValueError, LabError
from lab.engine.registry import PROVIDERS
from lab.engine.sandboxes.base import Sandbox, SandboxLimits, SandboxProvider, SandboxSpec
from lab.services import isolation
from lab.services.findings import Finding, State

_MIB = 1024**2
_LIMITS = SandboxLimits(memory_bytes=64 * _MIB, processes=48)
_MEMORY_TRIED = 200_000_000
_PROCESSES_TRIED = 100
_ANSWER_SECONDS = 5.0

# What is looked for stands in no argument and no variable of the shell's children: it would find itself.
_REACH = r"""
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
[ "$(id -u)" = 0 ] && echo "is root"
grep -q '^CapEff:.*[1-9a-f]' /proc/self/status 2>/dev/null && echo "has capabilities"
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


def examine() -> list[Finding]:
    """Every kind of sandbox: whether it works, how much it isolates, how to get it."""
    return [check_bubblewrap(), check_plain_process(), check_docker(), check_kubernetes()]


def check_bubblewrap() -> Finding:
    """Tried as runs would use it: with the user id of the settings."""
    try:
        provider = isolation.provider(isolation.ISOLATED)
        reason = provider.available()
    except InvalidValueError as error:
        return Finding("bubblewrap", "problem", str(error), "use LAB_SANDBOX_UID=65534, or leave it unset")
    if reason:
        return Finding(
            "bubblewrap",
            "warning",
            reason,
            "until then scripted models on practice tasks run without isolation; the rest waits for "
            "bubblewrap, or for an admin who allows runs without isolation",
        )
    if settings.LAB_SANDBOX == isolation.PLAIN:
        message = "bubblewrap works here, but LAB_SANDBOX=process makes runs go without isolation"
        return Finding("bubblewrap", "warning", message, "unset LAB_SANDBOX")
    try:
        found = try_sandbox(provider)
    except (LabError, OSError) as error:
        return Finding("bubblewrap", "problem", f"no sandbox can be started: {error}", _MEND_FOLDER)
    if found.reaches:
        return Finding(
            "bubblewrap",
            "problem",
            f"it isolates less than it should: a command in it {_listed(found.reaches)}",
            "run only models whose commands you trust until a newer bubblewrap or kernel is there",
        )
    isolated = (
        "isolated: a command in it read no home folder, nothing of the lab's data and no other process's "
        "environment, reached no network, and is neither root nor has capabilities"
    )
    return _with_limits("bubblewrap", isolated, found)


def check_plain_process() -> Finding:
    """What commands get where nothing isolates them."""
    name = "plain process"
    used = settings.LAB_SANDBOX == isolation.PLAIN
    try:
        found = try_sandbox(isolation.provider(isolation.PLAIN))
    except (LabError, OSError) as error:
        state: State = "problem" if used else "warning"
        return Finding(name, state, f"it cannot be started: {error}", _MEND_FOLDER)
    reach = _listed(found.reaches) if found.reaches else "reached nothing that was tried"
    message = f"works, and is not isolated: a command in it {reach}"
    if not used:
        return Finding(
            name, "ok", f"{message}; used only where the lab's own commands run or an admin agreed"
        )
    return Finding(name, "warning", message, "apt-get install bubblewrap and unset LAB_SANDBOX")


def check_docker() -> Finding:
    path = shutil.which("docker")
    if path is None:
        return Finding("docker", "absent", "not installed", "apt-get install docker.io")
    answer, trouble = _asked([path, "version", "--format", "{{.Server.Version}}"])
    if trouble:
        return Finding(
            "docker",
            "absent",
            f"installed, and its daemon does not answer: {trouble}",
            "systemctl start docker, and let this user be in the group docker",
        )
    return Finding("docker", "ok", f"Docker {answer} answers{_used_by_the_lab('docker')}")


def check_kubernetes() -> Finding:
    path = shutil.which("kubectl")
    if path is None:
        remedy = "apt-get install kubernetes-client, and let KUBECONFIG name a cluster's file"
        return Finding("kubernetes", "absent", "kubectl is not installed", remedy)
    _, trouble = _asked([path, "get", "--raw", "/version", "--request-timeout=3s"])
    if trouble:
        remedy = "let KUBECONFIG name the file of a cluster that can be reached"
        return Finding("kubernetes", "absent", f"kubectl reaches no cluster: {trouble}", remedy)
    return Finding("kubernetes", "ok", f"a cluster answers{_used_by_the_lab('kubernetes')}")


def try_sandbox(provider: SandboxProvider) -> Trial:
    """Start a real sandbox and let commands in it try what they must not be able to do.

    Raises:
        SandboxLostError: it cannot be started, or broke.
        OSError: the data folder or a loopback port cannot be used.
    """
    spec = SandboxSpec(
        label=f"doctor-{os.getpid()}",
        scratch=Path(settings.LAB_DATA_DIR) / "sandboxes",
        limits=_LIMITS,
    )
    sandbox = provider.start(spec)
    try:
        return Trial(_reaches(sandbox), _unlimited(sandbox))
    finally:
        sandbox.stop()


_MEND_FOLDER = "let this user write to LAB_DATA_DIR/sandboxes, on a disk with space"


def _reaches(sandbox: Sandbox) -> tuple[str, ...]:
    canary = secrets.token_hex(16)
    homes = dict.fromkeys(["/root", str(Path.home())])
    with socket.create_server(("127.0.0.1", 0)) as server, _neighbour(canary):
        told = [str(server.getsockname()[1]), canary, str(settings.LAB_DATA_DIR), *homes]
        done = sandbox.exec(["bash", "-c", _REACH], timeout=20, stdin="\n".join([*told, ""]).encode())
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


def _with_limits(name: str, message: str, found: Trial) -> Finding:
    if not found.unlimited:
        return Finding(name, "ok", f"{message}; limits on memory and processes hold")
    return Finding(
        name,
        "warning",
        f"{message}; but the limit on {' and on '.join(found.unlimited)} does not hold",
        "let this user write a control group: under systemd with Delegate=yes, in a container with "
        "/sys/fs/cgroup mounted for writing",
    )


def _asked(command: list[str]) -> tuple[str, str]:
    """What a program answers, or why it does not, in one line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    trouble = "" if done.returncode == 0 else (lines or [f"exit code {done.returncode}"])[-1][:200]
    return done.stdout.strip(), trouble


def _used_by_the_lab(kind: str) -> str:
    return "" if kind in PROVIDERS else "; this release starts no sandboxes in it"


def _listed(what: tuple[str, ...]) -> str:
    *all_but_last, last = what
    return f"{', '.join(all_but_last)} and {last}" if all_but_last else last
