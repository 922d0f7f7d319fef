"""What an experiment's page says beside its grid: rates with their uncertainty, spend, progress."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from django.db.models import Count, Q
from django.db.models import Sum as SumOf
from django.urls import reverse

from lab.analysis import rates
from lab.analysis.estimates import Estimate, Unknown
from lab.analysis.rates import TaskResult
from lab.engine.llm.base import canonical_json
from lab.models import Arm, Call, Experiment, Run, RunFacts
from lab.render.grids import NARROW, STATES, interval_svg, percent, rough_time, state_of
from lab.render.numbers import dollars, plural
from lab.render.text import one_line, visible_text
from lab.services import budgets, overview
from lab.services.grids import ACTIVE, Grid, GridRun
from lab.services.price_cards import BASIS_WORDS
from lab.services.run_costs import FREE, MIXED

# The filters in the order of their digits.
FILTERS: tuple[tuple[str, str, str], ...] = (
    ("all", "all", ""),
    ("resolved", "resolved", "ok"),
    ("unresolved", "unresolved", "cross"),
    ("running", "running", "running"),
    ("queued", "queued", "queued"),
    ("infrastructure", "infrastructure", "bolt"),
    ("cancelled", "cancelled", "cancelled"),
    ("flagged", "flagged", "flag"),
    ("other", "not graded", "unparsed"),
)
_NAMED = 3
_RECENT = 30
# From so many arms on each has a row of a table, with a shorter line.
_MANY_ARMS = 4
# Fewer ended runs say little about how long the others take.
_ENOUGH = 3


class Filter(NamedTuple):
    """One filter with how many runs it finds; `digit` is its key."""

    key: str
    word: str
    icon: str
    number: int
    digit: int


class ArmHead(NamedTuple):
    """How an arm stands. `rate` "" where nothing can be said; `interval` then says why.

    `valid` is "9 of 12 valid", in short what `method` says in full.
    """

    arm: Arm
    model: str
    rate: str
    line: str
    interval: str
    valid: str
    method: str
    preliminary: bool
    beside: list[str]
    spread: str
    cost: str
    cost_unknown: bool
    limits: str


class Now(NamedTuple):
    """A run that goes on: what it waits for, and since when (milliseconds since the epoch)."""

    run: int
    words: str
    pending: str
    since: dt.datetime | None
    step: str


class Look(NamedTuple):
    """Something worth a look, with where to."""

    icon: str
    words: str
    detail: str
    url: str


class Progress(NamedTuple):
    """How far it is. `left` in words, "" when nothing is left or the experiment stands."""

    graded: int
    ended: int
    total: int
    left: str


class Summary(NamedTuple):
    """Everything beside the grid."""

    filters: list[Filter]
    arms: list[ArmHead]
    progress: Progress
    running: list[Now]
    active: int
    worth: list[Look]
    shape: str
    preliminary: bool


def summary(grid: Grid, experiment: Experiment) -> Summary:
    """What the page says of these runs. Asks the database for little: see `read`."""
    by_arm: dict[int, list[GridRun]] = {arm.pk: [] for arm in grid.arms}
    for run in grid.runs.values():
        by_arm[run.arm].append(run)
    preliminary = any(not run.ended for run in grid.runs.values())
    mixed = _mixed(grid)
    many = len(grid.arms) >= _MANY_ARMS
    heads = [_head(arm, by_arm[arm.pk], preliminary, mixed.get(arm.pk, {}), many) for arm in grid.arms]
    return Summary(
        filters=_filters(grid),
        arms=heads,
        progress=_progress(grid, experiment),
        running=_running(grid),
        active=sum(run.status in ACTIVE for run in grid.runs.values()),
        worth=_worth(grid),
        shape=_shape(grid),
        preliminary=preliminary,
    )


def _filters(grid: Grid) -> list[Filter]:
    counts = dict.fromkeys((key for key, _, _ in FILTERS), 0)
    for run in grid.runs.values():
        state = state_of(run.status, verdict=run.verdict or "", exit_reason=run.exit_reason)
        counts[STATES[state][2]] += 1
    counts["all"], counts["flagged"] = len(grid.runs), len(grid.flagged)
    return [
        Filter(key, word, icon, counts[key], digit)
        for digit, (key, word, icon) in enumerate(FILTERS, start=1)
    ]


def _shape(grid: Grid) -> str:
    """ "2 arms × 12 tasks × 3 seeds = 72 runs", or without the product where some have no run."""
    seeds = {run.seed for run in grid.runs.values()}
    product = len(grid.arms) * len(grid.tasks) * len(seeds)
    parts = (plural(len(grid.arms), "arm"), plural(len(grid.tasks), "task"), plural(len(seeds), "seed"))
    runs = plural(len(grid.runs), "run")
    return f"{' × '.join(parts)} = {runs}" if product == len(grid.runs) else f"{', '.join(parts)}, {runs}"


def _head(
    arm: Arm, runs: Sequence[GridRun], preliminary: bool, mixed: Mapping[str, float], many: bool
) -> ArmHead:
    counted = [run for run in runs if run.counts]
    results = results_of(counted)
    estimate = rates.average(results)
    rate, line, interval, method = _rate_words(
        estimate, counted, preliminary, {"width": NARROW} if many else {}
    )
    cost, unknown = _cost(arm, runs, mixed)
    return ArmHead(
        arm=arm,
        model=visible_text(arm.model.name),
        rate=rate,
        line=line,
        interval=interval,
        valid=f"{sum(run.resolved for run in counted)} of {len(counted)} valid" if rate else "",
        method=method,
        preliminary=preliminary,
        beside=_beside(runs),
        spread=_spread(results),
        cost=cost,
        cost_unknown=unknown,
        limits=_limits(arm),
    )


def results_of(counted: Sequence[GridRun]) -> list[TaskResult]:
    """Task by task: how many of its runs that count are resolved."""
    found: dict[int, list[bool]] = {}
    for run in counted:
        found.setdefault(run.task, []).append(run.resolved)
    return [TaskResult(sum(outcomes), len(outcomes), task) for task, outcomes in found.items()]


def _rate_words(
    estimate: Estimate | Unknown, counted: Sequence[GridRun], preliminary: bool, drawn: Mapping[str, int]
) -> tuple[str, str, str, str]:
    if isinstance(estimate, Unknown):
        return "", "", str(estimate) if not preliminary else "none graded yet", ""
    resolved = sum(run.resolved for run in counted)
    parts = [f"{resolved} of {len(counted)} valid runs resolved"]
    if len(counted) != estimate.n:
        parts.append(f"mean of {plural(estimate.n, 'task')}")
    limits: tuple[float | None, float | None] = (None, None)
    if isinstance(estimate.interval, Unknown):
        told = f"interval {estimate.interval}"
    else:
        low, high = estimate.interval.low, estimate.interval.high
        limits = (low, high)
        told = f"{low * 100:.1f} to {percent(high if high is not None else 1.0)}"
        parts.append(f"95 % interval, {estimate.method}")
    parts += ["preliminary"] if preliminary else []
    return percent(estimate.value), interval_svg(estimate.value, *limits, **drawn), told, ", ".join(parts)


def _beside(runs: Sequence[GridRun]) -> list[str]:
    """What is no part of the rate, and how much of it there is."""
    invalid = [run for run in runs if run.ended and not run.graded and run.exit_reason != "cancelled"]
    cancelled = sum(run.ended and not run.graded and run.exit_reason == "cancelled" for run in runs)
    limits = sum(run.graded and bool(run.limits_changed) for run in runs)
    told = sum(run.graded and bool(run.got_message) and not run.limits_changed for run in runs)
    found = [
        (len(invalid), f"{len(invalid)} invalid"),
        (cancelled, f"{cancelled} cancelled"),
        (limits, f"{limits} with changed limits"),
        (told, f"{told} that got a message"),
    ]
    return [words for number, words in found if number]


def _spread(results: Sequence[TaskResult]) -> str:
    """How far the seeds of one task are apart; "" where no task has two that count."""
    several = [one for one in results if one.attempts > 1]
    if not several:
        return ""
    differing = sum(0 < one.successes < one.attempts for one in several)
    within = math.fsum(
        one.successes * (one.attempts - one.successes) / (one.attempts * (one.attempts - 1))
        for one in several
    ) / len(several)
    words = (
        f"seeds differ on {differing} of {plural(len(several), 'task')}, variance within a task {within:.3f}"
    )
    parted = rates.variance(results)
    return words if isinstance(parted, Unknown) else f"{words}, between tasks {parted.between:.3f}"


def _mixed(grid: Grid) -> dict[int, dict[str, float]]:
    """Arm -> basis -> dollars, of the runs whose own calls have several bases."""
    numbers = [run.pk for run in grid.runs.values() if run.cost_basis == MIXED]
    if not numbers:
        return {}
    paid = Call.objects.filter(run__in=numbers, cost__isnull=False).order_by()
    found: dict[int, dict[str, float]] = {}
    for arm, basis, spent in paid.values_list("run__arm", "cost_basis").annotate(SumOf("cost")):
        found.setdefault(arm, {})[basis] = float(spent)
    return found


def _cost(arm: Arm, runs: Sequence[GridRun], mixed: Mapping[str, float]) -> tuple[str, bool]:
    """What an arm has cost so far, and whether any of it is unknown. Bases are never added up."""
    if arm.model.endpoint.scripted or arm.model.replay:
        return FREE["scripted" if arm.model.endpoint.scripted else "replay"], False
    sums: dict[str, list[float]] = {basis: [spent] for basis, spent in mixed.items()}
    for run in runs:
        if run.cost is not None and run.cost_basis is not None and run.cost_basis != MIXED:
            sums.setdefault(run.cost_basis, []).append(run.cost)
    unknown = sum(run.cost_unknown or 0 for run in runs)
    if not any(run.calls for run in runs):
        return "nothing spent yet" if any(not run.ended for run in runs) else "cost not recorded", False
    if not sums:
        return "cost unknown", True
    paid = {basis: math.fsum(parts) for basis, parts in sums.items() if basis not in FREE or len(sums) == 1}
    words = " + ".join(
        FREE.get(basis) or f"{dollars(amount, places=2)} {BASIS_WORDS.get(basis, basis)}"
        for basis, amount in sorted(paid.items())
    )
    return (f"at least {words}" if unknown else words) + " so far" * any(not run.ended for run in runs), False


def _limits(arm: Arm) -> str:
    """ "150 steps, context 131,072, $2"."""
    if not arm.limits_digest:
        return "limits not recorded"
    limits = arm.limits
    steps = f"{limits['max_steps']} steps" if limits.get("max_steps") else "no limit of steps"
    context = limits.get("max_context_tokens")
    parts = [steps, f"context {context:,}" if context else "no limit of context"]
    return ", ".join(parts + ([f"${limits['max_cost_usd']}"] if limits.get("max_cost_usd") else []))


def _progress(grid: Grid, experiment: Experiment) -> Progress:
    runs = grid.runs.values()
    ended = sum(run.ended for run in runs)
    return Progress(
        graded=sum(run.graded for run in runs),
        ended=ended,
        total=len(grid.runs),
        left=_left(grid, experiment, ended),
    )


def _left(grid: Grid, experiment: Experiment, ended: int) -> str:
    """How long the rest takes at the pace of the newest ended runs, with as many at once as now."""
    rest = len(grid.runs) - ended
    active = sum(run.status in ACTIVE for run in grid.runs.values())
    if not rest or experiment.state != Experiment.State.ACTIVE or not active:
        return ""
    times = Run.objects.filter(
        experiment=experiment, status=Run.Status.ENDED, started_at__isnull=False, ended_at__isnull=False
    ).order_by("-ended_at")
    took = [
        (end - start).total_seconds()
        for start, end in times.values_list("started_at", "ended_at")[:_RECENT]
        if start and end
    ]
    if len(took) < _ENOUGH:
        return f"time left unknown until {_ENOUGH} runs have ended"
    # Those that go on are half done on average.
    return f"{rough_time(math.fsum(took) / len(took) * max(rest - active / 2, 0.5) / active)} left"


def _running(grid: Grid) -> list[Now]:
    active = sorted((run for run in grid.runs.values() if run.status in ACTIVE), key=lambda run: run.pk)
    found = []
    for run in active[:_NOW_SHOWN]:
        cell = grid.cell(run)
        pending = grid.pending.get(run.pk) or {}
        summary_of_call = (
            one_line(str(pending.get("summary") or ""), 80) if pending.get("kind") == "tool" else ""
        )
        words = " ".join(part for part in (cell.now, summary_of_call) if part)
        since = None if cell.since_ms is None else dt.datetime.fromtimestamp(cell.since_ms / 1000, dt.UTC)
        name = f"{visible_text(cell.task)}, {cell.arm}, seed {cell.seed}"
        waits = "model is answering" if words == "model" else words
        found.append(Now(run.pk, name, waits, since, f"step {run.steps}" if run.steps else ""))
    return found


_NOW_SHOWN = 8


def _worth(grid: Grid) -> list[Look]:
    """Flagged runs, infrastructure errors, and tasks that one arm alone resolves."""
    found = []
    if grid.flagged:
        number = len(grid.flagged)
        where = reverse("run", args=[min(grid.flagged)]) if number == 1 else "?show=flagged"
        found.append(Look("flag", plural(number, "flagged run"), "a rule found something in the log", where))
    broken = [run.pk for run in grid.runs.values() if _broke(run)]
    if broken:
        where = reverse("run", args=[broken[0]]) if len(broken) == 1 else "?show=infrastructure"
        words = plural(len(broken), "infrastructure error")
        found.append(Look("bolt", words, "not counted as failures", where))
    return [*found, *_alone(grid)]


def _broke(run: GridRun) -> bool:
    state = state_of(run.status, verdict=run.verdict or "", exit_reason=run.exit_reason)
    return state == "infrastructure"


def _alone(grid: Grid) -> list[Look]:
    """ "3 tasks only A resolves", with the runs of the first one side by side."""
    only: dict[str, list[tuple[int, ...]]] = {}
    for task in grid.tasks:
        against = grid.against(task.pk)
        if against.only:
            only.setdefault(against.only, []).append(against.runs)
    return [
        Look(
            "target",
            f"{plural(len(found), 'task')} only {letter} resolves",
            "compare them",
            f"{reverse('comparison')}?runs={','.join(str(run) for run in found[0])}"
            if len(found) == 1
            else "?sort=disagreement",
        )
        for letter, found in sorted(only.items())
    ]


def sampling_differences(arms: Sequence[Arm]) -> list[str]:
    """ "temperature: 0.2 and 0.7": what of sampling is not the same in all arms."""
    found = []
    for where in ("sampling", "extra_body"):
        settings = [getattr(arm.model, where) or {} for arm in arms]
        for name in dict.fromkeys(key for one in settings for key in one):
            values = [canonical_json(one[name]).decode() if name in one else "not set" for one in settings]
            if len(set(values)) > 1:
                told = " and ".join(one_line(value, 60) for value in dict.fromkeys(values))
                found.append(visible_text(f"{name}: {told}"))
    return found


class State(NamedTuple):
    """The state of a whole experiment as a badge, and why it stands."""

    name: str
    icon: str
    word: str
    why: str


def state_badge(experiment: Experiment, grid: Grid) -> State:
    """Running, paused with why, cancelled or ended."""
    open_runs = [run for run in grid.runs.values() if not run.ended]
    active = any(run.status != Run.Status.QUEUED for run in open_runs)
    return _state(experiment, goes_on=bool(open_runs) or not grid.runs, active=active)


def _state(experiment: Experiment, *, goes_on: bool, active: bool) -> State:
    if experiment.state == Experiment.State.PAUSED:
        return State("paused", "paused", "paused", visible_text(experiment.paused_because))
    if experiment.state == Experiment.State.CANCELLED:
        return State("cancelled", "cancelled", "cancelling" if goes_on else "cancelled", "")
    if not goes_on:
        return State("ended", "ok", "ended", "")
    return State("running", "running", "running", "") if active else State("queued", "queued", "queued", "")


def budget_lines(experiment: Experiment) -> list[budgets.BudgetLine]:
    """Cost, tokens and time of the whole, beside its budgets; none for runs that others recorded."""
    if experiment.kind != Experiment.Kind.LAUNCHED:
        return []
    return budgets.lines(budgets.spent(experiment))


class Listed(NamedTuple):
    """An experiment in the list of all: how far, what came out, what was spent (in words)."""

    experiment: Experiment
    state: State
    runs: int
    ended: int
    arms: int
    rate: str
    resolved: int
    graded: int
    beside: str
    spent: str


def count_kinds() -> dict[str, int]:
    """How many experiments there are of each kind."""
    return dict(Experiment.objects.order_by().values_list("kind").annotate(Count("pk")))


def listed(experiments: Sequence[Experiment]) -> list[Listed]:
    """These experiments with what their runs sum up to, in two queries whatever their number."""
    numbers = [experiment.pk for experiment in experiments]
    in_progress = Q(status__in=ACTIVE)
    rows = (
        Run.objects.filter(experiment__in=numbers)
        .order_by()
        .values("experiment")
        .annotate(
            runs=Count("pk"),
            ended=Count("pk", filter=Q(status=Run.Status.ENDED)),
            active=Count("pk", filter=in_progress),
            arms=Count("arm", distinct=True),
            **overview.rates(),
        )
    )
    found = {row["experiment"]: row for row in rows}
    spends = _spends(numbers)
    return [_listed(one, found.get(one.pk, {}), spends.get(one.pk, [])) for one in experiments]


def _spends(numbers: Sequence[int]) -> dict[int, list[tuple[str, Decimal | None, int, int]]]:
    """Experiment -> basis, dollars, requests without a figure, requests; runs of one basis together."""
    rows = RunFacts.objects.filter(run__experiment__in=numbers, calls__gt=0).order_by()
    summed = rows.values_list("run__experiment", "cost_basis").annotate(
        SumOf("cost"), SumOf("cost_unknown"), SumOf("calls")
    )
    found: dict[int, list[tuple[str, Decimal | None, int, int]]] = {}
    for experiment, *spend in summed:
        found.setdefault(experiment, []).append(tuple(spend))
    return found


def _listed(
    experiment: Experiment, row: Mapping[str, Any], spends: Sequence[tuple[str, Decimal | None, int, int]]
) -> Listed:
    rate = overview.rate_of(dict(row)) if row else overview.Rate(0, 0)
    runs, ended, active = row.get("runs", 0), row.get("ended", 0), row.get("active", 0)
    return Listed(
        experiment=experiment,
        state=_state(experiment, goes_on=ended < runs or not runs, active=bool(active)),
        runs=runs,
        ended=ended,
        arms=row.get("arms", 0),
        rate=percent(rate.resolved / rate.graded) if rate.graded else "",
        resolved=rate.resolved,
        graded=rate.graded,
        beside=rate.beside,
        spent=_spent_words(spends),
    )


def _spent_words(spends: Sequence[tuple[str, Decimal | None, int, int]]) -> str:
    """ "at least $1.20 price table"; "?" where nothing is known, "" where nothing was asked."""
    if not spends:
        return ""
    paid = {basis: amount for basis, amount, _, _ in spends if amount is not None and basis not in FREE}
    unknown = sum(one[2] or 0 for one in spends)
    if not paid:
        free = next((FREE[basis] for basis, _, _, _ in spends if basis in FREE), "")
        return free or "unknown"
    words = " + ".join(
        f"{dollars(amount, places=2)} {_BASES.get(basis, basis)}" for basis, amount in sorted(paid.items())
    )
    return f"at least {words}" if unknown else words


_BASES = {**BASIS_WORDS, MIXED: "several bases"}
