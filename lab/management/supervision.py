"""Keeps a few processes running: starts them, restarts the ones that die, stops all of them, leaves none."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from django.core.management.base import CommandError

from lab.services.processes import die_with_parent

# A process that ran this long was well; the next restart waits as short as the first.
WELL_AFTER_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 30.0
# Long enough for a response that is being written.
ANSWER_SECONDS = 0.4


class Child:
    """One process in a session of its own, so that a signal reaches all it started, and Ctrl-C none."""

    def __init__(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._argv, self._environment = list(argv), dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._pause = 0.5
        self.started_at = 0.0
        self.restart_at: float | None = None

    def start(self) -> None:
        self.restart_at = None
        self.started_at = time.monotonic()
        self._process = subprocess.Popen(
            self._argv,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            # Should `up` be killed outright, nothing may stay behind.
            preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has one thread
        )

    def ended(self) -> int | None:
        """The exit code once the process has ended, else None."""
        return None if self._process is None else self._process.poll()

    def plan_restart(self) -> float:
        """Note when to start again; returns the pause in seconds. It doubles while it keeps dying."""
        if time.monotonic() - self.started_at > WELL_AFTER_SECONDS:
            self._pause = 0.5
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        self.restart_at = time.monotonic() + pause
        return pause

    def signal_group(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def ask_to_stop(self) -> None:
        """Tell the process itself; it tells what it started."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None


class Supervisor:
    """Runs children until told to stop. `say` gets one line for each thing a person should know."""

    def __init__(self, children: Sequence[Child], *, say: Callable[[str], None]) -> None:
        self._children = list(children)
        self._say = say

    def start(self, *names: str) -> None:
        """Start the children of these names, without a name all that were not started yet."""
        for child in self._children:
            if child.ended() is None and not child.is_running() and (not names or child.name in names):
                child.start()

    def look(self) -> None:
        """Restart what has died."""
        for child in self._children:
            code = child.ended()
            if code is None:
                continue
            if child.restart_at is None:
                # Its pool children are part of the group and would go on without a parent.
                child.signal_group(signal.SIGKILL)
                pause = child.plan_restart()
                self._say(f"{child.name} ended ({_how(code)}); it starts again in {pause:g} s")
            elif time.monotonic() >= child.restart_at:
                child.start()

    def stop(self, *, grace_seconds: float, settled: Callable[[], bool]) -> None:
        """Ask every process to stop, kill what is left; returns when nothing is left.

        They get the whole grace only while `settled` says False: an idle Celery worker takes six seconds to
        end by itself, and has nothing to lose.
        """
        for child in self._children:
            child.ask_to_stop()
        asked = time.monotonic()
        while self._any_running() and time.monotonic() - asked < grace_seconds:
            if time.monotonic() - asked > ANSWER_SECONDS and settled():
                break
            time.sleep(0.05)
        # What they started dies with them; it is somebody else's to reap, so that only they are waited for.
        for child in self._children:
            child.signal_group(signal.SIGKILL)
        killed = time.monotonic()
        while self._any_running() and time.monotonic() - killed < grace_seconds:
            time.sleep(0.02)

    def _any_running(self) -> bool:
        return any(child.is_running() for child in self._children)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


@contextlib.contextmanager
def only_one_lab(folder: Path) -> Iterator[None]:
    """Hold the data folder: a second lab would remove the first one's sandboxes when it stops.

    The kernel drops the lock when this process dies, however that happens.

    Raises:
        CommandError: another lab holds it.
    """
    with (folder / "up.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise CommandError(
                f"LAB_DATA_DIR: {folder} is in use by another lab (process {file.read() or 'unknown'}); "
                "stop that one, or choose another folder: LAB_DATA_DIR=/path/to/folder"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
