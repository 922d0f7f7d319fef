"""What is done to a lab: at which point of which run, to which of its processes, once.

A test writes faults into the lab's data folder; the lab's processes, started with `tests.e2e.fault_settings`,
look there at each point they come to. A fault leaves a mark when it happens, so that it happens once, whoever
comes to the point again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Victim = Literal["here", "worker", "web", "tick", "up"]
Action = Literal["kill", "terminate", "stop", "delay", "database_error", "disk_full"]

# Kinds of events before and after whose commit something can happen.
COMMITS = (
    "attempt_started",
    "sandbox_started",
    "model_call_started",
    "model_call_finished",
    "tool_call_started",
    "tool_call_finished",
    "patch_captured",
    "verification_started",
    "verification_finished",
    "attempt_ended",
    "run_ended",
)
POINTS = (
    "claiming",  # within the claim's transaction
    "claimed",
    *(f"{side} {kind}" for kind in COMMITS for side in ("storing", "stored")),
    "making a sandbox",
    "sandbox half made",  # folders and control group are there, no process
    "sandbox made",  # not in the log yet
    "asking",  # in the middle of a model call, while the answer streams
    "running a command",
    "archiving",
    "archived",  # a change is kept as a blob, the event that names it is not stored
    "renewing",
    "settling",
    "settled",
    "ringing",
    "removing a sandbox",  # its processes are dead
    "sandbox half removed",  # its folder has another name
    "sandbox removed",
    "taking back",  # within the transaction that takes a run back from a worker that is gone
)
# The same of a sandbox in Docker: each is a request to the daemon that is made or was answered.
CONTAINER_POINTS = (
    "creating a container",
    "created a container",
    "starting a container",
    "started a container",
    "removing a container",
    "removed a container",
)


@dataclass(frozen=True)
class Fault:
    """One thing that happens once.

    `point` is one of POINTS or CONTAINER_POINTS. `run` and `step` None: any. `nth` counts how often a
    process came to the point with this run and step. `victim` "here" is the process that came there, "up"
    the one that started them all. `wait`: so many seconds later. `seconds` is how long a frozen process stays
    frozen, and a delayed one waits.
    """

    point: str
    victim: Victim = "here"
    action: Action = "kill"
    run: int | None = None
    step: int | None = None
    nth: int = 1
    wait: float = 0.0
    seconds: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        kind = self.point.partition(" ")[2]
        if self.point not in (*POINTS, *CONTAINER_POINTS) and not self.point.startswith(
            ("storing ", "stored ")
        ):
            raise ValueError(f"point: {self.point!r} is none of {', '.join(POINTS)} ({kind})")

    def __str__(self) -> str:
        where = f"{self.point}{f' of step {self.step}' if self.step else ''}"
        later = f" +{self.wait * 1000:.0f} ms" if self.wait else ""
        return f"{self.action} {self.victim} at {where}{later}"


class FaultFolder:
    """The part of a lab's data folder in which faults are told, and where they leave their marks."""

    def __init__(self, data_folder: Path) -> None:
        self._folder = data_folder / "faults"
        self._appends = self._folder / "appends.jsonl"
        self._told: list[Fault] = []
        self._told_at = 0.0

    def tell(self, faults: Iterable[Fault]) -> None:
        """Add faults to those that were told before."""
        self._folder.mkdir(exist_ok=True)
        every = [*self.told(), *faults]
        beside = self._folder / f"told-{os.getpid()}"
        beside.write_text(json.dumps([asdict(fault) for fault in every]))
        beside.replace(self._folder / "told.json")

    def told(self) -> list[Fault]:
        """All faults, read again when they have changed."""
        file = self._folder / "told.json"
        try:
            changed = file.stat().st_mtime_ns
        except FileNotFoundError:
            return []
        if changed != self._told_at:
            self._told_at = changed
            self._told = [Fault(**fields) for fields in json.loads(file.read_text())]
        return self._told

    def mark(self, fault: Fault, process: str) -> bool:
        """Whether this process is the one for which the fault happens."""
        try:
            with (self._folder / f"{fault.name}.happened").open("x") as file:
                file.write(f"{process} {time.time()}")
        except FileExistsError:
            return False
        return True

    def has_happened(self, fault: Fault) -> bool:
        return (self._folder / f"{fault.name}.happened").exists()

    def happened(self) -> set[str]:
        """The names of the faults that have happened."""
        return {file.stem for file in self._folder.glob("*.happened")}

    def register(self, kind: str) -> None:
        """Note the number of this process, for others that are to kill it."""
        self._folder.mkdir(exist_ok=True)
        (self._folder / f"{kind}.pid").write_text(str(os.getpid()))

    def pid(self, kind: str) -> int:
        """The number of the process of this kind that was started last."""
        return int((self._folder / f"{kind}.pid").read_text())

    def note_append(self, **what: Any) -> None:
        """Note what was appended under which lease: the log itself does not say."""
        with self._appends.open("a") as file:
            file.write(json.dumps(what) + "\n")

    def note_container(self, identifier: str) -> None:
        """Note what the daemon has made, before anybody else knows of it."""
        with (self._folder / "containers").open("a") as file:
            file.write(identifier + "\n")

    def containers(self) -> list[str]:
        """All that were noted, removed ones too."""
        noted = self._folder / "containers"
        return noted.read_text().split() if noted.exists() else []

    def appends(self, run: int) -> list[dict[str, Any]]:
        """What was noted about a run, in the order of the log."""
        if not self._appends.exists():
            return []
        noted = [json.loads(line) for line in self._appends.read_text().splitlines()]
        return sorted((one for one in noted if one["run"] == run), key=lambda one: int(one["last"]))


class Process:
    """This process of the lab: it comes to points, and things happen to it or to others."""

    def __init__(self, kind: str, folder: FaultFolder) -> None:
        self.kind = kind
        self.folder = folder
        self._started_as = os.getpid()
        # Points are reached by several threads of a process.
        self._lock = threading.Lock()
        self._times: Counter[tuple[int, str, int | None, int | None]] = Counter()

    @property
    def role(self) -> str:
        """`kind`, or "child" in what a worker has forked."""
        return "child" if self.kind == "worker" and os.getpid() != self._started_as else self.kind

    def come_to(self, point: str, *, run: int | None = None, steps: Sequence[int | None] = (None,)) -> None:
        """Let happen what was told for this point. May not return."""
        faults = [fault for fault in self.folder.told() if fault.point == point]
        for step in dict.fromkeys((*steps, None)):
            here = [fault for fault in faults if fault.step == step and fault.run in (None, run)]
            with self._lock:
                self._times[os.getpid(), point, run, step] += 1
                times = self._times[os.getpid(), point, run, step]
            for fault in here:
                if times >= fault.nth and not self.folder.has_happened(fault):
                    self._happen(fault)

    def _happen(self, fault: Fault) -> None:
        if fault.wait:
            timer = threading.Timer(fault.wait, self._act, (fault,))
            timer.daemon = True
            timer.start()
        else:
            self._act(fault)

    def _act(self, fault: Fault) -> None:
        if not self.folder.mark(fault, f"{self.role} {os.getpid()}"):
            return
        if fault.action == "delay":
            time.sleep(fault.seconds)
        elif fault.action == "database_error":
            from django.db import OperationalError

            raise OperationalError("the server closed the connection unexpectedly")
        elif fault.action == "disk_full":
            raise OSError(28, "No space left on device")
        else:
            self._signal(fault)

    def _signal(self, fault: Fault) -> None:
        pid = self._pid_of(fault.victim)
        if fault.action == "stop":
            wake = ["/bin/sh", "-c", f"sleep {fault.seconds}; kill -CONT {pid}"]
            subprocess.Popen(wake, start_new_session=True, env={}, stdout=subprocess.DEVNULL)
            os.kill(pid, signal.SIGSTOP)
            return
        # One that is being started again has another number by now.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM if fault.action == "terminate" else signal.SIGKILL)
        if fault.action == "kill" and fault.victim in ("here", "worker", "up"):
            # What it started dies with it, this process too, a moment later.
            time.sleep(10)

    def _pid_of(self, victim: Victim) -> int:
        if victim == "here":
            return os.getpid()
        if victim == "worker" and self.role == "child":
            return os.getppid()
        return self.folder.pid(victim)


def kind_of_this_process() -> str:
    """worker, web, tick, up or other, by the command line."""
    program = " ".join(sys.argv[:1])
    if "celery" in program:
        return "worker"
    if "uvicorn" in program:
        return "web"
    return next((word for word in sys.argv[1:2] if word in ("tick", "up")), "other")
