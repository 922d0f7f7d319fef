"""The grid of an experiment, tasks × arms × seeds: its runs in one query, without an instance for each.

`Grid` holds what a page shows and what a live feed keeps between its looks. Steps, seconds and verdict are
the newest attempt's, dollars and tokens count over all attempts. Unknown stays None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db.models import FloatField, Max, Q
from django.db.models.functions import Cast

from lab.models import Arm, Event, Flag, Run, Task
from lab.render.grids import (
    Against,
    Cell,
    Column,
    Row,
    Sum,
    pending_words,
    short_time,
    short_tokens,
    state_of,
)
from lab.render.numbers import dollars
from lab.services.run_costs import FREE

# Statuses of runs that a worker is at work on: few, whatever an experiment's size.
ACTIVE = (Run.Status.PREPARING, Run.Status.RUNNING, Run.Status.PAUSED, Run.Status.VERIFYING)
SORTS = ("set", "disagreement", "rate")


class GridRun(NamedTuple):
    """One run's row. Without a roll-up (no event yet) its figures are None."""

    pk: int
    arm: int
    task: int
    seed: int
    status: str
    last_seq: int
    exit_reason: str
    cancel_asked: bool
    steps: int | None
    calls: int | None
    input_total: int | None
    output_total: int | None
    usage_unknown: int | None
    cost: float | None
    cost_unknown: int | None
    cost_basis: str | None
    agent_seconds: float | None
    verdict: str | None
    limits_changed: bool | None
    got_message: bool | None

    @property
    def ended(self) -> bool:
        return self.status == Run.Status.ENDED

    @property
    def graded(self) -> bool:
        return self.verdict in ("resolved", "unresolved") and self.ended

    @property
    def resolved(self) -> bool:
        return self.verdict == "resolved" and self.ended

    @property
    def stepped_in(self) -> bool:
        """Whether people changed a limit or sent a message: such a run is part of no rate."""
        return bool(self.limits_changed or self.got_message)

    @property
    def counts(self) -> bool:
        """Whether it is part of its arm's rate."""
        return self.graded and not self.stepped_in

    @property
    def tokens(self) -> int | None:
        if self.input_total is None and self.output_total is None:
            return None
        return (self.input_total or 0) + (self.output_total or 0)


_FIELDS = (
    *("pk", "arm_id", "task_id", "seed", "status", "last_seq", "exit_reason", "cancel_asked"),
    *("facts__steps", "facts__calls", "facts__input_total", "facts__output_total", "facts__usage_unknown"),
    *("dollars", "facts__cost_unknown", "facts__cost_basis", "facts__agent_seconds", "facts__verdict"),
    *("facts__limits_changed", "facts__got_message"),
)


class GridTask(NamedTuple):
    """A task of the grid."""

    pk: int
    slug: str
    title: str


@dataclass
class Grid:
    """An experiment's runs by their numbers, with what their cells are shown with.

    `mark` is the newest event of the lab when this was read, so that what came later can be asked for.
    """

    experiment: int
    arms: list[Arm]
    tasks: list[GridTask]
    runs: dict[int, GridRun]
    pending: dict[int, Mapping[str, Any]]
    flagged: set[int]
    mark: int
    by_place: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_place = {(run.task, run.arm, run.seed): run.pk for run in self.runs.values()}
        self._letters = {arm.pk: arm.letter for arm in self.arms}
        self._free = {arm.pk: _free_words(arm) for arm in self.arms}
        self._slugs = {task.pk: task.slug for task in self.tasks}
        self._against: dict[int, Against] = {}
        self._columns = self._read_columns()

    def against(self, task: int) -> Against:
        """What the arms make of a task, computed once until one of its runs is read anew."""
        if task not in self._against:
            self._against[task] = against_of(self.of_task(task))
        return self._against[task]

    def put(self, run: GridRun) -> None:
        """This run is as it is now."""
        self.runs[run.pk] = run
        self.pending.pop(run.pk, None)
        self._against.pop(run.task, None)

    @property
    def columns(self) -> list[tuple[Arm, list[int]]]:
        """The arms by their letters, each with the seeds that it has."""
        return self._columns

    def _read_columns(self) -> list[tuple[Arm, list[int]]]:
        seeds: dict[int, set[int]] = {arm.pk: set() for arm in self.arms}
        for run in self.runs.values():
            seeds[run.arm].add(run.seed)
        return [(arm, sorted(seeds[arm.pk])) for arm in self.arms]

    @property
    def heads(self) -> list[Column]:
        """The columns as the head of the table names them."""
        return [Column(arm.letter, seeds) for arm, seeds in self.columns]

    def cell(self, run: GridRun) -> Cell:
        """One run as its cell says it."""
        state = state_of(run.status, verdict=run.verdict or "", exit_reason=run.exit_reason)
        now, since = "", None
        if run.status in ACTIVE:
            now, since = pending_words(run.status, self.pending.get(run.pk) or {})
            now = "cancelling" if run.cancel_asked else now
        free = self._free[run.arm]
        told = bool(run.calls)
        return Cell(
            run=run.pk,
            task=self._slugs[run.task],
            arm=self._letters[run.arm],
            seed=run.seed,
            state=state,
            seq=run.last_seq,
            steps=run.steps if run.steps or told else None,
            cost=free or _cost_words(run),
            time=short_time(run.agent_seconds),
            tokens=("≥ " if run.usage_unknown and run.tokens else "") + short_tokens(run.tokens),
            flagged=run.pk in self.flagged,
            now=now,
            since_ms=since,
        )

    def of_task(self, task: int) -> list[tuple[Arm, list[GridRun | None]]]:
        """The runs of a task in the order of the columns, None where there is none."""
        runs, place = self.runs, self.by_place.get
        return [
            (arm, [runs.get(place((task, arm.pk, seed), 0)) for seed in seeds]) for arm, seeds in self.columns
        ]

    def row(self, task: GridTask) -> Row:
        """One task as its row says it."""
        sides = self.of_task(task.pk)
        return Row(
            task=task.pk,
            slug=task.slug,
            title=task.title,
            arms=[
                (arm.pk, [None if run is None else self.cell(run) for run in runs], sum_of(runs))
                for arm, runs in sides
            ],
            against=self.against(task.pk),
        )

    def rows(self, *, sort: str = "set") -> list[Row]:
        """All tasks: as the set has them, those first whose runs disagree most, or those resolved least."""
        rows = [self.row(task) for task in self.tasks]
        if sort == "disagreement":
            rows.sort(key=_disagreement, reverse=True)
        elif sort == "rate":
            rows.sort(key=_solve_rate)
        return rows


def _free_words(arm: Arm) -> str:
    if arm.model.endpoint.scripted:
        return "$0"
    return "$0" if arm.model.replay else ""


def _cost_words(run: GridRun) -> str:
    if run.cost_basis in FREE:
        return "$0"
    if run.cost is None:
        return "$ ?" if run.calls else ""
    return f"{'≥ ' if run.cost_unknown else ''}{dollars(run.cost, places=2)}"


def sum_of(runs: Sequence[GridRun | None]) -> Sum:
    """How the runs of one task in one arm came out."""
    there = [run for run in runs if run is not None]
    return Sum(sum(run.resolved for run in there), sum(run.graded for run in there), len(there))


def against_of(sides: Sequence[tuple[Arm, Sequence[GridRun | None]]]) -> Against:
    """Who alone resolves a task, whether its runs came out differently, and which of them to compare.

    Of two runs that came out differently the ones of the same seed are chosen, if there are any.
    """
    graded = [(arm, [run for run in runs if run is not None and run.graded]) for arm, runs in sides]
    solvers = [arm for arm, runs in graded if any(run.resolved for run in runs)]
    tried = [arm for arm, runs in graded if runs]
    only = solvers[0].letter if len(solvers) == 1 and len(tried) > 1 else ""
    everything = [run for _, runs in graded for run in runs]
    differs = len({run.resolved for run in everything}) > 1
    if differs:
        return Against(only, True, _discordant([runs for _, runs in graded]))
    return Against("", False, ())


def _discordant(sides: Sequence[Sequence[GridRun]]) -> tuple[int, ...]:
    """One run of each arm, of those with runs, so that at least two came out differently."""
    present = [list(runs) for runs in sides if runs]
    if len(present) == 1:
        good = next(run for run in present[0] if run.resolved)
        bad = next(run for run in present[0] if not run.resolved)
        return tuple(run.pk for run in sorted((good, bad), key=lambda run: run.seed))
    for seed in sorted({run.seed for runs in present for run in runs}):
        chosen = [run for runs in present for run in runs if run.seed == seed]
        if len({run.resolved for run in chosen}) > 1:
            return tuple(run.pk for run in chosen)
    good = next(run for runs in present for run in runs if run.resolved)
    others = [run for runs in present for run in runs if not run.resolved]
    bad = next((run for run in others if run.arm != good.arm), others[0])
    return tuple(run.pk for run in sorted((good, bad), key=lambda run: run.arm))


def _solve_rate(row: Row) -> float:
    graded = sum(of.graded for _, _, of in row.arms)
    # Tasks that nobody has finished come last: they say nothing yet.
    return sum(of.resolved for _, _, of in row.arms) / graded if graded else 2.0


def _disagreement(row: Row) -> tuple[float, float]:
    """How far apart the arms are, then how far the runs are from all alike."""
    means = [of.resolved / of.graded for _, _, of in row.arms if of.graded]
    if not means:
        return (-1.0, 0.0)
    share = _solve_rate(row)
    return (max(means) - min(means), share * (1 - share))


def newest_mark() -> int:
    """The number of the newest event of the lab's log, 0 without one."""
    return int(Event.objects.aggregate(newest=Max("pk"))["newest"] or 0)


def read(experiment_id: int) -> Grid:
    """An experiment as it is now. The number of queries does not depend on the number of runs."""
    # First of all, so that nothing falls between the mark and the runs.
    mark = newest_mark()
    runs = read_runs(experiment_id)
    tasks = Task.objects.filter(runs__experiment=experiment_id).distinct()
    named = tasks.order_by("position", "pk").values_list("pk", "slug", "title", "position")
    arms = Arm.objects.filter(experiment=experiment_id).order_by("letter")
    arms = arms.select_related("harness_version__harness", "model__endpoint")
    return Grid(
        experiment=experiment_id,
        arms=list(arms.defer("harness_version__config", "harness_version__source")),
        tasks=[GridTask(pk, slug, title) for pk, slug, title, _ in named],
        runs={run.pk: run for run in runs},
        pending=read_pending([run.pk for run in runs if run.status in ACTIVE]),
        flagged=read_flagged(experiment_id),
        mark=mark,
    )


def read_runs(experiment_id: int, numbers: Iterable[int] | None = None) -> list[GridRun]:
    """The runs of an experiment, or those of these numbers, in one query."""
    runs = Run.objects.filter(experiment=experiment_id)
    if numbers is not None:
        runs = runs.filter(pk__in=list(numbers))
    rows = runs.annotate(dollars=Cast("facts__cost", FloatField())).order_by().values_list(*_FIELDS)
    return [GridRun._make(row) for row in rows.iterator(chunk_size=2000)]


def read_pending(numbers: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """What these runs wait for, as their roll-ups say."""
    if not numbers:
        return {}
    return dict(Run.objects.filter(pk__in=numbers).order_by().values_list("pk", "facts__pending"))


def read_flagged(experiment_id: int) -> set[int]:
    """The runs of an experiment in which a rule found something."""
    found = Flag.objects.filter(run__experiment=experiment_id, present=True).order_by()
    return set(found.values_list("run", flat=True).distinct())


RunState = tuple[int, int, str, bool]


def read_states(experiment_id: int) -> dict[int, RunState]:
    """Run -> number, last event, status, whether to be cancelled: what tells that a cell has changed."""
    rows = Run.objects.filter(experiment=experiment_id).order_by()
    return {row[0]: row for row in rows.values_list("pk", "last_seq", "status", "cancel_asked")}


# Numbers are given before a transaction commits: an event of a smaller number may become visible later.
_LATE = 200
# More than this is not looked through: everything is sent again.
_MOST_EVENTS = 20_000


def changed_since(experiment_id: int, mark: int) -> set[int]:
    """The runs of an experiment that may differ from what was read at `mark`: never too few."""
    runs = Run.objects.filter(experiment=experiment_id).order_by()
    if newest_mark() - mark > _MOST_EVENTS:
        return set(runs.values_list("pk", flat=True))
    spoke = Event.objects.filter(pk__gt=max(0, mark - _LATE)).order_by().values("run")
    moving = Q(status__in=ACTIVE) | (Q(cancel_asked=True) & ~Q(status=Run.Status.ENDED)) | Q(pk__in=spoke)
    return set(runs.filter(moving).values_list("pk", flat=True))


def refresh(grid: Grid, numbers: Iterable[int]) -> list[GridRun]:
    """Read these runs anew into the grid; returns them, without those that it has no row or column for."""
    runs = [run for run in read_runs(grid.experiment, numbers) if run.pk in grid.runs]
    for run in runs:
        grid.put(run)
    grid.pending |= read_pending([run.pk for run in runs if run.status in ACTIVE])
    flagged = Flag.objects.filter(run__in=[run.pk for run in runs], present=True).order_by()
    grid.flagged = (grid.flagged - {run.pk for run in runs}) | set(flagged.values_list("run", flat=True))
    return runs
