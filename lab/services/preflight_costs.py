"""What preflights spent: each answered probe priced at the time it was asked, summed by basis.

Figures of two bases are never added up, and a probe without a price or without usage is unknown.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from lab.engine.llm.base import JSONObject, Usage
from lab.models import Model, Preflight
from lab.services import endpoints


class Spent(NamedTuple):
    """Dollars by basis, how many requests were sent, and of how many the cost is unknown."""

    sums: dict[str, Decimal]
    requests: int = 0
    unknown: int = 0


def with_cost(model: Model, probe: JSONObject) -> JSONObject:
    """The probe as it is stored, with what its request cost now; one that has no answer is left as it is."""
    read, written = probe.get("input_tokens"), probe.get("output_tokens")
    if read is None or written is None:
        return probe
    usage = Usage(input_total=read, input_uncached=read, output_total=written)
    cost = endpoints.cost_now(model, usage)
    if cost.amount is None:
        return probe
    return probe | {"cost": format(cost.amount, "f"), "cost_basis": cost.basis}


def spent_on(preflights: Iterable[Preflight]) -> Spent:
    """What these preflights spent together."""
    sums: dict[str, Decimal] = {}
    requests = unknown = 0
    for preflight in preflights:
        for probe in filter(_is_request, preflight.probes):
            requests += 1
            if "cost" not in probe:
                unknown += 1
                continue
            basis = probe["cost_basis"]
            sums[basis] = sums.get(basis, Decimal(0)) + Decimal(probe["cost"])
    return Spent(sums, requests, unknown)


def spent_since(since: dt.datetime) -> Spent:
    """What the preflights that were asked for since then spent."""
    return spent_on(Preflight.objects.filter(created_at__gte=since).only("probes"))


def _is_request(probe: JSONObject) -> bool:
    """Whether a request was sent and has ended: one that is left out took no time."""
    return "seconds" in probe
