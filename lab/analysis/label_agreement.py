"""How far people agree on labels of runs: field by field, pair by pair, and whether that is enough.

Every coefficient stands beside raw agreement and n. For the step of the root cause the share within some
steps and the median distance count: a coefficient of intervals is high where few steps are the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from lab.analysis import agreement
from lab.analysis.agreement import NO_ITEM, Alpha, Kappa, Steps
from lab.analysis.estimates import Unknown

CAUTION: Final = 0.67
FIRM: Final = 0.80
FIELDS: Final = ("owner", "phase", "category", "agent", "sure", "categories", "severity")


class Reading(NamedTuple):
    """One person's label of one item. `category`, `agent`, `attempt` and `step` are the root cause's.

    None: not said. Steps of two attempts have no distance. `categories`: those of all error events, in order,
    as one text. `severities`: attempt, step and severity of each event that has one.
    """

    item: Hashable
    rater: Hashable
    owner: str | None = None
    phase: str | None = None
    sure: str | None = None
    category: str | None = None
    agent: str | None = None
    attempt: int | None = None
    step: int | None = None
    categories: str | None = None
    severities: tuple[tuple[int, int, str], ...] = ()


class Cell(NamedTuple):
    """How often the row's label stood beside the column's, and of which items."""

    number: int
    items: tuple[Hashable, ...]


class Confusion(NamedTuple):
    """Pairs of labels of one item: with two raters rows are the first one's and columns the second one's.

    With more each pair is counted in the order of the raters.
    """

    labels: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]

    @property
    def worst(self) -> tuple[str, str, int] | None:
        """The two labels that are mistaken for each other most often, either way; None where none is."""
        pairs: Counter[tuple[str, str]] = Counter()
        for row, cells in zip(self.labels, self.cells, strict=True):
            for column, cell in zip(self.labels, cells, strict=True):
                if row != column and cell.number:
                    pairs[min(row, column), max(row, column)] += cell.number
        if not pairs:
            return None
        (one, other), count = min(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
        return one, other, count


class Field(NamedTuple):
    """Agreement on one field. `kappa` for two raters, `alpha` for any number.

    `raw`: share of agreeing pairs of labels of one item; `n`: items that two or more labelled in this field.
    """

    name: str
    kappa: Kappa | Unknown
    alpha: Alpha | Unknown
    raw: float | Unknown
    n: int
    confusion: Confusion | None

    @property
    def coefficient(self) -> float | Unknown:
        """Kappa where two people labelled, else alpha."""
        if isinstance(self.kappa, Kappa):
            return self.kappa.kappa
        return self.alpha.alpha if isinstance(self.alpha, Alpha) else self.alpha


class RootSteps(NamedTuple):
    """Agreement on the step of the root cause over all pairs of labels. `elsewhere`: pairs in which the steps
    are of different attempts, or only one names a step.
    """

    steps: Steps | Unknown
    alpha: Alpha | Unknown
    elsewhere: int


class Pair(NamedTuple):
    """Two raters and how far they agree."""

    one: Hashable
    other: Hashable
    common: int
    fields: dict[str, Field]
    root: RootSteps


class Gate(NamedTuple):
    """Whether a coefficient is enough: `level` is firm, caution, below or unknown."""

    level: str
    words: str


def fields(readings: Sequence[Reading]) -> dict[str, Field]:
    """Agreement on each of FIELDS over everybody's labels.

    Severity is that of error events which two people see at the same step: an item is a step of a run there,
    `(run, attempt, step)`. The categories of all events count as alike only when they all are.
    """
    found = {name: _field(name, readings) for name in FIELDS if name != "severity"}
    found["categories"] = found["categories"]._replace(confusion=None)
    of_events = [
        Reading((reading.item, attempt, step), reading.rater, owner=severity)
        for reading in readings
        for attempt, step, severity in reading.severities
    ]
    return found | {"severity": _field("owner", of_events)._replace(name="severity")}


def _field(name: str, readings: Sequence[Reading]) -> Field:
    given: dict[Hashable, dict[Hashable, str]] = defaultdict(dict)
    for reading in readings:
        value = getattr(reading, name)
        if value is not None:
            given[reading.rater][reading.item] = value
    raters = [rater for rater, labels in given.items() if labels]
    pairs = _pairs(readings, lambda reading: getattr(reading, name) is not None)
    values = [(getattr(one, name), getattr(other, name), one.item) for one, other in pairs]
    kappa: Kappa | Unknown = Unknown("kappa is for two people")
    if len(raters) == 2:
        kappa = agreement.cohen([one for one, _, _ in values], [other for _, other, _ in values])
    elif len(raters) < 2:
        kappa = Unknown(NO_ITEM)
    raw: float | Unknown = Unknown(NO_ITEM)
    if values:
        raw = sum(one == other for one, other, _ in values) / len(values)
    return Field(
        name=name,
        kappa=kappa,
        alpha=agreement.alpha({rater: dict(labels) for rater, labels in given.items()}),
        raw=raw,
        n=len({item for _, _, item in values}),
        confusion=_confusion(values),
    )


def _pairs(readings: Sequence[Reading], says: Callable[[Reading], bool]) -> list[tuple[Reading, Reading]]:
    """Each two labels of one item that say something, in the order in which raters first come."""
    order = {rater: place for place, rater in enumerate(dict.fromkeys(one.rater for one in readings))}
    by_item: dict[Hashable, list[Reading]] = defaultdict(list)
    for reading in readings:
        if says(reading):
            by_item[reading.item].append(reading)
    found: list[tuple[Reading, Reading]] = []
    for labels in by_item.values():
        found += combinations(sorted(labels, key=lambda one: order[one.rater]), 2)
    return found


def _confusion(values: Sequence[tuple[str, str, Hashable]]) -> Confusion | None:
    if not values:
        return None
    labels = tuple(sorted({label for one, other, _ in values for label in (one, other)}))
    items: dict[tuple[str, str], list[Hashable]] = defaultdict(list)
    for one, other, item in values:
        items[one, other].append(item)
    cells = tuple(
        tuple(Cell(len(items[row, column]), tuple(items[row, column])) for column in labels) for row in labels
    )
    return Confusion(labels, cells)


def root_steps(readings: Sequence[Reading]) -> RootSteps:
    """Agreement on where the root cause is."""
    pairs = _pairs(readings, lambda reading: True)
    said = [(one, other) for one, other in pairs if one.step is not None or other.step is not None]
    near = [
        (one.step, other.step)
        for one, other in said
        if one.step is not None and other.step is not None and one.attempt == other.attempt
    ]
    by_rater: dict[Hashable, dict[Hashable, float | str]] = defaultdict(dict)
    for reading in readings:
        if reading.step is not None:
            by_rater[reading.rater][reading.item, reading.attempt] = float(reading.step)
    return RootSteps(
        steps=agreement.steps([one for one, _ in near], [other for _, other in near]),
        alpha=agreement.alpha(by_rater, "interval"),
        elsewhere=len(said) - len(near),
    )


def pairs(readings: Sequence[Reading]) -> list[Pair]:
    """Each two raters with items in common, the most common items first."""
    by_rater: dict[Hashable, list[Reading]] = defaultdict(list)
    for reading in readings:
        by_rater[reading.rater].append(reading)
    found = []
    for one, other in combinations(by_rater, 2):
        common = {a.item for a in by_rater[one]} & {b.item for b in by_rater[other]}
        if common:
            own = [reading for reading in (*by_rater[one], *by_rater[other]) if reading.item in common]
            found.append(Pair(one, other, len(common), fields(own), root_steps(own)))
    return sorted(found, key=lambda pair: -pair.common)


def gate(field: Field) -> Gate:
    """Whether people agree enough to use a field (Krippendorff's convention); else what is confused."""
    value = field.coefficient
    if isinstance(value, Unknown):
        return Gate("unknown", str(value))
    if value >= FIRM:
        return Gate("firm", f"firm: {value:.2f} is at least {FIRM:.2f}")
    if value >= CAUTION:
        return Gate("caution", f"to be used with caution: {value:.2f} lies between {CAUTION} and {FIRM:.2f}")
    worst = field.confusion.worst if field.confusion else None
    confused = f"; most often confused: {worst[0]} and {worst[1]} ({worst[2]} times)" if worst else ""
    return Gate("below", f"not to be used yet: {value:.2f} is under {CAUTION}{confused}")


def differ(readings: Iterable[Reading]) -> list[str]:
    """The fields in which labels of one item differ, "step" among them; "unsure" where somebody was."""
    given = list(readings)
    found = []
    for name in ("owner", "category", "agent", "phase"):
        if len({getattr(one, name) for one in given} - {None}) > 1:
            found.append(name)
    if len({(one.attempt, one.step) for one in given}) > 1:
        found.append("step")
    if any(one.sure == "unsure" for one in given):
        found.append("unsure")
    return found
