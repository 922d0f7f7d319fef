"""A lab with an experiment as large as people make them: 1,500 ended runs of 150 steps, 225,000 steps in all.

    python -m tests.bench.big_lab FOLDER        # makes a lab's data folder there, to look at or to measure

A few runs of each arm are made as any run is, event by event; all others are copies of their rows, so that
log, calls, gradings and roll-ups of every run belong together. Who resolves what is drawn by one fixed seed.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from django.db import models

    from lab.engine.events import Event
    from lab.models import Arm, Experiment, Run, Task

_BEGAN = dt.datetime(2026, 3, 2, 8, tzinfo=dt.UTC)
_REPOSITORIES = ("django/django", "sympy/sympy", "psf/requests", "pytest-dev/pytest", "astropy/astropy")
# How a run of an arm can go: what it is drawn for, and how many ways of each.
_WAYS = {"resolved": 3, "unresolved": 3, "infrastructure": 1}
_INVALID_SHARE = 0.02
_FLAGGED_EVERY = 50
_STEP_SECONDS = 6.0


class Filled(NamedTuple):
    """Numbers of the rows made: the experiment, its arms in order of their letters, all runs in order."""

    experiment: int
    arms: list[int]
    runs: list[int]


def prepare(folder: Path) -> None:
    """Set Django up over a lab of its own in `folder`, its tables made."""
    os.environ.update(
        LAB_DATA_DIR=str(folder),
        DJANGO_SETTINGS_MODULE="lab.settings",
        DATABASE_URL="",
        LAB_REDIS_URL="",
        LAB_BROKER_URL="",
    )
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    settings.ALLOWED_HOSTS.append("testserver")
    call_command("migrate", verbosity=0)


def fill(*, runs: int = 1500, steps: int = 150, arms: int = 3, tasks: int = 100, seeds: int = 5) -> Filled:
    """One ended experiment of `arms` × `tasks` × `seeds`, the first `runs` of them, each of `steps` steps."""
    from django.db import transaction

    from lab.models import Experiment, Run

    chance = random.Random(20260302)
    with transaction.atomic():
        experiment = _experiment(tasks)
        made = _arms(experiment, arms)
        cells = list(_cells(experiment, made, seeds))[:runs]
        rows = Run.objects.bulk_create(
            Run(experiment=experiment, arm=arm, task=task, seed=seed, position=position)
            for position, (seed, task, arm) in enumerate(cells, start=1)
        )
        for way, same in _drawn(rows, chance).items():
            _play(same[0], steps=steps, way=way)
            _copy_runs(same[0], same[1:])
        _flag(rows[::_FLAGGED_EVERY])
        Experiment.objects.filter(pk=experiment.pk).update(state=Experiment.State.ENDED, ended_at=_BEGAN)
    return Filled(experiment.pk, [arm.pk for arm in made], [row.pk for row in rows])


def _experiment(tasks: int) -> Experiment:
    from lab.models import Experiment, HiddenTaskPart, Task, TaskSet

    number = TaskSet.objects.count() + 1
    task_set = TaskSet.objects.create(
        name=f"bench-{number}", version="1", digest=f"{number:064x}", folder="", title="Tasks of a benchmark"
    )
    rows = Task.objects.bulk_create(
        Task(
            task_set=task_set,
            slug=f"{_REPOSITORIES[position % len(_REPOSITORIES)].replace('/', '__')}-{10_000 + position}",
            repository=_REPOSITORIES[position % len(_REPOSITORIES)],
            position=position,
            title=f"Dates of task {position} are wrong after a change of the clock",
            statement="A daily job at 02:30 fires at 03:30.",
            digest=f"{number:032x}{position:032x}",
            folder="",
            fail_to_pass_count=2,
            pass_to_pass_count=3,
        )
        for position in range(1, tasks + 1)
    )
    HiddenTaskPart.objects.bulk_create(HiddenTaskPart(task=row, verification={}) for row in rows)
    return Experiment.objects.create(name=f"Large experiment {number}", task_set=task_set)


def _arms(experiment: Experiment, arms: int) -> list[Arm]:
    """Two harnesses over as many models as that takes."""
    from lab.engine.limits import Limits
    from lab.models import Arm, Endpoint, Harness, HarnessVersion, Model
    from tests.builders import CONFIG

    endpoint = Endpoint.objects.create(
        name=f"endpoint of {experiment.name}", base_url="http://127.0.0.1:9/v1"
    )
    versions, served = [], []
    for index in range(min(arms, 2)):
        harness = Harness.objects.create(name=f"harness-{'ab'[index]}-{experiment.pk}", family="leaf")
        digest = f"{experiment.pk:032x}{index:032x}"
        versions.append(
            HarnessVersion.objects.create(harness=harness, version=1, digest=digest, config=CONFIG)
        )
    for index in range((arms + 1) // 2):
        name = f"model-{index + 1}-{experiment.pk}"
        served.append(Model.objects.create(endpoint=endpoint, name=name, model_id="cedar-large"))
    limits = Limits(max_steps=150, max_context_tokens=131_072, max_cost_usd=Decimal(2))
    return [
        Arm.objects.create(
            experiment=experiment,
            harness_version=versions[index % 2],
            model=served[index // 2],
            limits=limits.model_dump(mode="json"),
            limits_digest=limits.digest,
            letter="ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index],
        )
        for index in range(arms)
    ]


def _cells(experiment: Experiment, arms: Sequence[Arm], seeds: int) -> Iterator[tuple[int, Task, Arm]]:
    assert experiment.task_set is not None
    tasks = list(experiment.task_set.tasks.order_by("position"))
    for seed in range(1, seeds + 1):
        for task in tasks:
            for arm in arms:
                yield seed, task, arm


def _drawn(runs: Sequence[Run], chance: random.Random) -> dict[tuple[int, str, int], list[Run]]:
    """Runs by (place of the arm, how it ended, which way)."""
    arms = list(dict.fromkeys(run.arm_id for run in runs))
    solvable = {run.task_id: 0.0 for run in runs}
    for task in solvable:
        solvable[task] = chance.betavariate(0.7, 0.8)
    drawn: dict[tuple[int, str, int], list[Run]] = {}
    for run in runs:
        place = arms.index(run.arm_id)
        outcome = "resolved" if chance.random() < solvable[run.task_id] - 0.06 * place else "unresolved"
        if chance.random() < _INVALID_SHARE:
            outcome = "infrastructure"
        drawn.setdefault((place, outcome, chance.randrange(_WAYS[outcome])), []).append(run)
    return drawn


def _play(run: Run, *, steps: int, way: tuple[int, str, int]) -> None:
    """Append the events of one run of `steps` steps; `way` decides what its steps are and what they cost."""
    from lab.services import log
    from lab.services.transitions import transition
    from tests import builders

    place, outcome, variant = way
    run.attempts.get_or_create(n=1, defaults={"lease_token": 0})
    transition(run_id=run.pk, to=run.Status.PREPARING, at=_BEGAN)
    events: list[Event] = builders.opening()
    for step in range(1, steps + 1):
        events += _step(step, place + variant)
    events += _end(outcome, steps)
    gap = dt.timedelta(seconds=_STEP_SECONDS * steps / len(events) * (1 + variant / 4))
    stamped = [(_BEGAN + gap * index, event) for index, event in enumerate(events)]
    log.append(run_id=run.pk, attempt=1, lease_token=None, events=stamped)
    run.attempts.update(
        ended_at=stamped[-1][0], exit_reason=getattr(events[-1], "exit_reason", ""), lease_until=None
    )


def _step(step: int, manner: int) -> list[Event]:
    """Reads, searches, edits and test runs in turn; every 29th step is asked twice, some make two calls."""
    from tests import builders

    command = ("grep -rn utc tickwell", "python -m pytest -q", "sed -n 1,80p tickwell/schedule.py")
    turn = (step + manner) % 5
    if turn == 3:
        events = builders.edit_step(step)
    elif turn == 4:
        events = [
            builders.asked(step),
            builders.answered(step, ("Glob", "{}"), ("Read", "{}"), reasoning="I look. " * 20),
            builders.called(step, "Glob", {"pattern": "**/*.py"}),
            builders.told(step, "a.py\nb.py"),
            builders.called(step, "Read", {"file_path": f"tickwell/part_{step}.py"}, index=2),
            builders.told(step, "1. import os\n2. import sys", index=2),
        ]
    else:
        printed = "tickwell/schedule.py:61: utc = candidate.astimezone(UTC)\n" * 4
        events = builders.bash_step(step, command[turn], printed, exit_code=int(step % 7 == 0))
    return _asked_twice(step, _priced(events, manner)) if step % 29 == 0 else _priced(events, manner)


def _priced(events: list[Event], manner: int) -> list[Event]:
    from lab.engine.events import ModelCallFinished
    from lab.engine.llm.base import Cost

    amount = Decimal("0.004") + Decimal("0.0007") * manner
    return [
        event.model_copy(update={"cost": Cost(amount=amount, basis="table")})
        if isinstance(event, ModelCallFinished)
        else event
        for event in events
    ]


def _asked_twice(step: int, events: list[Event]) -> list[Event]:
    """The first try of the step failed; what it used nobody knows."""
    from tests import builders

    again = [
        event.model_copy(update={"request": 2})
        if event.kind in ("model_call_started", "model_call_finished")
        else event
        for event in events
    ]
    return [builders.asked(step), builders.failed_request(step), *again]


def _end(outcome: str, steps: int) -> list[Event]:
    from lab.engine.events import AttemptEnded, RunEnded
    from tests import builders

    if outcome != "infrastructure":
        return builders.ending(outcome=outcome, steps=steps)
    reason = "infrastructure_error"
    return [
        AttemptEnded(exit_reason=reason, error="the sandbox is gone", steps=steps, wall_seconds=171.0),
        RunEnded(exit_reason=reason),
    ]


def _copy_runs(played: Run, copies: Sequence[Run]) -> None:
    """Give `copies` the rows that `played` has."""
    from lab.models import Attempt, Call, Event, Run, RunFacts, TestResult, Verification

    if not copies:
        return
    played.refresh_from_db()
    numbers = [copy.pk for copy in copies]
    same = ("status", "last_seq", "exit_reason", "sandbox_kind", "started_at", "ended_at")
    Run.objects.filter(pk__in=numbers).update(**{name: getattr(played, name) for name in same})
    for table in (Attempt, Event, Call, Verification, RunFacts):
        _insert(
            table,
            f"SELECT run.id, {{columns}} FROM lab_run run CROSS JOIN {table._meta.db_table} had "
            "WHERE had.run_id = %s AND run.id = ANY_OF ORDER BY run.id",
            "run_id",
            played.pk,
            numbers,
        )
    graded = (
        "SELECT new.id, {columns} FROM lab_verification new "
        "JOIN lab_verification old ON old.n = new.n AND old.run_id = %s "
        "JOIN lab_test_result had ON had.verification_id = old.id WHERE new.run_id = ANY_OF ORDER BY new.id"
    )
    _insert(TestResult, graded, "verification_id", played.pk, numbers)


def _insert(table: type[models.Model], select: str, owner: str, played: int, numbers: list[int]) -> None:
    from django.db import connection

    names = [field.column for field in table._meta.concrete_fields if field.column not in (owner, "id")]
    columns = ", ".join(f'had."{name}"' for name in names)
    marks = ", ".join(["%s"] * len(numbers))
    rows = select.format(columns=columns).replace("= ANY_OF", f"IN ({marks})")
    into = ", ".join(f'"{name}"' for name in [owner, *names])
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table._meta.db_table} ({into}) {rows}", [played, *numbers])


def _flag(runs: Sequence[Run]) -> None:
    from lab.models import LEAKED_CALLS, Flag

    Flag.objects.bulk_create(
        Flag(run=run, code=LEAKED_CALLS, event_seq=4, step=1, detail="made for a benchmark") for run in runs
    )


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    prepare(folder)
    sys.stdout.write(f"{fill()._replace(runs=[])}\n")


if __name__ == "__main__":
    main()
