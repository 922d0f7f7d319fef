"""What several runs cost and how long they took: totals side by side, and how they grew step by step."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lab.models import Attempt, Run, RunFacts
from lab.render.moments import INFRASTRUCTURE_REASONS
from lab.render.numbers import clock, dollars, plural
from lab.render.text import visible_text
from lab.services.compared_patches import LETTERS
from lab.services.facts import agent_seconds, facts_of
from lab.services.outlines import Outline, StepOutline
from lab.services.price_cards import BASIS_WORDS
from lab.services.run_costs import MIXED, cost_words, free_words

# A curve is drawn with so many points at most.
MOST_POINTS = 600


class Words(NamedTuple):
    """A figure in words. `known` is false where nobody knows it; `note` says more of it."""

    words: str
    known: bool = True
    note: str = ""


UNKNOWN = Words("unknown", known=False)


class CostRow(NamedTuple):
    """One thing and what it was in each run. `within` marks a part of the line above."""

    name: str
    cells: list[Words]
    within: bool = False


class Point(NamedTuple):
    """A value after a step; `at_least`: a part of it is unknown."""

    step: int
    value: float
    at_least: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """How something grew in one run. `points` holds None where the step's part is unknown.

    `unknown` counts those steps, `first_unknown` is the number of the first one (None without one). `steps`:
    the number of the last step.
    """

    name: str
    run: int
    points: tuple[Point | None, ...]
    unknown: int
    first_unknown: int | None
    steps: int

    @property
    def known(self) -> list[Point]:
        return [point for point in self.points if point is not None]


class Growth(NamedTuple):
    """One quantity over the steps of all runs. `unit`: tokens, dollars or seconds."""

    key: str
    title: str
    unit: str
    curves: list[Curve]

    @property
    def drawn(self) -> bool:
        """Whether there is anything to draw: a value that is not 0."""
        return any(point.value for curve in self.curves for point in curve.known)

    @property
    def gaps(self) -> list[str]:
        """In words, what of it nobody knows."""
        return [words for curve in self.curves if (words := _gap(curve, self.unit))]


def totals(runs: Sequence[Run], *, now: dt.datetime) -> list[CostRow]:
    """Exit reason, cost, tokens in their parts and time of each run. All attempts count but for time."""
    reasons = _reasons(runs)
    facts = [facts_of(run) for run in runs]
    both = list(zip(runs, facts, strict=True))
    rows = [
        CostRow("Exit reason", [_exit_reason(run, reasons.get(run.pk, ("", ""))) for run in runs]),
        CostRow("Steps", [_counted(one.steps, one.steps or one.calls) for one in facts]),
        CostRow("Cost", [_cost(run, one) for run, one in both]),
        CostRow("Tokens", [_tokens(one) for one in facts]),
    ]
    parts = (
        ("input, uncached", "input_uncached"),
        ("input, cached", "cache_read"),
        ("input, written to the cache", "cache_write"),
        ("output", "output_total"),
        ("of it reasoning", "reasoning"),
    )
    for words, name in parts:
        if name != "cache_write" or any(one.cache_write for one in facts):
            rows.append(CostRow(words, [_part(one, name) for one in facts], within=True))
    rows.append(CostRow("Context, last", [_context(one) for one in facts]))
    rows.append(CostRow("Requests", [_requests(one) for one in facts]))
    rows.append(CostRow("Time", [_time(run, one, now) for run, one in both]))
    return rows


def _reasons(runs: Sequence[Run]) -> dict[int, tuple[str, str]]:
    """The newest attempt's exit reason, and its family's own word for it."""
    attempts = Attempt.objects.filter(run__in=[run.pk for run in runs]).order_by("n")
    found = attempts.values_list("run_id", "exit_reason", "native_reason")
    return {run: (reason, native) for run, reason, native in found}


def _exit_reason(run: Run, newest: tuple[str, str]) -> Words:
    reason, native = newest
    reason = run.exit_reason or reason
    if not reason:
        ended = run.status == Run.Status.ENDED
        return UNKNOWN if ended else Words("goes on", note=run.get_status_display())
    note = visible_text(native) if native and native != reason else ""
    if reason in INFRASTRUCTURE_REASONS:
        note = f"infrastructure{f', {note}' if note else ''}"
    return Words(reason, note=note)


def _counted(number: int, known: int) -> Words:
    return Words(f"{number:,}") if known else Words("none")


def _cost(run: Run, facts: RunFacts) -> Words:
    if free := free_words(run):
        return Words(free)
    if facts.cost is None:
        return (
            UNKNOWN if facts.calls else Words("nothing" if run.status == Run.Status.ENDED else "nothing yet")
        )
    several = facts.cost_basis == MIXED
    spent = cost_words(run, facts, places=4) if several else str(dollars(facts.cost))
    at_least = "at least " if facts.cost_unknown else ""
    missing = f"{plural(facts.cost_unknown, 'request')} without a price" if facts.cost_unknown else ""
    basis = "" if several else BASIS_WORDS.get(facts.cost_basis, facts.cost_basis)
    return Words(f"{at_least}{spent}", note=", ".join(filter(None, (basis, missing))))


def _tokens(facts: RunFacts) -> Words:
    if facts.input_total is None and facts.output_total is None:
        return UNKNOWN if facts.calls else Words("none")
    total = (facts.input_total or 0) + (facts.output_total or 0)
    if not facts.usage_unknown:
        return Words(f"{total:,}")
    missing = f"{plural(facts.usage_unknown, 'request')} without a count"
    return Words(f"at least {total:,}", note=missing)


def _part(facts: RunFacts, name: str) -> Words:
    number = getattr(facts, name)
    if number is None:
        return UNKNOWN if facts.calls else Words("none")
    return Words(f"{'at least ' if facts.usage_unknown else ''}{number:,}")


def _context(facts: RunFacts) -> Words:
    if facts.context_tokens:
        return Words(f"{facts.context_tokens:,}")
    # No conversation is empty: 0 is what nobody counted.
    return UNKNOWN if facts.calls else Words("none")


def _requests(facts: RunFacts) -> Words:
    failed = (
        f"{plural(facts.failed_calls, 'failed one', 'failed ones')} among them" if facts.failed_calls else ""
    )
    return Words(f"{facts.calls:,}", note=failed) if facts.calls else Words("none")


def _time(run: Run, facts: RunFacts, now: dt.datetime) -> Words:
    seconds = agent_seconds(facts, until=now if run.status == Run.Status.RUNNING else None)
    return UNKNOWN if seconds is None else Words(clock(seconds))


# ---- over the steps ----------------------------------------------------------------------------------------


class _Quantity(NamedTuple):
    """Something that is counted step by step. `summed`: over steps so far. `partly`: a part is unknown."""

    key: str
    title: str
    unit: str
    value: Callable[[StepOutline], float | None]
    summed: bool = True
    partly: Callable[[StepOutline], bool] = lambda _: False


def _step_tokens(step: StepOutline) -> float | None:
    if step.tokens_in is None or step.tokens_out is None:
        return None
    return step.tokens_in + step.tokens_out


_CONTEXT = _Quantity("context", "Context by step", "tokens", lambda step: step.context_tokens, summed=False)
_QUANTITIES = (
    _CONTEXT,
    _Quantity("tokens", "Tokens so far", "tokens", _step_tokens),
    _Quantity(
        "cost",
        "Cost so far",
        "dollars",
        lambda step: None if step.cost is None else float(step.cost),
        partly=lambda step: step.cost_missing,
    ),
    _Quantity("time", "Time so far", "seconds", lambda step: step.seconds),
)


def growths(outlines: Sequence[Outline], *, letters: Sequence[str] = LETTERS) -> list[Growth]:
    """Context by step, and tokens, cost and time in all up to each step, of the newest attempts."""
    return [_growth(quantity, outlines, letters) for quantity in _QUANTITIES]


def contexts(outlines: Sequence[Outline], *, letters: Sequence[str] = LETTERS) -> Growth:
    """Context by step alone."""
    return _growth(_CONTEXT, outlines, letters)


def _growth(quantity: _Quantity, outlines: Sequence[Outline], letters: Sequence[str]) -> Growth:
    named = zip(letters[: len(outlines)], outlines, strict=True)
    curves = [_curve(name, outline, quantity) for name, outline in named]
    return Growth(quantity.key, quantity.title, quantity.unit, curves)


def _curve(name: str, outline: Outline, quantity: _Quantity) -> Curve:
    points: list[Point | None] = []
    total, partly = 0.0, False
    missing: list[int] = []
    for step in outline.steps:
        if step.pending:
            continue
        value = quantity.value(step)
        partly = partly or (quantity.summed and (value is None or quantity.partly(step)))
        if value is None:
            missing.append(step.number)
            points.append(None)
            continue
        total = total + value if quantity.summed else value
        points.append(Point(step.number, total, partly))
    return Curve(
        name=name,
        run=outline.run,
        points=_thinned(points),
        unknown=len(missing),
        first_unknown=missing[0] if missing else None,
        steps=outline.steps[-1].number if outline.steps else 0,
    )


def _thinned(points: Sequence[Point | None]) -> tuple[Point | None, ...]:
    """Evenly spread points where there are too many to draw, the last among them."""
    if len(points) <= MOST_POINTS:
        return tuple(points)
    stride = -(-len(points) // (MOST_POINTS - 1))
    return (*points[:-1:stride], points[-1])


def _gap(curve: Curve, unit: str) -> str:
    """What of a curve is unknown, "" when nothing is."""
    what = {"dollars": "cost", "seconds": "time"}.get(unit, unit)
    if curve.unknown and not curve.known:
        return f"{curve.name}: {what} unknown in all steps"
    if curve.unknown:
        steps = plural(curve.unknown, "step")
        return f"{curve.name}: {what} of {steps} unknown, the first of them {curve.first_unknown}"
    partly = next((point.step for point in curve.known if point.at_least), None)
    return (
        f"{curve.name}: at least so much from step {partly} on, of which a part is unknown" if partly else ""
    )
