"""Why runs of each arm failed, as people labelled them: shares with intervals that allow for tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lab.analysis.shares import Groups, Share, run_shares

FIELDS: Final = ("owner", "category", "phase", "place")
PLACES: Final = ("first quarter", "second quarter", "third quarter", "last quarter")
NOT_SAID: Final = "not said"


class Labelled(NamedTuple):
    """A failed run that people labelled; None: nobody said. `place`: see `place_of`."""

    run: int
    arm: str
    task: str
    owner: str | None
    category: str | None
    phase: str | None
    place: str | None


class ArmFailures(NamedTuple):
    """Of an arm's `failed` runs `labelled` are labelled; `fields`: field -> a share a value, the usual first.

    Shares are of the labelled runs; their key is `field:value`.
    """

    arm: str
    failed: int
    labelled: int
    fields: dict[str, tuple[Share, ...]]


def place_of(step: int | None, steps: int) -> str | None:
    """In which quarter of a run of so many steps a step lies; None where it is not known."""
    if step is None or steps < 1 or step > steps:
        return None
    return PLACES[min(3, 4 * (step - 1) // steps)]


def breakdown(labelled: Sequence[Labelled], failed: dict[str, int]) -> list[ArmFailures]:
    """What the labelled runs of each arm failed of; `failed` is the number of failed runs by arm."""
    values = {field: _values(labelled, field) for field in FIELDS}
    found = []
    for arm, number in failed.items():
        own = [run for run in labelled if run.arm == arm]
        groups = Groups([run.task for run in own])
        shares = {
            field: run_shares(
                [f"{field}:{value}" for value in values[field]],
                [[_said(run, field) == value for run in own] for value in values[field]],
                groups,
            )
            for field in FIELDS
        }
        found.append(ArmFailures(arm, number, len(own), shares))
    return found


def is_behind(run: Labelled, key: str) -> bool:
    """Whether a run is behind the share of that key."""
    field, _, value = key.partition(":")
    return field in FIELDS and _said(run, field) == value


def _said(run: Labelled, field: str) -> str:
    return getattr(run, field) or NOT_SAID


def _values(labelled: Iterable[Labelled], field: str) -> list[str]:
    """What was said at all, most often first; places in their order; what was not said last."""
    counted = Counter(_said(run, field) for run in labelled)
    known = [value for value, _ in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))]
    if field == "place":
        known = [place for place in PLACES if place in counted] + [v for v in known if v not in PLACES]
    return [value for value in known if value != NOT_SAID] + [NOT_SAID] * (NOT_SAID in known)
