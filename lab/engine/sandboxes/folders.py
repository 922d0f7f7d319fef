"""The folders of a sandbox on the host, the marker by which leftovers are found, and their removal."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.engine.sandboxes.base import IsOrphan, SandboxSpec
from lab.engine.sandboxes.cgroup import remove_folders
from lab.engine.sandboxes.processes import Table, descendants, entry, is_running, kill_selected, send
from lab.engine.sandboxes.starter import boot_identifier

MARKER = "sandbox.json"
# A folder of this name is nobody's any more: what is left of it is removed by whoever finds it.
_GONE = ".gone-"
# A folder gets its marker within milliseconds of its making.
_UNMARKED_SECONDS = 60.0
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class SandboxFolders:
    """Everything of one sandbox lies under `top`, which is made for it under the spec's scratch folder."""

    top: Path
    scratch_was_made: bool

    @property
    def identifier(self) -> str:
        return self.top.name

    @property
    def control(self) -> Path:
        return self.top / "control"

    @property
    def workspace(self) -> Path:
        return self.top / "workspace"

    @property
    def home(self) -> Path:
        return self.top / "home"

    @property
    def temporary(self) -> Path:
        return self.top / "tmp"

    def mark(
        self, spec: SandboxSpec, kind: str, *, pids: Sequence[int] = (), groups: Sequence[Path] = ()
    ) -> None:
        """Write down what must be found and removed when nobody is left who remembers this sandbox."""
        starter = entry(os.getpid())
        numbered = [[pid, found.start] for pid in pids if (found := entry(pid)) is not None]
        content = {
            "label": spec.label,
            "kind": kind,
            "identifier": self.identifier,
            "boot": boot_identifier(),
            "starter": [starter.pid, starter.start] if starter is not None else None,
            "processes": numbered,
            "groups": [str(path) for path in groups],
        }
        beside = self.top / f".{MARKER}"
        beside.write_text(json.dumps(content))
        beside.replace(self.top / MARKER)

    def remove(self) -> None:
        """Remove everything, whatever modes and depths a command left."""
        _remove_folder(self.top)
        if self.scratch_was_made:
            with contextlib.suppress(OSError):
                self.top.parent.rmdir()


def create_folders(spec: SandboxSpec, kind: str, *, owner: int | None, passable: bool) -> SandboxFolders:
    """Make the folders. `owner` is the uid commands run as; `passable` lets that uid walk through `top`.

    Raises:
        OSError: the scratch folder cannot be written.
    """
    made = not spec.scratch.exists()
    spec.scratch.mkdir(parents=True, exist_ok=True)
    slug = re.sub(r"[^A-Za-z0-9]+", "-", spec.label).strip("-")[:40]
    top = spec.scratch.resolve() / f"{kind}-{slug}-{secrets.token_hex(4)}"
    top.mkdir(mode=0o700)
    folders = SandboxFolders(top, made)
    folders.mark(spec, kind)
    for path, mode in (
        (folders.control, 0o711),
        (folders.workspace, 0o755),
        (folders.home, 0o755),
        (folders.temporary, 0o1777),
    ):
        path.mkdir()
        path.chmod(mode)
        if owner is not None and path != folders.control:
            os.chown(path, owner, owner)
    if passable:
        top.chmod(0o711)
    return folders


def write_profile(folders: SandboxFolders, search_path: str, owner: int | None) -> None:
    """The one start-up file of a login shell: puts PATH back after /etc/profile has reset it."""
    profile = folders.home / ".profile"
    profile.write_text(f"PATH={shlex.quote(search_path)}\nexport PATH\n")
    if owner is not None:
        os.chown(profile, owner, owner)


def search_path(spec: SandboxSpec) -> str:
    """PATH inside: the prefix, then what the environment says or the usual folders."""
    return ":".join([*spec.path_prefix, spec.environment.get("PATH", DEFAULT_PATH)])


def remove_tree(path: Path) -> None:
    """`rm -rf` that also gets through folders without modes (their owner may give them back).

    coreutils' rm is used because it knows no limit of depth or path length.
    """
    for _ in range(3):
        done = subprocess.run(["rm", "-rf", "--", str(path)], capture_output=True, check=False)
        if done.returncode == 0:
            return
        subprocess.run(["chmod", "-R", "u+rwx", "--", str(path)], capture_output=True, check=False)


def _remove_folder(top: Path) -> None:
    """Remove a sandbox so that a broken-off removal can be finished: `rm` may take the marker first."""
    gone = top.with_name(_GONE + top.name)
    with contextlib.suppress(OSError):
        top.rename(gone)
    remove_tree(gone if gone.exists() else top)


def reap(scratch_root: Path, is_orphan: IsOrphan, kind: str) -> list[str]:
    """Kill and remove the marked sandboxes of one kind under `scratch_root` that `is_orphan`.

    Also what an interrupted removal left, and what has been without a marker for a minute.

    It is asked after a sandbox was found, so that one that is started meanwhile is never taken for an orphan
    by an older answer. Finds them directly in `scratch_root` and one folder deeper. Returns the labels
    removed, sorted.
    """
    removed = _reap_unmarked(scratch_root, kind)
    for marker in _markers(scratch_root):
        try:
            content = json.loads(marker.read_text())
        except (OSError, ValueError):
            continue
        if content.get("kind") != kind or not is_orphan(content["label"], _starter_lives(content)):
            continue
        _kill_marked(content)
        remove_folders(Path(folder) for folder in content["groups"])
        _remove_found(marker.parent, scratch_root)
        removed.append(content["label"])
    return sorted(removed)


def _reap_unmarked(scratch_root: Path, kind: str) -> list[str]:
    """Finish removals; returns the names of the folders that had lost their marker."""
    for pattern in (f"{_GONE}*", f"*/{_GONE}*"):
        for gone in _matching(scratch_root, pattern):
            remove_tree(gone)
            _remove_if_empty(gone.parent, scratch_root)
    removed = []
    ours = re.compile(rf"{re.escape(kind)}-.*-[0-9a-f]{{8}}")
    for pattern in (f"{kind}-*", f"*/{kind}-*"):
        for folder in _matching(scratch_root, pattern):
            if ours.fullmatch(folder.name) and _has_lost_its_marker(folder):
                _kill_marked({"boot": "", "processes": [], "groups": [], "identifier": folder.name})
                _remove_found(folder, scratch_root)
                removed.append(folder.name)
    return removed


def _has_lost_its_marker(folder: Path) -> bool:
    try:
        old = time.time() - folder.lstat().st_mtime > _UNMARKED_SECONDS
    except FileNotFoundError:
        return False
    return old and folder.is_dir() and not (folder / MARKER).exists()


def _remove_found(folder: Path, scratch_root: Path) -> None:
    _remove_folder(folder)
    _remove_if_empty(folder.parent, scratch_root)


def _remove_if_empty(folder: Path, scratch_root: Path) -> None:
    if folder != scratch_root:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _starter_lives(content: dict[str, Any]) -> bool:
    starter = content.get("starter")
    return starter is not None and content["boot"] == boot_identifier() and is_running(*starter)


def _markers(scratch_root: Path) -> Iterator[Path]:
    for pattern in (f"*/{MARKER}", f"*/*/{MARKER}"):
        yield from (
            path for path in _matching(scratch_root, pattern) if not path.parent.name.startswith(_GONE)
        )


def _matching(scratch_root: Path, pattern: str) -> list[Path]:
    """Whoever owns a folder may remove it meanwhile: unlike Path.glob, this goes on with the others."""
    return [scratch_root / name for name in sorted(glob.glob(pattern, root_dir=scratch_root))]  # noqa: PTH207


def _kill_marked(content: dict[str, Any]) -> None:
    """Kill by three signs: recorded processes and all below, the group, the mark in the environment."""
    roots = set()
    if content["boot"] == boot_identifier():
        roots = {pid for pid, start in content["processes"] if is_running(pid, start)}
    # A supervisor that is stopped cannot restart what is killed next.
    send(roots, signal.SIGSTOP)
    mark = f"LAB_SANDBOX={content['identifier']}".encode()

    def leftovers(table: Table) -> set[int]:
        found = descendants(table, roots) | roots
        for folder in content["groups"]:
            with contextlib.suppress(OSError, ValueError):
                found.update(int(pid) for pid in Path(folder, "cgroup.procs").read_text().split())
        found.update(pid for pid in table if _has_mark(pid, mark))
        return found & table.keys()

    kill_selected(leftovers, seconds=3.0)


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
