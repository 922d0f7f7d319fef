"""A lab with two arms on twenty tasks of five repositories, four runs of each, whose figures are known."""

from __future__ import annotations

import html
import re
from decimal import Decimal
from typing import NamedTuple

from lab.models import Arm, Endpoint, Experiment, Flag, Model, Run, RunFacts, Task
from tests import builders

# How many of the four runs of each task are resolved.
SUCCESSES = {
    "A": (4, 4, 3, 2, 4, 3, 0, 1, 2, 0, 0, 0, 4, 4, 4, 1, 3, 0, 0, 1),
    "B": (4, 3, 2, 2, 4, 1, 0, 0, 2, 0, 0, 0, 4, 2, 3, 0, 1, 0, 0, 2),
}
SEEDS = 4


class Analysed(NamedTuple):
    """The experiment, its arms by letter, their keys, and run ids by arm, task and seed."""

    experiment: Experiment
    arms: dict[str, Arm]
    keys: dict[str, str]
    runs: dict[tuple[str, int, int], int]

    def of(self, letter: str) -> set[int]:
        return {run for (arm, _, _), run in self.runs.items() if arm == letter}

    def resolved(self, letter: str) -> set[int]:
        return {
            run
            for (arm, task, seed), run in self.runs.items()
            if arm == letter and seed <= SUCCESSES[letter][task]
        }


def make() -> Analysed:
    """The lab, by its roll-ups."""
    first = builders.run()
    experiment, arm, task = first.experiment, first.arm, first.task
    first.delete()
    endpoint = Endpoint.objects.create(name="another endpoint")
    model = Model.objects.create(endpoint=endpoint, name="birch", model_id="birch")
    other = Arm.objects.create(
        experiment=experiment,
        harness_version=arm.harness_version,
        model=model,
        limits=arm.limits,
        limits_digest=arm.limits_digest,
        letter="B",
    )
    arms = {"A": arm, "B": other}
    tasks = [
        Task.objects.create(
            task_set=task.task_set,
            slug=f"task-{place:02}",
            repository=f"repository-{place // 4}",
            position=place + 2,
            title="T",
            statement="S",
            digest=f"{place:064x}",
            folder="",
        )
        for place in range(20)
    ]
    runs = {}
    for letter, counts in SUCCESSES.items():
        for place, count in enumerate(counts):
            for seed in range(1, SEEDS + 1):
                verdict = "resolved" if seed <= count else "unresolved"
                runs[letter, place, seed] = _run(arms[letter], tasks[place], seed, verdict)
    keys = {
        letter: f"{one.harness_version_id}.{one.model_id}.{one.limits_digest[:12]}"
        for letter, one in arms.items()
    }
    return Analysed(experiment, arms, keys, runs)


def _run(arm: Arm, task: Task, seed: int, verdict: str) -> int:
    run = Run.objects.create(
        experiment=arm.experiment,
        arm=arm,
        task=task,
        seed=seed,
        status=Run.Status.ENDED,
        exit_reason="agent",
    )
    RunFacts.objects.create(
        run=run, verdict=verdict, steps=10, calls=10, cost=Decimal("0.25"), cost_basis="table"
    )
    return run.pk


# Of each arm, so many runs of what a real lab has beside verdicts.
MIXED = {
    "cancelled": 3,
    "invalid": 4,
    "open": 2,
    "stepped_in": 2,
    "retried": 2,
    "flagged": 2,
    "unpriced": 1,
}
_BEHAVIOUR = {
    **{"tools": {"bash": 4}, "kinds": {"shell": 3, "edit": 1}, "calls": 4, "steps_with_calls": 4},
    **{"parallel_steps": 1, "malformed": 0, "exit_codes": 4, "failed_commands": 1, "tests": 1, "edits": 1},
    **{"cycles": 1, "tested_after_last_edit": True, "repeats": 0},
    **{"model_seconds": 3.0, "tool_seconds": 2.0, "waiting_seconds": 1.0},
}


def make_mixed() -> Analysed:
    """The same lab, in which some of the last runs were cancelled, broken, retried, flagged and so on."""
    made = make()
    for letter in SUCCESSES:
        left = [made.runs[letter, task, SEEDS] for task in range(20)]
        for kind, number in MIXED.items():
            runs, left = left[:number], left[number:]
            _become(kind, runs)
    known = RunFacts.objects.filter(run__status=Run.Status.ENDED, run__seed__lt=SEEDS)
    known.update(behaviour=_BEHAVIOUR, input_uncached=100, output_total=10)
    return made


def _become(kind: str, runs: list[int]) -> None:
    rows, facts = Run.objects.filter(pk__in=runs), RunFacts.objects.filter(run__in=runs)
    if kind == "cancelled":
        rows.update(exit_reason="cancelled")
        facts.update(verdict="")
    elif kind == "invalid":
        rows.update(exit_reason="infrastructure_error")
        facts.update(verdict="infrastructure", cost=Decimal(5))
    elif kind == "open":
        rows.update(status=Run.Status.RUNNING, exit_reason="")
        facts.update(verdict="")
    elif kind == "stepped_in":
        facts.update(got_message=True)
    elif kind == "retried":
        facts.update(cost_earlier=Decimal("0.10"))
    elif kind == "flagged":
        Flag.objects.bulk_create(Flag(run_id=run, code="leaked_calls", event_seq=1) for run in runs)
    else:
        facts.update(cost=None, cost_unknown=10, cost_basis="unknown")


def links_of(page: str, name: str = "/analysis/runs/") -> list[str]:
    """The addresses of this kind that the page links to, each once."""
    found = re.findall(r'href="([^"]+)"', page)
    return sorted({html.unescape(one) for one in found if html.unescape(one).startswith(name)})


def listed(page: str) -> set[int]:
    """The runs of a list."""
    return {int(number) for number in re.findall(r'id="run-(\d+)"', page)}
