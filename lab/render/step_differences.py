"""Steps of several runs side by side, opened: what they have in common once, and what differs marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString

from lab.render.fold import StepView
from lab.render.steps import step_body
from lab.render.text import safe


@dataclass(frozen=True, slots=True)
class RowColumn:
    """One column of a row: its run, the letter it is called by, and its step; None: a gap."""

    run: int
    letter: str
    view: StepView | None


def row_body(columns: Sequence[RowColumn], *, static: bool = False) -> SafeString:
    """What opens below a row, a cell a column. `static`: for a file that is read without the lab."""
    cells = []
    for place, column in enumerate(columns):
        body = step_body(None if static else column.run, column.view) if column.view is not None else ""
        cells.append(f'<div class="body-cell" data-column="{place}">{body}</div>')
    return safe(f'<div class="row-body" data-columns="{len(columns)}">{"".join(cells)}</div>')
