"""What is new in an experiment's grid: the cells that changed, rendered once for all who watch."""

from __future__ import annotations

import time
from collections.abc import Iterable

from django.template.loader import render_to_string

from lab.live import messages
from lab.live.hub import Message, Topic
from lab.models import Experiment
from lab.render.grids import against_html, cell_html, sum_html
from lab.services import grid_summaries, grids
from lab.services.grids import Grid, GridRun

CELLS_SECONDS = 0.5
# Rates, spend and progress go through all runs, and are news for nobody twice a second.
BESIDE_SECONDS = 2.0
_PARTS = ("state", "grid_arms", "grid_progress", "grid_budget", "grid_now", "grid_worth")


class GridFeed:
    """Turns changes of an experiment's runs into messages. Lives on the watcher's thread.

    `position` is the mark of the page that watches first: what came after it is sent at the first look.
    """

    def __init__(self, topic: Topic, *, position: int) -> None:
        self._topic = topic
        self._position = position
        self._grid: Grid | None = None
        self._states: dict[int, grids.RunState] = {}
        self._at = 0.0
        self._beside: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._beside_at = 0.0
        self._stale = True
        self.waits = True

    def changed(self) -> list[Message]:
        """Cells, counts and parts that differ from what was sent before."""
        now = time.monotonic()
        if now - self._at < CELLS_SECONDS:
            self.waits = True
            return []
        self._at = now
        mark = grids.newest_mark()
        states = grids.read_states(self._topic.key)
        grid, runs = self._read(states)
        self._stale = self._stale or bool(runs)
        parts, counts = self._changed_beside(grid, now)
        # What is beside the cells is due later: without this it would wait for the next event.
        self.waits = self._stale
        if not runs and not parts and not counts:
            return []
        return [messages.cells(cells_of(grid, runs), parts=parts, counts=counts, mark=mark)]

    def _read(self, states: dict[int, grids.RunState]) -> tuple[Grid, list[GridRun]]:
        """The grid, and the runs that changed, read anew into it."""
        before, self._states = self._states, states
        if self._grid is None:
            self._grid = grids.read(self._topic.key)
            numbers = grids.changed_since(self._topic.key, self._position)
            return self._grid, [run for pk, run in self._grid.runs.items() if pk in numbers]
        changed = [pk for pk, state in states.items() if before.get(pk) != state]
        if states.keys() - self._grid.runs.keys():
            # More seeds or another arm: pages that have no cell for them are told by the count of all.
            self._grid = grids.read(self._topic.key)
            return self._grid, [self._grid.runs[pk] for pk in changed if pk in self._grid.runs]
        return self._grid, grids.refresh(self._grid, changed) if changed else []

    def _changed_beside(self, grid: Grid, now: float) -> tuple[list[str], dict[str, int]]:
        """Parts and counts beside the cells, as far as they differ from what was sent before."""
        if now - self._beside_at < BESIDE_SECONDS:
            return [], {}
        self._beside_at, self._stale = now, False
        parts, counts = beside(grid)
        before, self._beside = self._beside, parts
        before_counts, self._counts = self._counts, counts
        changed = [html for name, html in parts.items() if before.get(name) != html]
        return changed, counts if counts != before_counts else {}


def grid_now(topic: Topic, *, mark: int) -> Message:
    """What a page that was made at `mark` lacks: cells that may have changed since, and everything beside."""
    grid = grids.read(topic.key)
    numbers = grids.changed_since(topic.key, mark)
    parts, counts = beside(grid)
    html = cells_of(grid, (run for pk, run in grid.runs.items() if pk in numbers))
    return messages.cells(html, parts=list(parts.values()), counts=counts, mark=grid.mark)


def cells_of(grid: Grid, runs: Iterable[GridRun]) -> list[str]:
    """The cells of these runs, and what their rows sum up to."""
    html: list[str] = []
    tasks: dict[int, set[int]] = {}
    for run in runs:
        html.append(cell_html(grid.cell(run)))
        tasks.setdefault(run.task, set()).add(run.arm)
    for task, arms in tasks.items():
        for arm, of_arm in grid.of_task(task):
            if arm.pk in arms:
                html.append(sum_html(task, arm.pk, grids.sum_of(of_arm)))
        html.append(against_html(task, grid.against(task)))
    return html


def beside(grid: Grid) -> tuple[dict[str, str], dict[str, int]]:
    """What the page says beside its cells, as fragments by their names, and the counts of its filters."""
    experiment = Experiment.objects.filter(pk=grid.experiment).first()
    if experiment is None:
        return {}, {}
    summary = grid_summaries.summary(grid, experiment)
    budget = grid_summaries.budget_lines(experiment)
    context = {
        "state": grid_summaries.state_badge(experiment, grid),
        "arms": summary.arms,
        "progress": summary.progress,
        "running": summary.running,
        "active": summary.active,
        "worth": summary.worth,
        "budget": budget,
    }
    names = [name for name in _PARTS if budget or name != "grid_budget"]
    parts: dict[str, str] = {name: render_to_string(f"experiments/_{name}.html", context) for name in names}
    return parts, {one.key: one.number for one in summary.filters}
