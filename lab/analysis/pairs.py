"""Two arms on the tasks that both tried: how far apart, and whether chance would do as well."""

from __future__ import annotations

from typing import NamedTuple

from lab.analysis.estimates import Estimate, Interval, Unknown
from lab.analysis.paired import ClusteredDifference, Discordance


class OnlyOne(NamedTuple):
    """A task that one arm resolved at least once and the other never, with the runs of both."""

    task: str
    first_runs: tuple[int, ...]
    second_runs: tuple[int, ...]


class PairResult(NamedTuple):
    """The first arm against the second. Rates, difference, p are over `tasks`, which both tried.

    `first_alone` and `second_alone` count tasks that only one of them tried; `unequal` says in words that the
    two have different numbers of runs on a task, "" otherwise. `method` names test and interval; `table` is
    there for one run a task. `difference` is the first's rate minus the second's. `p_holm` is corrected for
    all pairs that were compared together. `detectable` is the smallest difference that so many tasks would
    show with power 0.8. `first_only` and `second_only` are the tasks that just one resolves.
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
    unpaired_error: float | Unknown
    correlation: float | Unknown
    clustered: ClusteredDifference | Unknown
    first_only: list[OnlyOne]
    second_only: list[OnlyOne]
