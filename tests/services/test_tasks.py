from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command

from lab.engine.errors import InfrastructureError, InvalidValueError, SandboxLostError
from lab.engine.sandboxes.base import Sandbox, SandboxSpec
from lab.engine.sandboxes.process import ProcessProvider
from lab.engine.tasks.loader import load_task_set, practice_folder
from lab.models import HiddenTaskPart, Task, TaskCheck, TaskSet
from lab.services import isolation, tasks
from tests.services.builders import small_task_set
from tests.whole_lab import PROJECT


def test_the_same_content_is_the_same_set_and_changed_content_a_new_one(db: None, tmp_path: Path) -> None:
    first = small_task_set(tmp_path / "set")
    assert tasks.sync_task_set(folder=tmp_path / "set") == first
    (tmp_path / "set" / "adds" / "issue.md").write_text("It is still wrong.\n")
    second = tasks.sync_task_set(folder=tmp_path / "set")
    assert second != first
    assert [task.slug for task in second.tasks.all()] == ["adds", "subtracts"]
    assert "still" not in Task.objects.get(task_set=first, slug="adds").statement
    assert TaskSet.objects.count() == 2


def test_a_set_that_moved_is_the_same_set_in_its_new_place(db: None, tmp_path: Path) -> None:
    first = small_task_set(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    again = tasks.sync_task_set(folder=tmp_path / "there")
    assert again == first
    assert all(str(tmp_path / "there") in task.folder for task in again.tasks.all())


def test_a_task_comes_out_of_its_rows_as_it_was_read(db: None) -> None:
    task_set = tasks.sync_practice()
    wanted = {task.id: task for task in load_task_set(practice_folder()).tasks}
    for row in task_set.tasks.all():
        assert tasks.task_spec(row) == wanted[row.slug]
        assert row.digest == wanted[row.slug].digest


def test_what_an_agent_may_not_see_stands_in_no_public_column(db: None) -> None:
    task_set = tasks.sync_practice()
    public = str(list(Task.objects.values()))
    for hidden in HiddenTaskPart.objects.filter(task__task_set=task_set):
        assert hidden.gold_patch.strip()
        assert hidden.gold_patch[:80] not in public
        for content in filter(str.strip, hidden.verification["test_files"].values()):
            assert content[:80] not in public


def test_plans_are_brought_up_to_date_without_a_new_version(db: None) -> None:
    task_set = tasks.sync_practice()
    HiddenTaskPart.objects.update(plans={})
    assert tasks.sync_practice() == task_set
    assert all(hidden.plans for hidden in HiddenTaskPart.objects.all())


def test_only_the_labs_own_folder_is_practice(db: None, tmp_path: Path) -> None:
    assert tasks.is_practice(tasks.sync_practice())
    impostor = small_task_set(tmp_path / "set")
    TaskSet.objects.filter(pk=impostor.pk).update(name="practice")
    impostor.refresh_from_db()
    assert not tasks.is_practice(impostor)
    assert tasks.current_task_set() == tasks.sync_practice()


def test_a_broken_set_is_refused_and_nothing_of_it_kept(db: None, tmp_path: Path) -> None:
    small_task_set(tmp_path / "set")
    before = TaskSet.objects.count()
    (tmp_path / "set" / "adds" / "task.toml").write_text("id = 3\n")
    with pytest.raises(InvalidValueError, match=r"task\.toml"):
        tasks.sync_task_set(folder=tmp_path / "set")
    assert TaskSet.objects.count() == before


def test_a_check_is_kept_with_what_is_wrong(db: None, tmp_path: Path) -> None:
    task = small_task_set(tmp_path / "set").tasks.get(slug="adds")
    result = tasks.check_task(task=task, provider=isolation.provider("process"))
    assert not result.valid
    kept = TaskCheck.objects.get()
    assert (kept.task, kept.valid, kept.sandbox) == (task, False, "process")
    assert "should fail" in kept.detail


def test_a_task_that_cannot_be_checked_keeps_no_other_from_it(
    db: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_task_set(tmp_path / "set")
    described = tmp_path / "set" / "adds" / "task.toml"
    described.write_text(described.read_text() + '\n[environment]\nimage = "debian:12"\n')
    passes = tmp_path / "set" / "subtracts" / "tests" / "tests" / "test_it.py"
    passes.write_text("import it\ndef test_it(): assert it.it == 2\ndef test_other(): ...\n")
    with pytest.raises(SystemExit) as ended:
        call_command("check_tasks", str(tmp_path / "set"), "--sandbox", "process")
    said = capsys.readouterr().out
    assert "UNCHECKED  adds\n           environment.image: 'debian:12'" in said
    assert "valid      subtracts\n" in said
    assert ended.value.code == 2


def test_a_check_during_which_a_sandbox_breaks_is_none(db: None, tmp_path: Path) -> None:
    class Breaking(ProcessProvider):
        def start(self, spec: SandboxSpec) -> Sandbox:
            raise SandboxLostError("the machine is out of memory")

    task = small_task_set(tmp_path / "set").tasks.get(slug="adds")
    with pytest.raises(InfrastructureError, match="out of memory"):
        tasks.check_task(task=task, provider=Breaking())
    assert not TaskCheck.objects.exists()


def test_check_tasks_says_which_task_is_invalid_and_exits_with_one(tmp_path: Path, data_folder: Path) -> None:
    environment = {
        **os.environ,
        "LAB_DATA_DIR": str(data_folder),
        "LAB_SANDBOX": "process",
        "PYTHONPATH": str(PROJECT),
    }

    def manage(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(PROJECT / "manage.py"), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert manage("migrate", "-v0").returncode == 0
    unknown = manage("check_tasks", "nothing-like-it")
    assert (unknown.returncode, "'nothing-like-it' is not known" in unknown.stderr) == (1, True)
    link = manage("login_link", "--base-url", "https://lab.example.org")
    assert link.stdout.startswith("https://lab.example.org/sign-in/")
    nothing = manage("import_harness", "--leaf", str(tmp_path))
    assert nothing.returncode == 1
    assert str(tmp_path) in nothing.stderr
    assert "Traceback" not in nothing.stderr
