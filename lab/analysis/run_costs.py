"""What is known of a run's cost, of the averages of several, and what they rest on.

Unknown is not 0: a run without any known cost is in no average.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from lab.analysis import costs, counting, rates
from lab.analysis.costs import AtLeast, Pair
from lab.analysis.counting import Trial
from lab.analysis.estimates import Estimate, Interval, Unknown, is_rounding
from lab.analysis.observations import Observation

NO_COST = "no run has a known cost"
NOTHING_MOVES = "all tasks cost and came out the same, and an interval of no width would say too much"


def dollars_of(run: Observation) -> float | None:
    """What is known of a run's cost over all attempts; None where nothing is.

    A run that ended before its first request cost 0; one of which no request was recorded may have cost.
    """
    cost = run.cost
    if cost is None:
        return 0.0 if run.requests == 0 and not run.unrecorded else None
    return cost if math.isfinite(cost) else None


def priced(counted: Iterable[Trial]) -> list[Trial]:
    """The trials of which some cost is known."""
    return [trial for trial in counted if dollars_of(trial.run) is not None]


def basis_of(counted: Iterable[Trial]) -> str | Unknown:
    """The one basis that these runs' costs rest on; never several in one ratio or average."""
    found = sorted({trial.run.cost_basis for trial in counted if has_cost(trial.run)})
    if not found:
        return Unknown(NO_COST)
    if len(found) > 1 or found == ["mixed"]:
        said = "" if found == ["mixed"] else f" ({', '.join(found)})"
        return Unknown(f"costs rest on several bases{said}, which no ratio mixes")
    return found[0]


def has_cost(run: Observation) -> bool:
    return run.cost is not None and math.isfinite(run.cost)


def mean_cost(counted: Iterable[Trial]) -> Estimate | Unknown:
    """What a run costs: the mean over tasks of the mean over runs, with Student's t over tasks.

    Runs without a known cost are in no mean; where a part of a run's is unknown it is "at least".
    """
    known = priced(counted)
    basis = basis_of(known)
    if isinstance(basis, Unknown):
        return basis
    means = [_mean(found) for found in counting.by_task(known).values()]
    n, value = len(means), math.fsum(means) / len(means)
    if n < 2:
        return Estimate(value, Unknown(rates.ONE_TASK), n, rates.STUDENT)
    error = rates.standard_error(means)
    if is_rounding(error, value):
        return Estimate(value, Unknown(NOTHING_MOVES), n, rates.STUDENT, error)
    low, high = rates.student_interval(value, error, n)
    return Estimate(value, Interval(max(0.0, low), high), n, rates.STUDENT, error)


def spent(counted: Iterable[Trial]) -> float:
    """What is known of the cost of these runs together."""
    return math.fsum(dollars_of(trial.run) or 0.0 for trial in counted)


def lower_bound(known: Sequence[Trial]) -> AtLeast:
    """What a resolved run costs at least, where none of these was: of as many tasks, for what one run costs.

    Raises:
        ZeroDivisionError: there is no run.
    """
    return costs.bound(spent(known) / len(known), len(counting.by_task(known)))


def _mean(found: Sequence[Trial]) -> float:
    return spent(found) / len(found)


def task_pairs(known: Iterable[Trial], *, by_issue: bool) -> list[Pair]:
    """What each task cost over all its runs, and how often it was resolved (`by_issue`: whether ever).

    Runs of one task share what is hard about it: tasks are the sample, whatever the number of runs.
    """
    found = []
    for trials in counting.by_task(known).values():
        resolved = sum(trial.resolved for trial in trials)
        cluster = counting.cluster_of(trials[0].run)
        found.append(Pair(spent(trials), min(1, resolved) if by_issue else resolved, cluster))
    return found
