"""Numbers of an analysis in words, and the parts that plot descriptions are made from.

A description is what `static/js/plot.js` reads: Plotly's data and layout, in which a colour is the role of
a custom property ("@plot-1"), so that it is the same in dark and light.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lab.render.tables import SERIES

Trace = dict[str, Any]

SHAPES = ("circle", "diamond", "triangle-up", "square", "triangle-down", "x")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
# Parts of stacked bars are named once, in a line above them.
LEGEND_ABOVE = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"}


class Plot(NamedTuple):
    """One picture. `key` names its files; `summary` says it in one sentence to who does not see it."""

    key: str
    title: str
    subtitle: str
    summary: str
    data: list[Trace]
    layout: dict[str, Any]
    image: dict[str, Any]
    size: str = "medium"

    @property
    def description_id(self) -> str:
        """The element that holds the description."""
        return f"description-{self.key}"

    @property
    def description(self) -> dict[str, Any]:
        """What the page draws: every text in it is plain, whatever an arm is called."""
        described: dict[str, Any] = _with_plain_texts(
            {"data": self.data, "layout": self.layout, "image": self.image}
        )
        return {"title": self.title, "subtitle": self.subtitle, **described}


# Where a description holds words. Plotly reads markup in them, and the page a lone "@word" as a colour.
_TEXTS = frozenset({"text", "hovertext", "ticktext", "name"})


def _with_plain_texts(value: Any, *, words: bool = False) -> Any:
    if isinstance(value, dict):
        return {key: _with_plain_texts(one, words=key in _TEXTS) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_plain_texts(one, words=words) for one in value]
    return plain_text(value) if words and isinstance(value, str) else value


def plain_text(words: str) -> str:
    """The words as Plotly has to be given them so that it draws exactly these: no tag, entity or colour."""
    escaped = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"&#64;{escaped[1:]}" if escaped.startswith("@") else escaped


def percent(share: float) -> str:
    """60.0 %."""
    return f"{100 * share:.1f} %"


def percents(low: float, high: float) -> str:
    """49.5 to 70.5 %."""
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def points(difference: float) -> str:
    """+23.3 points, with a true minus."""
    return f"{signed(100 * difference)} points"


def signed(number: float) -> str:
    """+23.3, −4.0, 0.0."""
    text = f"{abs(number):.1f}"
    if float(text) == 0:
        return text
    return f"{'+' if number > 0 else '−'}{text}"


def usd(amount: float, *, places: int = 3) -> str:
    """$0.440; more places where fewer would show nothing of a cost that is not 0."""
    if amount and abs(amount) < 10**-places:
        return f"${amount:.2g}" if abs(amount) >= 1e-6 else "under $0.000001"
    return f"${amount:,.{places}f}"


def probability(p: float) -> str:
    """p = 0.014, p < 0.0001; never 0."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}" if p < 0.001 else f"p = {p:.3f}"


def amount(number: float) -> str:
    """A quantity for reading: 12.5, 1,204, 0.042."""
    if number == int(number):
        return f"{int(number):,}"
    return (
        f"{number:,.0f}"
        if abs(number) >= 1000
        else f"{number:,.1f}"
        if abs(number) >= 10
        else f"{number:.3g}"
    )


def colour(series: int) -> str:
    return f"@plot-{(series - 1) % SERIES + 1}"


def marker(series: int, *, size: int = 9) -> Trace:
    return {"symbol": SHAPES[(series - 1) % SERIES], "size": size, "color": colour(series)}


def line(series: int) -> Trace:
    return {"color": colour(series), "width": 2, "dash": DASHES[(series - 1) % SERIES]}


def bars(values: Sequence[float], lows: Sequence[float], highs: Sequence[float], series: int) -> Trace:
    """Plotly's error bars of an interval on each value."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, high in zip(values, highs, strict=True)],
        "arrayminus": [value - low for value, low in zip(values, lows, strict=True)],
        "thickness": 1.75,
        "width": 5,
        "color": colour(series),
    }


def share_axis(title: str = "", **more: Any) -> dict[str, Any]:
    """0 to 100 %, never cut."""
    axis: dict[str, Any] = {"range": [0, 100], "ticksuffix": " %", "showticksuffix": "last", "dtick": 20}
    return {**axis, "title": {"text": title}, "showgrid": True, **more}


def amount_axis(title: str, *, prefix: str = "", most: float | None = None, **more: Any) -> dict[str, Any]:
    """From 0; `most` is the largest thing to be drawn."""
    axis: dict[str, Any] = {"rangemode": "tozero", "tickprefix": prefix, "showgrid": True}
    if most is not None:
        axis["range"] = [0, most * 1.08 if most > 0 else 1]
    return {**axis, "title": {"text": title}, **more}
