"""The sections on behaviour: steps, tools, habits, time, memory, exit reasons, and tests of failures."""

from __future__ import annotations

from collections.abc import Sequence

from lab.analysis.conduct import KINDS, TIMES, ArmConduct
from lab.analysis.estimates import Unknown
from lab.analysis.shares import Share
from lab.analysis.spreads import Spread
from lab.render import figures, numbers
from lab.render.tables import Cell, Column, Row, Table, missing
from lab.web import charts_conduct
from lab.web.analysis_parts import Panel, Section, Shown, count_cell, limits, with_limits

FAILURE_WORDS = {
    "tests:empty_patch": "empty patch",
    "tests:never_ran": "tests never ran",
    "tests:both": "did not fix and broke",
    "tests:regression": "broke what passed",
    "tests:never_fixed": "did not fix",
}
KIND_WORDS = {
    f"kind:{kind}": word
    for kind, word in zip(KINDS, ("read", "edit", "test", "shell", "answer"), strict=True)
}
TIME_WORDS = {f"time:{part}": part for part in TIMES}
MOST_TOOLS = 12


def behaviour(shown: Shown, arms: Sequence[ArmConduct]) -> Section:
    panels = (
        _steps(shown, arms),
        _tools(shown, arms),
        _habits(shown, arms),
        _time(shown, arms),
    )
    return Section("behaviour", "Behaviour", panels)


def exits(shown: Shown, arms: Sequence[ArmConduct]) -> Section:
    reasons = dict.fromkeys(share.key for one in arms for share in one.exits)
    words = {key: key.removeprefix("exit:").replace("_", " ") or "not recorded" for key in reasons}
    columns = [_share_column(word, f"exit_{word.replace(' ', '_')}") for word in words.values()]
    columns.append(_share_column("at the step limit", "at_step_limit", "of runs that agent or limit ended"))
    columns.append(Column("ended", ("ended",)))
    rows = []
    for one in arms:
        by_key = {share.key: share for share in one.exits}
        cells = [_share(shown, one.arm, by_key.get(key)) for key in words]
        cells.append(_share(shown, one.arm, one.at_step_limit))
        cells.append(count_cell(one.ended, shown.behind(one.arm, figure="ended")))
        rows.append(shown.row(one.arm, cells))
    plot = charts_conduct.parts(
        shown,
        "exit-reasons",
        "Exit reasons",
        "shares of ended runs",
        [(one.arm, one.exits) for one in arms],
        words,
    )
    panel = Panel(
        "exit-reasons",
        "Exit reasons",
        "why runs ended; resolved or not is another question",
        plots=(plot,) if plot else (),
        table=Table("exit-reasons", "Exit reasons", "arm", tuple(columns), tuple(rows)),
        why="" if plot else "no run has ended",
        folded=False,
    )
    return Section("exits", "Exit reasons", (panel,))


def failures(shown: Shown, arms: Sequence[ArmConduct], labelled: tuple[Panel, ...] = ()) -> Section:
    """What tests say of failures, and `labelled`: what people say."""
    columns = [_share_column(word, key.replace(":", "_")) for key, word in FAILURE_WORDS.items()]
    columns += [Column("failures", ("failures",)), Column("not known", ("failures_not_known",))]
    rows = []
    for one in arms:
        found = one.failed_tests
        by_key = {share.key: share for share in found.classes}
        cells = [_share(shown, one.arm, by_key.get(key)) for key in FAILURE_WORDS]
        cells.append(count_cell(found.failures, shown.behind(one.arm, figure="tests:failures")))
        cells.append(count_cell(found.unknown, shown.behind(one.arm, figure="tests:unknown")))
        rows.append(shown.row(one.arm, cells))
    classes = [(one.arm, one.failed_tests.classes) for one in arms]
    subtitle = "unresolved and unparsed runs, by what their tests did; one class each"
    plot = charts_conduct.parts(shown, "failed-tests", "Tests of failures", subtitle, classes, FAILURE_WORDS)
    panel = Panel(
        "failed-tests",
        "Tests of failures",
        subtitle,
        plots=(plot,) if plot else (),
        table=Table("failed-tests", "Tests of failures", "arm", tuple(columns), tuple(rows)),
        why="" if plot else "no failed run’s tests are known",
        folded=False,
    )
    return Section("failures", "Failures", (panel, *labelled))


def _share_column(title: str, name: str, hint: str = "") -> Column:
    return Column(title, (*with_limits(name), f"{name}_count", f"{name}_of"), hint)


def _share(shown: Shown, arm: str, share: Share | None) -> Cell:
    """A share in sight with its interval; how many of how many on hover."""
    if share is None:
        return Cell("none", (0.0, None, None, 0, None))
    if isinstance(share.estimate, Unknown):
        return missing(share.estimate.why, 5)
    estimate = share.estimate
    low, high = limits(estimate.interval)
    between = f"{100 * low:.1f}–{100 * high:.1f}" if low is not None and high is not None else "no interval"
    unknown = f", {numbers.plural(share.unknown, 'run')} not known" if share.unknown else ""
    return Cell(
        f"{figures.percent(estimate.value)} ({between})",
        (estimate.value, low, high, share.part, share.of),
        shown.behind(arm, figure=share.key) if share.part else "",
        hint=f"{figures.amount(share.part)} of {figures.amount(share.of)} {share.unit}{unknown}",
    )


def _median(shown: Shown, arm: str, spread: Spread) -> Cell:
    """A median with its interval; quartiles and n on hover."""
    if isinstance(spread.quartiles, Unknown):
        return missing(spread.quartiles.why, 6)
    found = spread.quartiles
    low, high = limits(spread.interval)
    between = (
        f"({figures.amount(low)}–{figures.amount(high)})"
        if low is not None and high is not None
        else "(no interval)"
    )
    unknown = f", {numbers.plural(spread.unknown, 'run')} not known" if spread.unknown else ""
    return Cell(
        f"{figures.amount(found.median)} {between}",
        (found.median, low, high, found.low, found.high, spread.n),
        shown.behind(arm, figure=spread.key),
        hint=f"quartiles {figures.amount(found.low)} and {figures.amount(found.high)}, "
        f"n = {spread.n:,}{unknown}",
    )


def _median_column(title: str, name: str, hint: str = "") -> Column:
    names = (*with_limits(name), f"{name}_lower_quartile", f"{name}_upper_quartile", f"{name}_n")
    return Column(title, names, hint)


def _steps(shown: Shown, arms: Sequence[ArmConduct]) -> Panel:
    columns = tuple(
        _median_column(f"{what}{which}", f"{what}_{name}")
        for what in ("steps", "tokens")
        for which, name in (
            (", graded", "graded"),
            (", resolved", "resolved"),
            (", unresolved", "unresolved"),
        )
    )
    rows = tuple(
        shown.row(
            one.arm,
            [
                _median(shown, one.arm, spread)
                for by_verdict in (one.steps, one.tokens)
                for spread in by_verdict
            ],
        )
        for one in arms
    )
    plot = charts_conduct.medians(
        shown, "steps", "Steps to the verdict", "steps", [(one.arm, one.steps.graded) for one in arms]
    )
    return Panel(
        "steps",
        "Steps and tokens to the verdict",
        "medians with 95 % intervals; steps of the newest attempt, tokens of all",
        plots=(plot,) if plot else (),
        table=Table("steps", "Steps and tokens to the verdict", "arm", columns, rows),
        why="" if plot else "no graded run has known steps, or there are too few for an interval",
    )


def _tools(shown: Shown, arms: Sequence[ArmConduct]) -> Panel:
    columns = [_share_column(word, key.replace(":", "_")) for key, word in KIND_WORDS.items()]
    columns.append(_median_column("calls a run", "calls"))
    rows = []
    for one in arms:
        by_key = {share.key: share for share in one.tool_use.kinds}
        cells = [_share(shown, one.arm, by_key.get(key)) for key in KIND_WORDS]
        rows.append(shown.row(one.arm, [*cells, _median(shown, one.arm, one.tool_use.per_run)]))
    kinds = [(one.arm, one.tool_use.kinds) for one in arms]
    plot = charts_conduct.parts(
        shown, "tool-mix", "Tool mix", "shares of all calls by kind", kinds, KIND_WORDS
    )
    return Panel(
        "tool-mix",
        "Tool mix",
        "calls by what they do, whatever the tool is called",
        plots=(plot,) if plot else (),
        table=Table("tool-mix", "Tool mix", "arm", tuple(columns), tuple(rows)),
        why="" if plot else "no run’s calls are known",
        more=(_calls(shown, arms), _by_tool(shown, arms)),
    )


def _calls(shown: Shown, arms: Sequence[ArmConduct]) -> Table:
    """How calls went: what was not understood, and what failed."""
    columns = (
        _share_column("parallel", "parallel", "steps with several calls, of steps with a call"),
        _share_column("malformed", "malformed", "calls that were not understood"),
        _share_column(
            "no call understood",
            "format_errors",
            "replies in which no call was understood though one was needed",
        ),
        _share_column(
            "failed commands", "failed_commands", "another exit code than 0, of calls with a known one"
        ),
    )
    rows = []
    for one in arms:
        use = one.tool_use
        parts = (use.parallel, use.malformed, use.format_errors, use.failed)
        rows.append(shown.row(one.arm, [_share(shown, one.arm, part) for part in parts]))
    return Table("calls", "Calls in parallel, malformed and failed", "arm", columns, tuple(rows))


def _by_tool(shown: Shown, arms: Sequence[ArmConduct]) -> Table:
    columns = (_share_column("of all calls", "share"),)
    rows: list[Row] = []
    for one in arms:
        for share in one.tool_use.tools[:MOST_TOOLS]:
            row = shown.row(one.arm, (_share(shown, one.arm, share),))
            rows.append(row._replace(second=share.key.removeprefix("tool:")))
    notes = (f"At most {MOST_TOOLS} tools of each arm, the most used ones.",)
    return Table("tools", "By the tools’ own names", "arm and tool", columns, tuple(rows), notes)


def _habits(shown: Shown, arms: Sequence[ArmConduct]) -> Panel:
    columns = (
        _share_column("ran tests", "tested", "runs with at least one test run"),
        _share_column("after the last edit", "tested_last", "of runs that edited"),
        _share_column("edit, then test", "cycled", "runs with at least one such cycle"),
        _median_column("cycles a run", "cycles"),
        _share_column("repeated calls", "repeated", "runs with a call equal to an earlier one"),
        _share_column("of all calls", "repeats_of_calls"),
        Column("edited nothing", ("no_edit",)),
    )
    rows = []
    for one in arms:
        habits, repeats = one.habits, one.repeats
        cells = [
            _share(shown, one.arm, habits.tested),
            _share(shown, one.arm, habits.tested_last),
            _share(shown, one.arm, habits.cycled),
            _median(shown, one.arm, habits.cycles),
            _share(shown, one.arm, repeats.of_runs),
            _share(shown, one.arm, repeats.of_calls),
            count_cell(habits.no_edit, shown.behind(one.arm, figure="habit:no_edit")),
        ]
        rows.append(shown.row(one.arm, cells))
    lines = [
        ("ran tests", [(one.arm, one.habits.tested) for one in arms]),
        ("after the last edit", [(one.arm, one.habits.tested_last) for one in arms]),
        ("edit, then test", [(one.arm, one.habits.cycled) for one in arms]),
        ("repeated a call", [(one.arm, one.repeats.of_runs) for one in arms]),
    ]
    plot = charts_conduct.dots(
        shown, "habits", "Verification habits", "shares of runs; bars are 95 % intervals", lines
    )
    return Panel(
        "habits",
        "Verification habits",
        "shares of runs; bars are 95 % intervals",
        plots=(plot,) if plot else (),
        table=Table("habits", "Verification habits", "arm", columns, tuple(rows)),
        why="" if plot else "no run’s calls are known, or there are too few tasks for intervals",
    )


def _time(shown: Shown, arms: Sequence[ArmConduct]) -> Panel:
    columns = (
        *(_share_column(word, f"time_{word}") for word in TIME_WORDS.values()),
        Column("in all", ("seconds",)),
        Column("runs known", ("runs_known",)),
        Column("not known", ("runs_not_known",)),
        _median_column("peak memory", "peak_memory_bytes", "of a run"),
    )
    rows = []
    for one in arms:
        by_key = {share.key: share for share in one.time.parts}
        cells = [_share(shown, one.arm, by_key.get(key)) for key in TIME_WORDS]
        cells += [
            Cell(str(numbers.duration(one.time.seconds)), (one.time.seconds,))
            if one.time.known
            else missing("no run’s times are recorded"),
            count_cell(one.time.known),
            count_cell(one.time.unknown, shown.behind(one.arm, figure="time:unknown")),
            _memory(shown, one),
        ]
        rows.append(shown.row(one.arm, cells))
    split = [(one.arm, one.time.parts) for one in arms]
    plot = charts_conduct.parts(
        shown, "time", "Where the time went", "shares of the seconds of all runs", split, TIME_WORDS
    )
    return Panel(
        "time",
        "Where the time went, and memory",
        "model answering, tools running, waiting; runs of which all three are known",
        plots=(plot,) if plot else (),
        table=Table("time", "Time and memory", "arm", columns, tuple(rows)),
        why="" if plot else "no run’s times are recorded",
    )


def _memory(shown: Shown, one: ArmConduct) -> Cell:
    cell = _median(shown, one.arm, one.memory)
    if isinstance(one.memory.quartiles, Unknown):
        return cell
    low, high = limits(one.memory.interval)
    middle = numbers.size(round(one.memory.quartiles.median))
    between = (
        f"({numbers.size(round(low))}–{numbers.size(round(high))})"
        if low is not None and high is not None
        else "(no interval)"
    )
    return cell._replace(text=f"{middle} {between}", hint=f"median, n = {one.memory.n:,}")
