"""How a judge's answers compare with what people settled on, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lab.analysis import agreement, rates
from lab.analysis.agreement import Kappa, Steps
from lab.analysis.estimates import Interval, Unknown

CHOICES = ("owner", "phase", "root_category", "sure")


class Reading(NamedTuple):
    """What one reading says; None where it says nothing or, of people, where nothing is settled."""

    owner: str | None = None
    phase: str | None = None
    root_category: str | None = None
    sure: str | None = None
    root_step: int | None = None


class FieldScore(NamedTuple):
    """Of `n` runs on which people settled the field, how many the judge has right. `kappa` by Cohen.

    `silent` are runs where the judge gave no answer: they count as wrong, and are in no kappa.
    """

    field: str
    right: int
    n: int
    silent: int
    interval: Interval | Unknown
    kappa: Kappa | Unknown


class CategoryScore(NamedTuple):
    """One category of the root cause against all others: of those people gave it (`positives`), how many the
    judge found (`found`, TPR); of the others (`negatives`), how many it left alone (`left`, TNR)."""

    category: str
    found: int
    positives: int
    left: int
    negatives: int

    @property
    def tpr(self) -> float | None:
        """None without a positive."""
        return self.found / self.positives if self.positives else None

    @property
    def tnr(self) -> float | None:
        """None without a negative."""
        return self.left / self.negatives if self.negatives else None


class Scores(NamedTuple):
    """A judge's whole record; `steps` is of runs where both point at a step, `steps_silent` where only people
    do."""

    fields: list[FieldScore]
    categories: list[CategoryScore]
    steps: Steps | Unknown
    steps_silent: int


def score(judged: Mapping[int, Reading], settled: Mapping[int, Reading]) -> Scores:
    """By run; runs that only one side has are left out."""
    both = sorted(judged.keys() & settled.keys())
    pairs = [(judged[run], settled[run]) for run in both]
    pointed = [(mine.root_step, theirs.root_step) for mine, theirs in pairs if theirs.root_step is not None]
    steps = [(mine, theirs) for mine, theirs in pointed if mine is not None and theirs is not None]
    return Scores(
        fields=[_field(name, pairs) for name in CHOICES],
        categories=_categories(pairs),
        steps=agreement.steps([mine for mine, _ in steps], [theirs for _, theirs in steps]),
        steps_silent=len(pointed) - len(steps),
    )


def _field(name: str, pairs: Sequence[tuple[Reading, Reading]]) -> FieldScore:
    given = [(getattr(mine, name), getattr(theirs, name)) for mine, theirs in pairs]
    given = [(mine, theirs) for mine, theirs in given if theirs is not None]
    answered = [(mine, theirs) for mine, theirs in given if mine is not None]
    right = sum(mine == theirs for mine, theirs in given)
    return FieldScore(
        field=name,
        right=right,
        n=len(given),
        silent=len(given) - len(answered),
        interval=rates.wilson(right, len(given)),
        kappa=agreement.cohen([mine for mine, _ in answered], [theirs for _, theirs in answered]),
    )


def _categories(pairs: Sequence[tuple[Reading, Reading]]) -> list[CategoryScore]:
    given = [
        (mine.root_category, theirs.root_category)
        for mine, theirs in pairs
        if theirs.root_category is not None
    ]
    names = sorted({name for pair in given for name in pair if name})
    return [
        CategoryScore(
            category=name,
            found=sum(mine == name for mine, theirs in given if theirs == name),
            positives=sum(theirs == name for _, theirs in given),
            left=sum(mine != name for mine, theirs in given if theirs != name),
            negatives=sum(theirs != name for _, theirs in given),
        )
        for name in names
    ]
