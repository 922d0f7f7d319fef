"""What the sections of an analysis are made of: panels, links to runs, and cells of estimates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

from django.urls import reverse
from django.utils.http import urlencode

from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.render import figures
from lab.render.figures import Plot
from lab.render.tables import Cell, Column, Row, Table, missing
from lab.services.analysis import ArmOf, Observed, Selection


class Panel(NamedTuple):
    """One framed answer: a plot with its numbers below, or numbers alone.

    `joined`: the plot stands inside the table, a row an arm. `folded`: the table opens on demand. `why`
    stands in the plot's place where there is none. `more` are tables that open below. `quiet`: its section
    says why nothing is to be seen in it.
    """

    key: str
    title: str
    subtitle: str
    plots: tuple[Plot, ...] = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()
    why: str = ""
    joined: bool = False
    folded: bool = True
    more: tuple[Table, ...] = ()
    quiet: bool = False

    @property
    def opens(self) -> bool:
        """Whether the table opens on demand."""
        return self.quiet or bool(self.plots and self.folded)

    @property
    def wide(self) -> bool:
        """Whether it takes a row of the page: all but those that only say why they are empty."""
        return bool(self.plots or any(table.rows for table in self.tables))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see in it, and nothing to say of that."""
        return not self.wide and not self.why

    @property
    def tables(self) -> tuple[Table, ...]:
        return (*((self.table,) if self.table else ()), *self.more)


class Section(NamedTuple):
    """A place in the contents. `template` draws what panels cannot say, with `extra`."""

    key: str
    title: str
    panels: tuple[Panel, ...]
    template: str = ""
    extra: object = None

    @property
    def alone(self) -> bool:
        """Whether its one panel bears the section's title."""
        return len(self.panels) == 1 and not self.template


class Shown:
    """An observed selection as the page shows it: arms with names and marks, links to the runs behind."""

    def __init__(self, observed: Observed) -> None:
        # A page has a thousand links, and few different selections in them.
        self._narrowed: dict[tuple[str, bool, int], str] = {}
        self._runs = reverse("analysis_runs")
        self.observed = observed
        self.selection: Selection = observed.selection
        self.arms: dict[str, ArmOf] = {arm.key: arm for arm in observed.arms}

    def behind(self, arm: str = "", *, task: str = "", seed: int = 0, **more: str) -> str:
        """The address of the runs behind a number of an arm, of a task, of a seed, with more conditions."""
        kept = (arm, bool(task), seed)
        query = self._narrowed.get(kept)
        if query is None:
            query = self._narrowed[kept] = self._narrow(arm, seed, any_task=not task).query()
        parts = [query, urlencode({"task": task}) if task else "", urlencode(more) if more else ""]
        return f"{self._runs}?{'&'.join(part for part in parts if part)}"

    def counted_with(self, arm: str, **switches: str) -> str:
        """The address of an arm's runs that count when switches stand otherwise than the page's."""
        changed: dict[str, Any] = dict(switches)
        narrowed = dataclasses.replace(self._narrow(arm, 0, any_task=True), **changed)
        return f"{self._runs}?{narrowed.query()}&outcome=counted"

    def _narrow(self, arm: str, seed: int, *, any_task: bool) -> Selection:
        narrowed = dataclasses.replace(self.selection, pair=None)
        if arm:
            narrowed = dataclasses.replace(narrowed, arms=(arm,))
        if seed:
            narrowed = dataclasses.replace(narrowed, seeds=(seed,))
        return narrowed if any_task else dataclasses.replace(narrowed, tasks=())

    def page(self, section: str = "", **changes: object) -> str:
        """The address of this page with something else of the selection changed."""
        changed = dataclasses.replace(self.selection, **changes)  # type: ignore[arg-type]
        query = changed.query()
        address = reverse("analysis") + (f"?{query}" if query else "")
        return f"{address}#{section}" if section else address

    def row(self, arm: str, cells: Iterable[Cell]) -> Row:
        """An arm's row: its mark, its name and a link to its runs."""
        found = self.arms[arm]
        return Row(found.name, tuple(cells), found.series, self.behind(arm), letter=found.letter)

    def name(self, arm: str) -> str:
        return self.arms[arm].name

    def letter(self, arm: str) -> str:
        return self.arms[arm].letter

    def shape(self, arm: str) -> int:
        """Its mark in plots: that of its rows."""
        return self.row(arm, ()).shape

    def series(self, arm: str) -> int:
        return self.arms[arm].series

    def task_name(self, task: str) -> str:
        found = self.observed.tasks.get(task)
        return found.slug if found else task


def rate_cells(estimate: Estimate | Unknown, url: str = "") -> tuple[Cell, Cell]:
    """A share and its 95 % interval."""
    if isinstance(estimate, Unknown):
        return missing(estimate.why, url=url), missing(estimate.why, 2, text="")
    value = Cell(figures.percent(estimate.value), (estimate.value,), url, strong=True, hint=estimate.method)
    return value, interval_cell(estimate.interval)


def interval_cell(interval: Interval | Unknown, *, factor: float = 100, suffix: str = " %") -> Cell:
    """ "49.5 to 70.5 %", or why there is none."""
    if isinstance(interval, Unknown):
        return missing(interval.why, 2, text="no interval")
    if interval.high is None:
        return Cell(f"above {factor * interval.low:.1f}{suffix}", (interval.low, None))
    return Cell(
        f"{factor * interval.low:.1f} to {factor * interval.high:.1f}{suffix}", (interval.low, interval.high)
    )


def dollars_interval(interval: Interval | Unknown) -> Cell:
    """ "0.361 to 0.536" dollars."""
    if isinstance(interval, Unknown):
        return missing(interval.why, 2, text="no interval")
    if interval.high is None:
        text = f"above {figures.usd(interval.low)}, no finite upper limit"
        return Cell(text, (interval.low, None))
    low, high = figures.usd(interval.low), figures.usd(interval.high)
    return Cell(f"{low} to {high}", (interval.low, interval.high))


def share_cell(estimate: Estimate | Unknown, url: str = "") -> Cell:
    """A share with its interval in one cell: "12.0 % (8.1 to 17.4)", n on hover."""
    if isinstance(estimate, Unknown):
        return missing(estimate.why, 3, url=url)
    return Cell(
        f"{figures.percent(estimate.value)} {_in_brackets(estimate.interval, 100)}",
        (estimate.value, *limits(estimate.interval)),
        url,
        hint=f"{estimate.method}, n = {estimate.n:,}",
    )


def amount_cell(estimate: Estimate | Unknown, url: str = "", *, dollars: bool = False) -> Cell:
    """A mean or median with its interval in one cell."""
    if isinstance(estimate, Unknown):
        return missing(estimate.why, 3, url=url)
    write = figures.usd if dollars else figures.amount
    low, high = limits(estimate.interval)
    between = f"({write(low)} to {write(high)})" if low is not None and high is not None else "(no interval)"
    hint = f"{estimate.method}, n = {estimate.n:,}"
    return Cell(f"{write(estimate.value)} {between}", (estimate.value, low, high), url, hint=hint)


def limits(interval: Interval | Unknown) -> tuple[float | None, float | None]:
    """Low and high, None for what there is not."""
    return (None, None) if isinstance(interval, Unknown) else (interval.low, interval.high)


def _in_brackets(interval: Interval | Unknown, factor: float) -> str:
    if isinstance(interval, Unknown):
        return "(no interval)"
    high = "…" if interval.high is None else f"{factor * interval.high:.1f}"
    return f"({factor * interval.low:.1f} to {high})"


def count_cell(number: int | None, url: str = "", *, at_least: bool = False, why: str = "") -> Cell:
    """126,328, linked to its runs; "at least" where a part is unknown."""
    if number is None:
        return missing(why or "no server reported it", text="unknown", url=url)
    return Cell(f"{'at least ' if at_least else ''}{number:,}", (number,), url if number else "")


def with_limits(name: str) -> tuple[str, str, str]:
    """The names in a file of a value with its interval."""
    return (name, f"{name}_low", f"{name}_high")


def interval_words(estimate: Estimate | Unknown) -> str:
    """What a point of a plot says when it is pointed at."""
    if isinstance(estimate, Unknown):
        return str(estimate)
    if isinstance(estimate.interval, Unknown):
        return f"{figures.percent(estimate.value)}, no interval"
    low, high = estimate.interval.low, estimate.interval.high
    top = 1 if high is None else high
    return f"{figures.percent(estimate.value)}, 95 % interval {figures.percents(low, top)}"


def estimate_cell(estimate: Estimate | Unknown, url: str = "") -> Cell:
    """A share in sight, its interval and n on hover and in the file."""
    if isinstance(estimate, Unknown):
        return missing(estimate.why, 3, url=url)
    interval = estimate.interval
    words = (
        str(interval) if isinstance(interval, Unknown) else figures.percents(interval.low, interval.high or 1)
    )
    hint = f"n = {estimate.n:,}, 95 % interval {words}"
    return Cell(figures.percent(estimate.value), (estimate.value, *limits(interval)), url, hint=hint)


def text_column(title: str, name: str, hint: str = "") -> Column:
    return Column(title, (name,), hint, numeric=False)
