"""Starts the first process of a sandbox so that it dies with this process, not with one of its threads."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.engine.errors import InvalidValueError

# Never handed out by Debian or systemd, so that no other program runs under it.
DEFAULT_UID = 65_530
_SHELL_COPY = "shell"

# The parent-death signal is sent when the *thread* that started a process ends. Threads of runs come and go,
# this one stays. Keyed by process: a forked child must not use its parent's.
_threads: dict[int, ThreadPoolExecutor] = {}


def launch(argv: Sequence[str], *, inherited: Sequence[int], log: Path) -> subprocess.Popen[bytes]:
    """Start a program with nothing but PATH, its own session and some descriptors; errors go to `log`.

    Raises:
        OSError: the program does not exist or cannot be started.
    """

    def start() -> subprocess.Popen[bytes]:
        with log.open("wb") as errors:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=inherited,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
                start_new_session=True,
                cwd="/",
            )

    own = os.getpid()
    if own not in _threads:
        _threads[own] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-launch")
    return _threads[own].submit(start).result()


def sandbox_owner(uid: int | None) -> int | None:
    """The uid commands are to run as, or None for the lab's own: only root may choose another.

    Raises:
        InvalidValueError: root was asked for.
    """
    if uid == 0:
        raise InvalidValueError(
            "LAB_SANDBOX_UID", uid, f"is root; name an unprivileged uid such as {DEFAULT_UID}"
        )
    if os.geteuid() != 0:
        return None
    return DEFAULT_UID if uid is None else uid


def copy_shell(control: Path) -> Path:
    """A bash nobody may read, only execute.

    The kernel lets no process of the same user look into one that was started from an unreadable file: the
    control shell's descriptors and memory stay closed to the commands it starts.

    Raises:
        OSError: there is no bash, or it cannot be copied.
    """
    bash = shutil.which("bash", path="/usr/local/bin:/usr/bin:/bin")
    if bash is None:
        raise FileNotFoundError("bash is not installed: run `apt-get install bash`")
    copy = control / _SHELL_COPY
    shutil.copyfile(bash, copy)
    copy.chmod(0o111)
    return copy
