"""Keeps the control shell of a plain process sandbox; a script of its own, standard library only.

It adopts every orphan of the sandbox, starts the control shell again when something killed it, and kills all
when the lab's process is gone. argv[1] is JSON: parent, uid (null: keep), shell, program, status.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_RESTARTS = 200

_libc = ctypes.CDLL(None, use_errno=True)


def fork() -> int:
    """As os.fork, but where commands hold every process there may be, it waits until the lab ends them."""
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            time.sleep(0.02)


def start_shell(config: dict[str, object]) -> int:
    pid = fork()
    if pid:
        return pid
    try:
        os.setsid()
        uid = config["uid"]
        if isinstance(uid, int):
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # The interpreter ignores these two, and what is ignored stays so in every command.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        words = ["bash", "--norc", "--noprofile", "-c", str(config["program"]), "control"]
        os.execve(str(config["shell"]), words, {})  # noqa: S606
    finally:
        os._exit(127)


def children() -> list[int]:
    """The processes whose parent this is: orphans of the sandbox end up here."""
    own = os.getpid()
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    text = file.read()
            except OSError:
                continue
            if int(text[text.rindex(b")") + 2 :].split()[1]) == own:
                found.append(int(name))
    return found


def kill_all(*_: object) -> None:
    """Kill children until none is left: the children of a killed one become the next round's."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break
        time.sleep(0.001)
    os._exit(0)


def main() -> None:
    config = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, kill_all)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != config["parent"]:
        return
    for _ in range(_RESTARTS):
        shell = start_shell(config)
        while os.waitpid(-1, 0)[0] != shell:
            pass
        os.write(config["status"], b"X\n")
        time.sleep(0.01)
    kill_all()


if __name__ == "__main__":
    main()
