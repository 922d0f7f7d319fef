"""Which revision of whose repository a folder is, read from git's files: git itself is not run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Revision(NamedTuple):
    """The folder's name, the address of its repository and the commit; "" where the folder does not say."""

    folder: str
    repository: str
    commit: str

    def named(self, kind: str) -> str:
        """A name for what was read of it: `r2e-0123456789ab`."""
        return f"{kind}-{self.commit[:12]}" if self.commit else f"{kind}-imported"

    def __str__(self) -> str:
        return f"{self.folder} at {self.commit[:12]}" if self.commit else self.folder


def revision(checkout: Path) -> Revision:
    """What a checkout says of itself."""
    git = _git_folder(checkout)
    return Revision(checkout.resolve().name, _origin(git), _commit(git))


def _git_folder(checkout: Path) -> Path | None:
    """The checkout's git folder; a `.git` file of a worktree or submodule is followed."""
    git = checkout / ".git"
    if git.is_file():
        text = git.read_text(encoding="utf-8", errors="replace").strip()
        git = checkout / text.removeprefix("gitdir:").strip()
    return git if git.is_dir() else None


def _commit(git: Path | None) -> str:
    """The commit that is checked out, read from git's files; "" when it cannot be told."""
    if git is None:
        return ""
    head = _text(git / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if _is_commit(head) else ""
    reference = head.removeprefix("ref:").strip()
    common = git / (_text(git / "commondir").strip() or ".")
    for place in (git, common):
        commit = _text(place / reference).strip() if ".." not in reference else ""
        if _is_commit(commit):
            return commit
    for line in _text(common / "packed-refs").splitlines():
        commit, _, name = line.partition(" ")
        if name == reference and _is_commit(commit):
            return commit
    return ""


def _is_commit(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is not None


def _origin(git: Path | None) -> str:
    """The address of `origin` without a user or password in it; "" when there is none."""
    if git is None:
        return ""
    common = git / (_text(git / "commondir").strip() or ".")
    section = re.search(r'^\[remote "origin"\]\s*$(.*?)(?=^\[|\Z)', _text(common / "config"), re.M | re.S)
    address = re.search(r"^\s*url\s*=\s*(\S+)", section.group(1), re.M) if section else None
    return re.sub(r"^(\w+://)[^/@]*@", r"\1", address.group(1)) if address else ""


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
