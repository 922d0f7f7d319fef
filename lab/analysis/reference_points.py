"""Resolve rates that others published: drawn apart from one's own, and never tested against.

They come without the runs behind them, so nothing is known of their uncertainty, nor whether harness, limits
and grading were as here. All are of one report that the authors of this lab know from quotations only, which
`source` says.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import NamedTuple

VERIFIED = "SWE-bench Verified"
PRO = "SWE-bench Pro"
TERMINAL = "Terminal-Bench 2.0"
PATCHEVAL = "PatchEval-Verified"
BENCHMARKS = (VERIFIED, PRO, TERMINAL, PATCHEVAL)

_CARD = "model card of microsoft/FrogNano-4B-2609, as quoted in a public README"
_REPORT = "FrogNano technical report (arXiv:2609.07925), as quoted in public reading notes"
_DATE = dt.date(2026, 9, 7)
_SETTINGS = "150 steps, 131K context, temperature 0.6, mean of three seeds; an exhausted budget is a failure"
_INCONSISTENT = "the report gives 39.4, 43.0 and 37.2 % for this model in different places"


class ReferencePoint(NamedTuple):
    """A published rate (a share, 0 to 1) of `tasks` tasks, None where their number was not told.

    `remark` says what one must know to read it, "" for nothing.
    """

    benchmark: str
    model: str
    harness: str
    rate: float
    attempts: int | None
    tasks: int | None
    source: str
    date: dt.date
    remark: str = ""


ALL: tuple[ReferencePoint, ...] = (
    ReferencePoint(
        VERIFIED, "FrogNano-4B", "Leaf", 0.615, 3, 500, _CARD, _DATE, f"used to pick checkpoints; {_SETTINGS}"
    ),
    ReferencePoint(PRO, "FrogNano-4B", "Leaf", 0.376, 3, 731, _CARD, _DATE, _SETTINGS),
    ReferencePoint(TERMINAL, "FrogNano-4B", "Leaf", 0.311, 3, 89, _CARD, _DATE, _SETTINGS),
    ReferencePoint(
        PATCHEVAL,
        "FrogNano-4B",
        "Leaf",
        0.473,
        3,
        230,
        _CARD,
        _DATE,
        "the report as quoted elsewhere prints 23.2 % without an explanation, perhaps by a stricter rule",
    ),
    ReferencePoint(VERIFIED, "Qwen3.5-4B", "Leaf", 0.394, 3, 500, _REPORT, _DATE, _INCONSISTENT),
    ReferencePoint(
        VERIFIED,
        "Qwen3.5-4B",
        "R2E-Gym",
        0.083,
        None,
        None,
        _REPORT,
        _DATE,
        "about 96 % of these runs hit the turn limit; 37.2 % in Leaf beside it",
    ),
    ReferencePoint(VERIFIED, "Qwen3.5-4B", "mini-SWE-agent", 0.438, None, None, _REPORT, _DATE),
    ReferencePoint(VERIFIED, "FrogNano-4B", "mini-SWE-agent", 0.564, None, None, _REPORT, _DATE),
    ReferencePoint(VERIFIED, "MiniMax-M2.5", "Leaf", 0.665, None, None, _REPORT, _DATE),
    ReferencePoint(VERIFIED, "MiniMax-M2.5", "R2E-Gym", 0.665, None, None, _REPORT, _DATE),
)


def of_benchmark(benchmark: str) -> list[ReferencePoint]:
    """What was published of a benchmark, by its name in `BENCHMARKS`."""
    return [point for point in ALL if point.benchmark == benchmark]


def of_task_sets(names: Iterable[str]) -> list[ReferencePoint]:
    """What was published of benchmarks whose whole name these task sets bear, as "swe-bench-verified" does.

    An owner before a slash is no part of the name. A subset has other tasks: none of these rates is of it.
    """
    known = {_plain(name.rpartition("/")[2]) for name in names}
    return [point for point in ALL if _plain(point.benchmark) in known]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
