"""Where two aligned runs part for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from lab.analysis.alignment import Action, Alignment, Sign, project, sign


class Divergence(NamedTuple):
    """The first sustained divergence of two runs: the row where it begins, and why it counts as one.

    `because` "files": the file `path` is edited differently here and stays different to the end. "way": from
    here on the runs come back to no common way. `row` is a place in the rows of the alignment.
    """

    row: int
    because: Literal["files", "way"]
    path: str = ""


def first_sustained(
    runs: Sequence[Sequence[Action]],
    alignment: Alignment,
    *,
    first: int,
    second: int,
    same_files: Mapping[str, bool] | None,
    ended: tuple[bool, bool],
) -> Divergence | None:
    """Where runs `first` and `second` (columns of `alignment`) part for good; None: they do not.

    `same_files`: for each file of the two final patches whether both end alike; None: not known.
    `ended`: whether the first and the second run have ended.
    """
    pair = project(alignment, (first, second))
    for (one, other), place in zip(pair.rows, pair.places, strict=True):
        if one is None or other is None or sign(runs[first][one], runs[second][other]) in (None, Sign.OTHER):
            return Divergence(place, "way")
    return None


def of_all(
    runs: Sequence[Sequence[Action]],
    alignment: Alignment,
    *,
    same_files: Sequence[Mapping[str, bool] | None],
    ended: Sequence[bool],
) -> list[Divergence | None]:
    """For each run where it parts from the first one; the first has None.

    `same_files` has for each run its files against those of the first run (that of the first is not looked at).
    """
    found: list[Divergence | None] = [None]
    for second in range(1, len(runs)):
        found.append(
            first_sustained(
                runs,
                alignment,
                first=0,
                second=second,
                same_files=same_files[second],
                ended=(ended[0], ended[second]),
            )
        )
    return found
