"""The section on resolve rates: one row an arm, the plot in it, and what the rate is sensitive to below."""

from __future__ import annotations

from collections.abc import Sequence

from lab.analysis.estimates import Unknown
from lab.analysis.reference_points import ReferencePoint
from lab.analysis.resolve import ArmRate, Rate
from lab.render import figures
from lab.render.tables import Cell, Column, Row, Table, missing
from lab.web import charts
from lab.web.analysis_parts import (
    Panel,
    Section,
    Shown,
    count_cell,
    estimate_cell,
    interval_cell,
    rate_cells,
    text_column,
    with_limits,
)


def section(shown: Shown, rates: Sequence[ArmRate], published: Sequence[ReferencePoint]) -> Section:
    """Resolve rates of the arms, in the order of the selection; what others published stands apart."""
    panel = Panel(
        "resolve-rate",
        "Resolve rate",
        _subtitle(rates),
        plots=(charts.forest(shown, rates),),
        table=_table(shown, rates),
        notes=tuple(_notes(shown, rates)),
        joined=True,
        more=(_sensitivity(shown, rates), *_seeds(shown, rates), *_published(published)),
    )
    return Section("resolve-rate", "Resolve rate", (panel,))


def _subtitle(rates: Sequence[ArmRate]) -> str:
    tasks = {one.rate.tasks for one in rates} or {0}
    of = f"{min(tasks):,}" if len(tasks) == 1 else f"{min(tasks):,} to {max(tasks):,}"
    several = any(one.most > 1 for one in rates)
    what = "mean over {} tasks of the mean over runs" if several else "share of {} tasks, one run each"
    methods = sorted(
        {one.rate.estimate.method for one in rates if not isinstance(one.rate.estimate, Unknown)}
    )
    how = f"; bars are 95 % intervals ({', '.join(methods)})" if methods else ""
    return what.format(of) + how


def _table(shown: Shown, rates: Sequence[ArmRate]) -> Table:
    # Where there are tasks with one run, it is the number that others have that they lack.
    wanted = {one.k if one.k > 1 else one.most for one in rates if one.most}
    same = len(wanted) == 1
    k = str(*wanted) if same else "k"
    columns = (
        Column("rate", ("resolve_rate",), "mean over tasks of the mean over runs (avg@k)"),
        Column("95 % interval", ("rate_low", "rate_high")),
        Column("resolved of valid", ("resolved", "runs"), "runs that count in the rate"),
        Column(
            "invalid as failures",
            ("rate_invalid_as_failures", "rate_invalid_as_failures_low", "rate_invalid_as_failures_high"),
            "the rate if runs that infrastructure or a broken task ended had failed",
        ),
        Column(
            "without flagged", with_limits("rate_without_flagged"), "the rate without runs that have a flag"
        ),
        Column(f"pass@{k}", ("k", *with_limits("pass_at_k")), "at least one of k runs resolves"),
        Column(f"pass^{k}", with_limits("pass_hat_k"), "all of k runs resolve"),
    )
    rows = [shown.row(one.arm, _cells(shown, one, f"of {one.k}" if not same else "")) for one in rates]
    return Table("resolve-rate", "Resolve rate", "arm", columns, tuple(rows))


def _cells(shown: Shown, one: ArmRate, note: str) -> list[Cell]:
    value, interval = rate_cells(one.rate.estimate, shown.behind(one.arm, outcome="counted"))
    of = f"{one.rate.resolved:,} of {one.rate.runs:,}"
    at_k = estimate_cell(one.pass_at_k)
    return [
        value,
        interval,
        Cell(of, (one.rate.resolved, one.rate.runs), shown.behind(one.arm, outcome="resolved")),
        _other_rate(one.invalid_as_failures, shown.counted_with(one.arm, invalid="failures")),
        _other_rate(one.without_flagged, shown.counted_with(one.arm, flagged="out")),
        at_k._replace(
            text=at_k.text if at_k.why else f"{at_k.text} {note}".strip(), values=(one.k, *at_k.values)
        ),
        estimate_cell(one.pass_hat_k),
    ]


def _other_rate(rate: Rate, url: str) -> Cell:
    """A rate by another count: value in sight, of how many runs and its interval on hover and in the file."""
    cell = estimate_cell(rate.estimate, url)
    return cell._replace(hint=f"{rate.resolved:,} of {rate.runs:,} runs, {cell.hint}") if cell.hint else cell


def _sensitivity(shown: Shown, rates: Sequence[ArmRate]) -> Table:
    columns = (
        Column("standard error", ("standard_error",), "over tasks as if they were independent"),
        Column("clustered", ("clustered_error",), "over repositories, × √(G/(G−1))"),
        Column("clustered interval", ("clustered_low", "clustered_high"), "t with G − 1 degrees of freedom"),
        Column("G", ("clusters",), "clusters: repositories, and tasks whose repository nobody named"),
        Column("variance between tasks", ("variance_between",)),
        Column("within tasks", ("variance_within",)),
        Column("ICC(1)", ("intraclass_correlation",)),
        Column("spread of seeds", ("seeds_standard_deviation",), "standard deviation of the seeds' rates"),
    )
    rows = tuple(shown.row(one.arm, _sensitivity_cells(one)) for one in rates)
    notes = (
        "The clustered line is a sensitivity check: with few clusters it is itself a rough estimate.",
        "Variances are of single runs (0 or 1), by a one-way analysis of variance.",
    )
    return Table("resolve-rate-sensitivity", "What the rate is sensitive to", "arm", columns, rows, notes)


def _sensitivity_cells(one: ArmRate) -> list[Cell]:
    estimate, clustered, variance = one.rate.estimate, one.clustered, one.variance
    cells: list[Cell] = []
    if isinstance(estimate, Unknown):
        cells.append(missing(estimate.why))
    elif estimate.error is None:
        cells.append(missing(f"the interval is {estimate.method}’s, which uses none", text="none used"))
    else:
        cells.append(_digits(estimate.error))
    if isinstance(clustered, Unknown):
        cells += [missing(clustered.why), missing(clustered.why, 2), missing(clustered.why)]
    else:
        hint = f"{clustered.named} of {clustered.tasks} tasks name a repository"
        cells += [
            _digits(clustered.error),
            interval_cell(clustered.interval),
            Cell(f"{clustered.clusters}", (clustered.clusters,), hint=hint),
        ]
    if isinstance(variance, Unknown):
        cells += [missing(variance.why)] * 3
    else:
        cells += [_digits(variance.between), _digits(variance.within), _digits(variance.correlation)]
    spread = one.seeds_spread
    cells.append(
        missing(spread.why) if isinstance(spread, Unknown) else Cell(figures.percent(spread), (spread,))
    )
    return cells


def _digits(number: float) -> Cell:
    return Cell(f"{number:.4f}".replace("-", "−"), (number,))


def _seeds(shown: Shown, rates: Sequence[ArmRate]) -> list[Table]:
    """Every seed's rate, where there is more than one."""
    seeds = sorted({part.seed for one in rates for part in one.seeds})
    if len(seeds) < 2:
        return []
    columns = tuple(Column(f"seed {seed}", with_limits(f"seed_{seed}")) for seed in seeds)
    rows = []
    for one in rates:
        by_seed = {part.seed: part.rate for part in one.seeds}
        rows.append(
            shown.row(one.arm, [_seed_cell(shown, one.arm, seed, by_seed.get(seed)) for seed in seeds])
        )
    return [Table("resolve-rate-seeds", "Seed by seed", "arm", columns, tuple(rows))]


def _seed_cell(shown: Shown, arm: str, seed: int, rate: Rate | None) -> Cell:
    if rate is None:
        return missing("there is no run with this seed", 3, text="no run")
    return _other_rate(rate, shown.behind(arm, seed=seed, outcome="counted"))


def _notes(shown: Shown, rates: Sequence[ArmRate]) -> list[str]:
    found = []
    for one in rates:
        if one.unequal:
            found.append(f"{shown.name(one.arm)}: {one.unequal}.")
        if one.tally.open:
            found.append(
                f"{shown.name(one.arm)}: preliminary, {one.tally.open:,} of its runs are still open."
            )
    return found


def _published(points: Sequence[ReferencePoint]) -> list[Table]:
    """What others published of these tasks: without intervals, and never tested against."""
    if not points:
        return []
    columns = (
        text_column("benchmark", "benchmark"),
        text_column("harness", "harness"),
        Column("rate", ("resolve_rate",)),
        Column("attempts", ("attempts",)),
        Column("tasks", ("tasks",)),
        text_column("source", "source"),
        text_column("date", "date"),
        text_column("remark", "remark"),
    )
    rows = tuple(
        Row(
            one.model,
            (
                Cell(one.benchmark, (one.benchmark,)),
                Cell(one.harness, (one.harness,)),
                Cell(f"{figures.percent(one.rate)}, interval unknown", (one.rate,)),
                count_cell(one.attempts, why="the source does not say how many attempts"),
                count_cell(one.tasks, why="the source does not say how many tasks"),
                Cell(one.source, (one.source,)),
                Cell(f"{one.date:%-d %b %Y}", (one.date.isoformat(),)),
                Cell(one.remark, (one.remark,)),
            ),
        )
        for one in points
    )
    notes = ("Without the runs behind them: nothing here is tested against these.",)
    return [Table("published", "What others published", "model", columns, rows, notes)]
