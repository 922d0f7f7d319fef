"""Tasks that were there before repositories were kept get theirs."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import connection

from lab.engine.tasks.repositories import repository_by_id
from lab.models import Task, TaskSet

pytestmark = pytest.mark.django_db

SLUGS = (
    "django__django-11099",
    "instance_NodeBB__NodeBB-00c70ce7b0541cfc94afe567921d7668cdc8f4ac-vnan",
    "pandas-dev__pandas.95280573.pr_53652",
    "dst-schedule",
    "not__one",
)


def test_the_migration_names_what_todays_rules_name_and_changes_nothing_that_is_known() -> None:
    tasks = TaskSet.objects.create(name="imported", version="1", digest="0" * 64, folder="")
    for position, slug in enumerate((*SLUGS, "a__b-1"), start=1):
        known = {"repository": "told/otherwise"} if slug == "a__b-1" else {}
        Task.objects.create(
            task_set=tasks, slug=slug, position=position, title=slug, digest=slug[:64], folder="", **known
        )
    migration = importlib.import_module("lab.migrations.0016_task_repositories")
    migration.name_repositories(apps, SimpleNamespace(connection=connection))
    found = dict(Task.objects.filter(task_set=tasks).values_list("slug", "repository"))
    assert found == {slug: repository_by_id(slug) for slug in SLUGS} | {"a__b-1": "told/otherwise"}
    assert found["django__django-11099"] == "django/django"
