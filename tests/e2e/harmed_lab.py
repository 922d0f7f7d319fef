"""A whole lab whose processes come to points at which faults happen, and what it may not leave behind."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.e2e.faults import Fault, FaultFolder
from tests.e2e.stories import Story, read_stories
from tests.lanes import users
from tests.whole_lab import WholeLab, commands

LEASE_SECONDS = "3"
# When a worker that does not answer has certainly lost its lease: that ran out, was doubted for a while, and
# the tick has looked.
TAKEN_AFTER_SECONDS = 9.0
_LAUNCH = """
from tests.e2e.inside import launch
folder, told, ring = arguments
print(json.dumps(launch(folder, told, ring=ring)))
"""
_LEFT_SECONDS = 150.0
_IDENTIFIER = re.compile(r"""['"]identifier['"]: ['"]([\w-]+)['"]""")


class HarmedLab(WholeLab):
    """A lab with short leases, in which what was told happens."""

    def __init__(self, **settings: str) -> None:
        # Of the user that commands run as. One lab at a time has it, so that its processes are told by it.
        self.uid = secrets.choice(users())
        super().__init__(
            **{
                "DJANGO_SETTINGS_MODULE": "tests.e2e.fault_settings",
                "LAB_LEASE_SECONDS": LEASE_SECONDS,
                "LAB_SANDBOX_UID": str(self.uid),
                **settings,
            }
        )
        self.faults = FaultFolder(self.data_folder)

    def __enter__(self) -> HarmedLab:
        super().__enter__()
        return self

    def launch(self, told: Sequence[Sequence[Fault]], *, ring: int | None = None) -> list[int]:
        """Launch one twenty-step run for each list of faults; returns their numbers."""
        launched: list[int] = self.program(
            _LAUNCH, str(self.data_folder), [[asdict(fault) for fault in faults] for faults in told], ring
        )
        return launched

    def run(self, told: Sequence[Sequence[Fault]], *, seconds: float) -> list[Story]:
        """Launch, wait for the end of all, and tell what became of them."""
        runs = self.launch(told)
        self.wait_until_ended(runs, seconds=seconds)
        return self.stories(runs)

    def stories(self, runs: Sequence[int]) -> list[Story]:
        return read_stories(self, runs)

    def wait_until_ended(self, runs: Sequence[int], *, seconds: float) -> None:
        """Wait; should `manage.py up` itself have been ended, it is started again, as a person would.

        Raises:
            TimeoutError: names the runs that have not ended, and what they came to.
        """
        marks = ",".join("?" for _ in runs)
        sql = f"SELECT id, status, last_seq FROM lab_run WHERE status <> 'ended' AND id IN ({marks})"  # noqa: S608
        until = time.monotonic() + seconds
        while going_on := self.query(sql, *runs):
            if self.has_ended():
                self.start()
            if time.monotonic() > until:
                raise TimeoutError(f"{seconds:.0f} s and no end of {going_on}\n{self.output[-4000:]}")
            time.sleep(0.25)

    def not_happened(self, runs: Sequence[int], told: Sequence[Sequence[Fault]]) -> list[str]:
        """Faults that were told and did not happen: their point was never reached, and nothing was tested."""
        happened = self.faults.happened()
        return [
            f"run {run}: {fault}"
            for run, faults in zip(runs, told, strict=True)
            for number, fault in enumerate(faults)
            if f"{run}-{number}" not in happened
        ]

    def leftovers(self, *, within: float = _LEFT_SECONDS) -> list[str]:
        """What is still there of runs that have all ended, after at most `within` seconds.

        A file that a killed process was writing belongs to no run; the lab removes it after an hour.
        """
        until = time.monotonic() + within
        while (found := self._leftovers()) and time.monotonic() < until:
            time.sleep(0.25)
        return found

    def _leftovers(self) -> list[str]:
        return [
            *(f"sandbox {path.name}" for path in (self.data_folder / "sandboxes").glob("*")),
            *(f"process {one}" for one in processes_of_user(self.uid)),
            *(f"control group {path}" for path in self._control_groups()),
            *(
                f"a lease of run {run}"
                for (run,) in self.query("SELECT run_id FROM lab_attempt WHERE lease_until IS NOT NULL")
            ),
            *(f"a draft of run {run}" for (run,) in self.query("SELECT run_id FROM lab_draft")),
        ]

    def _control_groups(self) -> list[Path]:
        """Groups of this lab's sandboxes; found by the names that its log gives."""
        rows = self.query("SELECT payload FROM lab_event WHERE kind = 'sandbox_started'")
        names = {_IDENTIFIER.search(str(payload)) for (payload,) in rows}
        ours = {found[1] for found in names if found}
        mount = Path("/sys/fs/cgroup")
        parents = [path for depth in ("lab", "*/lab", "*/*/lab") for path in mount.glob(depth)]
        return [path for parent in parents for path in parent.glob("*-run-*") if path.name in ours]


def processes_of_user(uid: int) -> list[str]:
    """Number and command line of all processes that run as this user."""
    found = []
    for pid, command in commands().items():
        try:
            owner = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
        except OSError:
            continue
        if owner == uid:
            found.append(f"{pid} {command}")
    return found


def processes_of_lab(lab: WholeLab) -> list[str]:
    """Processes that belong to this lab: by its folder, or by the variable that names it."""
    found = []
    for pid, command in commands().items():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            environment = b""
        if str(lab.data_folder) in command or f"LAB_DATA_DIR={lab.data_folder}".encode() in environment:
            found.append(f"{pid} {command}")
    return found
