"""Fetching a task set from a package index: the real one, and ones that answer with something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.engine.errors import InfrastructureError, InvalidValueError
from lab.engine.sandboxes.bubblewrap import BubblewrapProvider
from lab.services import task_downloads, tasks
from tests.fakes.openai_server import Answer, FakeOpenAI, html, plain

pytestmark = pytest.mark.django_db


@pytest.mark.requires("package index", "bubblewrap", "git")
def test_the_release_fixes_are_fetched_once_and_can_be_graded(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.LAB_DATA_DIR = tmp_path
    fetched = task_downloads.fetch("release-fixes")
    monkeypatch.setattr(task_downloads, "source_distribution", None)
    assert task_downloads.fetch("release-fixes") == fetched
    assert fetched.tasks.count() == 3
    for task in fetched.tasks.all():
        assert tasks.check_task(task=task, provider=BubblewrapProvider()).problems == ()


def test_a_set_that_nobody_knows_is_named() -> None:
    with pytest.raises(InvalidValueError, match=r"set: 'swe-bench' cannot be fetched; choose one"):
        task_downloads.fetch("swe-bench")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (html("no such page", status=404), "404"),
        (html(), "has no list of parse's files as JSON"),
        (plain({"files": []}), "has no source distribution of it"),
        (
            plain({"files": [{"filename": "parse-1.20.1-py3-none-any.whl", "url": "x"}]}),
            "no source distribution",
        ),
    ],
)
def test_an_index_that_has_it_not_is_named(settings: Any, answer: Answer, said: str) -> None:
    with FakeOpenAI(answer) as fake:
        settings.LAB_PACKAGE_INDEX = fake.base_url
        with pytest.raises(InfrastructureError, match=said):
            task_downloads.source_distribution("parse", "1.20.1")


def test_an_index_that_does_not_answer_leads_to_its_setting(settings: Any) -> None:
    settings.LAB_PACKAGE_INDEX = "http://127.0.0.1:9/simple"
    with pytest.raises(InfrastructureError, match="LAB_PACKAGE_INDEX"):
        task_downloads.source_distribution("parse", "1.20.1")
