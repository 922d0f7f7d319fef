"""The whole of several runs in small: a link a row, in it a mark a run."""

from __future__ import annotations

import html
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from django.utils.safestring import SafeString

from lab.render.icons import icon
from lab.render.side_by_side import Frame, ShownRow, ShownStep
from lab.render.text import safe

MAP_LINKS: Final = 400
# Up to so many rows each mark has its number and its icon.
ROWS_WITH_ICONS: Final = 60


def minimap_html(
    rows: Sequence[ShownRow], frame: Frame, *, partings: AbstractSet[int], shown: range
) -> SafeString:
    """The links, at most 400: of more rows each stands for an equal stretch.

    `partings`: rows where runs part. `shown`: the places of the rows that the page holds.
    """
    stretch = -(-len(rows) // MAP_LINKS) or 1
    large = len(rows) <= ROWS_WITH_ICONS
    entries = []
    for start in range(0, len(rows), stretch):
        part = rows[start : start + stretch]
        indexes = range(part[0].index, part[-1].index + 1)
        classes = ["divergence"] if not partings.isdisjoint(indexes) else []
        if indexes[0] in shown or indexes[-1] in shown:
            classes.append("shown")
        marks = [
            _mark([row.steps[column] for row in part], column, large) for column in range(len(frame.runs))
        ]
        name = f' class="{" ".join(classes)}"' if classes else ""
        entries.append(
            f'<li data-from="{indexes[0]}" data-to="{indexes[-1]}"{name}>'
            f'<a href="{frame.address("at", part[0].name)}" '
            f'aria-label="{html.escape(_label(part, frame, bool(classes) and classes[0] == "divergence"))}">'
            f"{''.join(marks)}</a></li>"
        )
    return safe("".join(entries))


def _mark(steps: Sequence[ShownStep | None], column: int, large: bool) -> str:
    """The mark of one run in one link; nothing for a gap, which is what lies behind it."""
    known = [step for step in steps if step is not None]
    if not known:
        return ""
    # Of several the one is shown that a reader looks for.
    step = next(
        (one for one in known if one.failed_test),
        next((one for one in known if one.kind == "edit"), known[0]),
    )
    failed = ' class="failed-test"' if step.failed_test else ""
    inside = f"{step.number}{icon(step.icon)}" if large else ""
    return f'<i data-c="{column}" data-kind="{step.kind}"{failed}>{inside}</i>'


def _label(rows: Sequence[ShownRow], frame: Frame, parts: bool) -> str:
    told = ["the runs part here"] if parts else []
    for column, letter in enumerate(frame.letters):
        steps = [step for row in rows if (step := row.steps[column]) is not None]
        if len(steps) == 1:
            failed = ", failed" if steps[0].failed_test else ""
            told.append(f"{letter} step {steps[0].number}, {steps[0].kind}{failed}")
        elif steps:
            told.append(f"{letter} steps {steps[0].number} to {steps[-1].number}")
    return "; ".join(told)
