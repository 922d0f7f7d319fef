"""Tasks know of which repository they are, whether they are read from a folder or met in imported runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lab.models import Run, Task
from lab.services import tasks
from tests.services.builders import small_task_set
from tests.services.import_lines import imported as imported_files
from tests.services.leaf_files import trajectory, write
from tests.services.test_imported_hidden import FOUND, imported

pytestmark = pytest.mark.django_db(transaction=True)


def repositories() -> dict[str, str]:
    return dict(Task.objects.values_list("slug", "repository"))


def test_imported_tasks_have_that_of_their_id_or_none(tmp_path: Path) -> None:
    for task in ("django__django-11099", "greeting-1"):
        write(tmp_path / "given" / f"{task}.json", trajectory(task))
    imported_files(tmp_path / "given")
    assert repositories() == {"django__django-11099": "django/django", "greeting-1": ""}


def test_what_an_imported_record_says_counts_also_for_a_task_that_was_met_before(tmp_path: Path) -> None:
    elsewhere = dataclasses.replace(FOUND.origin, sha256="d" * 64)
    imported(tmp_path, dataclasses.replace(FOUND, task_kept={}, origin=elsewhere))
    assert repositories() == {"x": ""}
    imported(tmp_path, FOUND)
    assert repositories() == {"x": "a/b"}
    assert Run.objects.values("task").distinct().count() == 1


def test_a_set_that_is_read_again_names_them_without_a_new_version(tmp_path: Path) -> None:
    before = small_task_set(tmp_path / "set")
    file = tmp_path / "set" / "adds" / "task.toml"
    file.write_text('repository = "psf/requests"\n' + file.read_text())
    assert tasks.sync_task_set(folder=tmp_path / "set") == before
    assert repositories() == {"adds": "psf/requests", "subtracts": ""}


def test_practice_tasks_are_of_nobodys_repository() -> None:
    tasks.sync_practice()
    assert set(repositories().values()) == {""}
