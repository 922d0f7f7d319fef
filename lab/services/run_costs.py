"""What a run cost, in parts: tokens, dollars with their basis, and what the server says beside it.

Figures of two bases are never added up: they stand beside each other, each with its basis.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

from django.db.models import Count, Q, Sum

from lab.models import Call, Experiment, Run, RunFacts
from lab.render.numbers import count, dollars, plural
from lab.render.text import one_line, visible_text
from lab.services.price_cards import BASIS_WORDS

MIXED = "mixed"
NOTES_SHOWN = 4
# Bases of what costs nothing, and how a zero of theirs is written.
FREE = {"scripted": "$0, scripted", "replay": "$0, replay"}
_FREE_SENTENCES = {
    "scripted": "Scripted, no intelligence: costs nothing",
    "replay": "Replay: recorded turns are served again at no cost",
}
_BASIS_SENTENCES = {
    "table": "Table price",
    "card": "Own card",
    "gpu_hours": "GPU hours",
    "reference": "Reference price",
}


class TokenRow(NamedTuple):
    """A line of the table of tokens and cost. `within` marks a part of the line above."""

    label: str
    tokens: str
    cost: str
    within: bool = False


class Bill(NamedTuple):
    """The table of tokens and cost, its basis in a sentence, and what is remarkable about it.

    `reported`: what the server says the calls cost, beside ours; `differs` when the two do. `answered`: that
    another model answered than was asked for. `notes`: what did not add up in usage or price, with how often.
    """

    rows: list[TokenRow]
    total: TokenRow
    basis: str
    reported: str
    differs: bool
    answered: str
    notes: list[str]


# Part of the usage -> the part of the price it is charged by.
_PARTS = (
    ("Input, uncached", "input_uncached", "input"),
    ("Input, cached", "cache_read", "cache_read"),
    ("Input, written to the cache", "cache_write", "cache_write"),
    ("Output", "output_total", "output"),
)
_MILLION = Decimal(1_000_000)
# As for one call: servers round.
_TOLERANCE = Decimal("0.01")

_Group = dict[str, Any]


def free_words(run: Run) -> str:
    """How the cost of a run is written that costs nothing by its model; "" for any other."""
    model = run.arm.model
    if model.endpoint.scripted:
        return FREE["scripted"]
    return FREE["replay"] if model.replay else ""


def bill_of(run: Run, facts: RunFacts) -> Bill:
    """Tokens and cost of all attempts. Parts are charged with the unit prices kept beside each call."""
    groups = _groups(run)
    reported, differs = _reported(groups)
    return Bill(
        rows=_rows(run, facts, groups) if facts.calls else [],
        total=_total(run, facts, groups),
        basis=_basis(run, facts, groups),
        reported=reported,
        differs=differs,
        answered=_answered(run, groups),
        notes=_notes(groups),
    )


def spent_words(sums: dict[str, Decimal], *, places: int = 4) -> str:
    """Dollars by basis in words: "$1.20", or "$1.20 price table + $0.30 own card" of several bases."""
    if len(sums) < 2:
        return str(dollars(next(iter(sums.values()), None), places=places))
    return " + ".join(_with_basis(basis, amount, places) for basis, amount in sorted(sums.items()))


def cost_words(run: Run, facts: RunFacts, *, places: int = 2) -> str:
    """The known cost of a run with its basis, "$2.29 price table", part by part where there are several."""
    sums = {facts.cost_basis: facts.cost} if facts.cost is not None else {}
    if facts.cost_basis == MIXED:
        paid = Call.objects.filter(run=run, cost__isnull=False).order_by().values_list("cost_basis")
        sums = {basis: spent for basis, spent in paid.annotate(Sum("cost")) if spent or basis not in FREE}
    return " + ".join(_with_basis(basis, spent, places) for basis, spent in sorted(sums.items()))


def _with_basis(basis: str, amount: Decimal, places: int) -> str:
    return f"{dollars(amount, places=places)} {BASIS_WORDS.get(basis, basis)}"


def _groups(run: Run) -> list[_Group]:
    """The run's calls, those of one price and one answering model together."""
    both = Q(cost__isnull=False, cost_reported__isnull=False)
    rows = (
        Call.objects.filter(run=run)
        .order_by()
        .values("price", "cost_basis", "model")
        .annotate(
            calls=Count("id"),
            finished=Count("id", filter=Q(state=Call.State.FINISHED)),
            paid=Sum("cost"),
            told=Count("cost_reported"),
            reported=Sum("cost_reported"),
            both=Count("id", filter=both),
            reported_of_both=Sum("cost_reported", filter=both),
            paid_of_both=Sum("cost", filter=both),
            **{name: Sum(name) for _, name, _ in _PARTS},
        )
    )
    return [dict(row) for row in rows]


def _rows(run: Run, facts: RunFacts, groups: list[_Group]) -> list[TokenRow]:
    free = bool(free_words(run)) or facts.cost_basis in FREE
    rows = []
    for label, name, part in _PARTS:
        tokens = getattr(facts, name)
        if name == "cache_write" and not tokens:
            continue
        charged = "$0" if free else spent_words(_charged(groups, name, part))
        rows.append(TokenRow(label, str(count(tokens)), charged))
        if name == "output_total":
            rows.append(TokenRow("of it reasoning", str(count(facts.reasoning)), "included", within=True))
    if facts.failed_calls:
        charged = "$0" if free else str(dollars(None))
        # A replay refuses by itself: no model has read or written anything.
        tokens = "none" if run.arm.model.replay else str(count(None))
        rows.append(TokenRow(plural(facts.failed_calls, "failed request"), tokens, charged))
    return rows


def _total(run: Run, facts: RunFacts, groups: list[_Group]) -> TokenRow:
    known = facts.input_total is not None or facts.output_total is not None
    total = (facts.input_total or 0) + (facts.output_total or 0) if known else None
    untold = facts.usage_unknown - (facts.failed_calls if run.arm.model.replay else 0)
    at_least = bool(known and untold > 0)
    spent = spent_words(_paid(groups)) if facts.cost_basis == MIXED else str(dollars(facts.cost))
    if facts.cost is not None and facts.cost_unknown and not at_least:
        spent = f"at least {spent}"
    words = free_words(run) or FREE.get(facts.cost_basis, spent)
    return TokenRow("Total, at least" if at_least else "Total", str(count(total)), words)


def _paid(groups: list[_Group]) -> dict[str, Decimal]:
    """Dollars by basis."""
    sums: dict[str, Decimal] = {}
    for group in groups:
        if group["paid"] is not None:
            basis = group["cost_basis"]
            sums[basis] = sums.get(basis, Decimal(0)) + group["paid"]
    return sums


def _charged(groups: list[_Group], name: str, part: str) -> dict[str, Decimal]:
    """Dollars for one part of the usage, by basis."""
    sums: dict[str, Decimal] = {}
    for group in groups:
        charge = _charge(group, name, part)
        if charge is not None:
            basis = group["cost_basis"]
            sums[basis] = sums.get(basis, Decimal(0)) + charge
    return sums


def _charge(group: _Group, name: str, part: str) -> Decimal | None:
    """Dollars for one part of the usage of calls with one price."""
    prices = (group["price"] or {}).get("unit_prices") or {}
    price = prices.get(part)
    if price is None and part.startswith("cache_"):
        # Neither table nor card charges cached input unlike other input unless it says so.
        price = prices.get("input")
    if group[name] is None or price is None:
        return None
    if part == "cache_write" and prices.get("cache_write_1h", price) != price:
        # How much was written for an hour is not counted apart: it is what the other parts leave.
        others = [_charge(group, *other) for _, *other in _PARTS if other[1] != part]
        known = None not in (*others, group["paid"])
        return group["paid"] - sum(filter(None, others), Decimal(0)) if known else None
    return Decimal(group[name] * Decimal(str(price)) / _MILLION)


def _basis(run: Run, facts: RunFacts, groups: list[_Group]) -> str:
    if not facts.calls and run.experiment.kind == Experiment.Kind.IMPORTED:
        return "No request is recorded."
    if not facts.calls and run.status == Run.Status.ENDED:
        return "Nothing was spent: no request was answered."
    if not facts.calls:
        return "Nothing spent yet: no request has been answered."
    told = facts.calls - facts.usage_unknown
    return visible_text(
        f"{_where(run, facts, groups)}. Usage reported for {told} of {plural(facts.calls, 'request')}."
    )


def _where(run: Run, facts: RunFacts, groups: list[_Group]) -> str:
    basis = "replay" if run.arm.model.replay else facts.cost_basis
    if basis in _FREE_SENTENCES:
        return _FREE_SENTENCES[basis]
    parts = []
    for basis, sentence in _BASIS_SENTENCES.items():
        of_basis = [group for group in groups if group["cost_basis"] == basis]
        if matched := _said(of_basis, "matched"):
            parts.append(f"{sentence}, {', '.join(matched)}")
    return "; ".join(parts) if parts else f"No price: {'; '.join(_said(groups, 'note')[:2])}"


def _said(groups: list[_Group], name: str) -> list[str]:
    return sorted({str(text) for group in groups if (text := (group["price"] or {}).get(name))})


def _reported(groups: list[_Group]) -> tuple[str, bool]:
    """What the server says of the cost, with the same calls' cost by the lab's price; whether they differ."""
    told = sum(group["told"] for group in groups)
    if not told:
        return "", False
    calls = sum(group["calls"] for group in groups)
    reported = sum((group["reported"] or Decimal(0) for group in groups), Decimal(0))
    said = f"The server says {dollars(reported)} for {told} of {plural(calls, 'request')}"
    both = [group for group in groups if group["both"] and group["cost_basis"] not in FREE]
    bases = {group["cost_basis"] for group in both}
    if len(bases) != 1:
        return f"{said}.", False
    theirs = sum((group["reported_of_both"] for group in both), Decimal(0))
    ours = sum((group["paid_of_both"] for group in both), Decimal(0))
    words = BASIS_WORDS.get(next(iter(bases)), "price")
    if abs(theirs - ours) <= max(abs(theirs) * _TOLERANCE, Decimal("0.000002") * len(both)):
        return f"{said}, as the {words} does.", False
    of_how_many = sum(group["both"] for group in both)
    same = "the same" if of_how_many == told else plural(of_how_many, "of them", "of them")
    return f"{said}; the {words} gives {dollars(ours)} for {same}.", True


def _answered(run: Run, groups: list[_Group]) -> str:
    asked = run.arm.model.model_id
    # A column holds the first 200 characters of what a server calls itself.
    counted: dict[str, int] = {}
    for group in groups:
        if group["model"] not in ("", asked[:200]) and group["finished"]:
            counted[group["model"]] = counted.get(group["model"], 0) + group["finished"]
    found = [
        f"{one_line(name, 80)} ({plural(number, 'reply', 'replies')})"
        for name, number in sorted(counted.items())
    ]
    return f"Asked for {one_line(asked, 80)}, answered by {', '.join(found)}." if found else ""


def _notes(groups: list[_Group]) -> list[str]:
    """What did not add up, the most frequent first."""
    counted: dict[str, int] = {}
    for group in groups:
        if group["cost_basis"] in FREE:
            continue
        for note in str((group["price"] or {}).get("note") or "").split("; "):
            if note and not note.startswith("the server says"):
                counted[note] = counted.get(note, 0) + group["calls"]
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{one_line(note, 200)} ({plural(number, 'request')})" for note, number in ordered[:NOTES_SHOWN]]
    more = len(ordered) - NOTES_SHOWN
    return [*shown, f"and {plural(more, 'other note')}"] if more > 0 else shown
