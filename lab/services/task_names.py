"""What the names of tasks say of where they are from: other programs name one problem in several ways."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from lab.models import Task

# "marshmallow-1867" of "marshmallow-code__marshmallow-1867" and of "marshmallow-1867-default-thought-action".
_ISSUE = re.compile(r"([a-z][a-z0-9_.]*(?:-[a-z][a-z0-9_.]*)*)-([0-9]{1,9})(?=$|[-_.])", re.IGNORECASE)


class Namesakes(NamedTuple):
    """Tasks whose names share something with that of a task: its problem (`issue`), or its repository."""

    issue: str
    repository: str
    of_issue: Sequence[int]
    of_repository: Sequence[int]


def issue_of(slug: str) -> str | None:
    """Repository and number of the problem, in small letters, None for a name that is not made of these."""
    found = _ISSUE.match(slug.rsplit("__", 1)[-1])
    return found[0].lower() if found else None


def namesakes(task: Task) -> Namesakes:
    """Other tasks that are of the same problem or repository by their names; one query at most."""
    issue = issue_of(task.slug)
    if issue is None:
        return Namesakes("", "", (), ())
    repository = issue.rsplit("-", 1)[0]
    named = (
        Task.objects.filter(slug__icontains=f"{repository}-")
        .exclude(pk=task.pk)
        .order_by("pk")
        .values_list("pk", "slug")
    )
    others = [(pk, other) for pk, slug in named if (other := issue_of(slug)) is not None]
    return Namesakes(
        issue,
        repository,
        [pk for pk, other in others if other == issue],
        [pk for pk, other in others if other.rsplit("-", 1)[0] == repository],
    )
