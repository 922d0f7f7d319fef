"""The list of what the lab stands on and under which licences: `python -m tests.house.licences` writes it."""

from __future__ import annotations

import json
import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.house.tree import ROOT

LIST = ROOT / "THIRD-PARTY-LICENSES.md"
LOCKS = ("requirements.lock", "deploy/requirements.lock")
HEAD = """# What Trajectory Lab stands on

Nothing of this is part of the lab's own source. Python packages are installed from the locks; those marked
*extra* only for PostgreSQL or Redis. A package for another system than the one this list was made on says
"see the package".
`python -m tests.house.licences` writes this file.

"""
_REQUIREMENT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==", re.MULTILINE)
_ELSEWHERE = "see the package"


def required(lock: str) -> set[str]:
    """The normalised names of the packages of a lock."""
    names = _REQUIREMENT.findall((ROOT / lock).read_text("utf-8"))
    return {str(canonicalize_name(name)) for name in names}


def licence_of(name: str) -> str:
    """The licence as the installed package declares it."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return _ELSEWHERE
    return _declared(found) or _ELSEWHERE


def _declared(found: Distribution) -> str:
    fields = found.metadata
    expression = fields.get("License-Expression") or ""
    if expression:
        return str(expression)
    classified = [
        line.rpartition(" :: ")[2]
        for line in fields.get_all("Classifier") or []
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    free_text = (fields.get("License") or "").strip().splitlines()
    return ", ".join(classified) or (free_text[0][:80] if free_text else "")


def vendored() -> list[tuple[str, str, str]]:
    """Name, version and licence of each front-end package that lies under static/vendor."""
    manifest = json.loads((ROOT / "static/vendor/manifest.json").read_text("utf-8"))
    return [(one["name"], one["version"], one["licence"]) for one in manifest["packages"]]


def listed() -> dict[str, str]:
    """Package -> licence as the file has it."""
    rows = (line.split("|") for line in LIST.read_text("utf-8").splitlines() if line.startswith("| "))
    return {cells[1].strip(): cells[2].strip() for cells in rows if cells[1].strip() != "package"}


def write(target: Path = LIST) -> None:
    base, every = required(LOCKS[0]), set().union(*map(required, LOCKS))
    rows = [f"| {name} | {licence_of(name)} | {'' if name in base else 'extra'} |" for name in sorted(every)]
    front = [f"| {name} | {licence} | vendored, {version} |" for name, version, licence in vendored()]
    table = "\n".join(["| package | licence | |", "|---|---|---|", *rows, *front])
    target.write_text(HEAD + table + "\n", "utf-8")


if __name__ == "__main__":
    write()
