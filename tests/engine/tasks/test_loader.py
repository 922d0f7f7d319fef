"""Task folders and task sets: what is read, what is refused, and that digests are stable."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from lab.engine.errors import InfrastructureError, InvalidValueError
from lab.engine.tasks.loader import (
    load_task,
    load_task_set,
    pack_repository,
    practice_folder,
    repository_files,
)

TASK_TOML = """\
id = "greeting"
title = "The greeting is rude"
difficulty = "easy"

[environment]
agent_timeout_sec = 60

[verification]
runner = "pytest"
command = ["python", "-m", "pytest", "-rA"]
fail_to_pass = ["tests/test_greeting.py::test_polite"]
pass_to_pass = ["tests/test_greeting.py::test_short"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small task folder that loads."""
    task = tmp_path / "set" / "greeting"
    (task / "repository" / "src").mkdir(parents=True)
    (task / "repository" / "greeting.py").write_text("WORD = 'oi'\n")
    (task / "repository" / "src" / "run.sh").write_text("#!/bin/sh\n")
    (task / "repository" / "src" / "run.sh").chmod(0o755)
    (task / "tests" / "tests").mkdir(parents=True)
    (task / "tests" / "tests" / "test_greeting.py").write_text("def test_polite(): ...\n")
    (task / "task.toml").write_text(TASK_TOML)
    (task / "issue.md").write_text("# Rude\n")
    (task / "gold.patch").write_text("--- a/greeting.py\n+++ b/greeting.py\n")
    (task.parent / "set.toml").write_text('name = "mine"\nversion = "2"\ntasks = ["greeting"]\n')
    return task


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_task_folder_is_read_whole(folder: Path) -> None:
    task = load_task(folder)
    assert (task.id, task.title, task.statement) == ("greeting", "The greeting is rude", "# Rude\n")
    assert task.environment.agent_timeout_sec == 60
    assert task.environment.name == "practice"
    assert task.verification.test_files == {"tests/test_greeting.py": "def test_polite(): ...\n"}
    assert task.verification.command == ("python", "-m", "pytest", "-rA")
    assert task.plans == {}


def test_a_set_lists_its_tasks_in_order_and_has_a_digest(folder: Path) -> None:
    task_set = load_task_set(folder.parent)
    assert (task_set.name, task_set.version) == ("mine", "2")
    assert [task.id for task in task_set.tasks] == ["greeting"]
    before = task_set.digest
    change(folder / "issue.md", "Rude", "Very rude")
    assert load_task_set(folder.parent).digest != before


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('title = "The', 'titel = "The', ["task.toml: title", "required", "add it"]),
        ('difficulty = "easy"', 'level = "easy"', ["task.toml: level", "'easy'", "not known", "spelling"]),
        ('"greeting"', '"../x"', ["task.toml: id", "'../x'"]),
        ('runner = "pytest"', 'runner = "nose"', ["verification.runner", "'nose'", "'pytest' or 'unittest'"]),
        ("= 60", "= -5", ["environment.agent_timeout_sec", "-5", "greater than 0"]),
        ("= 60", "= inf", ["environment.agent_timeout_sec", "inf", "finite number"]),
        ("agent_timeout_sec", "agent_timout_sec", ["environment.agent_timout_sec", "not known"]),
        ("::test_short", "::test_polite", ["pass_to_pass", "test_polite", "keep it in one"]),
        ('title = "', "title = ", ["task.toml", "no valid TOML", "line 2"]),
        ('title = "', f'deep = {"[" * 5000}\ntitle = "', ["task.toml", "no valid TOML", "nested too deep"]),
        ('runner = "pytest"', 'rule = "golf"', ["verification.rule", "'golf'", "use one of swe-bench"]),
        ('command = ["', 'command = ["\\u0000', ["verification.command", "NUL", "take it out"]),
        ("[environment]", "[[environment]]", ["environment", "one table"]),
    ],
    ids=[
        "missing",
        "unknown",
        "id",
        "runner",
        "negative",
        "endless",
        "unknown-nested",
        "both-lists",
        "syntax",
        "too-deep",
        "rule",
        "command",
        "two-tables",
    ],
)
def test_a_wrong_task_file_names_file_field_value_and_way_out(
    folder: Path, old: str, new: str, words: list[str]
) -> None:
    change(folder / "task.toml", old, new)
    with pytest.raises(InvalidValueError) as caught:
        load_task(folder)
    assert str(folder) in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["task.toml", "issue.md", "gold.patch", "tests"])
def test_a_missing_part_is_named(folder: Path, name: str) -> None:
    path = folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(InvalidValueError, match=name):
        load_task(folder)


def test_an_empty_statement_and_a_binary_one_are_refused(folder: Path) -> None:
    (folder / "issue.md").write_text("\n")
    with pytest.raises(InvalidValueError, match=r"issue\.md: content.*is empty"):
        load_task(folder)
    (folder / "issue.md").write_bytes(b"caf\xe9\n")
    with pytest.raises(InvalidValueError, match=r"issue\.md: byte 3: .*save the file as UTF-8"):
        load_task(folder)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("[{finish: {message: done}, say: x}]", []),
        ("[]", ["scripted/solver[0].steps", "at least 1 item"]),
        ("[{say: x}]", ["steps[0]", "exactly one action of search, read"]),
        ("[{read: {path: a}, run: {command: b}}]", ["steps[0]", "exactly one action"]),
        ("[{edit: {path: a, old: '', new: b}}]", ["steps[0].edit.old", "''"]),
        ("[{edit: {path: a, new: b}}]", ["steps[0].edit.old", "required"]),
        ("[{parallel: [{bash: {command: b}}]}]", ["steps[0].parallel[0].bash", "not known"]),
        ("[{search: {path: a}}]", ["steps[0].search", "exactly one of glob and pattern"]),
        ("[{run: {command: b, timeout: 0}}]", ["steps[0].run.timeout", "greater than 0"]),
        ("[{read: ", ["plans.yaml", "no valid YAML"]),
    ],
)
def test_a_wrong_plan_names_the_step_and_what_it_lacks(folder: Path, steps: str, words: list[str]) -> None:
    (folder / "plans.yaml").write_text(f"scripted/solver:\n- steps: {steps}\n")
    if not words:
        assert load_task(folder).plans["scripted/solver"][0]["steps"][0]["say"] == "x"
        return
    with pytest.raises(InvalidValueError) as caught:
        load_task(folder)
    for word in ["plans.yaml", *words]:
        assert word in str(caught.value)


def test_a_set_with_a_task_that_is_not_there_says_which(folder: Path) -> None:
    change(folder.parent / "set.toml", '["greeting"]', '["greeting", "parting"]')
    with pytest.raises(InvalidValueError, match=r"set\.toml: tasks\[1\]: 'parting' has no folder"):
        load_task_set(folder.parent)


def test_two_tasks_of_a_set_cannot_share_an_id(folder: Path) -> None:
    shutil.copytree(folder, folder.parent / "again")
    change(folder.parent / "set.toml", '["greeting"]', '["greeting", "again"]')
    with pytest.raises(InvalidValueError, match="has the id 'greeting' of an earlier task"):
        load_task_set(folder.parent)


def test_a_missing_repository_is_listed_and_fails_at_run_time_for_good(folder: Path) -> None:
    shutil.rmtree(folder / "repository")
    task = load_task(folder)
    for use in (repository_files, pack_repository):
        with pytest.raises(InfrastructureError, match="repository: .*is no folder; put the task's") as caught:
            use(task)
        assert not caught.value.retryable


def test_a_repository_that_changed_under_a_loaded_task_is_refused(folder: Path) -> None:
    task = load_task(folder)
    (folder / "repository" / "greeting.py").write_text("WORD = 'hello'\n")
    with pytest.raises(InfrastructureError, match="changed since the task was loaded"):
        pack_repository(task)


def test_digest_and_archive_do_not_depend_on_place_time_umask_or_caches(folder: Path, tmp_path: Path) -> None:
    first = load_task(folder)
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    for file in (copy / "repository").rglob("*"):
        os.utime(file, (1, 1))
        if file.is_file():
            file.chmod(0o700 if file.name == "run.sh" else 0o600)
    (copy / "repository" / "__pycache__").mkdir()
    (copy / "repository" / "__pycache__" / "greeting.cpython-311.pyc").write_bytes(b"\0")
    (copy / "repository" / "greeting.pyc").write_bytes(b"\0")
    (copy / "repository" / "empty").mkdir()
    second = load_task(copy)
    assert second.repository_digest == first.repository_digest
    assert second.digest == first.digest
    assert pack_repository(second) == pack_repository(first)


@pytest.mark.parametrize("kind", ["content", "mode", "name", "link"])
def test_the_digest_tells_snapshots_apart(folder: Path, kind: str) -> None:
    before = load_task(folder).repository_digest
    script = folder / "repository" / "src" / "run.sh"
    if kind == "content":
        script.write_text("#!/bin/bash\n")
    elif kind == "mode":
        script.chmod(0o644)
    elif kind == "name":
        script.rename(script.with_name("start.sh"))
    else:
        script.with_name("start.sh").symlink_to("run.sh")
    assert load_task(folder).repository_digest != before


def test_the_archive_holds_files_links_and_modes_and_no_cache(folder: Path) -> None:
    repository = folder / "repository"
    (repository / "alias.py").symlink_to("greeting.py")
    (repository / "src" / "__pycache__").mkdir()
    (repository / "src" / "__pycache__" / "x.pyc").write_bytes(b"\0")
    with tarfile.open(fileobj=io.BytesIO(pack_repository(load_task(folder)))) as archive:
        assert archive.getnames() == ["alias.py", "greeting.py", "src/run.sh"]
        assert archive.getmember("alias.py").linkname == "greeting.py"
        assert archive.getmember("src/run.sh").mode == 0o755
        content = archive.extractfile("greeting.py")
        assert content is not None
        assert content.read() == b"WORD = 'oi'\n"


def test_a_pipe_in_a_repository_is_refused_instead_of_read_for_ever(folder: Path) -> None:
    os.mkfifo(folder / "repository" / "pipe")
    with pytest.raises(InfrastructureError, match="neither file, folder nor link"):
        load_task(folder)


def test_the_practice_set_loads_and_its_digest_repeats() -> None:
    first, second = load_task_set(practice_folder()), load_task_set(practice_folder())
    assert first.name == "practice"
    assert first.digest == second.digest
    assert [task.digest for task in first.tasks] == [task.digest for task in second.tasks]


def test_a_task_says_of_which_repository_it_is_or_its_id_does(folder: Path) -> None:
    digest = load_task(folder).digest
    assert load_task(folder).origin == ""
    change(folder / "task.toml", 'difficulty = "easy"', 'difficulty = "easy"\nrepository = "psf/requests"')
    assert load_task(folder).origin == "psf/requests"
    assert load_task(folder).digest == digest
    change(folder / "task.toml", 'repository = "psf/requests"\n', "")
    change(folder / "task.toml", 'id = "greeting"', 'id = "psf__requests-12"')
    assert load_task(folder).origin == "psf/requests"


def test_a_repository_without_an_owner_is_refused_with_the_way_out(folder: Path) -> None:
    change(folder / "task.toml", 'difficulty = "easy"', 'repository = "requests"')
    with pytest.raises(InvalidValueError, match='repository.*write owner and name, as in "django/django"'):
        load_task(folder)
