"""Runs side by side, step by step: heads, the rows around one place, and what opens below them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.engine.errors import InvalidValueError
from lab.models import Experiment, Run, RunFacts
from lab.render.moments import INFRASTRUCTURE_REASONS
from lab.render.numbers import clock, dollars, plural
from lab.render.step_differences import RowColumn, row_body
from lab.services import compared_patches, compared_steps, outlines
from lab.services.compared_patches import LETTERS
from lab.services.comparison_asks import Asked, Place
from lab.services.facts import agent_seconds, facts_of
from lab.services.gradings import Badge
from lab.services.outlines import Outline
from lab.services.run_asks import marks_of
from lab.services.run_costs import free_words
from lab.services.run_pages import badge_of
from lab.services.side_by_side_rows import (
    WINDOW_UNITS,
    Layout,
    Row,
    Stretch,
    Unit,
    Window,
    cut,
    layout,
    rows_of,
    unit_of,
    units_of,
    window_around,
)

# So many rows from the divergence on come with their bodies, until each run that parts has acted.
_OPEN_AT_PARTING = 4


@dataclass(frozen=True, slots=True)
class Column:
    """One run as its head tells it. Words are plain text; `unknown` names what nobody knows, "" if nothing.

    `recorded`: its steps are; what another program tells of a run may be a verdict alone.
    """

    run: Run
    letter: str
    outline: Outline
    badge: Badge
    marks: list[str]
    exit_reason: str
    infrastructure: bool
    ended: bool
    facts: list[str]
    unknown: list[str]
    recorded: bool


@dataclass(frozen=True, slots=True)
class SideBySide:
    """What the page shows; everything in the order of `columns`.

    `units`: all of them; `window`: those that are shown; `focus`: the row at which the page opens. `bodies`:
    by name of row, of those that are opened at once. `same_patch`: all that have ended leave the same patch.
    """

    asked: Asked
    columns: list[Column]
    layout: Layout
    units: list[Unit]
    window: Window
    focus: int
    opened: list[Place]
    bodies: dict[Place, str]
    same_patch: bool
    verdicts_differ: bool
    problems: list[InvalidValueError]

    @property
    def goes_on(self) -> bool:
        """Whether one of the runs has not ended."""
        return not all(column.ended for column in self.columns)

    @property
    def runs(self) -> list[int]:
        return [column.run.pk for column in self.columns]

    def row(self, place: Place) -> Row | None:
        """The row that holds a step, None where there is no such step."""
        index = self.layout.places.get(place)
        return None if index is None else self.layout.rows[index]


def read(runs: Sequence[Run], asked: Asked, *, everything: bool = False, bodies: bool = True) -> SideBySide:
    """The runs (of `comparisons.find_runs`, in the order of their letters) as they are asked for.

    `everything`: the window holds all there is. `bodies`: with what opens at once below the rows.
    """
    by_number = {run.pk: run for run in runs}
    letters = dict(zip(asked.runs, LETTERS, strict=False))
    ordered = [by_number[number] for number in asked.order]
    columns = [
        _column(run, letters[run.pk], outline)
        for run, outline in zip(ordered, outlines.outlines_of(ordered), strict=True)
    ]
    outlined = [column.outline for column in columns]
    same = same_files(ordered, outlined)
    laid = layout(
        outlined,
        numbered=asked.by == "number",
        ended=[column.ended for column in columns],
        same_files=same,
    )
    problems = list(asked.problems)
    at, opened = (_row_of(name, asked, columns, laid, problems) for name in ("at", "open"))
    parting = laid.first_parting()
    focus = next((row for row in (at, opened, parting.row if parting else None) if row is not None), 0)
    begins = _rows_at_parting(laid)
    shown_open = begins if at is None and opened is None else []
    if opened is not None:
        shown_open = [laid.rows[opened]]
    with_bodies = {row.index: row for row in (*begins, *shown_open)}
    kept = {row.index for row in begins} | {row for row in (at, opened) if row is not None}
    units = units_of(laid, fold=asked.fold == "equal", kept=kept)
    window = cut(units, 0, len(units)) if everything else window_around(units, focus)
    known = [one for one in same if one is not None]
    return SideBySide(
        asked=asked,
        columns=columns,
        layout=laid,
        units=units,
        window=window,
        focus=focus,
        opened=[row.name for row in shown_open],
        bodies=bodies_of(columns, list(with_bodies.values())) if bodies else {},
        same_patch=len(known) == len(columns) - 1 and all(all(one.values()) for one in known),
        verdicts_differ=len({column.badge.word for column in columns if column.ended}) > 1,
        problems=problems,
    )


def same_files(runs: Sequence[Run], outlines: Sequence[Outline]) -> list[Mapping[str, bool] | None]:
    """For each run which files its patch and that of the first run with steps hold alike; None: unknown."""
    first = next((place for place, outline in enumerate(outlines) if outline.steps), 0)
    others = [place for place in range(len(runs)) if place != first]
    found = compared_patches.same_files([runs[place] for place in (first, *others)])
    same: list[Mapping[str, bool] | None] = [None] * len(runs)
    for place, one in zip(others, found, strict=True):
        same[place] = one
    return same


def _row_of(
    name: str, asked: Asked, columns: Sequence[Column], laid: Layout, problems: list[InvalidValueError]
) -> int | None:
    """The row of the step that `at` or `open` names; what is wrong with it goes into `problems`."""
    place: Place | None = getattr(asked, name)
    if place is None:
        return None
    if place not in laid.places:
        problems.append(no_such_step(name, place, columns))
    return laid.places.get(place)


def no_such_step(name: str, place: Place, columns: Sequence[Column]) -> InvalidValueError:
    """That a run has no such step, and which ones it has."""
    steps = next((column.outline.steps for column in columns if column.run.pk == place.run), ())
    has = f"has steps 1 to {len(steps)}" if steps else "has no steps recorded"
    return InvalidValueError(name, str(place), f"is no step: run {place.run} {has}")


def _rows_at_parting(laid: Layout) -> list[Row]:
    """From the row where runs part first, those rows in which both that part have done something."""
    parting = laid.first_parting()
    if parting is None:
        return []
    waiting = {parting.base, parting.column}
    found = []
    for row in laid.rows[parting.row : parting.row + _OPEN_AT_PARTING]:
        if not waiting & set(row.acting):
            continue
        found.append(row)
        waiting -= set(row.acting)
        if not waiting:
            break
    return found


def bodies_of(columns: Sequence[Column], rows: Sequence[Row], *, static: bool = False) -> dict[Place, str]:
    """What opens below these rows, by their names: one query a run."""
    wanted = [
        (column.run.pk, column.outline.attempt, step.number)
        for row in rows
        for column, step in zip(columns, row.steps, strict=True)
        if step is not None
    ]
    views = compared_steps.views_of(wanted) if wanted else {}
    found: dict[Place, str] = {}
    for row in rows:
        cells = [
            RowColumn(column.run.pk, column.letter, views.get((column.run.pk, step.number)) if step else None)
            for column, step in zip(columns, row.steps, strict=True)
        ]
        found[row.name] = row_body(cells, static=static)
    return found


def rows_before(side: SideBySide, row: Row) -> Window:
    """The units before the one that holds a row."""
    at = unit_of(side.units, row.index)
    return cut(side.units, at - WINDOW_UNITS, at)


def rows_after(side: SideBySide, row: Row) -> Window:
    """The units after the one that holds a row."""
    at = unit_of(side.units, row.index) + 1
    return cut(side.units, at, at + WINDOW_UNITS)


def rows_within(side: SideBySide, row: Row) -> Window:
    """The rows of the stretch that holds a row, each for itself."""
    unit = side.units[unit_of(side.units, row.index)]
    return Window(list(rows_of(unit)), 0, 0)


def stretch_words(stretch: Stretch) -> str:
    """What happens in a stretch, its first three steps by name."""
    steps = [row.steps[row.base] for row in stretch.rows]
    named = [f"{step.tool} {step.argument}".strip() for step in steps[:3] if step is not None]
    more = len(steps) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


# ---- heads -------------------------------------------------------------------------------------------------


def _column(run: Run, letter: str, outline: Outline) -> Column:
    facts = facts_of(run)
    ended = run.status == Run.Status.ENDED
    imported = run.experiment.kind == Experiment.Kind.IMPORTED
    recorded = bool(outline.steps) or not (imported and not facts.calls and not facts.steps)
    told, unknown = _counted(run, facts) if recorded else ([], [])
    steps = plural(len(outline.steps), "step") if recorded else "steps not recorded"
    return Column(
        run=run,
        letter=letter,
        outline=outline,
        badge=badge_of(run),
        marks=marks_of(run, facts),
        exit_reason=run.exit_reason,
        infrastructure=run.exit_reason in INFRASTRUCTURE_REASONS,
        ended=ended,
        facts=[steps, *told],
        unknown=unknown,
        recorded=recorded,
    )


def _counted(run: Run, facts: RunFacts) -> tuple[list[str], list[str]]:
    """Time, tokens and cost of a run in words, and the names of those that nobody knows."""
    told, unknown = [], []
    runs = run.status == Run.Status.RUNNING
    seconds = agent_seconds(facts, until=dt.datetime.now(dt.UTC) if runs else None)
    if seconds is not None:
        told.append(clock(seconds))
    elif facts.calls or facts.steps:
        unknown.append("time")
    parts = [part for part in (facts.input_total, facts.output_total) if part is not None]
    if parts:
        told.append(f"{'at least ' if facts.usage_unknown else ''}{sum(parts):,} tokens")
    elif facts.calls:
        unknown.append("tokens")
    if free := free_words(run):
        told.append(free)
    elif facts.cost is not None:
        told.append(f"{'at least ' if facts.cost_unknown else ''}{dollars(facts.cost, places=2)}")
    elif facts.calls:
        unknown.append("cost")
    return told, unknown
