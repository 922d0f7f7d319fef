"""The limits of a run as they hold now: its arm's, and what people have changed since; and what is used."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

from django.db.models import Sum

from lab.engine.errors import InvalidValueError
from lab.engine.limits import UNITS, Limits, as_typed, parse_limit
from lab.models import Call, Event, Model, Run
from lab.render.numbers import clock
from lab.services.endpoints import price_is_known
from lab.services.facts import agent_seconds, facts_of

Number = int | float | Decimal
# Without a cap a turn that never ends would be paid for ever.
NEVER_LIFTED = frozenset({"max_tokens_per_turn"})


def with_model(limits: Limits, model: Model) -> Limits:
    """The limits of a harness, or what was asked for in their place, as they hold for this model."""
    tightened = limits.tightened({}, context_window=model.context_window)
    return tightened.tightened({"max_tokens_per_turn": model.max_tokens_per_turn})


def in_force(*, run: Run) -> Limits:
    """The limits that hold for the run right now: its arm's, with every `limit_changed` of its log."""
    return Limits.model_validate(values_in_force(run=run))


def values_in_force(*, run: Run) -> dict[str, Any]:
    """As `in_force`, as the arm holds them: dollars as text, a name left out where nobody knows."""
    values: dict[str, Any] = dict(run.arm.limits)
    if facts_of(run).limits_changed:
        changes = Event.objects.filter(run=run, kind="limit_changed").order_by("seq")
        for payload in changes.values_list("payload", flat=True):
            if payload.get("limit") in values:
                values[payload["limit"]] = payload.get("after")
    return values


def context_is_estimated(*, run: Run) -> bool:
    """Whether the newest count of the context is the lab's own, because the server reported no usable one."""
    facts = facts_of(run)
    if facts.context_tokens is None or not facts.usage_unknown:
        return False
    newest = Event.objects.filter(run=run, kind="model_call_finished").order_by("-seq")
    payload = newest.values_list("payload", flat=True).first()
    return bool(payload and payload.get("context_tokens_estimated"))


def used(*, run: Run, name: str) -> Number:
    """How much of a limit is used, in its unit: money over all attempts, the rest in the one that is open."""
    facts = facts_of(run)
    if name == "max_cost_usd":
        return facts.cost or Decimal(0)
    attempt = run.attempts.order_by("-n").first()
    if attempt is None or attempt.ended_at is not None:
        return 0
    if name == "max_steps":
        return facts.steps
    if name == "max_context_tokens":
        return facts.context_tokens or 0
    if name == "max_total_time_sec":
        return agent_seconds(facts, until=dt.datetime.now(dt.UTC)) or 0.0
    if name == "max_tokens_total":
        calls = Call.objects.filter(run=run, attempt=attempt.n)
        sums = calls.aggregate(tokens_in=Sum("input_total"), tokens_out=Sum("output_total"))
        return (sums["tokens_in"] or 0) + (sums["tokens_out"] or 0)
    return 0


def wanted(*, run: Run, name: str, typed: str | None) -> Number | None:
    """The value that a limit shall have, from what a person typed; None is "no limit".

    It may lie above the arm's and the harness's, up to what the model can do, and not below what is used.

    Raises:
        InvalidValueError: names the limit, the value and the way out.
    """
    if name not in UNITS:
        raise InvalidValueError("limit", as_typed(name), f"is no limit; known are {', '.join(UNITS)}")
    most = _most(run, name)
    if typed is None:
        _check_lifted(name, most)
        return None
    text = typed.strip()
    if not text:
        raise InvalidValueError(name, "", f"is empty; write a number of {UNITS[name]}, or choose “no limit”")
    number = parse_limit(name, text)
    if most is not None and number > most[0]:
        raise InvalidValueError(name, as_typed(text), f"is more than {most[1]}; write {most[0]:.12g} or less")
    _check_used(run, name, number, as_typed(text))
    if name == "max_cost_usd" and not price_is_known(run.arm.model):
        raise InvalidValueError(
            name,
            as_typed(text),
            f"cannot hold for {run.arm.model.name}, whose price is unknown; limit tokens or steps",
        )
    return number


def said(name: str, value: Any) -> str:
    """A limit in words: "200 steps", "$2.50", "no limit"."""
    if value is None:
        return "no limit"
    number = Decimal(str(value))
    if name == "max_cost_usd":
        return f"${number:,.2f}" if number == number.quantize(Decimal("0.01")) else f"${number}"
    if name == "max_total_time_sec" and number >= 60:
        return f"{clock(float(number))} of time"
    unit = UNITS[name]
    return f"{float(number):,.10g} {unit[:-1] if number == 1 and unit != 'replies' else unit}"


def _most(run: Run, name: str) -> tuple[int, str] | None:
    model = run.arm.model
    if name == "max_context_tokens" and model.context_window is not None:
        return model.context_window, f"the context window of {model.name}, {model.context_window:,} tokens"
    if name == "max_tokens_per_turn" and model.max_tokens_per_turn is not None:
        cap = model.max_tokens_per_turn
        return cap, f"{model.name} may write in one turn, {cap:,} tokens"
    return None


def _check_lifted(name: str, most: tuple[int, str] | None) -> None:
    if name in NEVER_LIFTED:
        raise InvalidValueError(
            name, "no limit", "cannot be: a turn that never ends would be paid for ever; write a number"
        )
    if most is not None:
        raise InvalidValueError(name, "no limit", f"cannot be above {most[1]}; write {most[0]} or less")


def _check_used(run: Run, name: str, number: Number, typed: str) -> None:
    already = used(run=run, name=name)
    if number >= already:
        return
    least = already if name == "max_cost_usd" else math.ceil(already)
    raise InvalidValueError(
        name, typed, f"is less than the {said(name, least)} used already; write {least} or more"
    )
