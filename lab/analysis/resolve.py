"""Resolve rates of arms: with their intervals, both denominators, without flagged runs, seed by seed."""

from __future__ import annotations

from typing import NamedTuple

from lab.analysis.counting import Tally
from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.rates import Variance


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
