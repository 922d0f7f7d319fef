"""Rows of runs side by side: how two steps relate, where runs part, what is folded, which part is shown."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from lab.analysis import alignment, divergence
from lab.analysis.alignment import Alignment, Sign
from lab.services import trajectories
from lab.services.comparison_asks import Place
from lab.services.outlines import Outline, StepOutline

WINDOW_UNITS = 60
# So many rows stand above the one at which the page opens; a few more are not worth a link.
_ABOVE = 4
_ABOVE_AT_MOST = 8
_SHORTEST_STRETCH = 3
_KEPT_LAYOUTS = 32
# A row and its steps hold some 2 KB.
_KEPT_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class Row:
    """What stands in one line.

    `index` is its place in the alignment, `name` the step of its first column that has one, `base`. `signs`:
    how each step relates to that first one; None for that one itself, for a gap, and where two steps have
    nothing in common (which only rows of equal numbers hold). `is_equal`: all columns that have steps at all
    do the same here, and it came out the same.
    """

    index: int
    name: Place
    base: int
    steps: tuple[StepOutline | None, ...]
    signs: tuple[Sign | None, ...]
    is_equal: bool

    @property
    def acting(self) -> list[int]:
        """The columns that have a step here."""
        return [place for place, step in enumerate(self.steps) if step is not None]

    def only(self, column: int) -> Row:
        """The row as it is for one column that has a step."""
        return replace(self, base=0, steps=(self.steps[column],), signs=(None,))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows that are alike in all columns, folded to one line."""

    rows: tuple[Row, ...]


Unit = Row | Stretch


class Parting(NamedTuple):
    """Where the run of one column leaves that of another for good: in which row, and why it counts."""

    row: int
    base: int
    column: int
    because: Literal["files", "way"]
    path: str


@dataclass(frozen=True, slots=True)
class Layout:
    """All rows, and the row of each step.

    `partings`: where each run parts from the first one that has steps, in order of rows. `compared`: the
    columns that have steps.
    """

    rows: tuple[Row, ...]
    partings: tuple[Parting, ...]
    places: Mapping[Place, int]
    compared: tuple[int, ...]

    def first_parting(self) -> Parting | None:
        return self.partings[0] if self.partings else None

    def last_common_step(self) -> int | None:
        """The number of the first run's last step before they part, 0: at once; None: they do not."""
        parting = self.first_parting()
        if parting is None:
            return None
        before = [row.steps[parting.base] for row in self.rows[: parting.row]]
        return next((step.number for step in reversed(before) if step is not None), 0)


class Window(NamedTuple):
    """The part of all units that is shown, and how many rows stand before and after it."""

    units: list[Unit]
    before: int
    after: int


class _Kept(NamedTuple):
    outlines: tuple[Outline, ...]
    layout: Layout


# Guarded by the lock: pages of several threads lay out at the same time.
_lock = threading.Lock()
_layouts: OrderedDict[tuple[object, ...], _Kept] = OrderedDict()


def _kept_rows() -> int:
    return sum(len(kept.layout.rows) for kept in _layouts.values())


def _forget() -> None:
    with _lock:
        _layouts.clear()


# One of runs that nobody asks for again would hold for good what was purged from them.
trajectories.also_forget(_forget)


def layout(
    outlines: Sequence[Outline],
    *,
    numbered: bool,
    ended: Sequence[bool],
    same_files: Sequence[Mapping[str, bool] | None],
) -> Layout:
    """The rows of these runs, made once a process for what their logs hold.

    `numbered`: rows of equal step numbers instead of equal actions. `same_files`: for each run, which files
    its patch and the first compared run's hold alike, None where nobody knows (and for the first one itself).
    """
    known = tuple(tuple(sorted(one.items())) if one is not None else None for one in same_files)
    key = (tuple(outline.run for outline in outlines), numbered, tuple(ended), known)
    with _lock:
        kept = _layouts.get(key)
        # An outline is another object as soon as its log has grown or a secret was purged from it.
        if kept is not None and all(a is b for a, b in zip(kept.outlines, outlines, strict=True)):
            _layouts.move_to_end(key)
            return kept.layout
    made = _lay_out(outlines, numbered=numbered, ended=ended, same_files=same_files)
    with _lock:
        _layouts[key] = _Kept(tuple(outlines), made)
        while len(_layouts) > 1 and (len(_layouts) > _KEPT_LAYOUTS or _kept_rows() > _KEPT_ROWS):
            _layouts.popitem(last=False)
    return made


def _lay_out(
    outlines: Sequence[Outline],
    *,
    numbered: bool,
    ended: Sequence[bool],
    same_files: Sequence[Mapping[str, bool] | None],
) -> Layout:
    actions = [[step.action for step in outline.steps] for outline in outlines]
    compared = tuple(place for place, outline in enumerate(outlines) if outline.steps)
    aligned = alignment.align(actions)
    partings = []
    for column in compared[1:]:
        found = divergence.first_sustained(
            actions,
            aligned,
            first=compared[0],
            second=column,
            same_files=same_files[column],
            ended=(ended[compared[0]], ended[column]),
        )
        if found is not None:
            partings.append(Parting(found.row, compared[0], column, found.because, found.path))
    if numbered:
        partings = [_by_number(parting, aligned) for parting in partings]
        aligned = alignment.by_number([len(outline.steps) for outline in outlines])
    rows = tuple(_row(index, row, outlines, compared) for index, row in enumerate(aligned.rows))
    places = {
        Place(outlines[column].run, step.number): row.index
        for row in rows
        for column, step in enumerate(row.steps)
        if step is not None
    }
    return Layout(rows, tuple(sorted(partings)), places, compared)


def _by_number(parting: Parting, aligned: Alignment) -> Parting:
    """The same parting in rows of equal numbers: where the first of its two steps stands."""
    for row in aligned.rows[parting.row :]:
        steps = [step for step in (row[parting.base], row[parting.column]) if step is not None]
        if steps:
            return parting._replace(row=min(steps))
    return parting._replace(row=0)


def _row(
    index: int, places: Sequence[int | None], outlines: Sequence[Outline], compared: Sequence[int]
) -> Row:
    steps = tuple(
        None if place is None else outline.steps[place]
        for place, outline in zip(places, outlines, strict=True)
    )
    base = next(column for column, step in enumerate(steps) if step is not None)
    first = steps[base]
    assert first is not None  # noqa: S101 - no row is empty
    signs = tuple(
        None if step is None or column == base else alignment.sign(first.action, step.action)
        for column, step in enumerate(steps)
    )
    equal = len(compared) > 1 and all(signs[one] is Sign.EQUAL for one in compared if one != base)
    return Row(index, Place(outlines[base].run, first.number), base, steps, signs, equal)


def units_of(layout: Layout, *, fold: bool, kept: AbstractSet[int]) -> list[Unit]:
    """All rows in order, equal stretches folded to one unit.

    Rows whose places are in `kept` stay outside of them, and no stretch goes past a place where runs part.
    """
    begins = {parting.row for parting in layout.partings}
    kept = kept | {row - 1 for row in begins}
    units: list[Unit] = []
    alike: list[Row] = []

    def close() -> None:
        units.extend([Stretch(tuple(alike))] if len(alike) >= _SHORTEST_STRETCH else alike)
        alike.clear()

    for row in layout.rows:
        if row.index in begins:
            close()
        if fold and row.is_equal and row.index not in kept:
            alike.append(row)
        else:
            close()
            units.append(row)
    close()
    return units


def rows_of(unit: Unit) -> tuple[Row, ...]:
    return unit.rows if isinstance(unit, Stretch) else (unit,)


def window_around(units: Sequence[Unit], row: int, *, size: int = WINDOW_UNITS) -> Window:
    """The units shown when the page opens at a row: it stands near the top."""
    at = unit_of(units, row)
    start = 0 if at <= _ABOVE_AT_MOST else at - _ABOVE
    return cut(units, start, start + size)


def cut(units: Sequence[Unit], start: int, end: int) -> Window:
    """The units from one place to another, as far as there are any."""
    start = max(0, start)
    before = sum(len(rows_of(unit)) for unit in units[:start])
    after = sum(len(rows_of(unit)) for unit in units[max(start, end) :])
    return Window(list(units[start:end]), before, after)


def unit_of(units: Sequence[Unit], row: int) -> int:
    """The place of the unit that holds a row."""
    for place, unit in enumerate(units):
        if rows_of(unit)[-1].index >= row:
            return place
    return max(0, len(units) - 1)
