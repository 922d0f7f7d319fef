"""Plots of behaviour: parts of a whole stacked, shares and medians as points with intervals, slopes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.analysis.estimates import Unknown
from lab.analysis.harness_effect import Point, Slope
from lab.analysis.shares import Share
from lab.analysis.spreads import Spread
from lab.render import figures
from lab.render.figures import Plot, Trace
from lab.web.analysis_parts import Shown, interval_words
from lab.web.charts import known, note, rows, short, spread, stacked

# How the parts of a whole look, in order, told apart in grey as well.
LOOKS = (
    ("@kind-read", ""),
    ("@kind-edit", "/"),
    ("@kind-test", "x"),
    ("@kind-shell", "."),
    ("@resolved", "\\"),
    ("@unresolved", "-"),
    ("@invalid", "|"),
    ("@flagged", "+"),
)


def parts(
    shown: Shown,
    key: str,
    title: str,
    subtitle: str,
    arms: Sequence[tuple[str, Sequence[Share]]],
    words: dict[str, str],
) -> Plot | None:
    """Shares that sum to 1, stacked for each arm in the order of `words`. None where nothing is known."""
    if not any(share.of for _, shares in arms for share in shares):
        return None
    names = [short(shown.name(arm)) for arm, _ in arms]
    data: list[Trace] = []
    for place, (part, word) in enumerate(words.items()):
        found = [next((share for share in shares if share.key == part), None) for _, shares in arms]
        values = [_percent(share) for share in found]
        color, pattern = LOOKS[place % len(LOOKS)]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": word,
                "x": values,
                "y": list(range(len(arms))),
                "width": 0.6,
                "marker": stacked(color, pattern),
                "text": [f"{name}: {word} {value:.1f} %" for name, value in zip(names, values, strict=True)],
                "textposition": "none",
                "hoverinfo": "text",
                "customdata": [shown.behind(arm, figure=part) for arm, _ in arms],
            }
        )
    return Plot(
        key,
        title,
        subtitle,
        f"{title}, stacked to 100 % for each of {len(arms)} arms; the table has the shares",
        data,
        {
            "barmode": "stack",
            "xaxis": figures.share_axis(),
            "yaxis": rows(names),
            "showlegend": True,
            "legend": figures.LEGEND_ABOVE,
            "margin": {"l": 56, "r": 28, "t": 36, "b": 32},
        },
        {"height": 170 + 44 * len(arms)},
        size=f"rows-{min(len(arms), 15)}",
    )


def _percent(share: Share | None) -> float:
    """As the table has it: the mean over tasks, which is not part ÷ of where tasks have unequal runs."""
    return 0.0 if share is None or isinstance(share.estimate, Unknown) else 100 * share.estimate.value


def dots(
    shown: Shown,
    key: str,
    title: str,
    subtitle: str,
    lines: Sequence[tuple[str, Sequence[tuple[str, Share]]]],
) -> Plot | None:
    """Shares as points with intervals, a line a figure, the arms of it below each other."""
    data: list[Trace] = []
    names = [word for word, _ in lines]
    for row, (word, found) in enumerate(lines):
        step = 0.7 / max(len(found), 1)
        for place, (arm, share) in enumerate(found):
            point = known(share.estimate)
            if point is None:
                continue
            value, low, high = (100 * part for part in point)
            y = row + (place - (len(found) - 1) / 2) * step
            series = shown.series(arm)
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [value],
                    "y": [y],
                    "marker": figures.marker(series),
                    "error_x": figures.bars([value], [low], [high], series),
                    "text": [f"{shown.name(arm)}, {word}: {interval_words(share.estimate)}"],
                    "hoverinfo": "text",
                    "customdata": [shown.behind(arm, figure=share.key)],
                }
            )
    if not data:
        return None
    arms = max(len(found) for _, found in lines)
    return Plot(
        key,
        title,
        subtitle,
        f"{title}: points with 95 % intervals; the table has the numbers",
        data,
        {"xaxis": figures.share_axis(), "yaxis": rows(names), "margin": {"l": 56, "r": 28, "t": 8, "b": 32}},
        {"height": 150 + 24 * arms * len(lines)},
        size=f"rows-{min(max(len(lines) * (arms + 1) // 2, 2), 15)}",
    )


def medians(shown: Shown, key: str, title: str, axis: str, arms: Sequence[tuple[str, Spread]]) -> Plot | None:
    """Medians with their intervals, a row an arm, and the quartiles as a thin line."""
    data: list[Trace] = []
    notes: list[Trace] = []
    most = 0.0
    for row, (arm, found) in enumerate(arms):
        if isinstance(found.quartiles, Unknown) or isinstance(found.interval, Unknown):
            notes.append(note("no interval", 0, row, color="@ink-3", xanchor="left", xshift=6))
            continue
        quartiles, interval = found.quartiles, found.interval
        high = quartiles.maximum if interval.high is None else interval.high
        most = max(most, high, quartiles.high)
        series = shown.series(arm)
        data.append(_quartile_line(quartiles.low, quartiles.high, row))
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [quartiles.median],
                "y": [row],
                "marker": figures.marker(series),
                "error_x": figures.bars([quartiles.median], [interval.low], [high], series),
                "text": [
                    f"{shown.name(arm)}: median {figures.amount(quartiles.median)}, "
                    f"95 % interval {figures.amount(interval.low)} to {figures.amount(high)}, n = {found.n:,}"
                ],
                "hoverinfo": "text",
                "customdata": [shown.behind(arm, figure=found.key)],
            }
        )
    if not data:
        return None
    return Plot(
        key,
        title,
        "medians with 95 % intervals; the grey line spans the middle half of runs",
        f"{title}: medians with intervals; the table has the numbers",
        data,
        {
            "xaxis": figures.amount_axis(axis, most=most),
            "yaxis": rows([short(shown.name(arm)) for arm, _ in arms]),
            "annotations": notes,
        },
        {"height": 150 + 40 * len(arms)},
        size=f"rows-{min(len(arms), 15)}",
    )


def _quartile_line(low: float, high: float, row: int) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [low, high],
        "y": [row + 0.22, row + 0.22],
        "line": {"color": "@line-strong", "width": 3},
        "hoverinfo": "skip",
    }


def slopes(shown: Shown, slopes_of: Sequence[Slope], *, key: str, title: str) -> Plot | None:
    """Rates of arms that share a part, joined by a line for each; what differs stands along the axis."""
    sides = list(dict.fromkeys(_other(one, point) for one in slopes_of for point in one.points))
    if not sides:
        return None
    data: list[Trace] = []
    ends: list[tuple[str, float]] = []
    for series, one in enumerate(slopes_of, start=1):
        drawn = [(point, known(point.rate)) for point in one.points]
        points = sorted(
            ((sides.index(_other(one, point)), found, point) for point, found in drawn if found),
            key=lambda item: item[0],
        )
        if not points:
            continue
        nudge = (series - (len(slopes_of) + 1) / 2) * 0.05
        data.append(_slope_line(shown, one, series, nudge, points))
        ends.append((one.name, 100 * points[-1][1][0]))
    if not data:
        return None
    places = spread([end for _, end in ends], 6)
    return Plot(
        key,
        title,
        "resolve rates of all tasks of an arm; bars are 95 % intervals",
        f"{title}: {len(data)} lines over {len(sides)} sides; the tables have the numbers",
        data,
        {
            "xaxis": {
                "tickvals": list(range(len(sides))),
                "ticktext": [short(side)[:24] for side in sides],
                "range": [-0.3, len(sides) - 0.7 + (0.0 if len(sides) > 1 else 0.6)],
                "showgrid": False,
            },
            "yaxis": figures.share_axis(),
            "margin": {"l": 48, "r": 150, "t": 12, "b": 40},
            "annotations": [
                note(short(name)[:24], 1, y, xref="paper", xanchor="left", xshift=6)
                for (name, _), y in zip(ends, places, strict=True)
            ],
        },
        {"height": 480, "margin": {"r": 240}},
        size="tall",
    )


def _other(slope: Slope, point: Point) -> str:
    return point.arm.harness if slope.fixed == "model" else point.arm.model


def _slope_line(
    shown: Shown,
    one: Slope,
    series: int,
    nudge: float,
    points: Sequence[tuple[int, tuple[float, float, float], Point]],
) -> Trace:
    values = [100 * found[0] for _, found, _ in points]
    words = [f"{shown.name(point.arm.key)}: {interval_words(point.rate)}" for _, _, point in points]
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": one.name,
        "x": [place + nudge for place, _, _ in points],
        "y": values,
        "marker": figures.marker(series),
        "line": figures.line(series),
        "error_y": figures.bars(
            values,
            [100 * found[1] for _, found, _ in points],
            [100 * found[2] for _, found, _ in points],
            series,
        ),
        "text": words,
        "hoverinfo": "text",
        "customdata": [shown.behind(point.arm.key, outcome="counted") for _, _, point in points],
    }
    return trace
