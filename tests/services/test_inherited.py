from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from lab.engine.events import ControlAsked, LimitChanged, MessageSent, Paused
from lab.engine.steering import Ask
from lab.models import Run
from lab.services import inherited, log
from tests.services.builders import launched


@pytest.fixture
def run(alice: User) -> Run:
    return launched(alice).runs.get()


def append(run: Run, attempt: int, *events: Any) -> None:
    log.append(run_id=run.pk, attempt=attempt, lease_token=None, events=events)


def asked(control: str, number: int, **value: Any) -> ControlAsked:
    return ControlAsked(control=control, person="alice", value=value, ask=number)


def changed(limit: str, before: Any, after: Any, number: int = 0) -> LimitChanged:
    return LimitChanged(limit=limit, before=before, after=after, person="alice", ask=number)


def test_limits_that_were_changed_in_earlier_attempts_hold_in_the_next(run: Run) -> None:
    append(run, 1, changed("max_steps", 100, 7, 1), changed("max_cost_usd", None, "2.50", 2))
    append(run, 2, changed("max_steps", 7, 9, 3))
    arm = run.arm.limits
    assert inherited.limits_before(run=run, attempt=1).model_dump(mode="json") == arm
    second = inherited.limits_before(run=run, attempt=2)
    assert (second.max_steps, str(second.max_cost_usd)) == (7, "2.50")
    assert inherited.limits_before(run=run, attempt=3).max_steps == 9


def test_what_an_earlier_attempt_heard_and_did_not_do_is_left_to_do(run: Run) -> None:
    append(
        run,
        1,
        asked("pause", 1),
        Paused(person="alice", ask=1),
        asked("limit", 2, limit="max_steps", after=7),
        asked("message", 3, text="look at the tests"),
        asked("cancel", 4),
    )
    so_far = inherited.asked_of(run_id=run.pk, attempt=2)
    assert so_far.heard == {1, 2, 3, 4}
    assert so_far.left == (
        Ask("limit", "alice", 2, {"limit": "max_steps", "after": 7}),
        Ask("message", "alice", 3, {"text": "look at the tests"}),
    )


def test_what_a_later_attempt_has_done_is_done(run: Run) -> None:
    append(run, 1, asked("message", 3, text="look"))
    append(run, 2, MessageSent(person="alice", message={"role": "user", "content": "look"}, ask=3))
    assert inherited.asked_of(run_id=run.pk, attempt=2).left == ()


def test_what_the_attempt_itself_has_heard_its_history_says(run: Run) -> None:
    append(run, 1, asked("limit", 2, limit="max_steps", after=7))
    so_far = inherited.asked_of(run_id=run.pk, attempt=1)
    assert (so_far.heard, so_far.left) == ({2}, ())


def test_a_long_message_is_whole(run: Run) -> None:
    text = "x" * 20_000
    append(run, 1, asked("message", 1, text=text))
    assert inherited.asked_of(run_id=run.pk, attempt=2).left[0].value == {"text": text}
