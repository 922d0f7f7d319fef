"""Plain processes in a folder of their own: no isolation, works everywhere, and says so."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes import cgroup, supervisor
from lab.engine.sandboxes.base import IsOrphan, Progress, SandboxFacts, SandboxSpec
from lab.engine.sandboxes.folders import (
    SandboxFolders,
    create_folders,
    reap,
    search_path,
    write_profile,
)
from lab.engine.sandboxes.kept_shell import KeptShell
from lab.engine.sandboxes.launching import copy_shell, launch, sandbox_owner
from lab.engine.sandboxes.local import LocalSandbox, Parts, lost
from lab.engine.sandboxes.processes import send
from lab.engine.sandboxes.shell_program import unexportable
from lab.engine.stop import StopSignal

_NOT_ISOLATED = (
    "Not isolated: commands see the machine's files, processes and network; file modes alone hold them back."
)


class ProcessProvider:
    """Starts sandboxes of kind "process". If the lab is root, commands run as `uid` where possible."""

    kind = "process"

    def __init__(self, uid: int | None = None) -> None:
        self._owner = sandbox_owner(uid)

    def available(self) -> str | None:
        if shutil.which("bash") is None:
            return "bash is not installed; run `apt-get install bash`"
        return None

    def workspace(self, spec: SandboxSpec) -> str:
        return "."

    def prepare(
        self, spec: SandboxSpec, *, progress: Progress | None = None, stop: StopSignal | None = None
    ) -> None:
        return None

    def start(self, spec: SandboxSpec) -> LocalSandbox:
        owner, notes = self._choose_owner(spec)
        try:
            folders = create_folders(spec, self.kind, owner=owner, passable=True)
        except OSError as error:
            raise lost(f"The sandbox's folder under {spec.scratch} could not be made", error) from error
        group, missing = cgroup.create(folders.identifier, spec.limits)
        try:
            parts = self._launch(spec, folders, group, owner)
        except (OSError, ValueError, SandboxLostError) as error:
            if group is not None:
                group.remove()
            log = folders.control / "log"
            said = log.read_bytes() if log.exists() else b""
            folders.remove()
            raise lost("The process sandbox could not be started", error, said) from error
        facts = SandboxFacts(
            kind=self.kind,
            isolation="none",
            identifier=folders.identifier,
            workspace=str(folders.workspace),
            network=True,
            notes=(_NOT_ISOLATED, *notes, *missing, "Disk space is not limited."),
            limits=cgroup.held(group, spec.limits),
        )
        return LocalSandbox(facts, parts)

    def reap(self, scratch_root: Path, is_orphan: IsOrphan) -> list[str]:
        return reap(scratch_root, is_orphan, self.kind)

    def _choose_owner(self, spec: SandboxSpec) -> tuple[int | None, list[str]]:
        """The unprivileged user, unless it could not reach the folders and interpreters the task needs."""
        if self._owner is None:
            return None, ["Commands run as the lab's own user."]
        closed = first_closed_folder([_existing(spec.scratch), *spec.read_only_paths], self._owner)
        if closed is None:
            return self._owner, [f"Commands run as user {self._owner}."]
        return None, [f"Commands run as root: user {self._owner} could not pass through {closed}."]

    def _launch(
        self, spec: SandboxSpec, folders: SandboxFolders, group: cgroup.ControlGroup | None, owner: int | None
    ) -> Parts:
        groups = group.folders if group is not None else []
        folders.mark(spec, self.kind, groups=groups)
        path = search_path(spec)
        write_profile(folders, path, owner)
        shell = KeptShell(folders.control, owner=owner)
        config = {
            "parent": os.getpid(),
            "uid": owner,
            "shell": str(copy_shell(folders.control)),
            "program": shell.program(_environment(spec, folders, path)),
            "status": shell.inherited.status,
        }
        try:
            first = launch(
                [sys.executable, "-I", "-S", str(supervisor.__file__), json.dumps(config)],
                inherited=shell.inherited,
                log=folders.control / "log",
            )
        except BaseException:
            shell.release()
            raise
        try:
            shell.started()
            folders.mark(spec, self.kind, pids=(first.pid,), groups=groups)
            if group is not None:
                # The supervisor first: what it starts again must be born inside the group.
                group.add(first.pid)
                group.add(shell.pid or first.pid)
        except BaseException:
            send([first.pid], signal.SIGTERM)
            first.wait()
            shell.release()
            raise
        return Parts(folders, shell, group, first, first.pid, False, unexportable(spec.environment))


def _environment(spec: SandboxSpec, folders: SandboxFolders, path: str) -> dict[str, str]:
    return (
        {"LANG": "C.UTF-8", "TMPDIR": str(folders.temporary)}
        | dict(spec.environment)
        | {
            "HOME": str(folders.home),
            "PATH": path,
            "LAB_SANDBOX": folders.identifier,
        }
    )


def _existing(path: Path) -> Path:
    """The path itself or the nearest folder above it that is there; what is made below is passable."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())


def first_closed_folder(paths: Iterable[Path], uid: int) -> Path | None:
    """The first folder on the way to (and including) one of `paths` that this user cannot enter."""
    for path in paths:
        resolved = path.resolve()
        for folder in [*reversed(resolved.parents), resolved]:
            try:
                found = folder.stat()
            except OSError:
                return folder
            needed = (
                stat.S_IXUSR if found.st_uid == uid else stat.S_IXGRP if found.st_gid == uid else stat.S_IXOTH
            )
            if stat.S_ISDIR(found.st_mode) and not found.st_mode & needed:
                return folder
    return None
