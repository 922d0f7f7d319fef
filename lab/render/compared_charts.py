"""A small line chart as SVG for a page without plot library: coordinates are attributes, looks are CSS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, log10
from typing import NamedTuple

from django.utils.safestring import SafeString

from lab.render.text import safe, visible_html

WIDTH, HEIGHT = 284, 128
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 18, 10, 20
_MOST_TICKS = 4
_NAME_HEIGHT = 13.0


class ChartLine(NamedTuple):
    """One series. `series` counts from 1 and says colour and dash; a point is (step, value), None a gap."""

    name: str
    series: int
    points: Sequence[tuple[int, float] | None]


class _Scale(NamedTuple):
    most_x: int
    most_y: float

    def x(self, step: float) -> float:
        share = (step - 1) / max(1, self.most_x - 1)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - _BOTTOM - value / self.most_y * (HEIGHT - _TOP - _BOTTOM), 1)


def lines_svg(lines: Sequence[ChartLine], *, label: str, parted_after: int | None = None) -> SafeString:
    """The lines over steps from 1, values from 0; "" where there is no value at all.

    `label` says the picture in words. `parted_after`: a mark behind this step.
    """
    known = [point for line in lines for point in line.points if point is not None]
    most = max((value for _, value in known), default=0.0)
    if not most:
        return safe("")
    ticks = _ticks(most)
    scale = _Scale(max(step for step, _ in known), max(most, ticks[-1]))
    parts = [*_axes(scale, ticks), _parting(scale, parted_after)]
    parts += [part for line in lines for part in _line(line, scale)]
    parts += _names(lines, scale)
    return safe(
        f'<svg class="small-chart" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{visible_html(label, spans=0)}">{"".join(parts)}</svg>'
    )


def _ticks(most: float) -> list[float]:
    """Round values from 0 up to just below or at the largest."""
    power = 10.0 ** floor(log10(most))
    step = next(
        (step for factor in (0.1, 0.2, 0.5, 1, 2, 5) if most / (step := factor * power) <= _MOST_TICKS), power
    )
    return [number * step for number in range(int(most / step) + 1)]


def tick_words(value: float) -> str:
    """20k, 1.5M."""
    for factor, word in ((1_000_000, "M"), (1_000, "k")):
        if value >= factor:
            return f"{value / factor:g}{word}"
    return f"{value:g}"


def _axes(scale: _Scale, ticks: Sequence[float]) -> Iterator[str]:
    for tick in ticks:
        y = scale.y(tick)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{_LEFT - 5}" y="{y + 4}" text-anchor="end">{tick_words(tick)}</text>'
    last = scale.most_x
    middle = {step for step in (1 + (last - 1) // 3, 1 + 2 * (last - 1) // 3) if last > 8}
    for step in sorted({1, last, *middle}):
        yield f'<text x="{scale.x(step)}" y="{HEIGHT - 5}" text-anchor="middle">{step:,}</text>'


def _parting(scale: _Scale, after: int | None) -> str:
    if after is None or scale.most_x < 2:
        return ""
    x = scale.x(min(after + 0.5, scale.most_x))
    x = max(x, float(_LEFT))
    return f'<line class="parting" x1="{x}" x2="{x}" y1="{_TOP - 4}" y2="{HEIGHT - _BOTTOM}"/>'


def _line(line: ChartLine, scale: _Scale) -> Iterator[str]:
    """A polyline for each stretch without a gap; a point alone is a dot."""
    stretch: list[str] = []
    for point in (*line.points, None):
        if point is not None:
            stretch.append(f"{scale.x(point[0])},{scale.y(point[1])}")
        elif len(stretch) == 1:
            x, y = stretch.pop().split(",")
            yield f'<circle class="curve" data-series="{line.series}" cx="{x}" cy="{y}" r="2"/>'
        elif stretch:
            yield f'<polyline class="curve" data-series="{line.series}" points="{" ".join(stretch)}"/>'
            stretch = []


def _names(lines: Sequence[ChartLine], scale: _Scale) -> Iterator[str]:
    """Each line's name behind its last point, moved up where it would cover another."""
    ends = []
    for line in lines:
        last = next((point for point in reversed(line.points) if point is not None), None)
        if last is not None:
            ends.append((scale.y(last[1]), scale.x(last[0]), line))
    placed: list[tuple[float, float]] = []
    for y, x, line in sorted(ends, key=lambda end: -end[0]):
        while any(abs(y - other) < _NAME_HEIGHT and abs(x - at) < 14 for other, at in placed):
            y -= 1
        placed.append((y, x))
        at = f'x="{x + 5}" y="{round(y + 4, 1)}"'
        yield f'<text class="name" data-series="{line.series}" {at}>{visible_html(line.name)}</text>'
