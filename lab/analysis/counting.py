"""Which runs count, and as what: the switches of an analysis and the counts that are shown beside a rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from lab.analysis.estimates import Unknown
from lab.analysis.observations import CANCELLED, GRADED, RESOLVED, Observation
from lab.analysis.rates import TaskResult

Outcome = Literal["resolved", "unresolved", "invalid", "not_graded", "cancelled", "open"]
OUTCOMES: tuple[Outcome, ...] = ("resolved", "unresolved", "invalid", "not_graded", "cancelled", "open")


# Begins the cluster of a task without a known repository; no repository's name does.
ALONE = "\0"
NONE_GRADED = Unknown("none of its runs was graded")
NO_REPOSITORY = "nobody recorded of which repository the tasks are"


class Switches(NamedTuple):
    """What a reader may turn: invalid runs as failures, flagged runs out, runs people stepped into in."""

    invalid_as_failures: bool = False
    without_flagged: bool = False
    stepped_in: bool = False


AS_USUAL = Switches()


class Tally(NamedTuple):
    """What became of an arm's runs.

    The six outcomes count the runs that the switches let in and sum to `considered`. `left_out_stepped_in`
    and `left_out_flagged` are the others; together they are `runs`. `flagged` and `stepped_in` count such
    runs among all.
    """

    runs: int
    resolved: int
    unresolved: int
    invalid: int
    not_graded: int
    cancelled: int
    open: int
    left_out_stepped_in: int
    left_out_flagged: int
    flagged: int
    stepped_in: int

    @property
    def valid(self) -> int:
        return self.resolved + self.unresolved

    @property
    def considered(self) -> int:
        return self.valid + self.invalid + self.not_graded + self.cancelled + self.open


class Trial(NamedTuple):
    """A run that counts in a rate, and whether it counts as resolved."""

    run: Observation
    resolved: bool


def outcome_of(run: Observation) -> Outcome:
    """What became of it: a verdict counts once the run has ended, and nobody's fault is no failure."""
    if not run.ended:
        return "open"
    if run.verdict in GRADED:
        return "resolved" if run.verdict == RESOLVED else "unresolved"
    if run.exit_reason == CANCELLED:
        return "cancelled"
    return "not_graded" if run.not_graded else "invalid"


def considered(runs: Iterable[Observation], switches: Switches) -> list[Observation]:
    """The runs that the switches let in, whatever became of them."""
    _, without_flagged, stepped_in = switches
    return [
        run for run in runs if (stepped_in or not run.stepped_in) and not (without_flagged and run.flagged)
    ]


def trials(runs: Iterable[Observation], switches: Switches) -> list[Trial]:
    """The runs that count in a rate: graded ones, and invalid ones as failures where that is asked."""
    failures = switches.invalid_as_failures
    return [
        Trial(run, run.verdict == RESOLVED)
        for run in considered(runs, switches)
        if run.ended and (run.verdict in GRADED or (failures and run.invalid))
    ]


def ungraded(let_in: Iterable[Observation]) -> list[Trial]:
    """The runs that ended and were never graded: of these nothing but costs is averaged."""
    return [Trial(run, resolved=False) for run in let_in if run.not_graded]


def why_none_counts(let_in: Sequence[Observation], counted: Sequence[Trial]) -> Unknown | None:
    """The reason where no run counts because those that ended were never graded; None otherwise."""
    return NONE_GRADED if not counted and any(run.not_graded for run in let_in) else None


def tally(runs: Sequence[Observation], switches: Switches) -> Tally:
    """The counts beside a rate."""
    let_in = considered(runs, switches)
    outcomes = [outcome_of(run) for run in let_in]
    left_out_stepped_in = 0 if switches.stepped_in else sum(run.stepped_in for run in runs)
    return Tally(
        runs=len(runs),
        **{outcome: outcomes.count(outcome) for outcome in OUTCOMES},
        left_out_stepped_in=left_out_stepped_in,
        left_out_flagged=len(runs) - len(let_in) - left_out_stepped_in,
        flagged=sum(run.flagged for run in runs),
        stepped_in=sum(run.stepped_in for run in runs),
    )


def by_arm(runs: Iterable[Observation]) -> dict[str, list[Observation]]:
    """The runs of each arm, by its key."""
    found: dict[str, list[Observation]] = {}
    for run in runs:
        found.setdefault(run.arm, []).append(run)
    return found


def by_task(counted: Iterable[Trial]) -> dict[str, list[Trial]]:
    """The trials of each task, by its key, in the order in which tasks come."""
    found: dict[str, list[Trial]] = {}
    for trial in counted:
        found.setdefault(trial.run.task, []).append(trial)
    return found


def task_results(counted: Mapping[str, Sequence[Trial]]) -> dict[str, TaskResult]:
    """How often each task was resolved in how many runs; its repository is its cluster."""
    return {
        task: TaskResult(sum(one.resolved for one in found), len(found), cluster_of(found[0].run))
        for task, found in counted.items()
    }


def cluster_of(run: Observation) -> str:
    """The repository whose tasks are not independent; a task whose repository nobody names is its own."""
    return run.repository or f"{ALONE}{run.task}"
