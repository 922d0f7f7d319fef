"""How agents went about it, by arm, side by side: exits, steps, tools, habits, time, memory, failed tests.

Figures are of *whole* runs (`is_whole`): what the agent or a limit ended. What a broken sandbox, endpoint or
worker cut short says nothing of habits; it is counted among the exit reasons alone. Runs of one task are not
independent, so intervals are over tasks (`lab.analysis.shares`, `lab.analysis.spreads`).

`conduct(observations, switches) -> dict[arm, ArmConduct]`. `runs_behind(observations, switches, arm, key) ->
list of run ids` answers for every `key` of a figure:
    exit:<reason>, ended, open, whole, graded, limit (whole runs at the step limit), behaviour:unknown
    steps, steps:resolved, steps:unresolved, steps:unknown; tokens likewise
    kind:<read, edit, test, shell, final>, tool:<name>: runs with such a call; calls: runs with a known number
    parallel, malformed, failed, repeated: runs with at least one; repeats: runs with a known number
    habit:tested, habit:untested, habit:cycled, habit:tested_last, habit:untested_last, habit:no_edit; cycles
    time:model, time:tools, time:waiting: runs whose parts are known; time:unknown
    memory, memory:unknown
    tests:<empty_patch, never_ran, both, regression, never_fixed>, tests:unknown, tests:failures
"""

from __future__ import annotations

from typing import NamedTuple

from lab.analysis.shares import Share
from lab.analysis.spreads import Spread

MAX_TURNS = "max_turns"
KINDS = ("read", "edit", "test", "shell", "final")
FAILURES = ("empty_patch", "never_ran", "both", "regression", "never_fixed")
TIMES = ("model", "tools", "waiting")


class ByVerdict(NamedTuple):
    """A number up to the verdict: of all runs with one, of resolved and of unresolved ones."""

    graded: Spread
    resolved: Spread
    unresolved: Spread


class ToolUse(NamedTuple):
    """`kinds` (fixed order) and `tools` (most calls first) are each parts of all calls and sum to 1.

    `parallel`: of steps with a call, those with several. `malformed`: of calls, those not understood.
    `failed`: of calls, commands that ended with another exit code than 0. `per_run`: calls of a run.
    """

    kinds: tuple[Share, ...]
    tools: tuple[Share, ...]
    parallel: Share
    malformed: Share
    failed: Share
    per_run: Spread


class Habits(NamedTuple):
    """Verification: shares of runs.

    `tested`: at least one test run. `cycled`: at least one edit that a test run followed. `tested_last`: of
    runs that edited, those with a test run after the last edit; `no_edit` runs edited nothing, and it does
    not apply to them. `cycles`: how often in a run a test run followed an edit.
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
    """Parts of a whole, in `TIMES`' order, in seconds of runs of which all three parts are known."""

    parts: tuple[Share, ...]
    seconds: float
    known: int
    unknown: int


class FailedTests(NamedTuple):
    """What tests say of failures: unresolved runs and unparsed ones. One class each (`failure_of`).

    `classes` in `FAILURES`' order are shares of failures with a known class and sum to 1.
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
