"""What judges were paid: in a bucket of its own, never mixed with what runs cost. Unknown is not 0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple

from django.db.models import Count, FloatField, Q, Sum
from django.db.models.functions import Cast

from lab.analysis.observations import Observation
from lab.analysis.spending import Judged
from lab.models import JudgeCall, JudgeRun
from lab.render.numbers import dollars as money


class Paid(NamedTuple):
    """Of one reading: dollars that are known (None: of no call), calls, and those of unknown cost."""

    dollars: Decimal | None
    calls: int
    unknown: int


def paid(readings: Iterable[int]) -> dict[int, Paid]:
    """By the readings' numbers; one without a call is left out."""
    rows = (
        JudgeCall.objects.filter(judge_run__in=list(readings))
        .order_by()
        .values("judge_run")
        .annotate(dollars=Sum("cost"), n=Count("pk"), unknown=Count("pk", filter=Q(cost=None)))
    )
    return {row["judge_run"]: Paid(row["dollars"], row["n"], row["unknown"]) for row in rows}


def words_of(readings: Sequence[JudgeRun]) -> str:
    """What the readings cost together, as a person reads it."""
    found = paid(row.pk for row in readings).values()
    known = [one.dollars for one in found if one.dollars is not None]
    unknown = sum(one.unknown for one in found)
    if not known:
        return "cost unknown" if unknown else "nothing was asked yet"
    said = str(money(sum(known, Decimal(0))))
    return f"at least {said}, {unknown} calls without a known cost" if unknown else said


def by_arm(runs: Sequence[Observation]) -> dict[str, Judged]:
    """What judges were paid for reading these runs, by arm."""
    arm_of = {run.run: run.arm for run in runs}
    if not JudgeCall.objects.exists():
        return {}
    rows = (
        JudgeCall.objects.order_by()
        .values("judge_run__run")
        .annotate(dollars=Sum(Cast("cost", FloatField())), unknown=Count("pk", filter=Q(cost__isnull=True)))
        .values_list("judge_run__run", "dollars", "unknown")
    )
    parts: dict[str, list[tuple[float | None, int]]] = {}
    for run, dollars, unknown in rows:
        if run in arm_of:
            parts.setdefault(arm_of[run], []).append((dollars, unknown))
    return {arm: _judged(found) for arm, found in parts.items()}


def _judged(parts: Sequence[tuple[float | None, int]]) -> Judged:
    known = [dollars for dollars, _ in parts if dollars is not None]
    return Judged(math.fsum(known) if known else None, sum(unknown for _, unknown in parts), len(parts))
