"""Two arms on the tasks that both tried: how far apart, and whether chance would do as well."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from lab.analysis import counting, paired, power, rates
from lab.analysis.counting import Switches
from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.observations import Observation
from lab.analysis.paired import NO_PAIR, ClusteredDifference, Discordance, MeanDifference
from lab.analysis.rates import TaskResult

ONE_ATTEMPT = "exact McNemar test, Tango's interval"
SEVERAL = "paired t test on task means"


class BothTried(NamedTuple):
    """A task that both arms tried, with the runs of both."""

    task: str
    first_runs: tuple[int, ...]
    second_runs: tuple[int, ...]


class PairResult(NamedTuple):
    """The first arm against the second. Rates, difference, p are over `tasks`, which both tried.

    `first_alone` and `second_alone` count tasks that only one of them tried; `unequal` says in words that the
    two have different numbers of runs on a task, "" otherwise. `method` names test and interval; `table` is
    there for one run a task. `difference` is the first's rate minus the second's. `p_holm` is corrected for
    all pairs that were compared together and have a p value (`tests_among`). `detectable` is the smallest
    difference that so many tasks would show with power 0.8, `detectable_method` says how that is known.
    `unpaired_error` is the standard error if tasks were not paired, `correlation` that of the task means.
    `both`, `first_only`, `second_only` and `neither` are those tasks by who resolved them at least once.
    """

    first: str
    second: str
    tasks: int
    first_alone: int
    second_alone: int
    unequal: str
    method: str
    first_rate: Estimate | Unknown
    second_rate: Estimate | Unknown
    table: Discordance | None
    difference: float | Unknown
    interval: Interval | Unknown
    error: float | Unknown
    p: float | Unknown
    p_holm: float | Unknown
    detectable: float | Unknown
    detectable_method: str
    unpaired_error: float | Unknown
    correlation: float | Unknown
    clustered: ClusteredDifference | Unknown
    both: list[BothTried]
    first_only: list[BothTried]
    second_only: list[BothTried]
    neither: list[BothTried]


def tests_among(pairs: Iterable[PairResult]) -> int:
    """How many of them have a p value: the family that Holm corrects for."""
    return sum(not isinstance(one.p, Unknown) for one in pairs)


def all_of(arms: Sequence[str]) -> list[tuple[str, str]]:
    """Every pair of these arms once, the earlier one first."""
    return list(itertools.combinations(arms, 2))


def most_shared(arms: Sequence[str], runs: Iterable[Observation]) -> tuple[str, str] | None:
    """The two arms that ran most tasks in common, the first such pair; None for fewer than two arms."""
    ran = {arm: {one.task for one in found} for arm, found in counting.by_arm(runs).items()}
    nothing: set[str] = set()
    return max(
        all_of(arms),
        key=lambda pair: len(ran.get(pair[0], nothing) & ran.get(pair[1], nothing)),
        default=None,
    )


def of_pairs(
    wanted: Sequence[tuple[str, str]], runs: Iterable[Observation], switches: Switches = counting.AS_USUAL
) -> list[PairResult]:
    """Each wanted pair of arms, their p values corrected by Holm for having been looked at together."""
    tried = {arm: _tried(found, switches) for arm, found in counting.by_arm(runs).items()}
    nothing = _Tried({}, {})
    found = [
        _compared(first, second, tried.get(first, nothing), tried.get(second, nothing))
        for first, second in wanted
    ]
    corrected = paired.corrected([one.p for one in found])
    return [one._replace(p_holm=p) for one, p in zip(found, corrected, strict=True)]


def compare(
    first: str, second: str, runs: Iterable[Observation], switches: Switches = counting.AS_USUAL
) -> PairResult:
    """One pair alone: nothing to correct for."""
    return of_pairs([(first, second)], runs, switches)[0]


class _Tried(NamedTuple):
    """What one arm did, task by task: worked out once for all its pairs."""

    runs: Mapping[str, tuple[int, ...]]
    results: Mapping[str, TaskResult]


def _tried(runs: Iterable[Observation], switches: Switches) -> _Tried:
    found = counting.by_task(counting.trials(runs, switches))
    numbers = {task: tuple(trial.run.run for trial in trials) for task, trials in found.items()}
    return _Tried(numbers, counting.task_results(found))


def _compared(first: str, second: str, firsts: _Tried, seconds: _Tried) -> PairResult:
    both = sorted(firsts.results.keys() & seconds.results.keys())
    pairs = [(firsts.results[task], seconds.results[task]) for task in both]
    by_outcome = _by_outcome(both, firsts, seconds)
    common = _Common(
        first=first,
        second=second,
        tasks=len(both),
        first_alone=len(firsts.results) - len(both),
        second_alone=len(seconds.results) - len(both),
        unequal=_unequal(pairs),
        first_rate=rates.average([one for one, _ in pairs]),
        second_rate=rates.average([other for _, other in pairs]),
        clustered=_clustered(pairs),
        both=by_outcome[True, True],
        first_only=by_outcome[True, False],
        second_only=by_outcome[False, True],
        neither=by_outcome[False, False],
    )
    if all(one.attempts == other.attempts == 1 for one, other in pairs):
        return _one_attempt(common, pairs)
    return _several(common, pairs)


class _Common(NamedTuple):
    """What a result holds whatever the test."""

    first: str
    second: str
    tasks: int
    first_alone: int
    second_alone: int
    unequal: str
    first_rate: Estimate | Unknown
    second_rate: Estimate | Unknown
    clustered: ClusteredDifference | Unknown
    both: list[BothTried]
    first_only: list[BothTried]
    second_only: list[BothTried]
    neither: list[BothTried]


Pairs = Sequence[tuple[TaskResult, TaskResult]]


def _one_attempt(common: _Common, pairs: Pairs) -> PairResult:
    kinds = Counter((bool(one.successes), bool(other.successes)) for one, other in pairs)
    table = Discordance(kinds[True, True], kinds[True, False], kinds[False, True], kinds[False, False])
    if table.n == 0:
        return _without_difference(common, NO_PAIR, ONE_ATTEMPT, None)
    tested = paired.mcnemar(table)
    discordant = (table.first_only + table.second_only) / table.n
    means = _means(pairs)
    return PairResult(
        **common._asdict(),
        method=ONE_ATTEMPT,
        table=table,
        difference=table.difference,
        interval=paired.tango(table),
        error=means.error if isinstance(means, MeanDifference) else means,
        p=tested if isinstance(tested, Unknown) else tested.p,
        p_holm=Unknown(NO_PAIR),
        detectable=power.detectable_mcnemar(table.n, discordant)
        if discordant
        else Unknown(paired.NEVER_DIFFER),
        detectable_method=power.mcnemar_method(table.n),
        unpaired_error=means.unpaired_error if isinstance(means, MeanDifference) else means,
        correlation=means.correlation if isinstance(means, MeanDifference) else means,
    )


def _several(common: _Common, pairs: Pairs) -> PairResult:
    means = _means(pairs)
    if isinstance(means, Unknown):
        value = sum(one.mean - other.mean for one, other in pairs) / len(pairs)
        never = means.why == paired.NEVER_DIFFER
        found = _without_difference(common, means.why, SEVERAL, 0.0 if never else value)
        # As with one run a task: what never differs is no discovery, and it is a test all the same.
        return found._replace(p=1.0) if never else found
    return PairResult(
        **common._asdict(),
        method=SEVERAL,
        table=None,
        difference=means.difference,
        interval=means.interval,
        error=means.error,
        p=means.p,
        p_holm=Unknown(NO_PAIR),
        detectable=power.detectable_paired_t(means.error, means.n),
        detectable_method=power.STUDENT,
        unpaired_error=means.unpaired_error,
        correlation=means.correlation,
    )


def _without_difference(common: _Common, why: str, method: str, value: float | None) -> PairResult:
    """Nothing can be said of chance; what the difference was is still known where a task was shared."""
    unknown = Unknown(why)
    return PairResult(
        **common._asdict(),
        method=method,
        table=None,
        difference=unknown if value is None else value,
        interval=unknown,
        error=unknown,
        p=unknown,
        p_holm=unknown,
        detectable=unknown,
        detectable_method="",
        unpaired_error=unknown,
        correlation=unknown,
    )


def _means(pairs: Pairs) -> MeanDifference | Unknown:
    return paired.mean_difference([one.mean for one, _ in pairs], [other.mean for _, other in pairs])


def _clustered(pairs: Pairs) -> ClusteredDifference | Unknown:
    if all(str(one.cluster).startswith(counting.ALONE) for one, _ in pairs):
        return Unknown(counting.NO_REPOSITORY if pairs else NO_PAIR)
    return paired.clustered_difference(
        [one.mean for one, _ in pairs], [other.mean for _, other in pairs], [one.cluster for one, _ in pairs]
    )


def _unequal(pairs: Pairs) -> str:
    differing = sum(one.attempts != other.attempts for one, other in pairs)
    if not differing:
        return ""
    return f"on {differing:,} of {len(pairs):,} tasks the two have different numbers of runs"


def _by_outcome(
    tasks: Sequence[str], firsts: _Tried, seconds: _Tried
) -> dict[tuple[bool, bool], list[BothTried]]:
    """The tasks by whether the first and whether the second resolved them at least once."""
    found: dict[tuple[bool, bool], list[BothTried]] = {
        (one, other): [] for one in (True, False) for other in (True, False)
    }
    for task in tasks:
        outcome = (firsts.results[task].successes > 0, seconds.results[task].successes > 0)
        found[outcome].append(BothTried(task, firsts.runs[task], seconds.runs[task]))
    return found
