"""Where two aligned runs part for good."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Divergence(NamedTuple):
    """The first sustained divergence of two runs: the row where it begins, and why it counts as one.

    `because` "files": the file `path` is edited differently here and stays different to the end. "way": from
    here on the runs come back to no common way. `row` is a place in the rows of the alignment.
    """

    row: int
    because: Literal["files", "way"]
    path: str = ""
