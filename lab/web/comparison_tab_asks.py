"""What is asked of a tab beside the steps of runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.http import HttpRequest

from lab.models import Run
from lab.services.comparison_asks import Asked


class Ask(NamedTuple):
    """What is asked of a tab: the runs in the order of their letters, and the address that was used."""

    runs: Sequence[Run]
    asked: Asked
    request: HttpRequest

    def address(self, view: str, **more: str) -> str:
        """The query of a tab, with what it is asked beside."""
        said = "".join(f"&{name}={value}" for name, value in more.items() if value)
        return f"{self.asked.address(view=view, open=None)}{said}"

    def choice(self, name: str, values: Sequence[str]) -> str:
        """What the address says of something; the first of `values` where it says nothing of use."""
        asked = self.request.GET.get(name, "")
        return asked if asked in values else values[0]

    @property
    def one_task(self) -> bool:
        """Whether all runs are of one task, also where it was read twice."""
        return len({run.task.digest or run.task_id for run in self.runs}) == 1
