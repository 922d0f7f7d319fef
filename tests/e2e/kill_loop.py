"""Runs with random kills, each of which must end as if nothing had happened.

    python -m tests.e2e.kill_loop --seed 1 --runs 50

prints a line a run: what was killed where, how often the run was continued, and whether it ended as a run
that nobody harmed. The same seed plans the same kills. The exit code is 0 when all did.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.e2e.faults import COMMITS, Fault
from tests.e2e.harmed_lab import TAKEN_AFTER_SECONDS, HarmedLab
from tests.e2e.oracle import problems
from tests.e2e.stories import Story

STEPS = 20
_MOST_FAULTS = 3
_OF_STEPS = {"model_call_started": STEPS, "model_call_finished": STEPS, "tool_call_started": STEPS - 1}
_OF_STEPS["tool_call_finished"] = STEPS - 1
_WITHOUT_STEPS = (
    "claimed",
    "making a sandbox",
    "sandbox half made",
    "sandbox made",
    "running a command",
    "renewing",
    "settling",
    "removing a sandbox",
    "sandbox half removed",
)
# What dies or is disturbed, and how often of a hundred times.
_HARMS = {
    ("here", "kill"): 50,
    ("here", "stop"): 10,
    ("worker", "kill"): 12,
    ("worker", "terminate"): 6,
    ("web", "kill"): 8,
    ("tick", "kill"): 10,
    ("up", "kill"): 2,
    ("up", "terminate"): 2,
}
_SECONDS_A_RUN = 20.0


@dataclass(frozen=True)
class Row:
    """What became of one run. `faults` are those that happened, `wrong` what the oracle says."""

    seed: str
    faults: tuple[Fault, ...]
    story: Story
    seconds: float
    wrong: tuple[str, ...]

    @property
    def same_verdict(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        kills = "; ".join(map(str, self.faults)) or "(only those of its neighbours)"
        return (
            f"{self.seed:>8} {self.story.continuations:>5} {self.story.last_attempt:>8} "
            f"{'equal' if self.same_verdict else 'WRONG':>7} {self.seconds:>7.1f}  {kills}"
        )


HEAD = f"{'seed':>8} {'cont.':>5} {'attempts':>8} {'verdict':>7} {'seconds':>7}  kills that happened"


def planned(seed: str) -> tuple[Fault, ...]:
    """The faults of one run: one to three, at random points and moments."""
    chance = random.Random(seed)
    return tuple(_fault(chance) for _ in range(chance.randint(1, _MOST_FAULTS)))


def _fault(chance: random.Random) -> Fault:
    victim, action = chance.choices(list(_HARMS), weights=list(_HARMS.values()))[0]
    seconds = TAKEN_AFTER_SECONDS + chance.uniform(-6, 1) if action == "stop" else 0.0
    wait = chance.choice((0.0, chance.uniform(0, 0.3)))
    point, step, nth = _moment(chance)
    return Fault(point, victim=victim, action=action, step=step, nth=nth, wait=wait, seconds=seconds)  # type: ignore[arg-type]


def _moment(chance: random.Random) -> tuple[str, int | None, int]:
    """Point, step and how many times it is passed; moments of steps are the most, as they are in a run."""
    roll = chance.random()
    if roll < 0.15:
        return "asking", chance.choice((4, 6, 7, 8, 16)), 1
    if roll < 0.2:
        return "archived", None, chance.randint(1, 12)
    if roll < 0.6:
        kind, last = chance.choice(list(_OF_STEPS.items()))
        return f"{chance.choice(('storing', 'stored'))} {kind}", chance.randint(1, last), 1
    if roll < 0.8:
        kind = chance.choice([kind for kind in COMMITS if kind not in _OF_STEPS])
        return f"{chance.choice(('storing', 'stored'))} {kind}", None, 1
    return chance.choice(_WITHOUT_STEPS), None, 1


def run(seed: int, count: int, *, at_once: int = 4) -> list[Row]:
    """Launch `count` runs in one lab, harm them as the seed says, and judge each."""
    seeds = [f"{seed}.{number}" for number in range(1, count + 1)]
    told = [planned(one) for one in seeds]
    with HarmedLab(LAB_RUN_SLOTS=str(at_once)) as lab:
        (unharmed,) = lab.run([[]], seconds=120)
        runs = lab.launch(told)
        lab.wait_until_ended(runs, seconds=60 + _SECONDS_A_RUN * count)
        happened = lab.faults.happened()
        left = lab.leftovers()
        rows = []
        for one, faults, story in zip(seeds, told, lab.stories(runs), strict=True):
            wrong = [*problems(story, unharmed), *(f"left: {what}" for what in left)]
            done = [fault for number, fault in enumerate(faults) if f"{story.run}-{number}" in happened]
            rows.append(Row(one, tuple(done), story, story.seconds, tuple(wrong)))
        return rows


def table(rows: Sequence[Row], *, seconds: float) -> str:
    """The rows and their sum."""
    kills = Counter(f"{fault.action} {fault.victim}" for row in rows for fault in row.faults)
    told = ", ".join(f"{count} × {what}" for what, count in kills.most_common())
    equal = sum(row.same_verdict for row in rows)
    lines = [HEAD, *map(str, rows)]
    lines += [f"         {text}" for row in rows for text in row.wrong]
    lines.append(f"{equal} of {len(rows)} as without kills; {told}; {seconds:.0f} s")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=4, help="how many runs go on at the same time")
    arguments = parser.parse_args()
    started = time.monotonic()
    rows = run(arguments.seed, arguments.runs, at_once=arguments.at_once)
    sys.stdout.write(table(rows, seconds=time.monotonic() - started) + "\n")
    return 0 if all(row.same_verdict for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
