"""What a new experiment would take, in words for the panel beside its form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from django.http import QueryDict

from lab.render.numbers import plural
from lab.services import experiment_forecasts, experiment_plans, experiment_warnings
from lab.services.comparisons import Light
from lab.services.errors import FieldErrors
from lab.services.experiment_forecasts import ArmForecast, Detectable, Expected, Forecast
from lab.services.experiment_warnings import Caution
from lab.web.experiment_fields import ExperimentForm

Words = Callable[[float], str]


class Figure(NamedTuple):
    """A name, the words, and what they rest on; `known` is false where nobody knows."""

    label: str
    words: str
    note: str = ""
    known: bool = True


class ArmLine(NamedTuple):
    letter: str
    name: str
    tokens: Figure
    cost: Figure
    time: Figure
    basis: str


class Preview(NamedTuple):
    """`problem` says why nothing can be told yet; all else is empty then."""

    problem: str = ""
    runs: int = 0
    product: str = ""
    figures: list[Figure] = []
    arms: list[ArmLine] = []
    lights: list[Light] = []
    detectable: list[Figure] = []
    assumption: str = ""
    cautions: list[Caution] = []

    @property
    def blocked(self) -> bool:
        return any(one.level == "blocks" for one in self.cautions)


def preview_of(form: ExperimentForm) -> Preview:
    """What launching the form would do; never raises for what was typed."""
    raw = form.raw()
    if own := next(iter(form.errors.values()), ""):
        form.errors.clear()
        return Preview(problem=own)
    try:
        resolved = experiment_plans.resolve(experiment_plans.checked(raw))
        found = experiment_forecasts.forecast(resolved)
    except FieldErrors as error:
        return Preview(problem=_problem(error.errors))
    counted = (
        (len(resolved.tasks), "task"),
        (len(found.arms), "arm"),
        (len(resolved.plan.seeds), "seed"),
    )
    return Preview(
        runs=found.runs,
        product=" × ".join(f"{number:,} {word}{'' if number == 1 else 's'}" for number, word in counted),
        figures=_figures(found),
        arms=[_line(arm) for arm in found.arms],
        lights=found.lights,
        detectable=[_detectable(pair, len(resolved.plan.seeds)) for pair in found.detectable],
        assumption=_assumption(found, len(resolved.plan.seeds)),
        cautions=experiment_warnings.cautions(resolved, found),
    )


def _problem(errors: Mapping[str, str]) -> str:
    """The first mistake, with the name of its field where that is on the form."""
    form = ExperimentForm(QueryDict())
    form.take_errors(errors)
    _, label, text = form.listed_errors[0]
    return f"{label}: {text}" if label else text


def _figures(found: Forecast) -> list[Figure]:
    tokens = [(arm.letter, arm.tokens) for arm in found.arms]
    seconds = [(arm.letter, arm.seconds) for arm in found.arms]
    at_least = "at least " if found.tokens_at_least else ""
    return [
        _sum("Tokens", tokens, _tokens, "no earlier run", at_least),
        _cost(found),
        _sum("Work of agents", seconds, _time, "no earlier run"),
        _clock(found),
    ]


def _sum(
    label: str,
    parts: Sequence[tuple[str, Expected | None]],
    words: Words,
    why: str,
    at_least: str = "",
) -> Figure:
    """The sum of all arms; where some are unknown, that, and the sum of the others beside it."""
    unknown = [letter for letter, part in parts if part is None]
    rest = experiment_forecasts.together([part for _, part in parts if part is not None])
    if not unknown and rest is not None:
        return Figure(label, f"{at_least}{_range(rest, words)}")
    whose = "" if len(unknown) == len(parts) else f" for {_arms(unknown)}"
    note = f"the others: {at_least}{_range(rest, words)}" if rest is not None and rest.high > 0 else ""
    return Figure(label, f"unknown{whose}: {why}", note, known=False)


def _cost(found: Forecast) -> Figure:
    if found.dollars is not None and found.dollars.high == 0:
        return Figure("Cost", "$0, scripted")
    reasons = dict.fromkeys(arm.why_no_cost for arm in found.arms if arm.dollars is None)
    return _sum("Cost", [(arm.letter, arm.dollars) for arm in found.arms], _money, "; ".join(reasons))


def _clock(found: Forecast) -> Figure:
    slots = f"on {found.slots} slot{'' if found.slots == 1 else 's'} if nothing else runs"
    if found.clock is None:
        return Figure("Time by the clock", "unknown", slots, known=False)
    return Figure(
        "Time by the clock", _range(found.clock, _time), f"{slots}; preparing and grading come on top"
    )


def _line(arm: ArmForecast) -> ArmLine:
    if not arm.earlier:
        basis = "no earlier run"
    else:
        basis = f"from {arm.earlier:,} earlier run{'' if arm.earlier == 1 else 's'}"
        basis += " under other limits" if arm.other_limits else ""
    none = Figure("", "unknown", known=False)
    free = arm.dollars is not None and arm.dollars.high == 0
    return ArmLine(
        letter=arm.letter,
        name=f"{arm.harness} × {arm.model}",
        tokens=Figure("", _range(arm.tokens, _tokens)) if arm.tokens else none,
        cost=Figure("", "$0" if free else _range(arm.dollars, _money)) if arm.dollars else none,
        time=Figure("", _range(arm.seconds, _time)) if arm.seconds else none,
        basis=basis,
    )


def _detectable(pair: Detectable, seeds: int) -> Figure:
    label = f"{pair.first} and {pair.second}" if pair.first else "any two arms"
    if pair.low > 1:
        words = f"none: {pair.why}"
    elif pair.high > 1:
        words = f"from {100 * pair.low:.1f} points, or none"
    elif seeds == 1 or pair.high - pair.low < 0.0005:
        words = f"{100 * pair.high:.1f} points"
    else:
        words = f"{100 * pair.low:.1f} to {100 * pair.high:.1f} points"
    share = f"{100 * pair.share:.0f} % of tasks differ"
    note = f"{share}, from {pair.measured:,} tasks both ran" if pair.measured else f"{share}, assumed"
    return Figure(label, words, note)


def _assumption(found: Forecast, seeds: int) -> str:
    if not found.detectable:
        return ""
    more = f" {found.more_pairs} more pairs are not listed." if found.more_pairs else ""
    repeats = (
        " With several seeds it is the smaller one if arms differ by chance alone, and the larger one if "
        "they differ on the same tasks each time: then that share is taken for the variance of one task's "
        "difference, and by chance alone it is divided by the seeds."
        if seeds > 1
        else ""
    )
    return (
        f"The smallest difference of rates that would be found with a power of 80 % at the level 5 %, on "
        f"{plural(found.detectable[0].tasks, 'task')}: {found.detectable[0].method}.{repeats}{more}"
    )


def _arms(letters: list[str]) -> str:
    return f"arm{'' if len(letters) == 1 else 's'} {', '.join(letters)}"


def _range(expected: Expected, words: Words) -> str:
    if not expected.has_range:
        return f"about {words(expected.mean)}"
    low, high = words(expected.low), words(expected.high)
    return f"about {low}" if low == high else f"{low} to {high}"


def _money(value: float) -> str:
    if value >= 100:
        return f"${value:,.0f}"
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.2g}"


def _tokens(value: float) -> str:
    """Two digits that count: 1,200,000."""
    if value < 10:
        return f"{value:.0f}"
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.0f}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h"
