"""Plots of costs: what was spent on what, cost against rate, what a budget buys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lab.analysis.cost_plane import Curve, Place
from lab.analysis.estimates import Interval, Unknown
from lab.analysis.spending import ArmSpend, BucketName
from lab.render import figures
from lab.render.figures import Plot, Trace
from lab.services.price_cards import BASIS_WORDS
from lab.web.analysis_parts import Shown, interval_words
from lab.web.charts import known, note, rows, short, spread, stacked

# Marks with intervals on a curve: enough to read it, few enough to tell curves apart.
CURVE_MARKS = 4
# How high a name is in points of percent, and how high one may stand.
NAME_HEIGHT = 5.0
MOST_HIGH = 101.0
BUCKET_WORDS: dict[BucketName, str] = {
    "resolved": "resolved",
    "failed": "failed",
    "invalid": "invalid",
    "not_graded": "not graded",
    "cancelled": "cancelled",
    "open": "open",
    "retried": "retried",
    "left_out": "left out",
    "judge": "judge",
    "whole": "whole",
}
# Outcomes of runs that are not called as the part of the spend is.
_BUCKET_OUTCOMES: dict[BucketName, str] = {"failed": "unresolved", "judge": "all", "whole": "all"}
# Colour and pattern of a part: told apart in grey as well.
BUCKET_LOOKS: dict[BucketName, tuple[str, str]] = {
    "resolved": ("@resolved", ""),
    "failed": ("@unresolved", "/"),
    "invalid": ("@invalid", "x"),
    "not_graded": ("@ink-3", "/"),
    "cancelled": ("@queued", "."),
    "open": ("@running", "-"),
    "retried": ("@paused", "\\"),
    "left_out": ("@flagged", "|"),
    "judge": ("@f2p", "+"),
}


def spend(shown: Shown, arms: Sequence[ArmSpend], buckets: Sequence[BucketName]) -> Plot | None:
    """What each arm's dollars went into: stacked, because the parts make the whole. None where it is $0."""
    names = [short(shown.name(one.arm)) for one in arms]
    totals = [sum(part.dollars or 0 for part in one.buckets) for one in arms]
    if not any(totals):
        return None
    at_least = [one.whole.at_least for one in arms]
    return Plot(
        "spend",
        "Spend by what it went into",
        "US dollars, all attempts",
        "; ".join(
            f"{name} {'at least ' if part else ''}{figures.usd(total)}"
            for name, total, part in zip(names, totals, at_least, strict=True)
        ),
        [_bucket_bar(shown, arms, name) for name in buckets],
        {
            "barmode": "stack",
            "xaxis": figures.amount_axis("US dollars", prefix="$", most=max(totals, default=0) * 1.15),
            "yaxis": rows(names),
            "annotations": [
                note(
                    f"{'at least ' if part else ''}{figures.usd(total, places=2)}",
                    total,
                    row,
                    xanchor="left",
                    xshift=4,
                )
                for row, (total, part) in enumerate(zip(totals, at_least, strict=True))
            ],
        },
        {
            "height": 190 + 44 * len(arms),
            "margin": {"t": 110},
            "showlegend": True,
            "legend": figures.LEGEND_ABOVE,
        },
        size=f"rows-{min(len(arms), 15)}",
    )


def _bucket_bar(shown: Shown, arms: Sequence[ArmSpend], name: BucketName) -> Trace:
    found = [next((part for part in one.buckets if part.name == name), None) for one in arms]
    dollars = [part.dollars if part else None for part in found]
    words = [
        f"{shown.name(one.arm)}: {BUCKET_WORDS[name]} {figures.usd(value)}" if value is not None else ""
        for one, value in zip(arms, dollars, strict=True)
    ]
    color, pattern = BUCKET_LOOKS[name]
    return {
        "type": "bar",
        "orientation": "h",
        "name": BUCKET_WORDS[name],
        "x": [value or 0 for value in dollars],
        "y": list(range(len(arms))),
        "width": 0.6,
        "marker": stacked(color, pattern),
        "text": words,
        "textposition": "none",
        "hoverinfo": "text",
        "customdata": [bucket_url(shown, one.arm, name) for one in arms],
    }


def bucket_url(shown: Shown, arm: str, name: BucketName) -> str:
    """The runs that the dollars of a part were spent on."""
    return shown.behind(arm, outcome=_BUCKET_OUTCOMES.get(name, name))


class _At(NamedTuple):
    """Where an arm is drawn: value, low and high of its rate in percent and of its cost, None in the lane.

    `bare`: its cost is known and has no interval.
    """

    place: Place
    rate: tuple[float, float, float]
    cost: tuple[float, float, float] | None
    bare: bool = False

    @property
    def x(self) -> tuple[float, float, float]:
        return self.cost or (0.0, 0.0, 0.0)


def plane(shown: Shown, places: Sequence[Place]) -> Plot | None:
    """Mean cost of a run against the resolve rate, intervals both ways; unknown costs in a lane of their own.

    None where no arm of a known rate has cost anything.
    """
    drawn = _drawn(places)
    priced = [one for one in drawn if one.cost]
    lane = [one for one in drawn if not one.cost]
    most = max((one.x[2] for one in priced), default=0.0)
    if not most:
        return None
    data = [_point(shown, one) for one in priced] + [_in_lane(shown, one, n) for n, one in enumerate(lane)]
    data += _pareto_lines(priced, most * 1.08)
    layout: dict[str, Any] = {
        "xaxis": figures.amount_axis(
            "mean spend per run, US dollars (failed runs included)", prefix="$", most=most, showgrid=False
        ),
        "yaxis": figures.share_axis(range=[-4, 104]),
        "annotations": _names(shown, priced, most) + _bounds(priced),
        "margin": {"l": 48, "r": 16, "t": 16, "b": 44},
    }
    if lane:
        _open_lane(layout, len(lane))
    return Plot(
        "cost-rate",
        "Cost and rate",
        "bars are 95 % intervals on both axes",
        "; ".join(_said(shown, one.place) for one in drawn),
        data,
        layout,
        {"height": 560},
        size="tall",
    )


def _drawn(places: Sequence[Place]) -> list[_At]:
    found = []
    for one in places:
        rate = known(one.rate)
        if rate:
            value, low, high = rate
            found.append(_At(one, (100 * value, 100 * low, 100 * high), *_cost(one)))
    return found


def _cost(one: Place) -> tuple[tuple[float, float, float] | None, bool]:
    cost = known(one.cost)
    if cost is None and not isinstance(one.cost, Unknown):
        return (one.cost.value, one.cost.value, one.cost.value), True
    return cost, False


def _open_lane(layout: dict[str, Any], arms: int) -> None:
    """Room at the right, with a dashed border, for arms whose cost is unknown."""
    layout["xaxis"]["domain"] = [0, 0.78]
    layout["xaxis2"] = {
        "domain": [0.82, 1],
        "range": [-0.5, arms - 0.5],
        "showgrid": False,
        "showticklabels": False,
        "ticks": "",
    }
    layout["shapes"] = [_lane_box()]
    layout["annotations"].append(note("cost unknown", 0.91, 1, xref="paper", yref="paper", yanchor="top"))


def _said(shown: Shown, one: Place) -> str:
    cost = "cost unknown" if isinstance(one.cost, Unknown) else f"{figures.usd(one.cost.value)} a run"
    return f"{shown.name(one.arm)} {interval_words(one.rate)}, {cost}"


def _point(shown: Shown, one: _At) -> Trace:
    arm = one.place.arm
    series = shown.series(arm)
    x, x_low, x_high = one.x
    y, y_low, y_high = one.rate
    across = {} if one.bare else {"error_x": figures.bars([x], [x_low], [x_high], series)}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": shown.name(arm),
        "x": [x],
        "y": [y],
        "marker": figures.marker(series),
        **across,
        "error_y": figures.bars([y], [y_low], [y_high], series),
        "customdata": [shown.behind(arm, outcome="counted")],
        "text": [_said(shown, one.place)],
        "hoverinfo": "text",
    }


def _in_lane(shown: Shown, one: _At, place: int) -> Trace:
    trace = _point(shown, one)
    trace.pop("error_x", None)
    name = short(shown.name(one.place.arm))[:16]
    words = {"mode": "markers+text", "text": [name], "textposition": "top center"}
    return {**trace, **words, "hovertext": trace["text"], "xaxis": "x2", "x": [place]}


def _lane_box() -> Trace:
    return {
        "type": "rect",
        "xref": "paper",
        "yref": "paper",
        "x0": 0.82,
        "x1": 1,
        "y0": 0,
        "y1": 1,
        "line": {"color": "@line-strong", "width": 1, "dash": "dash"},
        "fillcolor": "@sunken",
        "layer": "below",
    }


def _pareto_lines(priced: Sequence[_At], right: float) -> list[Trace]:
    """A stepped line for each price basis: nobody of that basis beats what it joins on both sides."""
    lines = []
    for basis in dict.fromkeys(one.place.basis for one in priced if one.place.basis):
        on_line = [one for one in priced if one.place.basis == basis and one.place.on_line]
        points = sorted((one.x[0], one.rate[0]) for one in on_line)
        if len(points) < 2:
            continue
        lines.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [*(x for x, _ in points), right],
                "y": [*(y for _, y in points), points[-1][1]],
                "line": {"color": "@ink-3", "width": 1.5, "dash": "dash", "shape": "hv"},
                "name": f"Pareto line, {BASIS_WORDS.get(basis, basis)}",
                "hoverinfo": "name",
            }
        )
    return lines


def _names(shown: Shown, priced: Sequence[_At], most: float) -> list[Trace]:
    """A name beside each point; those of points near each other are moved apart."""
    found = []
    for on_right in (False, True):
        side = [one for one in priced if (one.x[0] > most * 0.65) == on_right]
        places = spread([one.rate[0] + 3 for one in side], NAME_HEIGHT)
        # What was moved above the frame goes down together.
        over = max(0.0, max(places, default=0.0) - MOST_HIGH)
        for one, y in zip(side, places, strict=True):
            anchor: Trace = (
                {"xanchor": "right", "xshift": -8} if on_right else {"xanchor": "left", "xshift": 8}
            )
            found.append(note(short(shown.name(one.place.arm)), one.x[0], y - over, **anchor))
    return found


def _bounds(priced: Sequence[_At]) -> list[Trace]:
    """Of an arm that resolved nothing: an arrow that says what a resolved issue costs at least."""
    found = []
    for one in priced:
        if one.place.lower_bound is None:
            continue
        arrow = {"showarrow": True, "arrowhead": 2, "arrowcolor": "@ink-2", "ax": 70, "ay": -18}
        text = f"more than {figures.usd(one.place.lower_bound.bound, places=2)} per resolved"
        found.append({**note(text, one.x[0], one.rate[0], color="@ink-2"), **arrow})
    return found


def within_budget(shown: Shown, curves: Sequence[Curve]) -> Plot | None:
    """The share of tasks resolved for at most so much a run; intervals at some points of each curve."""
    drawn = [one for one in curves if one.steps]
    most = max((one.steps[-1].dollars for one in drawn), default=0.0)
    if not most:
        return None
    data: list[Trace] = []
    for one in drawn:
        data += _curve(shown, one, most)
    ends = spread([100 * one.steps[-1].share for one in drawn], 5)
    return Plot(
        "within-budget",
        "Resolved within a budget",
        "share of tasks resolved for at most so much a run; 95 % intervals at the marks",
        "; ".join(
            f"{shown.name(one.arm)} reaches {figures.percent(one.steps[-1].share)} "
            f"at {figures.usd(one.steps[-1].dollars)}"
            for one in drawn
        ),
        data,
        {
            "xaxis": figures.amount_axis("at most, US dollars a run", prefix="$", most=most, showgrid=False),
            "yaxis": figures.share_axis(),
            "margin": {"l": 48, "r": 190, "t": 16, "b": 44},
            "annotations": [
                note(short(shown.name(one.arm)), 1, y, xref="paper", xanchor="left", xshift=6)
                for one, y in zip(drawn, ends, strict=True)
            ],
        },
        {"height": 480, "margin": {"r": 240}},
        size="tall",
    )


def _curve(shown: Shown, one: Curve, most: float) -> list[Trace]:
    series = shown.series(one.arm)
    steps = one.steps
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": shown.name(one.arm),
        "x": [0, *(step.dollars for step in steps), most * 1.08],
        "y": [0, *(100 * step.share for step in steps), 100 * steps[-1].share],
        "line": {**figures.line(series), "shape": "hv"},
        "hoverinfo": "skip",
    }
    every = max(1, len(steps) // CURVE_MARKS)
    marked = [step for step in steps[every - 1 :: every] if isinstance(step.interval, Interval)]
    marks = [(step, step.interval) for step in marked if isinstance(step.interval, Interval)]
    values = [100 * step.share for step, _ in marks]
    lows = [100 * interval.low for _, interval in marks]
    highs = [100 * (1 if interval.high is None else interval.high) for _, interval in marks]
    points = {
        "type": "scatter",
        "mode": "markers",
        "name": shown.name(one.arm),
        "x": [step.dollars for step, _ in marks],
        "y": values,
        "marker": figures.marker(series, size=7),
        "error_y": figures.bars(values, lows, highs, series),
        "text": [
            f"{shown.name(one.arm)}: {figures.percent(step.share)} for at most {figures.usd(step.dollars)}"
            for step, _ in marks
        ],
        "hoverinfo": "text",
        "customdata": [shown.behind(one.arm, outcome="priced")] * len(marks),
    }
    return [line, points]


def tokens(shown: Shown, spends: Sequence[ArmSpend]) -> Plot | None:
    """Tokens in their parts, stacked. None where no server reported any."""
    parts = (
        ("input, uncached", "@kind-read", ""),
        ("cache read", "@p2p", "/"),
        ("cache write", "@queued", "x"),
        ("output without reasoning", "@kind-edit", ""),
        ("reasoning", "@kind-test", "\\"),
    )
    counts = [_token_parts(one) for one in spends]
    most = max((sum(one) for one in counts), default=0)
    if not most:
        return None
    names = [short(shown.name(one.arm)) for one in spends]
    data: list[Trace] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": word,
            "x": [one[part] for one in counts],
            "y": list(range(len(spends))),
            "width": 0.6,
            "marker": stacked(color, pattern),
            "text": [f"{name}: {word} {one[part]:,}" for name, one in zip(names, counts, strict=True)],
            "textposition": "none",
            "hoverinfo": "text",
            "customdata": [shown.behind(one.arm) for one in spends],
        }
        for part, (word, color, pattern) in enumerate(parts)
    ]
    return Plot(
        "tokens",
        "Tokens",
        "in their parts, over all attempts",
        "; ".join(f"{name} {sum(one):,} tokens" for name, one in zip(names, counts, strict=True)),
        data,
        {
            "barmode": "stack",
            "xaxis": figures.amount_axis("tokens", most=most),
            "yaxis": rows(names),
            "showlegend": True,
            "legend": figures.LEGEND_ABOVE,
            "margin": {"l": 56, "r": 16, "t": 36, "b": 44},
        },
        {"height": 140 + 44 * len(spends)},
        size=f"rows-{min(len(spends), 15)}",
    )


def _token_parts(one: ArmSpend) -> list[int]:
    found = one.tokens
    reasoning = found.reasoning or 0
    output = max(0, (found.output or 0) - reasoning)
    return [found.input_uncached or 0, found.cache_read or 0, found.cache_write or 0, output, reasoning]
