"""Plots of runs side by side over their steps, as descriptions that the page draws, with their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lab.render import figures
from lab.render.figures import Plot, Trace
from lab.render.numbers import clock
from lab.render.tables import Cell, Column, Row, Table
from lab.services.compared_costs import Curve, Growth, Point
from lab.web.charts import note

# A table shows so many steps of a longer run, evenly spread.
MOST_ROWS = 200
_FEW_POINTS = 25
# How far names behind the lines stand apart, as a share of the axis.
_NAME_SHARE = 0.07
# Names at ends so near to each other, as a share of all steps, would cover each other.
_NEAR = 0.06


class Parted(NamedTuple):
    """Where two runs part: their letters in words, and the last step of each before that."""

    names: str
    steps: tuple[int, int]


class Panel(NamedTuple):
    """A quantity over the steps: plot, table of its numbers, and what is unknown of it.

    `plot` is None where nothing can be drawn; `why` says so then.
    """

    key: str
    title: str
    subtitle: str
    plot: Plot | None
    table: Table | None
    notes: list[str]
    why: str


_SUBTITLES = {
    "context": "tokens the model was given or had written at each step",
    "tokens": "tokens in and out, step by step",
    "cost": "US dollars, step by step",
    "time": "model and tools, step by step",
}


def panel(growth: Growth, partings: Sequence[Parted]) -> Panel:
    """What the page shows of one quantity."""
    known = any(curve.known for curve in growth.curves)
    why = "" if growth.drawn else _why(growth, known=known)
    return Panel(
        key=growth.key,
        title=growth.title,
        subtitle=_SUBTITLES[growth.key],
        plot=_plot(growth, partings) if growth.drawn else None,
        table=_table(growth) if growth.drawn else None,
        notes=growth.gaps,
        why=why,
    )


def _why(growth: Growth, *, known: bool) -> str:
    if not any(curve.points for curve in growth.curves):
        return "No step is recorded yet."
    if not known:
        return "Nothing to draw: it is unknown in all steps of all runs."
    return "Nothing to draw: it is 0 in all steps of which it is known."


def _plot(growth: Growth, partings: Sequence[Parted]) -> Plot:
    steps = max(point.step for curve in growth.curves for point in curve.known)
    most = max(point.value for curve in growth.curves for point in curve.known)
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": "step"}, "range": [0.5, steps + 0.5], "showgrid": False, **_whole(steps)},
        "yaxis": _axis(growth, most),
        "margin": {"l": 64, "r": 28, "t": 20, "b": 44},
        "shapes": [_mark(at) for at in _places(partings)],
        "annotations": [*_names(growth, most), *_said(partings)],
    }
    return Plot(
        f"compared-{growth.key}",
        growth.title,
        _SUBTITLES[growth.key],
        "; ".join(_summary(curve, growth.unit) for curve in growth.curves),
        [_trace(curve, place, growth.unit) for place, curve in enumerate(growth.curves, start=1)],
        layout,
        {"height": 420},
    )


def _whole(steps: int) -> dict[str, Any]:
    """A few steps have a tick each, where Plotly would put some between two."""
    return {"dtick": 1} if steps <= 12 else {}


def _axis(growth: Growth, most: float) -> dict[str, Any]:
    if growth.unit == "dollars":
        return figures.amount_axis("", prefix="$", most=most)
    if growth.unit == "seconds":
        stride = next((size for size in _CLOCK_TICKS if most / size <= 6), _CLOCK_TICKS[-1])
        ticks = [number * stride for number in range(int(most // stride) + 2)]
        words: dict[str, Any] = {"tickvals": ticks, "ticktext": [clock(tick) for tick in ticks]}
        return figures.amount_axis("", most=most, **words)
    return figures.amount_axis("", most=most)


_CLOCK_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 36_000)


def _trace(curve: Curve, series: int, unit: str) -> Trace:
    few = len(curve.points) <= _FEW_POINTS
    steps, values, texts = [], [], []
    last = 0
    for point in curve.points:
        last = point.step if point else last + 1
        steps.append(last)
        values.append(point.value if point else None)
        texts.append(f"{curve.name}, step {last}: {words_of(point, unit)}" if point else "")
    return {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "name": curve.name,
        "x": steps,
        "y": values,
        "connectgaps": False,
        "line": figures.line(series),
        "marker": figures.marker(series, size=6),
        "text": texts,
        "hoverinfo": "text",
    }


def words_of(point: Point, unit: str) -> str:
    """ "at least $0.0812"."""
    plain = (
        figures.usd(point.value, places=4)
        if unit == "dollars"
        else clock(point.value)
        if unit == "seconds" and point.value >= 60
        else f"{point.value:.1f} s"
        if unit == "seconds"
        else f"{point.value:,.0f} tokens"
    )
    return f"at least {plain}" if point.at_least else plain


def _summary(curve: Curve, unit: str) -> str:
    if not curve.known:
        return f"{curve.name} unknown"
    last = curve.known[-1]
    return f"{curve.name} {words_of(last, unit)} at step {last.step}"


def _names(growth: Growth, most: float) -> list[Trace]:
    """Each run's letter behind the end of its line."""
    ends = [
        (curve.known[-1], curve.name, place)
        for place, curve in enumerate(growth.curves, start=1)
        if curve.known
    ]
    steps = max(point.step for point, _, _ in ends)
    heights = _apart([(point.step, point.value) for point, _, _ in ends], steps * _NEAR, most * _NAME_SHARE)
    return [
        note(name, point.step, height, color=figures.colour(place), xanchor="left", xshift=8)
        for (point, name, place), height in zip(ends, heights, strict=True)
    ]


def _apart(ends: Sequence[tuple[float, float]], near: float, gap: float) -> list[float]:
    """Heights of names at these places, moved up where one would cover another."""
    heights: dict[int, float] = {}
    for index in sorted(range(len(ends)), key=lambda index: ends[index][1]):
        at, height = ends[index]
        covered = [other + gap for done, other in heights.items() if abs(ends[done][0] - at) <= near]
        heights[index] = max([height, *covered])
    return [heights[index] for index in range(len(ends))]


def _places(partings: Sequence[Parted]) -> list[float]:
    """Where marks stand: half a step behind the last step that was common."""
    return sorted({step + 0.5 for parted in partings for step in parted.steps})


def _mark(at: float) -> Trace:
    line = {"color": "@paused", "width": 1.5, "dash": "dot"}
    return {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _said(partings: Sequence[Parted]) -> list[Trace]:
    """The first mark has words; further ones are told in a sentence above the plots."""
    if not partings:
        return []
    at = min(_places(partings))
    word = {"yref": "paper", "yanchor": "bottom", "xanchor": "left"}
    return [note("divergence", at, 1, color="@paused", **word)]


def _table(growth: Growth) -> Table:
    """A row a step, at most 200 of them."""
    by_step = [{point.step: point for point in curve.known} for curve in growth.curves]
    steps = sorted({step for points in by_step for step in points})
    stride = max(1, -(-len(steps) // MOST_ROWS))
    shown = [*steps[:-1:stride], steps[-1]]
    rows = [
        Row(
            f"step {step:,}",
            tuple(
                _cell(points.get(step), growth.unit, curve, step)
                for points, curve in zip(by_step, growth.curves, strict=True)
            ),
        )
        for step in shown
    ]
    columns = [
        Column(f"{curve.name}, run {curve.run}", (f"run_{curve.run}",), mark=place)
        for place, curve in enumerate(growth.curves, start=1)
    ]
    left_out = len(steps) - len(shown)
    notes = (f"{left_out:,} more steps between these are left out.",) if left_out > 0 else ()
    return Table(f"compared-{growth.key}", growth.title, "After", tuple(columns), tuple(rows), notes)


def _cell(point: Point | None, unit: str, curve: Curve, step: int) -> Cell:
    if point is not None:
        return Cell(words_of(point, unit).removesuffix(" tokens"), (point.value,))
    if step > curve.steps:
        return Cell("no such step")
    return Cell("unknown" if curve.unknown else "left out")
