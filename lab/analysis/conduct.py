"""How agents went about it, by arm, side by side: exits, steps, tools, habits, time, memory, failed tests.

Figures are of *whole* runs (`run_traits.is_whole`): what the agent or a limit ended. What a broken sandbox,
endpoint or worker cut short says nothing of habits; it is counted among the exit reasons alone. Runs of one
task are not independent, so intervals are over tasks (`lab.analysis.shares`, `lab.analysis.spreads`).

`conduct(observations, switches) -> dict[arm, ArmConduct]`. `runs_behind(observations, switches, arm, key) ->
list of run ids` answers for every `key` of a figure:
    exit:<reason>, ended, open, whole, graded, limit (whole runs at the step limit), behaviour:unknown
    steps, steps:resolved, steps:unresolved, steps:unknown; tokens likewise
    kind:<read, edit, test, shell, final>, tool:<name>: runs with such a call; calls: runs with a known number
    parallel, malformed, format_errors, failed, repeated: runs with at least one; repeats: runs with a number
    habit:tested, habit:untested, habit:cycled, habit:tested_last, habit:untested_last, habit:no_edit; cycles
    time:model, time:tools, time:waiting: runs whose parts are known; time:unknown
    memory, memory:unknown
    tests:<empty_patch, never_ran, both, regression, never_fixed>, tests:unknown, tests:failures
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from lab.analysis.counting import Switches, by_arm, considered
from lab.analysis.estimates import Unknown
from lab.analysis.observations import Behaviour, Observation
from lab.analysis.run_traits import (
    FAILURES,
    MAX_TURNS,
    UNKNOWN_CLASS,
    exit_of,
    failure_of,
    is_whole,
    timed,
    tokens_of,
    trait,
)
from lab.analysis.shares import Groups, Share, ratio_shares, run_shares
from lab.analysis.spreads import Spread, spread

KINDS = ("read", "edit", "test", "shell", "final")
TIMES = ("model", "tools", "waiting")
NO_WAITING = "no run's record says how long it waited"
_TIMES = frozenset({"time:model", "time:tools", "time:waiting", "time:unknown"})


class ByVerdict(NamedTuple):
    """A number up to the verdict: of all runs with one, of resolved and of unresolved ones."""

    graded: Spread
    resolved: Spread
    unresolved: Spread


class ToolUse(NamedTuple):
    """`kinds` (fixed order) and `tools` (most calls first) are parts of the calls that have one, and
    each sum to 1.

    `parallel`: of steps with a call, those with several. `malformed`: of calls, those not understood.
    `format_errors`: of replies, those of which no call was understood though one was needed; a harness that
    reads calls from plain text has no malformed ones, only these.
    `failed`: of calls whose exit code is known, those with another than 0; unknown of runs without any such
    call. `per_run`: calls of a run.
    """

    kinds: tuple[Share, ...]
    tools: tuple[Share, ...]
    parallel: Share
    malformed: Share
    format_errors: Share
    failed: Share
    per_run: Spread


class Habits(NamedTuple):
    """Verification, as shares of runs.

    A test run is a command that starts a known test runner or has Python run a file `test_*.py` or
    `*_test.py`, whatever its result; another script of the agent's own is none, and what a script changes is
    no edit. `tested`: at least one test run. `cycled`: at least
    one edit that a test run followed. `tested_last`: of runs that edited, those with a test run after the
    last edit; `no_edit` runs edited nothing, and it does not apply to them. `cycles`: how often in a run a
    test run followed an edit.
    """

    tested: Share
    cycled: Share
    tested_last: Share
    no_edit: int
    cycles: Spread


class Repeats(NamedTuple):
    """Calls equal in tool and arguments to an earlier one: of all calls, runs with any, how many in a run."""

    of_calls: Share
    of_runs: Share
    per_run: Spread


class TimeSplit(NamedTuple):
    """Parts of a whole, in `TIMES`' order, in seconds of the runs of which all parts are known.

    Where no run's waiting is known (`run_traits.timed`) the other two are the whole, and it is an Unknown.
    """

    parts: tuple[Share, ...]
    seconds: float
    known: int
    unknown: int


class FailedTests(NamedTuple):
    """What tests say of failures: one class each, see `run_traits.failure_of`.

    Failures are unresolved runs and unparsed ones. `classes` in `FAILURES`' order are shares of failures with
    a known class and sum to 1.
    """

    classes: tuple[Share, ...]
    failures: int
    unknown: int


class ArmConduct(NamedTuple):
    """An arm's behaviour. `runs` = `ended` + `open`; `whole` and `graded` are among the ended.

    `unknown`: whole runs without behaviour (older roll-ups); their exits, steps and tests are known all the
    same. `exits`: shares of ended runs, most frequent first. `at_step_limit`: of whole runs. `steps` are the
    newest attempt's; `tokens` (input and output) are of all attempts, unknown where one request's usage is.
    `memory`: peak bytes of a run.
    """

    arm: str
    runs: int
    open: int
    ended: int
    whole: int
    graded: int
    unknown: int
    exits: tuple[Share, ...]
    at_step_limit: Share
    steps: ByVerdict
    tokens: ByVerdict
    tool_use: ToolUse
    habits: Habits
    repeats: Repeats
    time: TimeSplit
    memory: Spread
    failed_tests: FailedTests


def conduct(runs: Iterable[Observation], switches: Switches) -> dict[str, ArmConduct]:
    """Each arm's behaviour by its key, in the keys' order, of the runs that the switches let in."""
    arms = by_arm(sorted(considered(runs, switches), key=lambda run: run.run))
    return {arm: _of_arm(arm, arms[arm]) for arm in sorted(arms)}


def runs_behind(runs: Iterable[Observation], switches: Switches, arm: str, key: str) -> list[int]:
    """The ids, ascending, of an arm's runs that a figure of that key counts.

    Raises:
        ValueError: no figure has such a key.
    """
    ours = [run for run in considered(runs, switches) if run.arm == arm]
    if key not in _TIMES:
        belongs = trait(key)
        return sorted(run.run for run in ours if belongs(run))
    # Which seconds are a whole depends on what is known of the others.
    known = {run.run for run, _ in timed(ours)}
    unknown = {run.run for run in ours if is_whole(run)} - known
    return sorted(unknown if key == "time:unknown" else known)


class _Sample(NamedTuple):
    """Runs with the behaviour of each, and which of them are of one task."""

    runs: Sequence[Observation]
    behaviours: Sequence[Behaviour]
    groups: Groups
    unknown: int


def _sample(whole: Sequence[Observation]) -> _Sample:
    runs, behaviours = [], []
    for run in whole:
        if run.behaviour is not None:
            runs.append(run)
            behaviours.append(run.behaviour)
    return _Sample(runs, behaviours, Groups(_tasks(runs)), len(whole) - len(runs))


def _tasks(runs: Sequence[Observation]) -> list[str]:
    return [run.task for run in runs]


def _of_arm(arm: str, runs: Sequence[Observation]) -> ArmConduct:
    ended = [run for run in runs if run.ended]
    whole = [run for run in ended if is_whole(run)]
    graded = [run for run in ended if run.graded]
    sample = _sample(whole)
    of_whole = Groups(_tasks(whole))
    return ArmConduct(
        arm,
        runs=len(runs),
        open=len(runs) - len(ended),
        ended=len(ended),
        whole=len(whole),
        graded=len(graded),
        unknown=sample.unknown,
        exits=_exits(ended),
        at_step_limit=run_shares(("limit",), [[run.exit_reason == MAX_TURNS for run in whole]], of_whole)[0],
        steps=_by_verdict("steps", graded, [run.steps for run in graded]),
        tokens=_by_verdict("tokens", graded, [tokens_of(run) for run in graded]),
        tool_use=_tool_use(whole, sample),
        habits=_habits(sample),
        repeats=_repeats(sample),
        time=_time(whole),
        memory=spread("memory", [run.peak_memory_bytes for run in whole], of_whole),
        failed_tests=_failed_tests(runs),
    )


def _exits(ended: Sequence[Observation]) -> tuple[Share, ...]:
    exits = [exit_of(run) for run in ended]
    counts = Counter(exits)
    reasons = sorted(counts, key=lambda reason: (-counts[reason], reason))
    flags = [[one == reason for one in exits] for reason in reasons]
    return run_shares([f"exit:{reason}" for reason in reasons], flags, Groups(_tasks(ended)))


def _by_verdict(key: str, graded: Sequence[Observation], values: Sequence[int | None]) -> ByVerdict:
    def among(name: str, resolved: bool) -> Spread:
        kept = [
            (value, run.task) for value, run in zip(values, graded, strict=True) if run.resolved is resolved
        ]
        groups = Groups([task for _, task in kept])
        return spread(f"{key}:{name}", [value for value, _ in kept], groups)

    return ByVerdict(
        spread(key, values, Groups(_tasks(graded))), among("resolved", True), among("unresolved", False)
    )


def _tool_use(whole: Sequence[Observation], sample: _Sample) -> ToolUse:
    behaviours, groups, unknown = sample.behaviours, sample.groups, sample.unknown
    calls = [one.calls for one in behaviours]
    names = sorted({tool for one in behaviours for tool, number in one.tools.items() if number})
    malformed = [[one.malformed for one in behaviours]]
    tools = _mix("tool", names, [one.tools for one in behaviours], sample)
    steps = [one.steps_with_calls for one in behaviours]
    parallel = [[one.parallel_steps for one in behaviours]]
    return ToolUse(
        kinds=_mix("kind", KINDS, [one.kinds for one in behaviours], sample),
        tools=tuple(sorted(tools, key=lambda share: -share.part)),
        parallel=ratio_shares(["parallel"], parallel, steps, groups, "steps", unknown=unknown)[0],
        malformed=ratio_shares(["malformed"], malformed, calls, groups, "calls", unknown=unknown)[0],
        format_errors=_format_errors(whole),
        failed=_failed(sample),
        per_run=_per_run("calls", sample, calls),
    )


def _failed(sample: _Sample) -> Share:
    known = [
        (run.task, one.failed_commands, one.exit_codes)
        for run, one in zip(sample.runs, sample.behaviours, strict=True)
        if one.failed_commands is not None
    ]
    failed, codes = [[number for _, number, _ in known]], [number for _, _, number in known]
    groups, unknown = Groups([task for task, _, _ in known]), sample.unknown + len(sample.runs) - len(known)
    return ratio_shares(["failed"], failed, codes, groups, "calls", unknown=unknown)[0]


def _format_errors(whole: Sequence[Observation]) -> Share:
    known = [(run.task, run.format_errors or 0, run.replies) for run in whole if run.replies is not None]
    errors, replies = [[number for _, number, _ in known]], [number for _, _, number in known]
    groups, unknown = Groups([task for task, _, _ in known]), len(whole) - len(known)
    return ratio_shares(["format_errors"], errors, replies, groups, "replies", unknown=unknown)[0]


def _mix(
    family: str, names: Sequence[str], counts: Sequence[Mapping[str, int]], sample: _Sample
) -> tuple[Share, ...]:
    """Parts of a whole, which is the sum of what these names have."""
    parts = [[one.get(name, 0) for one in counts] for name in names]
    keys = [f"{family}:{name}" for name in names]
    return ratio_shares(keys, parts, None, sample.groups, "calls", unknown=sample.unknown)


def _per_run(key: str, sample: _Sample, values: Sequence[int]) -> Spread:
    return spread(key, values, sample.groups)._replace(unknown=sample.unknown)


def _habits(sample: _Sample) -> Habits:
    behaviours = sample.behaviours
    flags = [[one.tests > 0 for one in behaviours], [one.cycles > 0 for one in behaviours]]
    tested, cycled = run_shares(
        ("habit:tested", "habit:cycled"), flags, sample.groups, unknown=sample.unknown
    )
    edited = [
        (run.task, one.tested_after_last_edit)
        for run, one in zip(sample.runs, behaviours, strict=True)
        if one.tested_after_last_edit is not None
    ]
    groups = Groups([task for task, _ in edited])
    last = [[tested_last for _, tested_last in edited]]
    return Habits(
        tested=tested,
        cycled=cycled,
        tested_last=run_shares(("habit:tested_last",), last, groups, unknown=sample.unknown)[0],
        no_edit=len(sample.runs) - len(edited),
        cycles=_per_run("cycles", sample, [one.cycles for one in behaviours]),
    )


def _repeats(sample: _Sample) -> Repeats:
    counts = [one.repeats for one in sample.behaviours]
    calls = [one.calls for one in sample.behaviours]
    of_calls = ratio_shares(["repeated"], [counts], calls, sample.groups, "calls", unknown=sample.unknown)
    flags = [[count > 0 for count in counts]]
    of_runs = run_shares(("repeated",), flags, sample.groups, unknown=sample.unknown)
    return Repeats(of_calls[0], of_runs[0], _per_run("repeats", sample, counts))


def _time(whole: Sequence[Observation]) -> TimeSplit:
    known = timed(whole)
    unknown = len(whole) - len(known)
    parts: list[tuple[float, ...]] = list(zip(*(seconds for _, seconds in known), strict=True))
    parts = parts or [()] * len(TIMES)
    keys = [f"time:{name}" for name in TIMES[: len(parts)]]
    groups = Groups([run.task for run, _ in known])
    shares = ratio_shares(keys, parts, None, groups, "seconds", unknown=unknown)
    if len(parts) < len(TIMES):
        shares += (Share("time:waiting", 0, 0, "seconds", Unknown(NO_WAITING), len(whole)),)
    return TimeSplit(shares, math.fsum(share.part for share in shares), len(known), unknown)


def _failed_tests(runs: Sequence[Observation]) -> FailedTests:
    classes = [(run, found) for run in runs if (found := failure_of(run)) is not None]
    known = [(run, found) for run, found in classes if found != UNKNOWN_CLASS]
    unknown = len(classes) - len(known)
    flags = [[found == name for _, found in known] for name in FAILURES]
    groups = Groups([run.task for run, _ in known])
    keys = [f"tests:{name}" for name in FAILURES]
    return FailedTests(run_shares(keys, flags, groups, unknown=unknown), len(classes), unknown)
