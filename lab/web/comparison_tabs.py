"""Beside the steps of runs side by side: patches, tests, files, cost and time, and the summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest

from lab.models import Run
from lab.services.outlines import Outline

TABS = ("patches", "tests", "files", "cost")


def context_of(view: str, runs: Sequence[Run], request: HttpRequest) -> tuple[str, dict[str, Any]]:
    """The template of one of the views "patches", "tests", "files" and "cost", and what it shows.

    `runs` as `comparisons.find_runs` gives them, two to six.
    """
    return f"comparisons/_{view}.html", {}


def summary_of(
    runs: Sequence[Run], outlines: Sequence[Outline], divergence_step: int | None
) -> dict[str, Any]:
    """What comparisons/_summary.html shows, under the name "summary": tests that differ, files, context.

    `divergence_step`: the number of the first run's last step before the runs part (0: at once), None where
    they do not part.
    """
    return {}
