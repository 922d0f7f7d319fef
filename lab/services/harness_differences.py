"""Differences of two harnesses as pages show them: texts as a diff, limits with their units."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab.engine.harnesses.difference import Difference
from lab.engine.limits import UNITS
from lab.render.differences import text_difference, value_text
from lab.services import limits


@dataclass(frozen=True)
class ShownDifference:
    """A difference of two harnesses, ready to be shown.

    `diff` is safe HTML for texts that differ, "" for values, which are in `left` and `right` as text.
    `whole` marks values of several lines.
    """

    path: str
    kind: str
    left: str
    right: str
    diff: str
    whole: bool


def shown_differences(differences: Iterable[Difference]) -> list[ShownDifference]:
    """These differences in their order, ready to be shown."""
    return [_shown(difference) for difference in differences]


def _shown(difference: Difference) -> ShownDifference:
    section, _, name = difference.path.partition(".")
    diff = ""
    if difference.is_text and difference.kind != "renamed":
        diff = text_difference(difference.path, difference.left or "", difference.right or "")
    in_units = section == "limits" and name in UNITS
    left, right = (
        limits.said(name, value) if in_units else value_text(value)
        for value in (difference.left, difference.right)
    )
    return ShownDifference(
        path=value_text(difference.path),
        kind=difference.kind,
        left="" if difference.kind == "added" else left,
        right="" if difference.kind == "removed" else right,
        diff=diff,
        whole="\n" in left or "\n" in right,
    )
