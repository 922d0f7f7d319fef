"""The section that holds two arms against each other: one figure in a sentence, and all pairs below."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from django.urls import reverse

from lab.analysis.cost_plane import CostDifference
from lab.analysis.estimates import Interval, Unknown
from lab.analysis.pairs import BothTried, PairResult, tests_among
from lab.render import figures
from lab.render.tables import Cell, Column, Row, Table, missing
from lab.render.text import cut_in_the_middle
from lab.services.comparisons import Light
from lab.web import charts
from lab.web.analysis_parts import Panel, Section, Shown, rate_cells

# So many tasks that only one resolves are named; the rest are in the list of their runs.
NAMED = 10
# So many differences are drawn at once.
MOST_DRAWN = 15
# The ids of real issues are longer than a column: they differ at both ends.
MOST_LETTERS = 64


class OnlyTask(NamedTuple):
    """A task that one arm alone resolves, and where the two runs stand side by side."""

    name: str
    url: str

    @property
    def short(self) -> str:
        return cut_in_the_middle(self.name, MOST_LETTERS)


class Only(NamedTuple):
    """The tasks that one arm alone resolves: how many, the first ones, and the address of all their runs."""

    arm: str
    number: int
    first: list[OnlyTask]
    url: str

    @property
    def more(self) -> bool:
        return self.number > len(self.first)


class PairShown(NamedTuple):
    """One comparison in words. `headline` is the figure, or why there is none.

    `reference`: there are so many arms that all are compared with the first one alone.
    """

    first: Row
    second: Row
    lights: list[Light]
    sampling: str
    estimable: bool
    headline: str
    interval: str
    sentence: str
    detectable: str
    clustered: str
    cost: str
    overlap: str
    discordant: Table | None
    onlys: list[Only]
    swap: str
    reference: bool
    choose: list[tuple[str, str, bool, bool]]


class Chosen(NamedTuple):
    """The pair in the sentence (None: there are not two arms), and what is known of it beside its rates."""

    pair: PairResult | None
    lights: list[Light]
    sampling: str
    cost: CostDifference | None


def section(shown: Shown, pairs: Sequence[PairResult], chosen: Chosen) -> Section:
    """`pairs` are all that are compared, over which Holm corrects."""
    extra = _pair(shown, chosen.pair, chosen, pairs) if chosen.pair else None
    panels = (_all_pairs(shown, pairs, chosen.pair.first),) if chosen.pair else ()
    return Section("paired", "Paired comparison", panels, "analysis/_pair.html", extra)


def _pair(shown: Shown, one: PairResult, chosen: Chosen, pairs: Sequence[PairResult]) -> PairShown:
    first, second = shown.row(one.first, ()), shown.row(one.second, ())
    return PairShown(
        first,
        second,
        chosen.lights,
        chosen.sampling,
        not isinstance(one.difference, Unknown),
        str(one.difference) if isinstance(one.difference, Unknown) else figures.points(one.difference),
        _interval_words(one.interval),
        _sentence(one, tests_among(pairs)),
        _detectable(one),
        _clustered(one),
        _cost(chosen.cost),
        _overlap(one, first.name, second.name),
        _discordant(shown, one, first.letter, second.letter),
        [
            _only(shown, first.name, one.first_only, _runs_of(shown, one, "first_only")),
            _only(shown, second.name, one.second_only, _runs_of(shown, one, "second_only")),
        ],
        shown.page("paired", pair=(one.second, one.first)),
        _left_out(shown, len(pairs)) > 0,
        [(arm.key, arm.name, arm.key == one.first, arm.key == one.second) for arm in shown.observed.arms],
    )


def _cost(found: CostDifference | None) -> str:
    """How much more a resolved issue costs with the first, by a method of its own."""
    if found is None:
        return ""
    if isinstance(found.difference, Unknown):
        return f"Difference of costs per resolved issue: {found.difference}."
    words = _signed_dollars(found.difference)
    if isinstance(found.interval, Unknown):
        return f"Cost per resolved issue: {words}, interval {found.interval}."
    limits = [limit for limit in found.interval if limit is not None]
    between = " to ".join(_signed_dollars(limit) for limit in limits)
    return f"Cost per resolved issue: {words}, 95 % interval {between} ({found.method})."


def _signed_dollars(amount: float) -> str:
    sign = "+" if amount > 0 else "−" if amount < 0 else ""
    return f"{sign}{figures.usd(abs(amount))}"


def _interval_words(interval: Interval | Unknown) -> str:
    if isinstance(interval, Unknown):
        return f"interval {interval}"
    high = 1.0 if interval.high is None else interval.high
    return f"95 % interval {figures.signed(100 * interval.low)} to {figures.signed(100 * high)}"


def _sentence(one: PairResult, compared: int) -> str:
    if isinstance(one.p, Unknown):
        return f"{one.method}: p {one.p}." if one.method else f"p is {one.p}."
    words = f"{one.method}, {figures.probability(one.p)}"
    if compared > 1 and not isinstance(one.p_holm, Unknown):
        words += f", after Holm over {compared} pairs with a p value {figures.probability(one.p_holm)}"
    return f"{words}."


def _detectable(one: PairResult) -> str:
    if isinstance(one.detectable, Unknown):
        return f"The smallest difference that could be found is {one.detectable}."
    return (
        f"Differences under {100 * one.detectable:.1f} points could not have been found reliably here "
        f"(power 80 %, {one.tasks:,} tasks; {one.detectable_method})."
    )


def _clustered(one: PairResult) -> str:
    if isinstance(one.clustered, Unknown):
        return f"Over repositories: {one.clustered}."
    found = one.clustered
    low, high = found.interval.low, found.interval.high
    return (
        f"Over {found.clusters} repositories, as a sensitivity check: {figures.probability(found.p)}, "
        f"interval {figures.signed(100 * low)} to {figures.signed(100 * (1.0 if high is None else high))}."
    )


def _overlap(one: PairResult, first: str, second: str) -> str:
    words = [f"{one.tasks:,} task{'' if one.tasks == 1 else 's'} tried by both"]
    for alone, name in ((one.first_alone, first), (one.second_alone, second)):
        if alone:
            words.append(f"{alone:,} only by {name}, left out here")
    if one.unequal:
        words.append(one.unequal)
    return "; ".join(words)


def _discordant(shown: Shown, one: PairResult, first: str, second: str) -> Table | None:
    if one.table is None:
        return None
    columns = (
        Column(f"{second}: resolved", ("second_resolved",)),
        Column(f"{second}: unresolved", ("second_unresolved",)),
    )

    def cell(outcome: str, number: int) -> Cell:
        return Cell(f"{number:,}", (number,), url=_runs_of(shown, one, outcome) if number else "")

    table = one.table
    rows = (
        Row(f"{first}: resolved", (cell("both", table.both), cell("first_only", table.first_only))),
        Row(f"{first}: unresolved", (cell("second_only", table.second_only), cell("neither", table.neither))),
    )
    return Table("discordant", "Tasks by what both did", "", columns, rows)


def _runs_of(shown: Shown, one: PairResult, outcome: str) -> str:
    """The address of both arms' runs on the tasks of one outcome."""
    selection = dataclasses.replace(shown.selection, pair=(one.first, one.second))
    return f"{reverse('analysis_runs')}?{selection.query()}&outcome={outcome}"


def _only(shown: Shown, arm: str, tasks: Sequence[BothTried], url: str) -> Only:
    found = []
    for one in tasks[:NAMED]:
        runs = [*one.first_runs[:1], *one.second_runs[:1]]
        address = f"{reverse('comparison')}?runs={','.join(map(str, runs))}"
        found.append(OnlyTask(shown.task_name(one.task), address))
    return Only(arm, len(tasks), found, url)


def _left_out(shown: Shown, compared: int) -> int:
    """How many pairs of the arms are not among those that are shown."""
    return math.comb(len(shown.observed.arms), 2) - compared


def _reference_note(shown: Shown, pairs: Sequence[PairResult]) -> tuple[str, ...]:
    left_out = _left_out(shown, len(pairs))
    if not left_out:
        return ()
    arms = len(shown.observed.arms)
    return (
        f"{arms} arms make {left_out + len(pairs):,} pairs: these are the {len(pairs)} with "
        f"{shown.letter(pairs[0].first)} {shown.name(pairs[0].first)}, the reference arm, and Holm "
        "corrects for these alone. Choose another reference as the first of the pair above.",
    )


def _drawn(pairs: Sequence[PairResult], arm: str) -> Sequence[PairResult]:
    """The pairs in the plot: of many, those of one arm."""
    return pairs if len(pairs) <= MOST_DRAWN else [one for one in pairs if arm in (one.first, one.second)]


def _drawn_note(shown: Shown, pairs: Sequence[PairResult], arm: str) -> tuple[str, ...]:
    drawn = len(_drawn(pairs, arm))
    if drawn == len(pairs):
        return ()
    return (f"Drawn are the {drawn} pairs of {shown.letter(arm)}; the table has all {len(pairs)}.",)


def _all_pairs(shown: Shown, pairs: Sequence[PairResult], arm: str) -> Panel:
    columns = (
        Column("tasks", ("tasks",), "tasks that both tried"),
        Column("first", ("first_rate",)),
        Column("second", ("second_rate",)),
        Column("difference", ("difference",), "points, first minus second"),
        Column("95 % interval", ("difference_low", "difference_high")),
        Column("p", ("p", "method")),
        Column("p, Holm", ("p_holm",), f"corrected over the {tests_among(pairs)} pairs with a p value"),
        Column("detectable", ("minimum_detectable_difference",), "smallest difference found with power 80 %"),
    )
    rows = tuple(_pair_row(shown, one) for one in pairs)
    several = len(pairs) > 1
    parts = ["first minus second"]
    parts += [f"Holm over the {tests_among(pairs)} pairs with a p value"] if several else []
    parts += sorted({one.method for one in pairs if one.method})
    return Panel(
        "pairs",
        _title(shown, pairs),
        "; ".join(parts),
        plots=tuple(plot for plot in (charts.differences(shown, _drawn(pairs, arm)),) if plot),
        table=Table("pairs", _title(shown, pairs), "pair", columns, rows),
        notes=(*_reference_note(shown, pairs), *_drawn_note(shown, pairs, arm)),
        folded=False,
    )


def _title(shown: Shown, pairs: Sequence[PairResult]) -> str:
    if _left_out(shown, len(pairs)):
        return f"All arms against {shown.letter(pairs[0].first)}"
    return "All pairs" if len(pairs) > 1 else "The pair in numbers"


def _pair_row(shown: Shown, one: PairResult) -> Row:
    url = shown.page("paired", pair=(one.first, one.second))
    difference = one.difference
    cells = (
        Cell(f"{one.tasks:,}", (one.tasks,)),
        rate_cells(one.first_rate)[0]._replace(strong=False),
        rate_cells(one.second_rate)[0]._replace(strong=False),
        missing(difference.why)
        if isinstance(difference, Unknown)
        else Cell(figures.signed(100 * difference), (difference,), url, strong=True),
        _signed_interval(one.interval),
        p_cell(one.p)._replace(
            values=(None if isinstance(one.p, Unknown) else one.p, one.method), hint=one.method
        ),
        p_cell(one.p_holm),
        missing(one.detectable.why)
        if isinstance(one.detectable, Unknown)
        else Cell(f"{100 * one.detectable:.1f}", (one.detectable,), hint=one.detectable_method),
    )
    pair = f"{shown.letter(one.first)} − {shown.letter(one.second)}"
    return Row(pair, cells, 0, url, f"{shown.name(one.first)} − {shown.name(one.second)}")


def _signed_interval(interval: Interval | Unknown) -> Cell:
    if isinstance(interval, Unknown):
        return missing(interval.why, 2, text="no interval")
    low, high = interval
    top = 1.0 if high is None else high
    return Cell(f"{figures.signed(100 * low)} to {figures.signed(100 * top)}", (low, high))


def p_cell(p: float | Unknown) -> Cell:
    """A p value, or why there is none."""
    if isinstance(p, Unknown):
        return missing(p.why)
    return Cell(figures.probability(p).removeprefix("p = ").removeprefix("p "), (p,))
