"""Cost against rate: who is on the frontier, and what is resolved within a budget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from lab.analysis import costs, counting, rates, run_costs
from lab.analysis.costs import AtLeast, Point
from lab.analysis.counting import Switches, Trial
from lab.analysis.estimates import Estimate, Interval, Unknown, is_rounding
from lab.analysis.observations import Observation

if TYPE_CHECKING:
    import numpy as np

RESAMPLES = 1_000
# An arm is possibly on the frontier if nobody beats it in at least this share of the resamples.
POSSIBLE = 0.05
_KEPT = 4
_PRECISION = 9
NO_SHARED_TASK = "they share no task"


class Place(NamedTuple):
    """An arm on the plane of cost (mean dollars a run) and rate, both of the runs whose cost is known.

    Without any such run the rate is of all that count. Where no run was graded, the cost is of those that
    ended, the rate is unknown and the arm is on no line.
    `basis` "" where costs are unknown or of several bases: such an arm has no `cost` and is on no line.
    `on_line`: nobody of the same basis beats it on both sides. `possibly`: the share of resamples of tasks in
    which that is so. Where two arms of a basis share no task, none of it is ranked. `same_tasks`: whether all
    arms of its basis have the same tasks. `lower_bound` is of the cost per resolved issue, where none is
    resolved.
    """

    arm: str
    cost: Estimate | Unknown
    rate: Estimate | Unknown
    basis: str
    at_least: bool
    on_line: bool
    possibly: float | Unknown
    lower_bound: AtLeast | None
    same_tasks: bool


class CurveStep(NamedTuple):
    """For at most so many dollars a run: the share of tasks resolved, with its interval at this point."""

    dollars: float
    share: float
    interval: Interval | Unknown


class Curve(NamedTuple):
    """Resolved within a budget: the share rises at each step, the cheapest first.

    `left_out` runs have no known cost; of `at_least` runs a part is unknown. Without steps `why` says why.
    """

    arm: str
    steps: list[CurveStep]
    tasks: int
    runs: int
    left_out: int
    at_least: int
    why: str


class CostDifference(NamedTuple):
    """How much more a resolved issue costs with the first arm, over the tasks that both tried.

    The interval is that of tasks drawn for both arms together.
    """

    first: str
    second: str
    tasks: int
    difference: float | Unknown
    interval: Interval | Unknown
    method: str


# ---- the plane ---------------------------------------------------------------------------------------------


def plane(
    arms: Sequence[str], runs: Iterable[Observation], switches: Switches = counting.AS_USUAL
) -> list[Place]:
    """Each arm's place, in the order of `arms`. Only arms of one price basis are held against each other."""
    found = counting.by_arm(runs)
    tried = {arm: counting.trials(found.get(arm, []), switches) for arm in arms}
    let_in = {arm: counting.considered(found.get(arm, []), switches) for arm in arms}
    places = {arm: _place(arm, tried[arm], let_in[arm]) for arm in arms}
    for basis in sorted({place.basis for place in places.values() if place.basis}):
        group = [arm for arm in arms if places[arm].basis == basis and tried[arm]]
        known = [run_costs.priced(tried[arm]) for arm in group]
        tasks = [{trial.run.task for trial in one} for one in known]
        same = all(one == tasks[0] for one in tasks)
        if any(one.isdisjoint(other) for one, other in itertools.combinations(tasks, 2)):
            line: set[str] = set()
            shares: list[float | Unknown] = [Unknown(NO_SHARED_TASK)] * len(group)
        else:
            line, shares = _line([places[arm] for arm in group]), _unbeaten(known)
        for arm, share in zip(group, shares, strict=True):
            places[arm] = places[arm]._replace(on_line=arm in line, possibly=share, same_tasks=same)
    return [places[arm] for arm in arms]


def _place(arm: str, counted: Sequence[Trial], let_in: Sequence[Observation]) -> Place:
    none_counts = counting.why_none_counts(let_in, counted)
    known = run_costs.priced(counting.ungraded(let_in) if none_counts else counted)
    basis = run_costs.basis_of(known)
    cost = run_costs.mean_cost(known)
    bound = None
    if isinstance(cost, Estimate) and counted and not any(trial.resolved for trial in counted):
        bound = run_costs.lower_bound(known)
    results = counting.task_results(counting.by_task(known or counted))
    unranked = none_counts or Unknown(rates.NO_TASK)
    return Place(
        arm=arm,
        cost=cost,
        rate=none_counts or rates.average(list(results.values())),
        basis="" if isinstance(basis, Unknown) else basis,
        at_least=any(trial.run.cost_unknown for trial in known),
        on_line=False,
        possibly=basis if isinstance(basis, Unknown) else unranked,
        lower_bound=bound,
        same_tasks=True,
    )


def _line(places: Sequence[Place]) -> set[str]:
    """Those that nobody beats on both sides; equal ones together."""
    points = {
        place.arm: Point(place.arm, place.cost.value, place.rate.value)
        for place in places
        if isinstance(place.cost, Estimate) and isinstance(place.rate, Estimate)
    }
    best = {(point.cost, point.rate) for point in costs.frontier(list(points.values()))}
    return {arm for arm, point in points.items() if (point.cost, point.rate) in best}


@lru_cache(maxsize=_KEPT)
def _drawn(tasks: int) -> np.ndarray:
    """How often each task is drawn in each resample: RESAMPLES rows, the same whenever it is asked."""
    import numpy as np

    draws = np.random.default_rng(costs.SEED).integers(0, tasks, size=(RESAMPLES, tasks))
    places = draws + tasks * np.arange(RESAMPLES)[:, None]
    counts = np.bincount(places.ravel(), minlength=RESAMPLES * tasks)
    return counts.reshape(RESAMPLES, tasks).astype(float)


def _sums(columns: np.ndarray) -> np.ndarray:
    """What each column, a row a task, sums to in each resample."""
    import numpy as np

    # Not the matrix product: its threads wait for each other in a loop where other programs have the cores.
    found: np.ndarray = np.einsum("rt,ct->rc", _drawn(len(columns)), np.ascontiguousarray(columns.T))
    return found


def _columns(known: Sequence[Trial], places: Mapping[str, int]) -> np.ndarray:
    """Of one arm, a row a task: whether it tried it, what a run cost, the share of runs that resolved it."""
    import numpy as np

    columns = np.zeros((len(places), 3))
    for task, found in counting.by_task(known).items():
        resolved = sum(trial.resolved for trial in found)
        columns[places[task]] = (1, run_costs.spent(found) / len(found), resolved / len(found))
    return columns


def _unbeaten(arms: Sequence[Sequence[Trial]]) -> list[float | Unknown]:
    """The share of resamples of tasks, drawn for all arms together, in which nobody beats an arm."""
    import numpy as np

    tasks = sorted({trial.run.task for known in arms for trial in known})
    if len(arms) < 2:
        return [Unknown("there is no other arm with costs of the same basis")] * len(arms)
    if len(tasks) < 2:
        return [Unknown(rates.ONE_TASK)] * len(arms)
    places = {task: place for place, task in enumerate(tasks)}
    sums = _sums(np.hstack([_columns(known, places) for known in arms]))
    tried, cost, resolved = (sums[:, part::3].T for part in range(3))
    with np.errstate(divide="ignore", invalid="ignore"):
        # An arm of whose tasks none was drawn is beaten by any other. Equal arms stay equal when rounded.
        cost = np.where(tried > 0, np.round(cost / tried, _PRECISION), np.inf)
        rate = np.where(tried > 0, np.round(resolved / tried, _PRECISION), -1.0)
    shares: list[float | Unknown] = []
    for its_cost, its_rate in zip(cost, rate, strict=True):
        as_good = (cost <= its_cost) & (rate >= its_rate)
        better = as_good & ((cost < its_cost) | (rate > its_rate))
        shares.append(float(1 - better.any(axis=0).mean()))
    return shares


# ---- two arms' costs per resolved issue --------------------------------------------------------------------


def cost_difference(
    first: str, second: str, runs: Iterable[Observation], switches: Switches = counting.AS_USUAL
) -> CostDifference:
    """The difference of costs per resolved issue (attempt basis), by resampling tasks for both together."""
    found = counting.by_arm(runs)
    sides = [
        counting.by_task(run_costs.priced(counting.trials(found.get(arm, []), switches)))
        for arm in (first, second)
    ]
    tasks = sorted(sides[0].keys() & sides[1].keys())
    shared = [[trial for task in tasks for trial in side[task]] for side in sides]
    why = _why_no_difference(shared)
    if why:
        return CostDifference(first, second, len(tasks), Unknown(why), Unknown(why), "")
    ratios = [run_costs.spent(side) / sum(trial.resolved for trial in side) for side in shared]
    interval = _interval_of_difference(shared)
    method = "bootstrap over tasks, drawn for both together"
    return CostDifference(first, second, len(tasks), ratios[0] - ratios[1], interval, method)


def _why_no_difference(sides: Sequence[Sequence[Trial]]) -> str:
    if not sides[0]:
        return "no task was tried by both at a known cost"
    bases = [run_costs.basis_of(side) for side in sides]
    for basis in bases:
        if isinstance(basis, Unknown):
            return basis.why
    if bases[0] != bases[1]:
        return f"costs rest on several bases ({bases[0]}, {bases[1]}), which no ratio mixes"
    if not all(any(trial.resolved for trial in side) for side in sides):
        return "one of them resolves none of the tasks that both tried at a known cost"
    return ""


def _interval_of_difference(sides: Sequence[Sequence[Trial]]) -> Interval | Unknown:
    """The middle of the resamples' differences. The tasks of both sides come in the same order."""
    import numpy as np

    ratios = []
    for side in sides:
        pairs = run_costs.task_pairs(side, by_issue=False)
        if len(pairs) < 2:
            return Unknown(rates.ONE_TASK)
        sums = _sums(np.array([(pair.cost, pair.resolved) for pair in pairs]))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios.append(sums[:, 0] / sums[:, 1])
    differences = ratios[0] - ratios[1]
    if not np.isfinite(differences).all():
        return Unknown("so few tasks are resolved that some resamples have none")
    rest = (1 - rates.LEVEL) / 2
    low, high = np.quantile(differences, [rest, 1 - rest])
    if is_rounding(high - low, float(max(ratio.max() for ratio in ratios))):
        return Unknown(run_costs.NOTHING_MOVES)
    return Interval(float(low), float(high))


# ---- within a budget ---------------------------------------------------------------------------------------


def curves(
    arms: Sequence[str], runs: Iterable[Observation], switches: Switches = counting.AS_USUAL
) -> list[Curve]:
    """Each arm's curve in the order of `arms`."""
    found = counting.by_arm(runs)
    return [curve(arm, found.get(arm, []), switches) for arm in arms]


def curve(arm: str, runs: Iterable[Observation], switches: Switches = counting.AS_USUAL) -> Curve:
    """The share of tasks that is resolved for at most so many dollars a run.

    Of a task with several runs it is the share of these. Intervals hold at one budget each, not for the
    whole line: Wilson's with one run a task, Student's t over tasks with several (at 1 as
    `rates.at_the_edge`).
    """
    let_in = counting.considered(runs, switches)
    counted = counting.trials(let_in, switches)
    known = run_costs.priced(counted)
    tasks = counting.by_task(known)
    basis = counting.why_none_counts(let_in, counted) or run_costs.basis_of(known)
    why = basis.why if isinstance(basis, Unknown) else ""
    return Curve(
        arm=arm,
        steps=[] if why else _steps(list(tasks.values())),
        tasks=len(tasks),
        runs=len(known),
        left_out=len(counted) - len(known),
        at_least=sum(trial.run.cost_unknown > 0 for trial in known),
        why=why,
    )


def _steps(tasks: Sequence[Sequence[Trial]]) -> list[CurveStep]:
    n = len(tasks)
    one_each = all(len(trials) == 1 for trials in tasks)
    rises = sorted(
        (run_costs.spent([trial]), task, 1 / len(trials))
        for task, trials in enumerate(tasks)
        for trial in trials
        if trial.resolved
    )
    shares = [0.0] * n
    whole, squares = 0.0, 0.0
    steps: list[CurveStep] = []
    for solved, (dollars, task, rise) in enumerate(rises, start=1):
        whole += rise
        squares += (shares[task] + rise) ** 2 - shares[task] ** 2
        shares[task] += rise
        interval = rates.wilson(solved, n) if one_each else _interval(whole / n, squares, n)
        if steps and steps[-1].dollars == dollars:
            steps.pop()
        steps.append(CurveStep(dollars, whole / n, interval))
    return steps


def _interval(share: float, squares: float, n: int) -> Interval | Unknown:
    """Student's t over tasks, from the sum of the tasks' squared shares."""
    if n < 2:
        return Unknown(rates.ONE_TASK)
    error = math.sqrt(max(0.0, squares - n * share * share) / (n - 1) / n)
    if is_rounding(error):
        return rates.at_the_edge(share, n)
    low, high = rates.student_interval(share, error, n)
    return Interval(max(0.0, low), min(1.0, high))
