"""Of which repository a task is: what a benchmark says, and nothing that is only likely."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lab.engine.tasks.repositories import is_repository, repository_by_id, repository_of

SHA = "00c70ce7b0541cfc94afe567921d7668cdc8f4ac"


@pytest.mark.parametrize(
    ("task_id", "repository"),
    [
        ("django__django-11099", "django/django"),
        ("scikit-learn__scikit-learn-13439", "scikit-learn/scikit-learn"),
        ("pylint-dev__pylint_odd.name-12", "pylint-dev/pylint_odd.name"),
        ("owner__a__b-3", "owner/a__b"),
        (f"instance_NodeBB__NodeBB-{SHA}-vnan", "NodeBB/NodeBB"),
        (f"instance_element-hq__element-web-{SHA}-v7b62abc", "element-hq/element-web"),
        (f"instance_flipt-io__flipt-{SHA}", "flipt-io/flipt"),
        ("pandas-dev__pandas.95280573.pr_53652", "pandas-dev/pandas"),
        ("oauthlib__oauthlib.1fd52536.combine_file__09vlzwgc", "oauthlib/oauthlib"),
    ],
)
def test_the_rules_of_benchmarks_name_it(task_id: str, repository: str) -> None:
    assert repository_by_id(task_id) == repository


@pytest.mark.parametrize(
    "task_id",
    [
        "", "dst-schedule", "marshmallow-1867", "django-11099", "django__django", "django__django-main",
        "encode_starlette_pr1234", "under_score__name-1", "-lead__name-1", "a__b-", "__b-1", "a b__c-1",
        f"instance_NodeBB__NodeBB-{SHA[:-1]}", "not-recorded-1234abcd", "django__django-11099\n",
        "own" + "er" * 200 + "__name-1",
    ],
)  # fmt: skip
def test_of_other_ids_nobody_guesses(task_id: str) -> None:
    assert repository_by_id(task_id) == ""


@pytest.mark.parametrize(
    ("record", "repository"),
    [
        ({"repo": "Unidata/netcdf-c"}, "Unidata/netcdf-c"),
        ({"metadata": {"repo": "Unidata/netcdf-c"}}, "Unidata/netcdf-c"),
        ({"repo": "swesmith/pandas-dev__pandas.95280573"}, "pandas-dev/pandas"),
        ({"repo": "no repository"}, "unidata/netcdf-c"),
        ({"repo": 7, "metadata": [1]}, "unidata/netcdf-c"),
        ({}, "unidata/netcdf-c"),
        (None, "unidata/netcdf-c"),
    ],
)
def test_a_record_that_names_it_comes_before_the_id(record: Any, repository: str) -> None:
    assert repository_of("unidata__netcdf-c-1925", record) == repository


@pytest.mark.parametrize(("text", "fits"), [("a/b", True), ("a", False), ("a/b/c", False), ("a_/b", False)])
def test_a_repository_has_an_owner_and_a_name(text: str, fits: bool) -> None:
    assert is_repository(text) is fits


def test_every_instance_of_the_real_results_and_records_has_its_repository() -> None:
    data = os.environ.get("LAB_TEST_DATA")
    if not data or not Path(data, "results/swe-bench-pro").is_dir():
        pytest.skip("absent data: set LAB_TEST_DATA to a folder with results/swe-bench-pro")
    ids = {
        one
        for file in Path(data, "results/swe-bench-pro").glob("*.json")
        for one in json.loads(file.read_text())
    }
    found = {one: repository_by_id(one) for one in ids}
    assert len(ids) == 730
    assert len(set(found.values())) == 11
    assert "" not in found.values()
    for name in ("swe-bench-lite-5", "swe-bench-dev-5"):
        for record in json.loads(Path(data, f"instances/{name}.json").read_text()):
            assert repository_by_id(record["instance_id"]) == record["repo"]
