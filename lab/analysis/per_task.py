"""Per task: how often each arm resolved it, and whether it tells arms apart at all.

`per_task(observations, switches) -> PerTask`. `runs_behind(per_task, key, task=…, arm=…) -> list of run ids`
for the keys resolved, unresolved, others, all (of the tasks and the arm named, or of any), and band:never,
band:sometimes, band:always, band:untried (all runs of such tasks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple

from lab.analysis.counting import Switches, considered, outcome_of
from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.observations import Observation
from lab.analysis.rates import wilson_limits
from lab.analysis.shares import Groups, Share, run_shares

Band = Literal["never", "sometimes", "always", "untried"]
BANDS: tuple[Band, ...] = ("never", "sometimes", "always", "untried")
OVER_ATTEMPTS = "Wilson over the task's runs"


class Attempts(NamedTuple):
    """Runs of one task. `rate` with Wilson's interval over its `counted` runs (`rate.n`).

    Runs of one task are a sample of what happens to this task and say nothing of others. Run ids, each tuple
    ascending; `unresolved` has invalid runs too where they count as failures; `others` count in no rate.
    """

    rate: Estimate | Unknown
    resolved: tuple[int, ...]
    unresolved: tuple[int, ...]
    others: tuple[int, ...]

    @property
    def counted(self) -> int:
        return len(self.resolved) + len(self.unresolved)

    @property
    def band(self) -> Band:
        """ "sometimes" is 0 < p < 1."""
        if not self.counted:
            return "untried"
        if not self.resolved:
            return "never"
        return "sometimes" if self.unresolved else "always"


class TaskRate(NamedTuple):
    """One task. `arms`: those with a run of it. `whole`: all arms together, each run counting once."""

    task: str
    repository: str
    arms: Mapping[str, Attempts]
    whole: Attempts

    @property
    def band(self) -> Band:
        return self.whole.band

    @property
    def informs(self) -> bool:
        """Whether it tells arms or runs apart: neither always nor never resolved."""
        return self.band == "sometimes"


class PerTask(NamedTuple):
    """Tasks by name. `bands`: how many are in each, all arms together.

    `informing`: the share of tasks in the band 0 < p < 1, among those with at least two runs that count: one
    run is resolved or it is not. Those with one are its `unknown`. `by_arm`: the same of each arm's runs.
    """

    tasks: tuple[TaskRate, ...]
    bands: Mapping[Band, int]
    informing: Share
    by_arm: Mapping[str, Share]


def per_task(runs: Iterable[Observation], switches: Switches) -> PerTask:
    """Every task with a run that the switches let in."""
    by_task: dict[str, dict[str, list[Observation]]] = {}
    arms: set[str] = set()
    for run in sorted(considered(runs, switches), key=lambda run: run.run):
        by_task.setdefault(run.task, {}).setdefault(run.arm, []).append(run)
        arms.add(run.arm)
    tasks = tuple(_task(task, by_task[task], switches) for task in sorted(by_task))
    wholes = [task.whole for task in tasks]
    return PerTask(
        tasks,
        {band: sum(task.band == band for task in tasks) for band in BANDS},
        _informing(wholes),
        {arm: _informing([task.arms[arm] for task in tasks if arm in task.arms]) for arm in sorted(arms)},
    )


def runs_behind(found: PerTask, key: str, *, task: str | None = None, arm: str | None = None) -> list[int]:
    """The ids, ascending, of the runs that a figure of that key counts, of one task or arm where named.

    Raises:
        ValueError: no figure has such a key.
    """
    family, _, band = key.partition(":")
    if key not in _PARTS and (family != "band" or band not in BANDS):
        keys = ", ".join([*_PARTS, *(f"band:{one}" for one in BANDS)])
        raise ValueError(f"{key!r} is no figure of tasks; use one of {keys}")
    part = _PARTS.get(key, _PARTS["all"])
    ids: list[int] = []
    for one in found.tasks:
        if (task is not None and one.task != task) or (family == "band" and one.band != band):
            continue
        for name, attempts in one.arms.items():
            if arm is None or name == arm:
                ids += part(attempts)
    return sorted(ids)


_PARTS: dict[str, Callable[[Attempts], tuple[int, ...]]] = {
    "resolved": lambda attempts: attempts.resolved,
    "unresolved": lambda attempts: attempts.unresolved,
    "others": lambda attempts: attempts.others,
    "all": lambda attempts: attempts.resolved + attempts.unresolved + attempts.others,
}


def _task(task: str, by_arm: Mapping[str, Sequence[Observation]], switches: Switches) -> TaskRate:
    arms = {arm: _attempts(by_arm[arm], switches) for arm in sorted(by_arm)}
    parts = list(arms.values())
    whole = _rated(
        tuple(sorted(run for part in parts for run in part.resolved)),
        tuple(sorted(run for part in parts for run in part.unresolved)),
        tuple(sorted(run for part in parts for run in part.others)),
    )
    repositories = {run.repository for runs in by_arm.values() for run in runs}
    return TaskRate(task, max(repositories), arms, whole)


def _attempts(runs: Sequence[Observation], switches: Switches) -> Attempts:
    resolved, unresolved, others = [], [], []
    failures = {"unresolved", "invalid"} if switches.invalid_as_failures else {"unresolved"}
    for run in runs:
        outcome = outcome_of(run)
        if outcome == "resolved":
            resolved.append(run.run)
        elif outcome in failures:
            unresolved.append(run.run)
        else:
            others.append(run.run)
    return _rated(tuple(resolved), tuple(unresolved), tuple(others))


def _rated(resolved: tuple[int, ...], unresolved: tuple[int, ...], others: tuple[int, ...]) -> Attempts:
    return Attempts(_rate(len(resolved), len(resolved) + len(unresolved)), resolved, unresolved, others)


@cache
def _rate(resolved: int, counted: int) -> Estimate | Unknown:
    if counted == 0:
        return Unknown("no run of it counts")
    return Estimate(resolved / counted, Interval(*wilson_limits(resolved, counted)), counted, OVER_ATTEMPTS)


def _informing(tasks: Sequence[Attempts]) -> Share:
    tried = [one for one in tasks if one.counted >= 2]
    flags = [[one.band == "sometimes" for one in tried]]
    once = sum(one.counted == 1 for one in tasks)
    share = run_shares(["band:sometimes"], flags, Groups(range(len(tried))), unknown=once)[0]
    if not tried:
        why = "one run of a task is resolved or it is not" if once else "no task was tried"
        share = share._replace(estimate=Unknown(why))
    return share._replace(unit="tasks")
