"""The grid of an experiment as HTML: a row a task, a cell a run, the sums of each arm, who resolves alone.

Pure functions over plain values, without a template: a page holds 1,500 cells, and each of them is sent
again whenever its run goes on.
"""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from django.utils.safestring import SafeString

from lab.render.icons import icon
from lab.render.moments import INFRASTRUCTURE_REASONS, OUTCOMES
from lab.render.numbers import clock, plural
from lab.render.text import one_line, safe, visible_html

# What a cell may stand in: name of its class -> its icon and word, and the filter that finds it.
STATES: Mapping[str, tuple[str, str, str]] = {
    "resolved": ("ok", "resolved", "resolved"),
    "unresolved": ("cross", "unresolved", "unresolved"),
    "preparing": ("running", "preparing", "running"),
    "running": ("running", "running", "running"),
    "verifying": ("flask", "verifying", "running"),
    "paused": ("paused", "paused", "running"),
    "queued": ("queued", "queued", "queued"),
    "infrastructure": ("bolt", "infrastructure", "infrastructure"),
    "unparsed": ("unparsed", "unparsed", "other"),
    "task_invalid": ("invalid", "task invalid", "other"),
    "ungraded": ("queued", "not graded", "other"),
    "cancelled": ("cancelled", "cancelled", "cancelled"),
}
CONTENTS = ("cost", "time", "tokens", "steps")
_TASK_CHARACTERS = 120
# A grid says the same few thousand words again and again.
_escaped = lru_cache(maxsize=4096)(html.escape)
_NOW_CHARACTERS = 24


class Cell(NamedTuple):
    """One run in the grid. `steps` None: none yet, or none recorded. Words are plain text, "" for nothing.

    `now` is what a running one waits for, `since_ms` since when, in milliseconds since the epoch. `seq` is
    its last event: a page takes a cell only if it is not older than what it has.
    """

    run: int
    task: str
    arm: str
    seed: int
    state: str
    seq: int
    steps: int | None
    cost: str
    time: str
    tokens: str
    flagged: bool
    now: str = ""
    since_ms: int | None = None

    @property
    def group(self) -> str:
        """The filter that finds it."""
        return STATES[self.state][2]


class Sum(NamedTuple):
    """How the runs of one task in one arm came out: `resolved` of `graded`, of `runs` in all."""

    resolved: int
    graded: int
    runs: int

    @property
    def words(self) -> str:
        """ "3 of 3"; "none yet" before the first is graded, "none valid" where none can be any more."""
        return f"{self.resolved} of {self.graded}" if self.graded else "none yet"


class Against(NamedTuple):
    """What the arms, or the seeds of the only one, make of a task: who alone resolves it; what to compare.

    `runs` is empty where none came out differently.
    """

    only: str
    differs: bool
    runs: tuple[int, ...]


class Row(NamedTuple):
    """One task: `cells` and `sums` stand in the order of the grid's columns, None where there is no run."""

    task: int
    slug: str
    title: str
    arms: Sequence[tuple[int, Sequence[Cell | None], Sum]]
    against: Against


class Column(NamedTuple):
    """The columns of one arm: its letter and its seeds."""

    letter: str
    seeds: Sequence[int]


def state_of(status: str, *, verdict: str, exit_reason: str) -> str:
    """A name of STATES: the status until ended, then the verdict, else cancelled, else infrastructure."""
    if status != "ended":
        return status if status in STATES else "queued"
    if verdict in OUTCOMES:
        return verdict
    if exit_reason == "cancelled":
        return "cancelled"
    return "infrastructure" if exit_reason in INFRASTRUCTURE_REASONS else "ungraded"


def pending_words(status: str, pending: Mapping[str, Any]) -> tuple[str, int | None]:
    """What a run that goes on waits for, in a word or two, and since when (milliseconds since the epoch)."""
    words = _WAITS.get(status, "")
    if status == "running":
        kind = pending.get("kind")
        words = str(pending.get("tool") or "tool") if kind == "tool" else "model"
    return one_line(words, _NOW_CHARACTERS), _milliseconds(pending.get("since"))


_WAITS = {"preparing": "sandbox", "verifying": "tests", "paused": "paused"}


def _milliseconds(text: object) -> int | None:
    try:
        return int(dt.datetime.fromisoformat(str(text)).timestamp() * 1000) if text else None
    except (ValueError, OverflowError, OSError):
        return None


def cell_html(cell: Cell) -> SafeString:
    """One cell as it stands in the grid and as it is sent again."""
    return safe(_cell(cell, visible_html(one_line(cell.task, _TASK_CHARACTERS))))


def _cell(cell: Cell, task: str) -> str:
    sign, word, group = STATES[cell.state]
    told = _told(cell, word)
    goes_on = group == "running"
    if goes_on:
        inside = f"<b>{cell.steps or ''}</b>{_now(cell)}"
    elif cell.steps is None or group not in _WITH_STEPS:
        inside = f"<span>{word}</span>"
    else:
        inside = f"<b>{cell.steps}</b>"
    values = ""
    if not goes_on and group in _WITH_STEPS and cell.steps is not None:
        values = (
            f' data-cost="{_escaped(cell.cost)}" data-time="{_escaped(cell.time)}"'
            f' data-tokens="{_escaped(cell.tokens)}"'
        )
    flag = _FLAG if cell.flagged else ""
    return (
        f'<td role="gridcell" id="cell-{cell.run}" class="{cell.state}" data-group="{group}"'
        f' data-seq="{cell.seq}"{" data-flagged" if cell.flagged else ""}>'
        f'<a href="/runs/{cell.run}/"{values} aria-label="{task}, arm {_escaped(cell.arm)}, '
        f'seed {cell.seed}: {told}">{_ICONS[sign]}{inside}{flag}</a></td>'
    )


_WITH_STEPS = frozenset({"resolved", "unresolved"})
_FLAG = icon("flag", "flagged")
_ICONS = {sign: icon(sign) for sign, _, _ in STATES.values()}


def _told(cell: Cell, word: str) -> str:
    """The cell in words, escaped: "resolved, 12 steps, $0.12"; "running, step 9, Bash"."""
    parts = [word]
    if STATES[cell.state][2] == "running":
        parts += [f"step {cell.steps}"] if cell.steps else []
        parts += [cell.now] if cell.now and cell.now != word else []
    elif cell.steps is not None:
        parts += [plural(cell.steps, "step"), cell.cost.replace("$ ?", "cost unknown")]
    if cell.flagged:
        parts.append("flagged")
    return _escaped(", ".join(part for part in parts if part))


def _now(cell: Cell) -> str:
    if cell.since_ms is None:
        return f'<span class="now"><span>{visible_html(cell.now)}</span></span>'
    since = dt.datetime.fromtimestamp(cell.since_ms / 1000, dt.UTC)
    return (
        f'<span class="now"><span>{visible_html(cell.now)}</span> '
        f'<time class="clock" datetime="{since.isoformat()}" data-since="{cell.since_ms}">'
        f"since {since:%H:%M:%S}</time></span>"
    )


def sum_html(task: int, arm: int, of: Sum) -> SafeString:
    """The "3 of 3" of a task in an arm."""
    none = of.words if of.graded else f'<span class="quiet">{of.words}</span>'
    return safe(f'<td role="gridcell" class="sum" id="sum-{task}-{arm}">{none}</td>')


def against_html(task: int, against: Against) -> SafeString:
    """ "only A · compare", "compare" where the runs came out differently, nothing where they agree."""
    only = f"only {_escaped(against.only)} · " if against.only else ""
    shown = against.differs and len(against.runs) > 1
    runs = ",".join(str(run) for run in against.runs)
    link = f'<a href="/compare/?runs={runs}">{only}compare</a>' if shown else ""
    return safe(f'<td role="gridcell" class="against" id="against-{task}">{link}</td>')


def row_html(row: Row, *, hidden: bool = False) -> str:
    """One task with all its cells."""
    slug = visible_html(one_line(row.slug, _TASK_CHARACTERS))
    title = visible_html(one_line(row.title, 300))
    parts = [
        f'<tr role="row" id="task-{row.task}"{" hidden" if hidden else ""}><th role="rowheader" scope="row">'
        f'<a href="/tasks/{row.task}/" title="{slug}: {title}">{slug}</a></th>'
    ]
    for arm, cells, of in row.arms:
        parts += [_NO_RUN if cell is None else _cell(cell, slug) for cell in cells]
        parts.append(sum_html(row.task, arm, of))
    parts.append(against_html(row.task, row.against))
    parts.append("</tr>")
    return "".join(parts)


_NO_RUN = '<td role="gridcell" class="none"><span class="quiet">no run</span></td>'


def grid_html(rows: Sequence[Row], columns: Sequence[Column], *, show: str = "all") -> SafeString:
    """Head and body of the grid's table. `show` is a filter: rows without such a cell are hidden."""
    body = "".join(row_html(row, hidden=not _matches(row, show)) for row in rows)
    return safe(f"{_head(columns)}<tbody role='rowgroup'>{body}</tbody>")


def _matches(row: Row, show: str) -> bool:
    if show == "all":
        return True
    cells = (cell for _, cells, _ in row.arms for cell in cells if cell is not None)
    return any(cell.flagged if show == "flagged" else cell.group == show for cell in cells)


def _head(columns: Sequence[Column]) -> str:
    parts = ['<tr role="row"><th role="columnheader" scope="col" class="corner">task</th>']
    for column in columns:
        letter = _escaped(column.letter)
        for index, seed in enumerate(column.seeds):
            arm = f'{letter}<span class="word">, </span>' if index == 0 else ""
            words = f'<b>{arm}<span class="word">seed </span>{seed}</b>'
            label = f' aria-label="arm {letter}, seed {seed}"'
            parts.append(f'<th role="columnheader" scope="col"{label}>{words}</th>')
        parts.append('<th role="columnheader" scope="col" class="sum">resolved</th>')
    parts.append(f'<th role="columnheader" scope="col" class="against">{_against_words(columns)}</th></tr>')
    return f"<thead role='rowgroup'>{''.join(parts)}</thead>"


def _against_words(columns: Sequence[Column]) -> str:
    if len(columns) == 2:
        return f"{_escaped(columns[0].letter)} against {_escaped(columns[1].letter)}"
    return "arms" if len(columns) > 2 else "seeds"


# The line of a rate, in pixels; a narrow one stands in a row of a table.
_WIDTH, NARROW, _HEIGHT, _MARGIN = 240, 144, 16, 6


def interval_svg(value: float, low: float | None, high: float | None, *, width: int = _WIDTH) -> SafeString:
    """A rate on a line from 0 to 100 %: a dot, and its interval with caps where there is one."""
    middle = _HEIGHT / 2

    def place(share: float) -> str:
        """Where a share lies, kept on the line whatever a formula gave."""
        kept = min(1.0, max(0.0, share)) if share == share else 0.0
        return f"{_MARGIN + kept * (width - 2 * _MARGIN):.1f}"

    ticks = "".join(
        f'<line class="tick" x1="{place(at)}" x2="{place(at)}" y1="{middle - 3:g}" y2="{middle + 3:g}"/>'
        for at in (0.0, 0.5, 1.0)
    )
    reach = ""
    if low is not None and high is not None:
        caps = "".join(
            f'<line x1="{place(at)}" x2="{place(at)}" y1="{middle - 5:g}" y2="{middle + 5:g}"/>'
            for at in (low, high)
        )
        line = f'<line x1="{place(low)}" x2="{place(high)}" y1="{middle:g}" y2="{middle:g}"/>'
        reach = f'<g class="reach">{line}{caps}</g>'
    return safe(
        f'<svg class="interval" viewBox="0 0 {width} {_HEIGHT}" width="{width}" height="{_HEIGHT}"'
        f' aria-hidden="true"><line class="axis" x1="{place(0.0)}" x2="{place(1.0)}" y1="{middle:g}"'
        f' y2="{middle:g}"/>{ticks}{reach}<circle cx="{place(value)}" cy="{middle:g}" r="4.5"/></svg>'
    )


def percent(share: float) -> str:
    """ "87.9 %", with one decimal."""
    return f"{share * 100:.1f} %"


def short_tokens(number: int | None) -> str:
    """ "126 k", "9.3 M"; "?" for unknown."""
    if number is None:
        return "?"
    if number < 1_000:
        return f"{number}"
    return f"{number / 1e3:.0f} k" if number < 999_500 else f"{number / 1e6:.1f} M"


def rough_time(seconds: float) -> str:
    """ "about 9 min", "about 2 h 10 min"; for what nobody knows exactly."""
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        return f"about {minutes} min"
    if minutes < 60 * 48:
        return f"about {minutes // 60} h {minutes % 60} min"
    return f"about {minutes // (60 * 24)} days"


def short_time(seconds: float | None) -> str:
    """ "1:42"; "?" for unknown."""
    return "?" if seconds is None else clock(seconds)
