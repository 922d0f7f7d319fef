"""Usage and cost of single answers from what OpenHands counts: running totals, and lists by answer."""

from __future__ import annotations

from decimal import Decimal

from lab.engine.formats.reading import count, dollars, items, mapping, seconds, text
from lab.engine.llm.base import JSONObject, Usage
from lab.engine.llm.usage import read_usage

_COUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


class ByAnswer:
    """The lists of metrics that name an answer's id: its tokens and how long it took."""

    def __init__(self) -> None:
        self._usages: dict[str, JSONObject] = {}
        self._latencies: dict[str, float] = {}

    def take(self, metrics: JSONObject) -> None:
        for one in items(metrics.get("token_usages")):
            if text(mapping(one).get("response_id")):
                self._usages[one["response_id"]] = one
        for one in items(metrics.get("response_latencies")):
            took = seconds(mapping(one).get("latency"))
            if took is not None and text(one.get("response_id")):
                self._latencies[one["response_id"]] = took

    def usage(self, response_id: str) -> Usage | None:
        found = self._usages.get(response_id)
        return None if found is None else usage_of(found)

    def seconds(self, response_id: str) -> float | None:
        return self._latencies.get(response_id)

    def answers(self) -> set[str]:
        return {*self._usages, *self._latencies}


class Running:
    """Running totals of tokens and money: each reading gives what was added since the one before."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}
        self._cost: Decimal | None = None

    def added(self, metrics: JSONObject) -> tuple[Usage, Decimal | None]:
        """Usage and dollars since the last reading; unknown where nothing or less than before is counted.

        A total that stays the same in money is unknown too: what has no price adds 0.
        """
        totals = mapping(metrics.get("accumulated_token_usage"))
        now = {name: count(totals.get(name)) for name in _COUNTS}
        found = {name: value - self._tokens.get(name, 0) for name, value in now.items() if value is not None}
        self._tokens.update({name: value for name, value in now.items() if value is not None})
        cost, before = dollars(metrics.get("accumulated_cost")), self._cost or Decimal(0)
        if cost is not None:
            self._cost = cost
        spent = None if cost is None or cost <= before else cost - before
        if min(found.values(), default=0) < 0 or not any(found.values()):
            return Usage(), spent
        return usage_of(found), spent


def usage_of(counts: JSONObject) -> Usage:
    """OpenHands' names; its prompt tokens include what was read from a cache and written to it."""
    raw: JSONObject = {
        name: counts[name] for name in ("prompt_tokens", "completion_tokens") if counts.get(name) is not None
    }
    if counts.get("cache_read_tokens") is not None:
        raw["prompt_tokens_details"] = {"cached_tokens": counts["cache_read_tokens"]}
    if counts.get("cache_write_tokens") is not None:
        raw["cache_creation_input_tokens"] = counts["cache_write_tokens"]
    if counts.get("reasoning_tokens"):
        raw["completion_tokens_details"] = {"reasoning_tokens": counts["reasoning_tokens"]}
    return read_usage(raw or None)


def total_cost(metrics: JSONObject) -> Decimal | None:
    """What was spent, unknown where nothing was priced: then the sum is 0 and the list of prices empty."""
    found = dollars(metrics.get("accumulated_cost"))
    return None if not found and not items(metrics.get("costs")) else found
