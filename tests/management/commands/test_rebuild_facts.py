"""`manage.py rebuild_facts`: what an older release rolled up says what today's does, run by run."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from lab.engine.events import AttemptEnded, RunEnded, TrajectoryImported
from lab.models import Event, Run, RunFacts
from lab.services import facts
from tests import builders

pytestmark = pytest.mark.django_db


def rebuild(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("rebuild_facts", *arguments, stdout=out, stderr=StringIO())
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


def ended_run() -> Run:
    run = builders.run()
    builders.believable(run)
    return run


def age(*runs: Run) -> None:
    """As an older release has left it."""
    RunFacts.objects.filter(run__in=runs).update(behaviour=None, behaviour_state={}, cost_earlier=None)


def stored(run: Run) -> dict[str, Any]:
    return RunFacts.objects.filter(pk=run.pk).values().get()


def test_without_a_number_those_of_an_older_release_are_rebuilt_once() -> None:
    runs = [ended_run(), ended_run()]
    before = [stored(run) for run in runs]
    age(*runs)
    assert rebuild() == (0, "2 roll-ups rebuilt\n")
    assert [stored(run) for run in runs] == before
    assert rebuild() == (0, "every roll-up is of this release\n")


def test_one_that_says_nothing_of_exit_codes_is_of_an_older_release() -> None:
    run = ended_run()
    facts_of_run = RunFacts.objects.get(run=run)
    known = facts_of_run.behaviour
    facts_of_run.behaviour = {name: value for name, value in known.items() if name != "exit_codes"}
    facts_of_run.save()
    assert list(facts.outdated()) == [run]
    assert rebuild() == (0, "1 roll-ups rebuilt\n")
    assert stored(run)["behaviour"] == known
    assert list(facts.outdated()) == []


def test_one_that_was_stopped_goes_on_with_the_rest() -> None:
    first, second = ended_run(), ended_run()
    age(first, second)
    facts.rebuild_facts(run_id=first.pk)
    assert list(facts.outdated()) == [second]
    assert json.loads(rebuild("--json")[1]) == {"rebuilt": 1, "problems": {}}


def imported_without_a_step(*, steps_recorded: bool) -> Run:
    run = builders.run()
    run.attempts.create(n=1)
    started, _ = builders.opening()
    told = TrajectoryImported(
        format="x", file="a", sha256="0", times="not_recorded", steps_recorded=steps_recorded
    )
    ends = AttemptEnded(exit_reason="", steps=0, wall_seconds=None), RunEnded(exit_reason="")
    builders.append(run, started, told, *ends)
    return run


def test_a_run_that_goes_on_and_one_of_a_verdict_alone_are_not_outdated() -> None:
    going = builders.run()
    builders.start(going)
    age(going)
    assert stored(imported_without_a_step(steps_recorded=False))["behaviour"] is None
    assert rebuild() == (0, "every roll-up is of this release\n")


def test_zeros_that_an_older_release_rolled_up_of_a_record_without_a_step_are_rebuilt_once() -> None:
    run = imported_without_a_step(steps_recorded=True)
    assert stored(run)["behaviour"] is None
    RunFacts.objects.filter(run=run).update(behaviour={"calls": 0, "failed_commands": 0})
    assert rebuild() == (0, "1 roll-ups rebuilt\n")
    assert stored(run)["behaviour"] is None
    assert rebuild() == (0, "every roll-up is of this release\n")


def test_a_native_run_that_took_no_step_is_rebuilt_once() -> None:
    run = builders.run()
    run.attempts.create(n=1)
    ends = AttemptEnded(exit_reason="agent", steps=0, wall_seconds=1.0), RunEnded(exit_reason="agent")
    builders.append(run, *builders.opening(), *ends)
    age(run)
    assert rebuild() == (0, "1 roll-ups rebuilt\n")
    assert stored(run)["behaviour"]["calls"] == 0
    assert rebuild() == (0, "every roll-up is of this release\n")


def test_runs_are_named_or_all() -> None:
    first, second = ended_run(), ended_run()
    RunFacts.objects.update(calls=99)
    assert rebuild(str(first.pk)) == (0, "1 roll-ups rebuilt\n")
    assert stored(first)["calls"] != 99
    assert stored(second)["calls"] == 99
    rebuild("--all")
    assert stored(second)["calls"] == stored(first)["calls"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["999999"], "runs: 999999 is not known; take the number from the run's page"),
        (["1", "--all"], r"runs: \[1\] and --all; name some runs, or all of them"),
    ],
)
def test_runs_that_cannot_be_meant_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        rebuild(*arguments)


def test_a_log_that_cannot_be_read_is_named_and_keeps_no_other_run_out() -> None:
    broken, good = ended_run(), ended_run()
    age(broken, good)
    Event.objects.filter(run=broken, kind="model_call_finished").update(payload={"kind": "x"})
    code, said = rebuild()
    assert code == 1
    assert f"PROBLEM  run {broken.pk}: its log cannot be read: KeyError" in said
    assert stored(good)["behaviour"] is not None
    assert list(facts.outdated()) == [broken]
