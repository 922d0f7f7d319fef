"""Plots of rates and differences as descriptions that the page draws, and what all plots share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.analysis.estimates import Estimate, Unknown
from lab.analysis.pairs import PairResult
from lab.analysis.resolve import ArmRate
from lab.render import figures
from lab.render.figures import Plot, Trace
from lab.web.analysis_parts import Shown, interval_words

# Names beside an axis are cut; the table has them whole.
LONGEST_NAME = 34


def known(estimate: Estimate | Unknown) -> tuple[float, float, float] | None:
    """Value, low and high where all are known: a point is drawn with its interval or not at all."""
    if isinstance(estimate, Unknown) or isinstance(estimate.interval, Unknown):
        return None
    low, high = estimate.interval
    return None if high is None else (estimate.value, low, high)


def short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def note(text: str, x: float | str, y: float | str, *, color: str = "@ink", **more: Any) -> Trace:
    """Words on a plot without an arrow."""
    plain = {"text": text, "x": x, "y": y, "showarrow": False, "font": {"color": color}}
    return {**plain, **more}


def forest(shown: Shown, rates: Sequence[ArmRate]) -> Plot:
    """Each arm's rate with its interval, a row an arm, in the rows of the table it stands in."""
    data: list[Trace] = []
    notes: list[Trace] = []
    for place, one in enumerate(rates):
        found = known(one.rate.estimate)
        if found is None:
            notes.append(_no_interval(one, place))
            continue
        value, low, high = (100 * part for part in found)
        series = shown.series(one.arm)
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": shown.name(one.arm),
                "x": [value],
                "y": [place],
                "marker": figures.marker(series),
                "error_x": figures.bars([value], [low], [high], series),
                "customdata": [shown.behind(one.arm, outcome="counted")],
                "text": [f"{shown.name(one.arm)}: {interval_words(one.rate.estimate)}"],
                "hoverinfo": "text",
            }
        )
    return Plot(
        "resolve-rate",
        "Resolve rate",
        "share of tasks resolved; bars are 95 % intervals",
        "; ".join(f"{shown.name(one.arm)} {interval_words(one.rate.estimate)}" for one in rates),
        data,
        {
            "xaxis": figures.share_axis(side="top", automargin=False),
            "yaxis": rows([short(shown.name(one.arm)) for one in rates], showticklabels=False, ticks=""),
            "margin": {"l": 12, "r": 28, "t": 32, "b": 0},
            "annotations": notes,
        },
        {
            "height": 130 + 34 * len(rates),
            "yaxis": {"showticklabels": True},
            "margin": {"l": 260, "r": 40, "t": 104, "b": 24},
        },
        size="joined",
    )


def _no_interval(one: ArmRate, place: int) -> Trace:
    estimate = one.rate.estimate
    value = 0.0 if isinstance(estimate, Unknown) else 100 * estimate.value
    words = "not estimable" if isinstance(estimate, Unknown) else f"{value:.1f} %, no interval"
    anchor = "left" if value < 60 else "right"
    return note(words, value, place, color="@ink-3", xanchor=anchor)


def rows(names: Sequence[str], **more: Any) -> dict[str, Any]:
    """An axis of rows from above to below."""
    return {
        "range": [len(names) - 0.5, -0.5],
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "showgrid": False,
        **more,
    }


def differences(shown: Shown, pairs: Sequence[PairResult]) -> Plot | None:
    """Each pair's difference with its interval, around 0. None for a single pair, which is a sentence."""
    if len(pairs) < 2:
        return None
    names = [f"{shown.letter(one.first)} − {shown.letter(one.second)}" for one in pairs]
    data: list[Trace] = []
    notes: list[Trace] = []
    for row, one in enumerate(pairs):
        if isinstance(one.difference, Unknown) or isinstance(one.interval, Unknown):
            notes.append(note("not estimable", 0, row, color="@ink-3", xanchor="left", xshift=6))
            continue
        value, low = 100 * one.difference, 100 * one.interval.low
        high = 100 * (1.0 if one.interval.high is None else one.interval.high)
        error = {**figures.bars([value], [low], [high], 1), "color": "@ink-2"}
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [value],
                "y": [row],
                "marker": {"symbol": "circle", "size": 8, "color": "@ink"},
                "error_x": error,
                "text": [f"{names[row]}: {figures.points(one.difference)}"],
                "hoverinfo": "text",
                "customdata": [shown.page("paired", pair=(one.first, one.second))],
            }
        )
    zero = {"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    return Plot(
        "pairs",
        "Differences of resolve rates",
        "points, first minus second; bars are 95 % intervals",
        f"{len(pairs)} differences with their intervals, as in the table",
        data,
        {
            "xaxis": {"title": {"text": "points"}, "showgrid": True},
            "yaxis": rows(names),
            "annotations": notes,
            "shapes": [{**zero, "line": {"color": "@line-strong", "width": 1}}],
        },
        {"height": 140 + 34 * len(pairs)},
        size=f"rows-{min(len(pairs), 15)}",
    )


def spread(places: Sequence[float], gap: float) -> list[float]:
    """The places moved apart so far that words at them do not cover each other, in the same order."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    for before, after in zip(order, order[1:], strict=False):
        moved[after] = max(moved[after], moved[before] + gap)
    return moved


def stacked(color: str, pattern: str) -> Trace:
    """How a part of a stacked bar is filled: its colour, and a pattern that tells it apart in grey."""
    return {
        "color": color,
        "pattern": {"shape": pattern, "fgcolor": "@surface", "fillmode": "overlay", "size": 6},
        "line": {"color": "@surface", "width": 1},
    }
