"""The files of the project, as the house rules look at them."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRACTICE = "lab/engine/tasks/practice/"


@cache
def project_files() -> tuple[str, ...]:
    """Every file that is or could be committed, as paths relative to the root; ignored ones are left out."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = sorted(set(listing.stdout.split("\0")) - {""})
    return tuple(name for name in names if (ROOT / name).is_file())


def files(*suffixes: str, under: str = "", without: tuple[str, ...] = ()) -> list[str]:
    """Project files that end in one of `suffixes`, below `under`, below none of `without`."""
    return [
        name
        for name in project_files()
        if name.endswith(suffixes) and name.startswith(under) and not name.startswith(without or ("\0",))
    ]


def own_python() -> list[str]:
    """The Python that we maintain: no migrations, and not the practice tasks, whose code is data."""
    return files(".py", without=("lab/migrations/", PRACTICE))


def read(name: str) -> str:
    """The text of a project file. Raises: FileNotFoundError, so that a rule about it fails aloud."""
    return (ROOT / name).read_text(encoding="utf-8")
