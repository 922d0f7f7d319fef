"""Runs of shell commands that can be held against each other: alike for some steps, then each its own way."""

from __future__ import annotations

from lab.engine.events import Event
from lab.models import Run
from tests import builders

COMMON = [f"cat src/part_{number}.py" for number in range(6)]


def run_of(
    commands: list[str],
    *,
    like: Run | None = None,
    seed: int = 2,
    ended: bool = True,
    patch: str = builders.PATCH,
    outcome: str = "unresolved",
) -> Run:
    """A run that did these commands one after the other, and left this patch."""
    run = builders.run() if like is None else builders.another_run(like, seed=seed)
    builders.start(run)
    events: list[Event] = []
    for number, command in enumerate(commands, start=1):
        events += builders.bash_step(number, command, f"what {command} printed\n")
    builders.append(run, *events)
    if ended:
        captured, *rest = builders.ending(outcome=outcome, steps=len(commands))
        builders.append(run, captured.model_copy(update={"patch": patch}), *rest)
    return Run.objects.get(pk=run.pk)


def parted(before: int = 6, after: int = 4) -> tuple[Run, Run]:
    """Two runs that go one way for some steps and ways of their own from there on."""
    common = [f"cat src/part_{number}.py" for number in range(before)]
    first = run_of([*common, *(f"make left_{number}" for number in range(after))])
    second = run_of(
        [*common, *(f"cargo build right_{number}" for number in range(after))],
        like=first,
        patch=builders.PATCH.replace("_real(", "_true("),
    )
    return first, second
