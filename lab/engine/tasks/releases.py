"""Tasks made from two releases of a package: the older has a bug, the newer one its fix and a test for it.

What is kept here are facts: names, versions, hashes of the source distributions, names of tests; and issues
in words of the lab's own. The packages' code is downloaded when somebody asks for the set.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import json
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import yaml
from pydantic import Field, TypeAdapter

from lab.engine.errors import InfrastructureError, InvalidValueError
from lab.engine.llm.base import Frozen, canonical_sha256
from lab.engine.tasks.loader import load_task_set

_TESTS = "tests"
_COMMAND = ("python", "-m", "pytest", "-rA", "--color=no", "-p", "no:cacheprovider", "-o", "addopts=", _TESTS)
_LARGEST_BYTES = 50_000_000
# Raised when the same facts make other folders, so that old ones are made anew.
_LAYOUT = "1"

# Gives the bytes of a package's source distribution of one version.
Download = Callable[[str, str], bytes]


class Release(Frozen):
    """A version of a package and the SHA-256 of its source distribution."""

    version: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ReleaseFix(Frozen):
    """A bug of the release `before`. `sources` are the files the fix changes, `fail_to_pass` its tests."""

    id: str
    title: str
    difficulty: str
    trait: str
    package: str
    before: Release
    after: Release
    sources: Annotated[tuple[str, ...], Field(min_length=1)]
    fail_to_pass: Annotated[tuple[str, ...], Field(min_length=1)]


class ReleaseFixSet(Frozen):
    """All of them, as one task set."""

    name: str
    version: str
    title: str
    tasks: tuple[ReleaseFix, ...]


def release_fixes() -> ReleaseFixSet:
    """The set that comes with the lab."""
    return TypeAdapter(ReleaseFixSet).validate_python(yaml.safe_load((_facts() / "set.yaml").read_text()))


def make_release_fixes(parent: Path, download: Download) -> Path:
    """The folder of the task set below `parent`, made when it is not there yet; whole or not at all.

    Raises:
        InfrastructureError: a source distribution is not what its hash says, or lacks a file that is needed.
        OSError: the folder cannot be written.
        Whatever `download` raises.
    """
    described = release_fixes()
    final = parent / f"{described.name}-{_digest(described)}"
    if final.is_dir():
        return final
    parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
    try:
        building.chmod(0o755)
        for task in described.tasks:
            _write_task(building / task.id, task, download)
        _write_set(building, described)
        load_task_set(building)
        building.replace(final)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return final


def _facts() -> Path:
    return Path(__file__).parent / "releases"


def _digest(described: ReleaseFixSet) -> str:
    texts = {file.relative_to(_facts()).as_posix(): file.read_text() for file in _facts().rglob("*.*")}
    return canonical_sha256({"layout": _LAYOUT, "texts": texts, "name": described.name})[:12]


def _write_set(folder: Path, described: ReleaseFixSet) -> None:
    names = [task.id for task in described.tasks]
    lines = _lines(name=described.name, version=described.version, title=described.title, tasks=names)
    (folder / "set.toml").write_text(lines)


def _write_task(folder: Path, task: ReleaseFix, download: Download) -> None:
    before = _files(task, task.before, download)
    after = _files(task, task.after, download)
    folder.mkdir()
    _write_files(folder / "repository", before)
    _write_files(
        folder / "tests", {path: data for path, data in after.items() if _is_hidden_test(path, data)}
    )
    gold = _patch(task, before, after)
    (folder / "gold.patch").write_text(gold)
    shutil.copyfile(_facts() / task.id / "issue.md", folder / "issue.md")
    passing = (_facts() / task.id / "pass_to_pass.txt").read_text().splitlines()
    (folder / "task.toml").write_text(_task_file(task, passing))
    (folder / "plans.yaml").write_text(yaml.safe_dump(_plans(task, gold), sort_keys=False))


def _files(task: ReleaseFix, release: Release, download: Download) -> Mapping[str, bytes]:
    """The regular files of a source distribution by their path in it, its top folder left out."""
    name = f"{task.package} {release.version}"
    data = download(task.package, release.version)
    found = hashlib.sha256(data).hexdigest()
    if found != release.sha256:
        raise InfrastructureError(
            f"{name}: the source distribution has the SHA-256 {found}, not {release.sha256}; "
            "check which package index was asked (LAB_PACKAGE_INDEX)",
            retryable=False,
        )
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            parts = PurePosixPath(member.name).parts[1:]
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None and parts and ".." not in parts:
                files["/".join(parts)] = content.read(_LARGEST_BYTES)
    missing = [path for path in task.sources if path not in files]
    if missing or not any(_is_test(path) for path in files):
        raise InfrastructureError(f"{name}: has no {(missing or [_TESTS])[0]}", retryable=False)
    return files


def _is_test(path: str) -> bool:
    return path.startswith(f"{_TESTS}/")


def _is_hidden_test(path: str, data: bytes) -> bool:
    """Hidden tests are text; a file in another encoding is as the older release has it."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return _is_test(path)


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _patch(task: ReleaseFix, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """The change of the fixed sources as git writes it."""
    text = ""
    for path in task.sources:
        old, new = (files[path].decode().splitlines(keepends=True) for files in (before, after))
        if not (old and new and old[-1].endswith("\n") and new[-1].endswith("\n")):
            raise InfrastructureError(f"{task.id}: {path} does not end with a line break", retryable=False)
        text += f"diff --git a/{path} b/{path}\n"
        text += "".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"))
    return text


def _plans(task: ReleaseFix, gold: str) -> dict[str, list[dict[str, Any]]]:
    """Agents without a model: one applies the fix; one changes nothing, or (seed 2) breaks what worked."""
    fix = f"git apply <<'END_OF_PATCH'\n{gold}END_OF_PATCH"
    broken = f"printf 'raise RuntimeError(\"broken on purpose\")\\n' >> {shlex.quote(task.sources[0])}"
    nothing = [{"finish": {"message": "I have changed nothing."}}]
    return {
        "scripted/solver": [_plan([{"run": {"command": fix}}], "The next release's fix is applied.")],
        "scripted/struggler": [
            {"expected": "unresolved", "steps": nothing},
            _plan([{"run": {"command": broken}}], "Something else is broken now.", expected="unresolved"),
        ],
    }


def _plan(steps: list[dict[str, Any]], message: str, *, expected: str = "resolved") -> dict[str, Any]:
    return {"expected": expected, "steps": [*steps, {"finish": {"message": message}}]}


def _task_file(task: ReleaseFix, passing: list[str]) -> str:
    head = _lines(id=task.id, title=task.title, difficulty=task.difficulty, trait=task.trait)
    environment = '[environment]\nname = "practice"\n'
    tests = _lines(
        rule="swe-bench",
        runner="pytest",
        command=list(_COMMAND),
        fail_to_pass=list(task.fail_to_pass),
        pass_to_pass=passing,
    )
    return f"{head}\n{environment}\n[verification]\n{tests}"


def _lines(**values: object) -> str:
    """Lines of TOML: JSON's strings and lists of strings are written the same way there."""
    for key, value in values.items():
        if "\x7f" in str(value):
            raise InvalidValueError(key, value, "holds a control character, which TOML has no room for")
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items())
