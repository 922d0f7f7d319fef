"""How far people who label the same runs agree: beside every coefficient the raw share and n.

A coefficient alone misleads: with one label far more frequent than the others, 90 % agreement can be a kappa
of 0.44. What cannot be estimated is an `Unknown`.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from lab.analysis import quantiles
from lab.analysis.estimates import Interval, Unknown

LEVEL = 0.95
NO_ITEM = "nobody labelled anything that somebody else labelled too"
ONE_LABEL = "only one label was ever given"

Weights = Literal["none", "linear", "quadratic"]


class Kappa(NamedTuple):
    """Cohen's kappa of two raters. `raw` is the share of items on which they agree, `table` counts pairs."""

    kappa: float
    error: float | Unknown
    interval: Interval | Unknown
    raw: float
    n: int


def confusion(
    first: Sequence[Hashable], second: Sequence[Hashable], labels: Sequence[Hashable]
) -> list[list[int]]:
    """How often the first said the row's label where the second said the column's.

    Raises:
        ValueError: another number of items, or a label that is not among `labels`.
    """
    counted = Counter(zip(first, second, strict=True))
    unknown = {label for pair in counted for label in pair} - set(labels)
    if unknown:
        raise ValueError(f"{sorted(map(str, unknown))} are not among the labels")
    return [[counted[row, column] for column in labels] for row in labels]


def cohen(
    first: Sequence[Hashable], second: Sequence[Hashable], *, weights: Weights = "none", level: float = LEVEL
) -> Kappa | Unknown:
    """Cohen's kappa; with weights for ordered labels, which must be numbers then.

    The standard error is that of the unweighted coefficient (Fleiss, Cohen, Everitt 1969).

    Raises:
        ValueError: another number of items.
    """
    labels = sorted(set(first) | set(second), key=lambda label: (str(type(label)), label))
    if not first:
        return Unknown(NO_ITEM)
    if len(labels) < 2:
        return Unknown(ONE_LABEL)
    table = np.array(confusion(first, second, labels), dtype=float) / len(first)
    disagreement = _weights(labels, weights)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    seen = float((disagreement * table).sum())
    expected = float((disagreement * np.outer(rows, columns)).sum())
    if expected == 0:
        return Unknown(ONE_LABEL)
    kappa = 1 - seen / expected
    raw = float(np.trace(table))
    ordered = Unknown("it is shown for labels without an order")
    error: float | Unknown = ordered
    interval: Interval | Unknown = ordered
    if weights == "none":
        error = _kappa_error(table, rows, columns, kappa, len(first))
        reach = quantiles.normal((1 + level) / 2) * error
        interval = Interval(max(-1.0, kappa - reach), min(1.0, kappa + reach))
        if 1 in (np.count_nonzero(rows), np.count_nonzero(columns)):
            interval = Unknown("one of the two gave one label only")
    return Kappa(kappa, error, interval, raw, len(first))


def _weights(labels: Sequence[Hashable], weights: Weights) -> np.ndarray:
    """How bad it is to say one label for another: 0 for the same."""
    if weights == "none":
        return np.ones((len(labels), len(labels))) - np.eye(len(labels))
    places = np.arange(len(labels), dtype=float)
    distance: np.ndarray = np.abs(places[:, None] - places[None, :])
    return distance if weights == "linear" else distance**2


def _kappa_error(table: np.ndarray, rows: np.ndarray, columns: np.ndarray, kappa: float, n: int) -> float:
    expected = float(rows @ columns)
    sums = rows[:, None] + columns[None, :]
    on = float((np.diag(table) * (1 - np.diag(sums) * (1 - kappa)) ** 2).sum())
    crossed = columns[:, None] + rows[None, :]
    off_table = table - np.diag(np.diag(table))
    off = (1 - kappa) ** 2 * float((off_table * crossed**2).sum())
    rest = (kappa - expected * (1 - kappa)) ** 2
    return math.sqrt(max(0.0, on + off - rest) / n) / (1 - expected)


def fleiss(ratings: Sequence[Sequence[Hashable]]) -> float | Unknown:
    """Fleiss' kappa of several raters, who may be others for each item: `ratings` are the labels by item.

    Raises:
        ValueError: items with different numbers of labels, or with one.
    """
    numbers = {len(labels) for labels in ratings}
    if not ratings:
        return Unknown(NO_ITEM)
    if len(numbers) > 1 or min(numbers) < 2:
        raise ValueError("each item needs the same number of labels, two at least")
    (raters,) = numbers
    counted = [Counter(labels) for labels in ratings]
    shares = {
        label: sum(one[label] for one in counted) / raters / len(counted) for one in counted for label in one
    }
    expected = math.fsum(share**2 for share in shares.values())
    if expected == 1:
        return Unknown(ONE_LABEL)
    agreeing = sum(count * (count - 1) for one in counted for count in one.values())
    seen = agreeing / (raters * (raters - 1)) / len(counted)
    return (seen - expected) / (1 - expected)


class Alpha(NamedTuple):
    """Krippendorff's alpha over any number of raters and gaps. `n` counts items that two or more labelled."""

    alpha: float
    n: int
    raters: int


Measure = Literal["nominal", "ordinal", "interval"]


def alpha(
    ratings: Mapping[Hashable, Mapping[Hashable, float | str]], measure: Measure = "nominal"
) -> Alpha | Unknown:
    """From labels by rater and item; an item that a rater did not label is left out of the rater's mapping.

    Raises:
        ValueError: texts where an order or a distance is asked for.
    """
    items = list(dict.fromkeys(item for labels in ratings.values() for item in labels))
    paired = [item for item in items if sum(item in labels for labels in ratings.values()) > 1]
    if not paired:
        return Unknown(NO_ITEM)
    given = [labels[item] for labels in ratings.values() for item in paired if item in labels]
    if len(set(given)) < 2:
        return Unknown(ONE_LABEL)
    if measure != "nominal" and any(isinstance(label, str) for label in given):
        raise ValueError("labels with an order or a distance are numbers")
    units = [[labels[item] for labels in ratings.values() if item in labels] for item in paired]
    return Alpha(_alpha(units, measure), len(paired), len(ratings))


def _alpha(units: Sequence[Sequence[float | str]], measure: Measure) -> float:
    """1 - D_o / D_e from the matrix of coincidences (Krippendorff 2011, "Computing Krippendorff's
    Alpha-Reliability"): each item of m labels adds its ordered pairs of labels, each 1 / (m - 1).
    """
    labels = sorted({label for unit in units for label in unit}, key=lambda label: (str(type(label)), label))
    place = {label: number for number, label in enumerate(labels)}
    together = np.zeros((len(labels), len(labels)))
    for unit in units:
        counts = np.bincount([place[label] for label in unit], minlength=len(labels)).astype(float)
        together += (np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1)
    given = together.sum(axis=0)
    total = float(given.sum())
    distances = _distances(labels, given, measure)
    seen = float((together * distances).sum()) / total
    expected = float((np.outer(given, given) * distances).sum()) / (total * (total - 1))
    return 1 - seen / expected


def _distances(labels: Sequence[float | str], given: np.ndarray, measure: Measure) -> np.ndarray:
    """The squared distance of each two labels; in an order, by how many labels were given in between."""
    if measure == "nominal":
        return 1 - np.eye(len(labels))
    if measure == "interval":
        values = np.array([float(label) for label in labels])
    else:
        values = np.cumsum(given) - given / 2
    distances: np.ndarray = (values[:, None] - values[None, :]) ** 2
    return distances


class Steps(NamedTuple):
    """How close two people's steps lie: the share within a distance, and the median of it."""

    within: dict[int, float]
    median: float
    n: int


DISTANCES = (0, 1, 3, 5)


def steps(first: Sequence[int], second: Sequence[int]) -> Steps | Unknown:
    """Raises: ValueError for another number of items."""
    apart = [abs(one - other) for one, other in zip(first, second, strict=True)]
    if not apart:
        return Unknown(NO_ITEM)
    within = {reach: sum(one <= reach for one in apart) / len(apart) for reach in DISTANCES}
    return Steps(within, float(statistics.median(apart)), len(apart))
