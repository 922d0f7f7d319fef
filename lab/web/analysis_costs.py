"""The sections on money and tokens: spend by bucket, cost per resolved issue, cost and rate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django.urls import reverse

from lab.analysis import counting, rates
from lab.analysis.cost_plane import NO_SHARED_TASK, Curve, Place
from lab.analysis.costs import AtLeast
from lab.analysis.estimates import Estimate, Unknown
from lab.analysis.run_costs import dollars_of
from lab.analysis.spending import ArmSpend, Bucket, BucketName, PerResolved, nothing_recorded
from lab.render import figures
from lab.render.tables import Cell, Column, Row, Table, missing
from lab.services.analysis_costs import any_reported
from lab.services.price_cards import BASIS_WORDS
from lab.web import charts_costs
from lab.web.analysis_head import Choice, Switch
from lab.web.analysis_parts import (
    Panel,
    Section,
    Shown,
    amount_cell,
    count_cell,
    dollars_interval,
    estimate_cell,
    share_cell,
    text_column,
    with_limits,
)
from lab.web.charts import known

# Always shown; the others only where something is in them.
ALWAYS: tuple[BucketName, ...] = ("resolved", "failed", "invalid", "retried", "judge")
MOST_FAILURES = 10
# What becomes of runs that do not count, in the order in which it is said.
_ASIDE = ("invalid", "not graded", "cancelled", "open", "left out")


class CostsOf(NamedTuple):
    """What stands above the panels: whose costs these are (None: there are no others), why there are none."""

    switch: Switch | None
    why: str


class Money(NamedTuple):
    """What the section on cost is made from."""

    spends: list[ArmSpend]
    places: list[Place]
    curves: list[Curve]


def cost_section(shown: Shown, money: Money) -> Section:
    panels: tuple[Panel, ...] = (
        _per_resolved(shown, money.spends),
        _plane(shown, money.places, money.spends),
        _spend(shown, money.spends),
        _curve(shown, money.curves, money.spends),
        _failures(shown, money.spends),
    )
    why = _why_no_costs(money.spends)
    if why:
        panels = tuple(panel._replace(why="", quiet=True) for panel in panels)
    return Section("cost", "Cost", panels, "analysis/_costs.html", CostsOf(_switch(shown), why))


def _why_no_costs(spends: Sequence[ArmSpend]) -> str:
    """The sentence for the whole section where no arm paid anything, "" otherwise."""
    if any(one.whole.dollars for one in spends):
        return ""
    return f"No figure on cost is estimable here, because {_nothing_paid([one.whole for one in spends])}."


def _switch(shown: Shown) -> Switch | None:
    """The lab's reckoning or the providers' figures, where there are both."""
    reported = shown.selection.costs == "reported"
    if not reported and not any_reported(shown.observed.observations):
        return None
    choices = (
        Choice("as the lab reckons", shown.page("cost", costs="priced"), not reported),
        Choice("as providers reported", shown.page("cost", costs="reported"), reported),
    )
    return Switch("costs", "Costs", choices)


def token_section(shown: Shown, spends: Sequence[ArmSpend]) -> Section:
    columns = (
        Column("input, uncached", ("input_uncached",)),
        Column("cache read", ("cache_read",)),
        Column("cache write", ("cache_write",)),
        Column("output", ("output",), "reasoning included"),
        Column("of it reasoning", ("reasoning",)),
        Column("requests", ("requests",)),
        Column("with usage", ("requests_with_usage",), "requests whose usage the server reported"),
    )
    rows = []
    for one in spends:
        tokens, coverage = one.tokens, one.coverage
        parts = (
            tokens.input_uncached,
            tokens.cache_read,
            tokens.cache_write,
            tokens.output,
            tokens.reasoning,
        )
        cells = [count_cell(part, shown.behind(one.arm), at_least=tokens.unknown > 0) for part in parts]
        counts = [coverage.requests, coverage.with_usage]
        if one.whole.unrecorded and not coverage.requests:
            cells += [count_cell(None, why=_no_request(one)) for _ in counts]
        else:
            cells += [count_cell(number) for number in counts]
        rows.append(shown.row(one.arm, cells))
    plot = charts_costs.tokens(shown, spends)
    panel = Panel(
        "tokens",
        "Tokens",
        "over all attempts; failed requests included",
        plots=(plot,) if plot else (),
        table=Table("tokens", "Tokens", "arm", columns, tuple(rows)),
        why="" if plot else "no server reported its usage",
        folded=False,
    )
    return Section("tokens", "Tokens", (panel,))


def _spend(shown: Shown, spends: Sequence[ArmSpend]) -> Panel:
    buckets = [name for name in charts_costs.BUCKET_LOOKS if name in ALWAYS or _used(spends, name)]
    columns = [
        Column(charts_costs.BUCKET_WORDS[name], _bucket_names(name, f"{name}_runs"), swatch=name)
        for name in buckets
    ]
    columns.append(Column("whole", _bucket_names("whole", "runs")))
    rows = []
    for one in spends:
        by_name = {bucket.name: bucket for bucket in one.buckets}
        cells = [
            _bucket_cell(by_name.get(name), charts_costs.bucket_url(shown, one.arm, name)) for name in buckets
        ]
        whole = _bucket_cell(one.whole, charts_costs.bucket_url(shown, one.arm, "whole"))._replace(
            strong=True
        )
        rows.append(shown.row(one.arm, [*cells, whole]))
    plot = charts_costs.spend(shown, spends, [name for name in buckets if _used(spends, name)])
    return Panel(
        "spend",
        "Spend by what it went into",
        "US dollars, all attempts; retried is what earlier attempts cost",
        plots=(plot,) if plot else (),
        why="" if plot else _nothing_paid([one.whole for one in spends]),
        table=Table("spend", "Spend", "arm", tuple(columns), tuple(rows)),
        notes=tuple(_bases_note(_bases(spends))),
        folded=False,
    )


def _used(spends: Sequence[ArmSpend], name: BucketName) -> bool:
    return any(
        bucket.name == name and (bucket.runs or bucket.dollars) for one in spends for bucket in one.buckets
    )


def _bucket_names(name: str, runs: str) -> tuple[str, ...]:
    """What a file calls the parts of `_bucket_cell`."""
    return (name, f"{name}_unknown_requests", runs, f"{name}_unrecorded_runs")


def _bucket_cell(bucket: Bucket | None, url: str) -> Cell:
    if bucket is None or (not bucket.runs and not bucket.dollars):
        return Cell("none", (0.0, 0, 0, 0))
    # Of runs without a recorded request nobody knows how many requests of unknown cost there were.
    unknown = bucket.unknown or (None if bucket.unrecorded else 0)
    values = (bucket.dollars, unknown, bucket.runs, bucket.unrecorded)
    hint = f"{bucket.runs:,} run{'' if bucket.runs == 1 else 's'}"
    if bucket.dollars is None:
        return Cell("unknown", values, url, why=_why_unknown(bucket))
    text = f"{'at least ' if bucket.at_least else ''}{figures.usd(bucket.dollars, places=2)}"
    return Cell(text, values, url, hint=hint)


def _why_unknown(bucket: Bucket) -> str:
    if bucket.unknown:
        return "of these requests no cost is known"
    return "no request is recorded"


def _per_resolved(shown: Shown, spends: Sequence[ArmSpend]) -> Panel:
    columns = (
        Column("per resolved run", ("cost_per_resolved", "at_least")),
        Column("95 % interval", ("cost_per_resolved_low", "cost_per_resolved_high")),
        Column(
            "per solved issue",
            with_limits("cost_per_issue"),
            "the same spend over tasks resolved at least once",
        ),
        Column("mean resolved", with_limits("mean_resolved"), "mean cost of a resolved run"),
        Column("mean failed", with_limits("mean_failed"), "mean cost of a failed run"),
        Column(
            "on failures", with_limits("failures_share"), "failed runs' part of what resolved and failed cost"
        ),
        text_column("basis", "basis"),
        Column("coverage", ("coverage",), "requests whose cost is known, of all"),
    )
    rows = tuple(shown.row(one.arm, _per_resolved_cells(shown, one)) for one in spends)
    notes = [
        f"{shown.name(one.arm)}: {one.by_attempt.left_out:,} runs without any known cost are on neither side."
        for one in spends
        if one.by_attempt.left_out
    ]
    notes += [
        f"{shown.name(one.arm)}: prices of several kinds are not mixed in one ratio."
        for one in spends
        if len(one.bases) > 1
    ]
    notes += _left_aside(shown)
    return Panel(
        "cost-per-resolved",
        "Cost per resolved issue",
        "spend of the runs that count ÷ resolved",
        table=Table("cost-per-resolved", "Cost per resolved issue", "arm", columns, rows),
        notes=tuple(notes),
        folded=False,
    )


def _left_aside(shown: Shown) -> list[str]:
    """What each arm's runs that do not count have cost: that is in no ratio, and nobody should miss it."""
    switches = shown.selection.switches
    notes = []
    for arm, runs in counting.by_arm(shown.observed.observations).items():
        let_in = {run.run for run in counting.considered(runs, switches)}
        counted = {trial.run.run for trial in counting.trials(runs, switches)}
        aside = [run for run in runs if run.run not in counted]
        dollars = math.fsum(dollars_of(run) or 0.0 for run in aside)
        if not dollars:
            continue
        kinds = [
            counting.outcome_of(run).replace("_", " ") if run.run in let_in else "left out" for run in aside
        ]
        counts = [f"{kinds.count(kind):,} {kind}" for kind in _ASIDE if kind in kinds]
        listed = " and ".join([", ".join(counts[:-1]), counts[-1]]) if len(counts) > 1 else counts[0]
        least = "at least " if any(run.cost_unknown or nothing_recorded(run) for run in aside) else ""
        cost = f"{least}{figures.usd(dollars, places=2)}{' together' if len(aside) > 1 else ''}"
        notes.append(f"{shown.name(arm)}: {listed} cost {cost}, which is in no ratio here.")
    return notes


def _per_resolved_cells(shown: Shown, one: ArmSpend) -> list[Cell]:
    url = shown.behind(one.arm, outcome="priced")
    interval = dollars_interval(one.by_attempt.interval)
    if isinstance(one.by_attempt.cost, AtLeast):
        interval = Cell("a lower bound", (one.by_attempt.cost.bound, None))
    share = one.failures_share
    coverage = one.coverage
    covered = coverage.with_cost / coverage.requests if coverage.requests else None
    return [
        _ratio_cell(one.by_attempt, url),
        interval._replace(hint=one.by_attempt.method) if not interval.why else interval,
        _issue_cell(one.by_issue, url),
        _mean(one.mean_resolved, shown.behind(one.arm, outcome="priced_resolved")),
        _mean(one.mean_failed, shown.behind(one.arm, outcome="priced_failed")),
        estimate_cell(share, url),
        Cell(_basis(one), (_basis(one),)),
        missing(_no_request(one))
        if covered is None
        else Cell(
            f"{coverage.with_cost:,} of {coverage.requests:,}", (covered,), hint=figures.percent(covered)
        ),
    ]


def _no_request(one: ArmSpend) -> str:
    return "no request is recorded" if one.whole.unrecorded else "there was no request"


def _mean(estimate: Estimate | Unknown, url: str) -> Cell:
    cell = amount_cell(estimate, url, dollars=True)
    if isinstance(estimate, Unknown):
        return cell
    return cell._replace(text=figures.usd(estimate.value), hint=f"{cell.text}, {cell.hint}")


def _basis(one: ArmSpend) -> str:
    return ", ".join(BASIS_WORDS.get(basis, basis) for basis in one.bases) or "unknown"


def _ratio_cell(found: PerResolved, url: str) -> Cell:
    cost = found.cost
    if isinstance(cost, Unknown):
        return missing(cost.why, 2)
    if isinstance(cost, AtLeast):
        hint = f"nothing was resolved in {cost.n:,}; the rate is at most {figures.percent(cost.rate_at_most)}"
        return Cell(f"more than {figures.usd(cost.bound)}", (cost.bound, True), url, strong=True, hint=hint)
    hint = f"{figures.usd(cost.spend, places=2)} ÷ {cost.resolved:g}"
    few = "" if cost.shows_error else " few resolved: rough"
    text = f"{'at least ' if found.at_least else ''}{figures.usd(cost.value)}"
    return Cell(text, (cost.value, found.at_least), url, strong=True, hint=hint + few)


def _issue_cell(found: PerResolved, url: str) -> Cell:
    """The cost of a task that is resolved at least once; its interval on hover and in the file."""
    cell = _ratio_cell(found, url)._replace(strong=False)
    if isinstance(found.cost, Unknown):
        return cell._replace(values=(None, None, None))
    between = dollars_interval(found.interval)
    if isinstance(found.cost, AtLeast):
        return cell._replace(values=(cell.values[0], *between.values))
    words = (
        f"95 % interval {between.text} ({found.method})" if not between.why else f"no interval: {between.why}"
    )
    return cell._replace(values=(cell.values[0], *between.values), hint=f"{cell.hint}, {words}")


def _nothing_paid(wholes: Sequence[Bucket]) -> str:
    if any(one.dollars is not None for one in wholes):
        return "nothing was paid"
    if any(one.unknown for one in wholes) or not any(one.unrecorded for one in wholes):
        return "no cost is known"
    return "no request is recorded"


def _none_graded(spends: Sequence[ArmSpend]) -> bool:
    """Whether no arm has a run that counts, and some only lack a verdict."""
    runs = {part.name: 0 for one in spends for part in one.buckets}
    for one in spends:
        for part in one.buckets:
            runs[part.name] += part.runs
    return bool(runs.get("not_graded")) and not (runs["resolved"] or runs["failed"])


def _why_undrawn(spends: Sequence[ArmSpend]) -> str:
    """Why there is no plot of cost against what was resolved."""
    if _none_graded(spends):
        return "no run was graded"
    return _nothing_paid([one.whole for one in spends])


def _plane(shown: Shown, places: Sequence[Place], spends: Sequence[ArmSpend]) -> Panel:
    columns = (
        Column("mean cost of a run", with_limits("mean_cost")),
        Column("rate", with_limits("resolve_rate")),
        text_column("basis", "basis"),
        text_column("Pareto line", "on_line", "nobody of the same basis beats it on both sides"),
        Column("possibly", ("possibly_on_line",), "share of resamples of tasks in which it is on the line"),
    )
    rows = []
    for one in places:
        possibly = one.possibly
        rows.append(
            shown.row(
                one.arm,
                [
                    amount_cell(one.cost, _behind_cost(shown, one), dollars=True),
                    share_cell(one.rate),
                    Cell(BASIS_WORDS.get(one.basis, one.basis) or "unknown", (one.basis,)),
                    Cell(
                        "on it" if one.on_line else "below it" if _ranked(one) else "not on one",
                        (one.on_line,),
                    ),
                    missing(possibly.why)
                    if isinstance(possibly, Unknown)
                    else Cell(figures.percent(possibly), (possibly,)),
                ],
            )
        )
    plot = charts_costs.plane(shown, places)
    return Panel(
        "cost-rate",
        "Cost and rate",
        "bars are 95 % intervals on both axes; both are of runs whose cost is known",
        plots=(plot,) if plot else (),
        table=Table("cost-rate", "Cost and rate", "arm", columns, tuple(rows)),
        notes=tuple(_plane_notes(shown, places)) if plot else (),
        why="" if plot else _why_undrawn(spends),
    )


def _behind_cost(shown: Shown, place: Place) -> str:
    """The runs that its mean cost is of."""
    outcome = "not_graded" if place.rate == counting.NONE_GRADED else "priced"
    return shown.behind(place.arm, outcome=outcome)


def _ranked(place: Place) -> bool:
    """Whether it is held against other arms' costs."""
    rated = place.rate != counting.NONE_GRADED
    return bool(place.basis) and rated and place.possibly != Unknown(NO_SHARED_TASK)


def _bases_note(bases: Iterable[str]) -> list[str]:
    """What is to be said where costs of several kinds stand in one picture or list."""
    words = sorted({BASIS_WORDS.get(basis, basis) for basis in bases})
    if len(words) < 2:
        return []
    return [f"Bases differ ({', '.join(words)}): compare costs within one basis only."]


def _bases(spends: Sequence[ArmSpend]) -> list[str]:
    return [basis for one in spends for basis in one.bases]


def _plane_notes(shown: Shown, places: Sequence[Place]) -> list[str]:
    notes = _bases_note(one.basis for one in places if one.basis)
    if any(one.possibly == Unknown(NO_SHARED_TASK) for one in places):
        notes.append("Arms of one basis that share no task are not ranked, and no line joins them.")
    elif not all(one.same_tasks for one in places):
        notes.append("Not all arms have the same tasks at a known cost, which may be why one is on the line.")
    undrawn = [shown.name(one.arm) for one in places if known(one.rate) is None]
    if undrawn:
        notes.append(f"Not drawn, because the rate has no interval: {', '.join(undrawn)}.")
    bare = [
        shown.name(one.arm)
        for one in places
        if not isinstance(one.cost, Unknown) and known(one.cost) is None and known(one.rate)
    ]
    if bare:
        notes.append(f"Without an interval of the mean cost: {', '.join(bare)}.")
    return notes


def _curve(shown: Shown, curves: Sequence[Curve], spends: Sequence[ArmSpend]) -> Panel:
    columns = (
        Column("tasks", ("tasks",)),
        Column(
            "at a quarter",
            with_limits("share_at_quarter"),
            "share of tasks resolved for a quarter of what its dearest success cost",
        ),
        Column("at half", with_limits("share_at_half")),
        Column("in the end", with_limits("share_at_end")),
        Column("dearest success", ("dearest_resolved_run",)),
        Column("without cost", ("runs_without_cost",)),
    )
    rows = []
    for one in curves:
        if not one.steps:
            cells = [
                missing(one.why or "nothing was resolved at a known cost", width) for width in (1, 3, 3, 3, 1)
            ]
            rows.append(shown.row(one.arm, [*cells, count_cell(one.left_out)]))
            continue
        most = one.steps[-1].dollars
        cells = [count_cell(one.tasks)] + [_share_at(one, most * part) for part in (0.25, 0.5, 1)]
        dearest = Cell(figures.usd(most), (most,))
        rows.append(shown.row(one.arm, [*cells, dearest, count_cell(one.left_out)]))
    plot = charts_costs.within_budget(shown, curves)
    return Panel(
        "within-budget",
        "Resolved within a budget",
        "share of tasks resolved for at most so much a run",
        plots=(plot,) if plot else (),
        table=Table("within-budget", "Resolved within a budget", "arm", columns, tuple(rows)),
        more=(_steps(shown, curves),),
        notes=tuple(_bases_note(_bases(spends))),
        why="" if plot else _why_undrawn(spends),
    )


def _share_at(curve: Curve, dollars: float) -> Cell:
    reached = [step for step in curve.steps if step.dollars <= dollars * (1 + 1e-9)]
    if not reached:
        nothing = rates.at_the_edge(0.0, curve.tasks)
        return estimate_cell(Estimate(0.0, nothing, curve.tasks, "Wilson, each task counting once"))
    last = reached[-1]
    return estimate_cell(Estimate(last.share, last.interval, curve.tasks, "t over tasks"))


def _steps(shown: Shown, curves: Sequence[Curve]) -> Table:
    """Every step of every curve, for files."""
    columns = (Column("at most", ("dollars",)), Column("share", with_limits("share")))
    rows = tuple(
        Row(
            shown.name(one.arm),
            (
                Cell(figures.usd(step.dollars), (step.dollars,)),
                share_cell(
                    Estimate(step.share, step.interval, one.tasks, "over tasks, at this budget alone")
                ),
            ),
            shown.series(one.arm),
        )
        for one in curves
        for step in one.steps
    )
    return Table("within-budget-steps", "Every step of the curves", "arm", columns, rows)


def _no_failure(spends: Sequence[ArmSpend]) -> str:
    failed = [part for one in spends for part in one.buckets if part.name == "failed" and part.runs]
    if not failed:
        return "no run was graded" if _none_graded(spends) else "no run failed"
    known = any(part.dollars is not None for part in failed)
    return "no failed run cost anything" if known else "no failed run has a known cost"


def _failures(shown: Shown, spends: Sequence[ArmSpend]) -> Panel:
    columns = (
        Column("cost", ("dollars", "unknown_requests")),
        text_column("task", "task"),
        text_column("exit reason", "exit_reason"),
        Column("run", ("run",)),
    )
    found = sorted(
        ((failure, one.arm) for one in spends for failure in one.dearest_failures),
        key=lambda pair: -pair[0].dollars,
    )
    rows = []
    for failure, arm in found[:MOST_FAILURES]:
        url = reverse("run", args=[failure.run])
        dollars = f"{'at least ' if failure.unknown else ''}{figures.usd(failure.dollars, places=2)}"
        task = shown.task_name(failure.task)
        row = shown.row(
            arm,
            (
                Cell(dollars, (failure.dollars, failure.unknown), url),
                Cell(task, (task,)),
                Cell(failure.exit_reason or "not recorded", (failure.exit_reason,)),
                Cell(f"{failure.run}", (failure.run,), url),
            ),
        )
        rows.append(row)
    return Panel(
        "dearest-failures",
        "Most expensive failures",
        "runs that were paid for and resolved nothing",
        table=Table("dearest-failures", "Most expensive failures", "arm", columns, tuple(rows)),
        notes=tuple(_bases_note(_bases(spends))) if rows else (),
        why="" if rows else _no_failure(spends),
        folded=False,
    )
