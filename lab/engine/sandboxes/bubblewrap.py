"""Sandboxes made with bubblewrap: own files, processes, network and user; nothing of the lab is visible."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lab.engine.errors import SandboxLostError
from lab.engine.sandboxes import cgroup
from lab.engine.sandboxes.base import IsOrphan, Progress, SandboxFacts, SandboxLimits, SandboxSpec
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
from lab.engine.sandboxes.processes import descendants, send, snapshot
from lab.engine.sandboxes.shell_program import unexportable
from lab.engine.stop import StopSignal

HOME = "/home/agent"
INSTALL = "bubblewrap is not installed; run `apt-get install bubblewrap`"
_SHARED_MEMORY_BYTES = 256 * 1024**2
_SYSTEM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# What programs need of /etc; nothing that may hold a password, a key or an address. No profile: a login shell
# reads the one in HOME, and the machine's own would cost each command the start of `id` and a reset of PATH.
_ETC = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "debian_version",
    "gai.conf",
    "host.conf",
    "inputrc",
    "java*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "login.defs",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "openssl",
    "os-release",
    "perl",
    "protocols",
    "python3*",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
# Where a distribution guards user namespaces, and the value that forbids them.
_GUARDS = (
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)


class _Ability(NamedTuple):
    """What a trial showed: what is `missing`, for a person; whether commands can have a `user_namespace`."""

    missing: str | None
    user_namespace: bool


class BubblewrapProvider:
    """Starts sandboxes of kind "bubblewrap". If the lab is root, commands run as `uid` where possible."""

    kind = "bubblewrap"

    def __init__(self, uid: int | None = None) -> None:
        self._owner = sandbox_owner(uid)
        self._ability: _Ability | None = None

    def available(self) -> str | None:
        return self._tried().missing

    def workspace(self, spec: SandboxSpec) -> str:
        return spec.workspace

    def prepare(
        self, spec: SandboxSpec, *, progress: Progress | None = None, stop: StopSignal | None = None
    ) -> None:
        return None

    def start(self, spec: SandboxSpec) -> LocalSandbox:
        ability = self._tried()
        if ability.missing is not None:
            raise SandboxLostError(ability.missing, retryable=False)
        try:
            folders = create_folders(spec, self.kind, owner=self._owner, passable=False)
        except OSError as error:
            raise lost(f"The sandbox's folder under {spec.scratch} could not be made", error) from error
        group, notes = cgroup.create(folders.identifier, spec.limits)
        try:
            parts = self._launch(spec, folders, group, ability)
        except (OSError, ValueError, SandboxLostError) as error:
            if group is not None:
                group.remove()
            log = _content(folders.control / "log")
            folders.remove()
            raise lost("The bubblewrap sandbox could not be started", error, log) from error
        limits = cgroup.held(group, spec.limits)
        return LocalSandbox(self._facts(spec, folders, limits, [*notes, *self._notes(ability)]), parts)

    def reap(self, scratch_root: Path, is_orphan: IsOrphan) -> list[str]:
        return reap(scratch_root, is_orphan, self.kind)

    def _launch(
        self,
        spec: SandboxSpec,
        folders: SandboxFolders,
        group: cgroup.ControlGroup | None,
        ability: _Ability,
    ) -> Parts:
        groups = group.folders if group is not None else []
        folders.mark(spec, self.kind, groups=groups)
        path = search_path(spec)
        write_profile(folders, path, self._owner)
        _write_accounts(folders.control, os.getuid() if self._owner is None else self._owner)
        shell = KeptShell(folders.control, owner=self._owner)
        program = shell.program(self._environment(spec, path))
        copy = os.open(copy_shell(folders.control), os.O_PATH | os.O_CLOEXEC)
        try:
            first = launch(
                [
                    *self._outer(),
                    *self._arguments(spec, folders),
                    *self._descent(ability.user_namespace),
                    f"/proc/self/fd/{copy}",
                    *("--norc", "--noprofile", "-c", f"exec {copy}<&-; {program}", "control"),
                ],
                inherited=(*shell.inherited, copy),
                log=folders.control / "log",
            )
        except BaseException:
            shell.release()
            raise
        finally:
            os.close(copy)
        try:
            shell.started()
            root = _innermost(first.pid)
            folders.mark(spec, self.kind, pids=(first.pid, root), groups=groups)
            if group is not None:
                group.add(root)
        except BaseException:
            send([first.pid], signal.SIGKILL)
            first.wait()
            shell.release()
            raise
        return Parts(folders, shell, group, first, root, True, unexportable(spec.environment))

    def _environment(self, spec: SandboxSpec, path: str) -> dict[str, str]:
        return (
            {"LANG": "C.UTF-8", "USER": "agent", "LOGNAME": "agent"}
            | dict(spec.environment)
            | {
                "HOME": HOME,
                "PATH": path,
            }
        )

    def _arguments(self, spec: SandboxSpec, folders: SandboxFolders) -> list[str]:
        network = [] if spec.limits.network else ["--unshare-net"]
        arguments = [
            *("bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", *network),
            *(
                "--cap-drop",
                "ALL",
                "--new-session",
                "--die-with-parent",
                "--as-pid-1",
                "--hostname",
                "sandbox",
            ),
            *(*self._privileges(), *_system()),
            *("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", str(_SHARED_MEMORY_BYTES)),
            *("--tmpfs", "/dev/shm", "--dir", "/run", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"),  # noqa: S108
            *("--bind", str(folders.temporary), "/tmp", "--bind", str(folders.home), HOME),  # noqa: S108
            *("--ro-bind", str(folders.control / "passwd"), "/etc/passwd"),
            *("--ro-bind", str(folders.control / "group"), "/etc/group"),
            *("--ro-bind", str(folders.control / "hosts"), "/etc/hosts"),
        ]
        if spec.limits.network:
            arguments += ["--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]
        for path in spec.read_only_paths:
            arguments += [*_above(path), "--ro-bind", str(path), str(path)]
        for path in spec.hidden_paths:
            if any(path.is_relative_to(shown) for shown in (Path("/usr"), *spec.read_only_paths)):
                arguments += ["--tmpfs", str(path), "--remount-ro", str(path)]
        arguments += [
            *_above(Path(spec.workspace)),
            "--bind",
            str(folders.workspace),
            spec.workspace,
            "--remount-ro",
            "/",
        ]
        return [*arguments, "--chdir", spec.workspace, "--"]

    def _privileges(self) -> list[str]:
        """As root, bubblewrap mounts without a user namespace; the next program must be able to drop root."""
        if self._owner is None:
            return ["--unshare-user"]
        return [word for name in ("SETUID", "SETGID", "SETPCAP") for word in ("--cap-add", f"CAP_{name}")]

    def _outer(self) -> list[str]:
        """As root, bubblewrap itself is process 1 of a namespace around the sandbox's.

        Without capabilities it could not send its parent-death signal to another user's process; the kernel
        ends a namespace with its process 1 whoever owns the rest.
        """
        if self._owner is None:
            return []
        return ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--"]

    def _descent(self, user_namespace: bool) -> list[str]:
        """From root to the unprivileged user."""
        if self._owner is None:
            return []
        uid = str(self._owner)
        drop = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--bounding-set=-all"]
        enter = ["unshare", "--user", "--map-current-user", "--"] if user_namespace else []
        return [*drop, "--inh-caps=-all", "--no-new-privs", "--", *enter]

    def _facts(
        self, spec: SandboxSpec, folders: SandboxFolders, limits: SandboxLimits, notes: Sequence[str]
    ) -> SandboxFacts:
        return SandboxFacts(
            kind=self.kind,
            isolation="bubblewrap",
            identifier=folders.identifier,
            workspace=spec.workspace,
            network=spec.limits.network,
            notes=tuple(notes),
            limits=limits,
        )

    def _notes(self, ability: _Ability) -> list[str]:
        notes = ["Disk space is not limited."]
        if self._owner is None:
            notes.append("Commands run as the lab's own user, inside a user namespace.")
        else:
            notes.append(f"Commands run as user {self._owner}, without capabilities.")
            if not ability.user_namespace:
                notes.append("Commands have no user namespace of their own: this machine forbids it.")
        return notes

    def _tried(self) -> _Ability:
        if self._ability is None or self._ability.missing is not None:
            self._ability = self._try()
        return self._ability

    def _try(self) -> _Ability:
        if shutil.which("bwrap") is None:
            return _Ability(INSTALL, False)
        for user_namespace in (True, False):
            words = [
                *self._outer(),
                "bwrap",
                "--unshare-pid",
                "--unshare-net",
                "--cap-drop",
                "ALL",
                *self._privileges(),
            ]
            words += ["--ro-bind", "/", "/", "--proc", "/proc", "--", *self._descent(user_namespace), "true"]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
            if done.returncode == 0:
                return _Ability(None, user_namespace)
        return _Ability(f"bubblewrap does not work here: {done.stderr.strip()[-300:]}{_way_out()}", False)


def _above(path: Path) -> list[str]:
    """Make the folders above a mount point passable; left to bubblewrap they are root's alone."""
    return [
        word for folder in reversed(path.parents[:-1]) for word in ("--perms", "0755", "--dir", str(folder))
    ]


def _system() -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr", *_above(Path("/etc/ssl/certs")), *_above(Path(HOME))]
    for name in _SYSTEM_FOLDERS:
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    for pattern in _ETC:
        for path in Path("/etc").glob(pattern):
            arguments += ["--ro-bind-try", str(path), str(path)]
    return arguments


def _write_accounts(control: Path, uid: int) -> None:
    """Who exists inside: the agent, root and nobody, none of them with a password."""
    rows = {
        "root": (0, "/root", "/usr/sbin/nologin"),
        "nobody": (65_534, "/nonexistent", "/usr/sbin/nologin"),
    }
    if uid in {0, 65_534}:
        rows = {name: row for name, row in rows.items() if row[0] != uid}
    rows = {"agent": (uid, HOME, "/bin/bash"), **rows}
    passwd = [f"{name}:x:{number}:{number}::{home}:{shell}\n" for name, (number, home, shell) in rows.items()]
    groups = [f"{name}:x:{number}:\n" for name, (number, _, _) in rows.items()]
    hosts = ["127.0.0.1 localhost sandbox\n", "::1 localhost\n"]
    for name, lines in (("passwd", passwd), ("group", groups), ("hosts", hosts)):
        (control / name).write_text("".join(lines))
        (control / name).chmod(0o644)


def _innermost(first: int) -> int:
    """The sandbox's process 1 as the lab numbers it: below the first process, before any command runs.

    Raises:
        SandboxLostError: it is gone already.
    """
    table = snapshot()
    below = descendants(table, [first])
    leaves = [pid for pid in below if not any(table[other].parent == pid for other in below)]
    if len(leaves) != 1:
        raise SandboxLostError("the sandbox ended right after its start")
    return leaves[0]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _way_out() -> str:
    for name, forbidding, allowing in _GUARDS:
        path = Path("/proc/sys", *name.split("."))
        if _content(path).strip() == forbidding.encode():
            return f" (user namespaces are forbidden here; run `sysctl -w {name}={allowing}`)"
    return " (this container or system allows no namespaces; allow them or choose another sandbox)"
