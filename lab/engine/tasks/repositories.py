"""Of which repository a task is, "owner/name": as its record says, or by a benchmark's own rule for ids.

Where neither says it, nobody guesses: "".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# An owner's name holds letters, digits and hyphens alone, so that the first two underscores end it.
_OWNER = r"(?P<owner>[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)"
_NAME = r"(?P<name>[A-Za-z0-9._-]+?)"
_NAMED = re.compile(rf"{_OWNER}/(?P<name>[A-Za-z0-9._-]+)")
# SWE-smith names repository, commit and what was done to it; its mirrors of repositories the first two.
_SMITH = re.compile(rf"{_OWNER}__{_NAME}\.[0-9a-f]{{8}}(?:\..+)?")
_RULES = (
    # SWE-bench Pro: a commit, and that of the tests.
    re.compile(rf"instance_{_OWNER}__{_NAME}-[0-9a-f]{{40}}(?:-v[0-9a-z]+)?"),
    _SMITH,
    # SWE-bench and those that follow it: the number of a pull request.
    re.compile(rf"{_OWNER}__(?P<name>[A-Za-z0-9._-]+)-[0-9]+"),
)
# Where formats keep what a benchmark says of a task.
_RECORDS = ("instance", "metadata", "ds")
_LONGEST = 200


def is_repository(text: str) -> bool:
    """Whether the text has the form "owner/name"."""
    return len(text) <= _LONGEST and _NAMED.fullmatch(text) is not None


def repository_by_id(task_id: str) -> str:
    """The repository that a task's id names by the rule of its benchmark, "" where none holds."""
    found = next((match for rule in _RULES if (match := rule.fullmatch(task_id))), None)
    return f"{found['owner']}/{found['name']}" if found and len(task_id) <= _LONGEST else ""


def repository_of(task_id: str, record: Mapping[str, Any] | None = None) -> str:
    """The repository of a task with this id; what its benchmark's `record` of it says comes first.

    A mirror that SWE-smith keeps of a repository at one commit counts as that repository.
    """
    record = record or {}
    for told in (record, *(record.get(name) for name in _RECORDS)):
        named = told.get("repo") if isinstance(told, Mapping) else None
        if isinstance(named, str) and is_repository(named):
            mirror = _SMITH.fullmatch(named.partition("/")[2])
            return f"{mirror['owner']}/{mirror['name']}" if mirror else named
    return repository_by_id(task_id)
