"""How long it takes to align runs and to find where they part: prints one JSON object.

Runs are made by chance as real ones are: some 60 % of the steps follow a common way, most subjects come back
many times (the same tests, `ls`, a few files that are read and edited again and again). Time is that of the
processor: nothing here waits. `plain` is the longest common sequence of the first two runs' subjects in plain
Python, measured in turn with the alignment: a tenth of its work, and a measure of the machine.

Targets: 2 x 150 steps in 50 ms, 2 x 5,000 in 2 s, 6 x 150 in 100 ms, each with the divergences.

    python -m tests.bench.alignment [--rounds 7] [--quick]
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lab.analysis.alignment import Action, Alignment, align
from lab.analysis.divergence import first_sustained
from tests.bench import figures
from tests.bench.figures import Target

_FOLLOWS_COMMON_WAY = 0.6


class Size(NamedTuple):
    """So many runs of so many steps, and the milliseconds they may take."""

    runs: int
    steps: int
    limit: float

    @property
    def name(self) -> str:
        return f"{self.runs} x {self.steps:,} steps, milliseconds"


SIZES = (Size(2, 150, 50), Size(6, 150, 100), Size(2, 5_000, 2_000))


def made_runs(size: Size, seed: int = 1) -> list[list[Action]]:
    """Runs of one task, the same for the same seed."""
    chance = random.Random(seed)
    files = [f"src/part{number % 7}/module{number}.py" for number in range(size.steps // 10 + 5)]
    common = [_step(chance, files) for _ in range(size.steps)]
    return [
        [step if chance.random() < _FOLLOWS_COMMON_WAY else _step(chance, files) for step in common]
        for _ in range(size.runs)
    ]


def _step(chance: random.Random, files: Sequence[str]) -> Action:
    file = chance.choice(files)
    some = str(chance.randrange(20))
    kinds: list[Callable[[], Action]] = [
        lambda: Action("read", f"read {file}", some, f"{file} {some}", reads=(file,)),
        lambda: Action("edit", f"edit {file}", str(chance.random()), "done", edits=(file,)),
        lambda: Action("test", "pytest", f"pytest -q {some}", str(chance.randrange(50))),
        lambda: Action("shell", "ls .", "ls -la", some),
        lambda: Action("shell", "python <<", str(chance.random()), str(chance.random())),
        lambda: Action("read", f"grep name{some}", file, str(chance.randrange(5))),
    ]
    return chance.choices(kinds, weights=(30, 20, 15, 15, 10, 10))[0]()


def _aligned(runs: Sequence[Sequence[Action]]) -> Alignment:
    found = align(runs)
    for second in range(1, len(runs)):
        first_sustained(runs, found, first=0, second=second, same_files=None, ended=(True, True))
    return found


def _milliseconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


def _megabytes(work: Callable[[], Any]) -> float:
    """The most memory that stood allocated at once meanwhile."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return round(most / 1e6, 1)


def measure(size: Size, rounds: int) -> tuple[dict[str, Any], float]:
    """What was found, and the fastest round in milliseconds."""
    runs = made_runs(size)
    lab, plain = [], []
    for _ in range(rounds):
        lab.append(_milliseconds(lambda: _aligned(runs)))
        plain.append(_milliseconds(lambda: _longest_common(runs[0], runs[1])))
    rows = align(runs).rows
    return {
        "rows": len(rows),
        "shared_rows": sum(row.count(None) < size.runs - 1 for row in rows),
        "milliseconds": figures.summary(lab, 1),
        "plain_milliseconds": figures.summary(plain, 1),
        "ratio_to_limit": round(min(lab) / size.limit, 3),
        "ratio_to_plain": round(min(lab) / min(plain), 3),
        "megabytes": _megabytes(lambda: _aligned(runs)),
    }, min(lab)


def _longest_common(one: Sequence[Action], other: Sequence[Action]) -> int:
    before = [0] * (len(other) + 1)
    for step in one:
        now = [0]
        for at, against in enumerate(other):
            longest = before[at] + 1 if step.subject == against.subject else max(now[at], before[at + 1])
            now.append(longest)
        before = now
    return before[-1]


def main() -> None:
    chosen = figures.arguments(__doc__, rounds=7)
    before = figures.probe()
    # Importing numpy is no part of it: a process does it once.
    _aligned(made_runs(Size(2, 10, 0)))
    found: dict[str, Any] = {"rounds": chosen.rounds}
    targets = []
    for size in SIZES:
        if chosen.quick and size.steps > 1_000:
            targets.append(Target(size.name, None, size.limit, "left out by --quick"))
            continue
        found[size.name], fastest = measure(size, chosen.rounds)
        targets.append(Target(size.name, round(fastest, 2), size.limit))
    found["noise"] = figures.noise(before, figures.probe())
    figures.report(found, targets)


if __name__ == "__main__":
    main()
