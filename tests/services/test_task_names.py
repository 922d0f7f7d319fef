"""Repository and number of a problem are read from the several names that programs give one task."""

from __future__ import annotations

import pytest

from lab.services.task_names import issue_of


@pytest.mark.parametrize(
    ("slug", "issue"),
    [
        ("marshmallow-code__marshmallow-1867", "marshmallow-1867"),
        ("marshmallow-1867-default-thought-action", "marshmallow-1867"),
        ("scikit-learn__scikit-learn-14496", "scikit-learn-14496"),
        ("SWE-agent__Test.Repo-i1", None),
        ("instance_ansible__ansible-0ea40e09d1b35bcb69ff4d9cecf3d0defa4b36e8", None),
        ("slug-unicode", None),
        ("42", None),
        ("", None),
    ],
)
def test_repository_and_number_of_a_problem_are_read_from_the_name_of_its_task(
    slug: str, issue: str | None
) -> None:
    assert issue_of(slug) == issue
