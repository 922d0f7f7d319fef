"""Steps of several runs side by side, opened: what they have in common once, and what differs marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString

from lab.render.blocks import reasoning_block
from lab.render.call_differences import CallRow, folded_when_equal, matched_calls
from lab.render.calls import call_block
from lab.render.fold import StepView
from lab.render.held_against import Held, held_against
from lab.render.numbers import plural
from lab.render.replies import said, spoken
from lab.render.steps import step_body
from lab.render.text import Excerpt, excerpt, safe


@dataclass(frozen=True, slots=True)
class RowColumn:
    """One column of a row: its run, the letter it is called by, and its step; None: a gap."""

    run: int
    letter: str
    view: StepView | None


def row_body(columns: Sequence[RowColumn], *, static: bool = False) -> SafeString:
    """What opens below a row, a cell a column; a gap's cell is empty.

    Each column is held against the first one that has a step. `static`: for a file that is read without the
    lab, which links to nothing and says how much of a text is not in it.
    """
    row = _Row(columns, static=static)
    cells = "".join(
        f'<div class="body-cell{" gap" if column.view is None else ""}" data-column="{place}">'
        f"{row.cell(place)}</div>"
        for place, column in enumerate(columns)
    )
    return safe(f'<div class="row-body" data-columns="{len(columns)}">{cells}</div>')


class _Row:
    """The steps of one row, every text of a column held against the first column's."""

    def __init__(self, columns: Sequence[RowColumn], *, static: bool) -> None:
        letters = [column.letter for column in columns]
        self._runs = [None if static else column.run for column in columns]
        self._views = views = [column.view for column in columns]
        self._reasoning = held_against([_reasoning(view) for view in views], letters)
        self._said = held_against([_spoken(view) for view in views], letters)
        # Calls by column and place within its step.
        self._bodies: list[dict[int, str]] = [{} for _ in columns]
        for places in matched_calls([view.calls if view is not None else [] for view in views]):
            calls = [
                view.calls[index] if view is not None and index is not None else None
                for view, index in zip(views, places, strict=True)
            ]
            row = CallRow(calls, letters=letters, runs=self._runs)
            for column, index in enumerate(places):
                if index is not None:
                    self._bodies[column][index] = row.body(column)

    def cell(self, place: int) -> str:
        """The body of one column's step, "" for a gap."""
        view, run = self._views[place], self._runs[place]
        if view is None:
            return ""
        alone = len(view.calls) == 1
        calls = "".join(
            call_block(run, call, alone=alone, body=self._bodies[place][index])
            for index, call in enumerate(view.calls)
        )
        return step_body(run, view, words=self._words(place, view), calls=calls)

    def _words(self, place: int, view: StepView) -> str:
        if view.reply is None:
            return ""
        run, seq = self._runs[place], view.reply.seq
        thought, spoke = excerpt(view.answer.get("reasoning")), spoken(view)
        return _worded(
            self._reasoning[place], "reasoning", thought, reasoning_block(thought, run=run, seq=seq)
        ) + _worded(self._said[place], "Said", spoke, said(run, view, seq))


def _worded(held: Held, name: str, text: Excerpt, markup: str) -> str:
    count = plural(len(text.text.split()), "word") if text.whole else f"{text.characters or 0:,} characters"
    return folded_when_equal(held, name, count, markup)


def _reasoning(view: StepView | None) -> Excerpt | None:
    """None where a step has none."""
    text = excerpt(view.answer.get("reasoning")) if view is not None else excerpt(None)
    return text if text.text else None


def _spoken(view: StepView | None) -> Excerpt | None:
    text = spoken(view) if view is not None and view.reply is not None else excerpt(None)
    return text if text.text.strip() else None
