"""Tasks made of two releases: what is known beforehand, and that a set is whole or not there."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from lab.engine.errors import InfrastructureError
from lab.engine.tasks import releases
from lab.engine.tasks.loader import load_task_set
from lab.engine.tasks.releases import Release, ReleaseFix, ReleaseFixSet, make_release_fixes, release_fixes

OLD = {"thing.py": "def double(x):\n    return x + 2\n", "tests/test_thing.py": "", "tests/gbk.txt": b"\xb2"}
NEW = {**OLD, "thing.py": "def double(x):\n    return x * 2\n", "tests/test_thing.py": "def test_it(): ...\n"}


def archive(files: dict[str, str | bytes], *, top: str = "thing-1.0") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            header = tarfile.TarInfo(f"{top}/{path}")
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return buffer.getvalue()


def described(old: bytes, new: bytes) -> ReleaseFixSet:
    """The facts of the first real task, with a made-up package in place of its own."""
    one = release_fixes().tasks[0]
    before = Release(version="1.0", sha256=hashlib.sha256(old).hexdigest())
    after = Release(version="1.1", sha256=hashlib.sha256(new).hexdigest())
    fields = {"package": "thing", "before": before, "after": after, "sources": ("thing.py",)}
    return release_fixes().model_copy(update={"tasks": (ReleaseFix(**{**dict(one), **fields}),)})


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def making(old: bytes, new: bytes, given: dict[str, bytes] | None = None) -> Path:
        monkeypatch.setattr(releases, "release_fixes", lambda: described(old, new))
        served = given or {"1.0": old, "1.1": new}
        return make_release_fixes(tmp_path / "sets", lambda package, version: served[version])

    return making


def test_each_task_says_which_tests_fail_and_which_pass_before_its_fix() -> None:
    folder = Path(releases.__file__).parent / "releases"
    for task in release_fixes().tasks:
        passing = (folder / task.id / "pass_to_pass.txt").read_text().splitlines()
        assert len(passing) > 50
        assert not set(passing) & set(task.fail_to_pass)
        assert (folder / task.id / "issue.md").read_text().startswith(f"# {task.title}\n")


def test_a_task_has_the_older_release_the_fix_and_the_newer_tests(make) -> None:
    folder = make(archive(OLD), archive(NEW))
    (task,) = load_task_set(folder).tasks
    assert (task.repository / "thing.py").read_text() == OLD["thing.py"]
    assert (task.repository / "tests/gbk.txt").read_bytes() == b"\xb2"
    assert task.verification.test_files == {"tests/test_thing.py": NEW["tests/test_thing.py"]}
    assert "-    return x + 2\n+    return x * 2\n" in task.gold_patch
    assert sorted(task.plans) == ["scripted/solver", "scripted/struggler"]


def test_what_is_there_is_not_downloaded_again(make) -> None:
    old, new = archive(OLD), archive(NEW)
    folder = make(old, new)
    assert make(old, new, given={"nothing": b""}) == folder


def test_another_file_than_the_known_one_is_refused_and_nothing_is_left(make, tmp_path: Path) -> None:
    old, new = archive(OLD), archive(NEW)
    with pytest.raises(InfrastructureError, match="thing 1.1: the source distribution has the SHA-256"):
        make(old, new, given={"1.0": old, "1.1": old})
    assert list((tmp_path / "sets").iterdir()) == []


def test_a_release_without_the_fixed_file_is_refused(make) -> None:
    without = archive({"tests/test_thing.py": ""})
    with pytest.raises(InfrastructureError, match=r"thing 1\.0: has no thing\.py"):
        make(without, archive(NEW))


def test_paths_that_lead_out_of_the_archive_are_left_out(make, tmp_path: Path) -> None:
    folder = make(archive({**OLD, "../../out.py": "x = 1\n"}), archive(NEW))
    assert not list(tmp_path.rglob("out.py"))
    assert folder.is_dir()
