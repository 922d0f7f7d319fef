"""Runs with what their providers billed, in place of what the lab reckons by its price tables and cards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import Count, FloatField, Q, Sum
from django.db.models.functions import Cast

from lab.analysis.observations import Observation
from lab.models import Call

BASIS = "reported"
# Where providers report costs they do so with every answer: some runs of each arm tell.
_ASKED = 3


class _Billed(NamedTuple):
    """Of one attempt: dollars that were reported, None for none, and requests without a figure."""

    attempt: int
    dollars: float | None
    unknown: int


def any_reported(runs: Sequence[Observation]) -> bool:
    """Whether providers reported costs, by the first and the last few runs of each arm with requests."""
    by_arm: dict[str, list[int]] = {}
    for run in runs:
        if run.requests:
            by_arm.setdefault(run.arm, []).append(run.run)
    asked = {number for found in by_arm.values() for number in (*found[:_ASKED], *found[-_ASKED:])}
    return Call.objects.filter(run__in=asked, cost_reported__isnull=False).exists()


def as_reported(runs: Sequence[Observation], experiments: Sequence[int]) -> list[Observation]:
    """The runs with the reported costs of their requests; a request without such a figure is unknown.

    It sums over every request of the experiments: a second for a thousand runs of some hundred steps.
    """
    billed: dict[int, list[_Billed]] = {}
    rows = (
        Call.objects.filter(run__experiment__in=experiments)
        .order_by()
        .values("run_id", "attempt")
        .annotate(
            dollars=Sum(Cast("cost_reported", FloatField())),
            unknown=Count("pk", filter=Q(cost_reported__isnull=True)),
        )
        .values_list("run_id", "attempt", "dollars", "unknown")
    )
    for run, *found in rows:
        billed.setdefault(run, []).append(_Billed(*found))
    return [_billed(run, sorted(billed.get(run.run, ()))) for run in runs]


def _billed(run: Observation, attempts: Sequence[_Billed]) -> Observation:
    """Costs before the newest attempt stand apart, as in the roll-up."""
    cost = _sum(attempts)
    return run._replace(
        cost=cost,
        cost_unknown=sum(one.unknown for one in attempts),
        cost_basis=BASIS if cost is not None else "unknown",
        cost_earlier=_sum(attempts[:-1]),
        cost_earlier_unknown=sum(one.unknown for one in attempts[:-1]),
    )


def _sum(attempts: Sequence[_Billed]) -> float | None:
    known = [one.dollars for one in attempts if one.dollars is not None]
    return math.fsum(known) if known else None
