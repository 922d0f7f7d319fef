"""Tokens, cost, steps and verdicts counted anew from the stored requests and gradings, beside the roll-ups.

The roll-ups are what pages and analyses read; these figures come from other rows of the same log, and agree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from django.db.models import Count, Max, Q, Sum

from lab.engine.errors import ExitReason
from lab.models import Attempt, Call, Run, RunFacts, Verification
from lab.services.facts import USAGE_PARTS, empty_facts, folded

_SMALLEST = Decimal("1E-10")
_COUNTS = ("calls", "failed_calls", "usage_unknown", "cost_unknown")
_OVER_ALL_ATTEMPTS = (*_COUNTS, "cost", *USAGE_PARTS)
# What ends an attempt from outside may say other than its requests and gradings: here the log has the word.
_SAID_BY_THE_END = frozenset({"steps", "verdict"})


class Recount(NamedTuple):
    """What the rows of one run say. None: no part of a sum is known.

    `steps` and `verdict` are the newest attempt's; `usage_unknown` and `cost_unknown` count requests.
    """

    steps: int
    calls: int
    failed_calls: int
    input_uncached: int | None
    cache_read: int | None
    cache_write: int | None
    input_total: int | None
    output_total: int | None
    reasoning: int | None
    usage_unknown: int
    cost: Decimal | None
    cost_unknown: int
    verdict: str


class Difference(NamedTuple):
    """A figure of a run's roll-up that its rows contradict."""

    run: int
    field: str
    rolled_up: Any
    recounted: Any


def recount(runs: Collection[int] | None = None) -> dict[int, Recount]:
    """The figures of every run, or of `runs`, from requests and gradings, by the run's number."""
    chosen = Q() if runs is None else Q(run__in=runs)
    newest = dict(Attempt.objects.filter(chosen).order_by().values_list("run").annotate(Max("n")))
    requests: dict[int, list[Mapping[str, Any]]] = {}
    for row in _summed(chosen):
        requests.setdefault(row["run"], []).append(row)
    graded = Verification.objects.filter(chosen).order_by("n").values_list("run", "attempt", "outcome")
    verdicts = {(run, attempt): outcome for run, attempt, outcome in graded}
    rows = Run.objects.order_by() if runs is None else Run.objects.order_by().filter(pk__in=runs)
    found = {}
    for run, exit_reason in rows.values_list("pk", "exit_reason"):
        # Nobody judges what a person broke off.
        attempt = newest.get(run, 0)
        verdict = "" if exit_reason == ExitReason.CANCELLED else verdicts.get((run, attempt), "")
        found[run] = _recount(requests.get(run, []), attempt, verdict)
    return found


def differing(runs: Collection[int] | None = None) -> Iterator[Difference]:
    """Every figure of an ended run's roll-up that its rows contradict; of all runs, or of `runs`."""
    ended = Run.objects.filter(status=Run.Status.ENDED)
    if runs is not None:
        ended = ended.filter(pk__in=runs)
    numbers = sorted(ended.values_list("pk", flat=True))
    counted = recount(numbers if runs is not None else None)
    stored = RunFacts.objects.filter(run__in=ended).values("run", *Recount._fields)
    rolled_up = {row["run"]: row for row in stored}
    for run in numbers:
        yield from _compared(run, rolled_up.get(run) or vars(empty_facts(run)), counted[run])


def _summed(chosen: Q) -> Iterable[Mapping[str, Any]]:
    """A row an attempt: `run`, `attempt` and sums over its requests, named as in `Recount` after "sum_"."""
    unknown = Q(input_total=None) | Q(output_total=None)
    return (
        Call.objects.filter(chosen)
        .order_by()
        .values("run", "attempt")
        .annotate(
            sum_steps=Max("step"),
            sum_calls=Count("pk"),
            sum_failed_calls=Count("pk", filter=Q(state=Call.State.FAILED)),
            sum_usage_unknown=Count("pk", filter=unknown),
            sum_cost=Sum("cost"),
            sum_cost_unknown=Count("pk", filter=Q(cost=None)),
            **{f"sum_{part}": Sum(part) for part in USAGE_PARTS},
        )
    )


def _recount(attempts: Iterable[Mapping[str, Any]], newest: int, verdict: str) -> Recount:
    steps = next((row["sum_steps"] for row in attempts if row["attempt"] == newest), 0)
    sums = {name: _total(attempts, f"sum_{name}") for name in _OVER_ALL_ATTEMPTS}
    counts = {name: sums[name] or 0 for name in _COUNTS}
    if sums["cost"] is not None:
        sums["cost"] = Decimal(sums["cost"]).quantize(_SMALLEST)
    return Recount(**sums | counts, steps=steps, verdict=verdict)


def _total(rows: Iterable[Mapping[str, Any]], name: str) -> Any:
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known else None


def _compared(run: int, rolled_up: Mapping[str, Any], counted: Recount) -> Iterator[Difference]:
    found = [
        Difference(run, name, rolled_up[name], value)
        for name, value in counted._asdict().items()
        if rolled_up[name] != value
    ]
    if any(one.field in _SAID_BY_THE_END for one in found):
        logged = folded(run_id=run)
        found = [
            one._replace(recounted=getattr(logged, one.field)) if one.field in _SAID_BY_THE_END else one
            for one in found
        ]
    yield from (one for one in found if one.rolled_up != one.recounted)
