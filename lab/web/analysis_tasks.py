"""The sections on single tasks and on what a harness does to a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lab.analysis.estimates import Unknown
from lab.analysis.harness_effect import FIRST_ONLY, Contrast, Slope, tests_among
from lab.analysis.per_task import BANDS, Attempts, Band, PerTask, TaskRate
from lab.render import figures
from lab.render.tables import Cell, Column, Row, Table, missing
from lab.web import charts_conduct
from lab.web.analysis_pairs import p_cell
from lab.web.analysis_parts import (
    Panel,
    Section,
    Shown,
    count_cell,
    estimate_cell,
    interval_cell,
    share_cell,
    text_column,
    with_limits,
)

# Rows of tasks on the page; a file has all.
MOST_TASKS = 100
BAND_WORDS: dict[Band, str] = {
    "never": "never resolved",
    "sometimes": "0 < p < 1",
    "always": "always resolved",
    "untried": "not graded",
}


class BandLink(NamedTuple):
    """Tasks of a band: how many, and the address that shows them alone."""

    word: str
    number: int
    url: str
    chosen: bool


def section(shown: Shown, found: PerTask, band: str) -> Section:
    """`band` is the one to show, "" for all tasks."""
    chosen = [task for task in found.tasks if not band or task.band == band]
    links = [BandLink("all", len(found.tasks), _address(shown, ""), not band)]
    links += [
        BandLink(BAND_WORDS[one], found.bands[one], _address(shown, one), band == one)
        for one in BANDS
        if found.bands[one] or band == one
    ]
    return Section(
        "per-task",
        "Per task",
        (_informing(shown, found), _tasks(shown, chosen)),
        "analysis/_bands.html",
        links,
    )


def _address(shown: Shown, band: str) -> str:
    page = shown.page()
    joined = f"{page}{'&' if '?' in page else '?'}band={band}" if band else page
    return f"{joined}#per-task"


def task_table(shown: Shown, found: PerTask) -> Table:
    """Every task, for a file."""
    return _table(shown, found.tasks, len(found.tasks))


def _informing(shown: Shown, found: PerTask) -> Panel:
    columns = (
        Column("tasks with 0 < p < 1", with_limits("informing")),
        Column("tasks with two runs or more", ("tasks",), "one run says nothing of sometimes"),
    )
    arms = [arm.key for arm in shown.observed.arms if arm.key in found.by_arm]
    rows = [
        Row("all arms together", (share_cell(found.informing.estimate), count_cell(int(found.informing.of))))
    ]
    rows += [
        shown.row(arm, (share_cell(found.by_arm[arm].estimate), count_cell(int(found.by_arm[arm].of))))
        for arm in arms
    ]
    lines = [("tasks with 0 < p < 1", [(arm, found.by_arm[arm]._replace(key="graded")) for arm in arms])]
    subtitle = "the share of tasks that an arm resolves sometimes: they tell arms apart, the others do not"
    plot = charts_conduct.dots(shown, "informing", "Tasks that inform", subtitle, lines)
    return Panel(
        "informing",
        "Tasks that inform",
        subtitle,
        plots=(plot,) if plot else (),
        table=Table("informing", "Tasks that inform", "arm", columns, tuple(rows)),
        folded=False,
    )


def _tasks(shown: Shown, tasks: Sequence[TaskRate]) -> Panel:
    notes = []
    if len(tasks) > MOST_TASKS:
        notes.append(f"{MOST_TASKS} of {len(tasks):,} tasks; the CSV has all.")
    return Panel(
        "tasks",
        "Solve rate by task",
        "resolved of counted runs; the interval is Wilson’s over the runs of a task",
        table=_table(shown, tasks, MOST_TASKS),
        notes=tuple(notes),
        why="" if tasks else "no task is in this band",
        folded=False,
    )


def _table(shown: Shown, tasks: Sequence[TaskRate], most: int) -> Table:
    arms = [arm.key for arm in shown.observed.arms]
    columns = [
        text_column("repository", "repository"),
        Column("all arms", ("resolved", "runs")),
        Column("solve rate", with_limits("solve_rate")),
        *(
            Column(
                shown.letter(arm),
                (f"{shown.name(arm)} resolved", f"{shown.name(arm)} runs"),
                shown.name(arm),
                mark=shown.shape(arm),
            )
            for arm in arms
        ),
    ]
    rows = []
    for task in tasks[:most]:
        whole = task.whole
        cells = [
            Cell(task.repository or "not named", (task.repository,)),
            _of(shown, whole, "", task.task),
            share_cell(whole.rate),
            *(_of(shown, task.arms.get(arm), arm, task.task) for arm in arms),
        ]
        rows.append(Row(shown.task_name(task.task), tuple(cells), 0, shown.behind(task=task.task)))
    return Table("tasks", "Solve rate by task", "task", tuple(columns), tuple(rows))


def _of(shown: Shown, found: Attempts | None, arm: str, task: str) -> Cell:
    if found is None:
        return Cell("not run", (None, 0))
    resolved, of = len(found.resolved), len(found.resolved) + len(found.unresolved)
    others = f"{len(found.others)} more open, invalid or cancelled" if found.others else ""
    if not of:
        return Cell("not graded", (0, 0), shown.behind(arm, task=task), hint=others)
    url = shown.behind(arm, task=task, outcome="counted")
    return Cell(f"{resolved} of {of}", (resolved, of), url, hint=others)


def harness_effect(shown: Shown, slopes: Sequence[Slope]) -> Section:
    panels = (
        _slopes(
            shown,
            [one for one in slopes if one.fixed == "model"],
            tests_among(slopes),
            "one-model",
            "One model on several harnesses",
            "no model ran on more than one harness",
        ),
        _slopes(
            shown,
            [one for one in slopes if one.fixed == "harness"],
            tests_among(slopes),
            "one-harness",
            "One harness with several models",
            "no harness ran with more than one model",
        ),
    )
    return Section("harness", "Harness effect", panels)


def _slopes(shown: Shown, slopes: Sequence[Slope], family: int, key: str, title: str, why: str) -> Panel:
    columns = (
        Column("difference", ("difference",), "points, first minus second, on the tasks both tried"),
        Column("95 % interval", ("difference_low", "difference_high")),
        Column("tasks", ("shared_tasks",)),
        Column("p", ("p", "method")),
        Column("p, Holm", ("p_holm",), f"corrected over the {family} contrasts here with a p value"),
    )
    contrasts = [(slope, one) for slope in slopes for one in slope.contrasts]
    rows = tuple(_contrast_row(shown, slope, one) for slope, one in contrasts)
    plots = [
        charts_conduct.slopes(shown, slopes[start : start + 6], key=f"{key}{start or ''}", title=title)
        for start in range(0, len(slopes), 6)
    ]
    drawn = tuple(plot for plot in plots if plot)
    notes = list(dict.fromkeys(sentence for _, one in contrasts for sentence in one.confounded))
    notes += [FIRST_ONLY] if any(FIRST_ONLY in slope.caution for slope in slopes) else []
    methods = "".join(f"; {one}" for one in sorted({one.method for _, one in contrasts}))
    return Panel(
        key,
        title,
        f"rates of each arm’s own tasks; differences below are on shared tasks alone{methods}",
        plots=drawn,
        table=Table(key, title, "pair", columns, rows) if rows else None,
        more=(_points(shown, slopes, key),) if slopes else (),
        notes=tuple(notes),
        why="" if drawn else why if not slopes else "no rate has an interval",
        folded=False,
    )


def _contrast_row(shown: Shown, slope: Slope, one: Contrast) -> Row:
    difference = one.difference
    parts = (
        (one.first.harness, one.second.harness)
        if slope.fixed == "model"
        else (one.first.model, one.second.model)
    )
    interval = interval_cell(one.interval, suffix="")
    if not isinstance(one.interval, Unknown) and one.interval.high is not None:
        low, high = (figures.signed(100 * limit) for limit in (one.interval.low, one.interval.high))
        interval = interval._replace(text=f"{low} to {high}")
    pair = f"contrast:{one.first.key},{one.second.key}"
    cells = (
        missing(difference.why)
        if isinstance(difference, Unknown)
        else Cell(figures.signed(100 * difference), (difference,), shown.behind(effect=pair), strong=True),
        interval,
        count_cell(one.shared),
        p_cell(one.p)._replace(
            values=(None if isinstance(one.p, Unknown) else one.p, one.method), hint=one.method
        ),
        p_cell(one.p_holm),
    )
    return Row(f"{slope.name}: {parts[0]} − {parts[1]}", cells)


def _points(shown: Shown, slopes: Sequence[Slope], key: str) -> Table:
    columns = (Column("rate", with_limits("resolve_rate")), Column("runs", ("runs",)))
    rows = []
    for slope in slopes:
        for point in slope.points:
            cells = (
                estimate_cell(point.rate, shown.behind(point.arm.key, outcome="counted")),
                count_cell(point.attempts),
            )
            rows.append(shown.row(point.arm.key, cells)._replace(second=f"({slope.name})"))
    return Table(f"{key}-rates", "The points of the plot", "arm", columns, tuple(rows))
