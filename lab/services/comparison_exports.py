"""Runs side by side for a file that is read without the lab: all rows, and their bodies part by part.

Nothing of it is for operators alone: the gold patch and the logs of hidden tests are left out for everybody.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from lab.engine.errors import InvalidValueError
from lab.models import Role, Run
from lab.render.compared_tests import ShownTest
from lab.services import compared_patches, compared_tests, comparisons, side_by_side
from lab.services.access import for_role
from lab.services.compared_patches import ComparedFile, RunPatch
from lab.services.compared_tests import ComparedTests
from lab.services.comparison_asks import Asked
from lab.services.comparisons import Comparison, Side
from lab.services.side_by_side import Column, SideBySide
from lab.services.side_by_side_rows import Row

MOST_BYTES = 20_000_000
# So many tests of each sort are listed.
MOST_TESTS = 500
# The events of so many rows are in memory at once.
_ROWS_AT_ONCE = 20
_MEASURED_ROWS = 12


@dataclass(frozen=True)
class FileComparison:
    """Runs side by side: `runs` and `patches` in the order of their letters, the rest as the columns stand.

    `differing` and `failing` are tests.
    """

    runs: Sequence[Run]
    side: SideBySide
    comparison: Comparison
    patches: list[RunPatch]
    files: list[ComparedFile]
    tests: ComparedTests
    differing: list[ShownTest]
    failing: list[ShownTest]
    at: dt.datetime

    @property
    def columns(self) -> list[Column]:
        return self.side.columns

    @property
    def rows(self) -> Sequence[Row]:
        return self.side.layout.rows

    @property
    def lettered(self) -> list[tuple[str, Side]]:
        """The sides of the comparison with the letters of their runs."""
        return [
            (column.letter, side) for column, side in zip(self.columns, self.comparison.sides, strict=True)
        ]

    def bodies(self, rows: Sequence[Row]) -> Iterator[tuple[Row, str]]:
        """The rows with what opens below each, read from the logs a few at a time."""
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            found = side_by_side.bodies_of(self.columns, part, static=True)
            for row in part:
                yield row, found[row.name]


@for_role(Role.VIEWER)
def of_runs(*, by: User, runs: Sequence[Run], asked: Asked) -> FileComparison:
    """Two or more runs (of `comparisons.find_runs`, in the order of their letters), as they are asked for.

    Raises:
        AccessDeniedError: `by` does not belong to the lab.
        InvalidValueError: "runs", for fewer than two.
    """
    if len(runs) < 2:
        numbers = ",".join(str(run.pk) for run in runs)
        raise InvalidValueError("runs", numbers, "is too few to compare; write two or more, as in 12,15")
    side = side_by_side.read(runs, asked, everything=True, bodies=False)
    ordered = [column.run for column in side.columns]
    # These name the runs by their order, as the letters do.
    patches = compared_patches.patches_of(runs)
    tests = compared_tests.compare(ordered, letters=[column.letter for column in side.columns])
    return FileComparison(
        runs=runs,
        side=side,
        comparison=comparisons.compare(ordered),
        patches=patches,
        files=compared_patches.compare(patches),
        tests=tests,
        differing=compared_tests.shown(tests.tests["differs"][:MOST_TESTS]),
        failing=compared_tests.shown(tests.tests["failing"][:MOST_TESTS]),
        at=dt.datetime.now(dt.UTC),
    )


def expected_bytes(found: FileComparison, *, beside: int) -> int:
    """About how large the file will be, from a few of its rows; `beside` is what is no row's body."""
    if not found.rows:
        return beside
    every = max(1, len(found.rows) // _MEASURED_ROWS)
    measured = [len(body.encode()) for _, body in found.bodies(found.rows[::every])]
    return min(MOST_BYTES, beside + len(found.rows) * sum(measured) // len(measured))
