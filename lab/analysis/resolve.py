"""Resolve rates of arms: with their intervals, both denominators, without flagged runs, seed by seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lab.analysis import counting, rates
from lab.analysis.counting import Switches, Tally, Trial
from lab.analysis.estimates import Estimate, Interval, Unknown, is_rounding
from lab.analysis.observations import Observation
from lab.analysis.rates import NO_TASK, ONE_TASK, TaskResult, Variance


class Rate(NamedTuple):
    """A resolve rate and what it is made of: `resolved` of `runs` runs on `tasks` tasks.

    `estimate.n` counts tasks. With several runs of a task it is the mean over tasks of the mean over runs,
    which is not `resolved / runs` where tasks have different numbers of runs.
    """

    estimate: Estimate | Unknown
    resolved: int
    runs: int
    tasks: int


class SeedRate(NamedTuple):
    """The rate of one seed's runs alone: none is hidden behind the average."""

    seed: int
    rate: Rate


class Clustered(NamedTuple):
    """The rate's standard error and interval over `clusters` repositories: a sensitivity line.

    `named` of the `tasks` have a repository; each other task is a cluster of its own.
    """

    error: float
    interval: Interval
    clusters: int
    named: int
    tasks: int


class ArmRate(NamedTuple):
    """What is known of how often an arm resolves a task.

    `rate` is as the switches say; `invalid_out`, `invalid_as_failures` and `without_flagged` are always those
    (the last with the denominator of `rate`). `k` is the smallest number of runs that a task has,
    `most` the largest; `pass_at_k` and `pass_hat_k` are for `k`, Unknown for one run a task. `unequal` says
    in words that tasks have different numbers of runs, "" where they do not. `seeds_spread` is the standard
    deviation of the seeds' rates.
    """

    arm: str
    rate: Rate
    tally: Tally
    invalid_out: Rate
    invalid_as_failures: Rate
    without_flagged: Rate
    k: int
    most: int
    unequal: str
    pass_at_k: Estimate | Unknown
    pass_hat_k: Estimate | Unknown
    clustered: Clustered | Unknown
    variance: Variance | Unknown
    seeds: list[SeedRate]
    seeds_spread: float | Unknown


def of_arms(
    arms: Sequence[str], runs: Iterable[Observation], switches: Switches = counting.AS_USUAL
) -> list[ArmRate]:
    """Each arm's rates in the order of `arms`, also of one without a run."""
    found = counting.by_arm(runs)
    return [of_arm(arm, found.get(arm, []), switches) for arm in arms]


def of_arm(arm: str, runs: Sequence[Observation], switches: Switches = counting.AS_USUAL) -> ArmRate:
    """What the runs of one arm say about how often it resolves a task."""
    counted = counting.trials(runs, switches)
    results = list(counting.task_results(counting.by_task(counted)).values())
    attempts = [one.attempts for one in results]
    k, most = min(attempts, default=0), max(attempts, default=0)
    some, every = _envelope(results, k, most)
    by_seed = _by_seed(runs, counted, switches)
    let_in = counting.considered(runs, switches)
    none_counts = counting.why_none_counts(let_in, counted)
    return ArmRate(
        arm=arm,
        rate=_rate(counted, let_in),
        tally=counting.tally(runs, switches),
        invalid_out=_switched(runs, switches._replace(invalid_as_failures=False)),
        invalid_as_failures=_switched(runs, switches._replace(invalid_as_failures=True)),
        without_flagged=_switched(runs, switches._replace(without_flagged=True)),
        k=k,
        most=most,
        unequal=_unequal(k, most),
        pass_at_k=none_counts or some,
        pass_hat_k=none_counts or every,
        clustered=none_counts or _clustered(results),
        variance=none_counts or rates.variance(results),
        seeds=by_seed,
        seeds_spread=none_counts or _spread(by_seed),
    )


def _switched(runs: Sequence[Observation], switches: Switches) -> Rate:
    return _rate(counting.trials(runs, switches), counting.considered(runs, switches))


def _rate(counted: Sequence[Trial], let_in: Sequence[Observation]) -> Rate:
    results = counting.task_results(counting.by_task(counted))
    resolved = sum(trial.resolved for trial in counted)
    average = counting.why_none_counts(let_in, counted) or rates.average(list(results.values()))
    return Rate(average, resolved, len(counted), len(results))


def _unequal(k: int, most: int) -> str:
    if k == most:
        return ""
    return f"tasks have {k} to {most} runs that count, and each task weighs the same"


def _envelope(
    results: Sequence[TaskResult], k: int, most: int
) -> tuple[Estimate | Unknown, Estimate | Unknown]:
    """pass@k and pass^k with Student's t over tasks."""
    if k < 2:
        why = NO_TASK if k == 0 else _too_few_runs(results, most)
        return Unknown(why), Unknown(why)
    some = [rates.pass_at_k(one.attempts, one.successes, k) for one in results]
    every = [rates.pass_hat_k(one.attempts, one.successes, k) for one in results]
    return rates.mean_over_tasks(rates.known(some)), rates.mean_over_tasks(rates.known(every))


def _too_few_runs(results: Sequence[TaskResult], most: int) -> str:
    if most == 1:
        return "each task has one run that counts"
    lacking = sum(one.attempts < most for one in results)
    return f"{lacking:,} of {len(results):,} tasks have fewer than {most} runs that count"


def _clustered(results: Sequence[TaskResult]) -> Clustered | Unknown:
    named = sum(not str(one.cluster).startswith(counting.ALONE) for one in results)
    if len(results) < 2:
        return Unknown(ONE_TASK if results else NO_TASK)
    if not named:
        return Unknown(counting.NO_REPOSITORY)
    means = [one.mean for one in results]
    found = rates.clustered_error(means, [one.cluster for one in results])
    if isinstance(found, Unknown):
        return found
    if is_rounding(found.error):
        return Unknown("all repositories came out the same")
    low, high = found.interval(math.fsum(means) / len(means))
    interval = Interval(max(0.0, low), min(1.0, high if high is not None else 1.0))
    return Clustered(found.error, interval, found.clusters, named, len(results))


def _by_seed(runs: Iterable[Observation], counted: Iterable[Trial], switches: Switches) -> list[SeedRate]:
    let_in: dict[int, list[Observation]] = {}
    for run in counting.considered(runs, switches):
        let_in.setdefault(run.seed, []).append(run)
    found: dict[int, list[Trial]] = {seed: [] for seed in let_in}
    for trial in counted:
        found[trial.run.seed].append(trial)
    return [SeedRate(seed, _rate(found[seed], let_in[seed])) for seed in sorted(found)]


def _spread(seeds: Sequence[SeedRate]) -> float | Unknown:
    """The standard deviation of the seeds' rates."""
    estimates = [seed.rate.estimate for seed in seeds]
    values = [one.value for one in estimates if isinstance(one, Estimate)]
    if len(values) < 2:
        return Unknown("one seed says nothing about others" if values else NO_TASK)
    return statistics.stdev(values)
