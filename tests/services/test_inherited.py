"""What was asked of a run and not done by an attempt that ended is done by the next, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from lab.engine.events import ControlAsked, LimitChanged, MessageSent, Paused, Resumed
from lab.models import Run
from lab.services import inherited, log
from tests.services.builders import launched


@pytest.fixture
def run(alice: User) -> Run:
    return launched(alice).runs.get()


def told(run: Run, attempt: int, *events: Any) -> None:
    log.append(run_id=run.pk, attempt=attempt, lease_token=None, events=events)


def asked(control: str, number: int, **value: Any) -> ControlAsked:
    return ControlAsked(control=control, person="Ada", value=value, ask=number)


def left(run: Run, attempt: int) -> list[tuple[str, int]]:
    return [(ask.control, ask.number) for ask in inherited.asked_of(run_id=run.pk, attempt=attempt).left]


def test_what_had_no_effect_is_left_and_what_had_one_is_not(run: Run) -> None:
    told(run, 1, asked("message", 1, text="one"), asked("message", 2, text="two"), asked("limit", 3))
    told(run, 1, MessageSent(person="Ada", message={"role": "user", "content": "one"}, ask=1))
    told(run, 1, LimitChanged(limit="max_steps", before=1, after=2, person="Ada", ask=3))
    assert left(run, 2) == [("message", 2)]
    found = inherited.asked_of(run_id=run.pk, attempt=2)
    assert found.heard == {1, 2, 3}
    assert found.left[0].value == {"text": "two"}


def test_what_this_attempt_has_heard_is_told_by_its_history(run: Run) -> None:
    told(run, 1, asked("message", 1, text="one"))
    assert left(run, 1) == []
    told(run, 2, asked("message", 2, text="two"))
    assert left(run, 2) == [("message", 1)]


def test_a_pause_that_two_asked_for_and_one_ended_is_over(run: Run) -> None:
    told(run, 1, asked("pause", 1), asked("pause", 2), Paused(person="Ada", ask=1))
    told(run, 1, asked("resume", 3), Resumed(person="Ada", ask=3))
    assert left(run, 2) == []
    told(run, 1, asked("pause", 4))
    assert left(run, 2) == [("pause", 4)]
