"""Whole experiments in a whole lab: a budget that stops one near it, and a pause that kills its workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence

import pytest

from tests.e2e.harmed_lab import HarmedLab
from tests.e2e.oracle import problems
from tests.e2e.person import Person, somebody
from tests.e2e.stories import Story
from tests.whole_lab import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

_TOKENS = "SELECT SUM(input_total + output_total) FROM lab_run_facts f JOIN lab_run r ON r.id = f.run_id"
_HELD = (
    "SELECT COUNT(*) FROM lab_attempt a JOIN lab_run r ON r.id = a.run_id"
    " WHERE r.experiment_id = ? AND a.lease_until IS NOT NULL"
)


@pytest.fixture(scope="module")
def lab() -> Iterator[HarmedLab]:
    with HarmedLab(LAB_RUN_SLOTS="4") as started:
        yield started


@pytest.fixture(scope="module")
def unharmed(lab: HarmedLab) -> Story:
    (story,) = lab.run([[]], seconds=180)
    assert problems(story) == []
    return story


@pytest.fixture(scope="module")
def person(lab: HarmedLab) -> Person:
    """Somebody who is signed in before anything is launched: that takes seconds, in which runs go on."""
    return somebody(lab)


def launched(lab: HarmedLab, count: int) -> tuple[list[int], int]:
    """The runs of a new experiment, and its number."""
    runs = lab.launch([[]] * count)
    return runs, lab.value("SELECT experiment_id FROM lab_run WHERE id = ?", runs[0])


def state(lab: HarmedLab, experiment: int) -> str:
    return str(lab.value("SELECT state FROM lab_experiment WHERE id = ?", experiment))


def wait_until_it_stands(lab: HarmedLab, experiment: int) -> None:
    wait_for(lambda: state(lab, experiment) == "paused", what="the pause", seconds=180)
    wait_for(lambda: lab.value(_HELD, experiment) == 0, what="every place given back", seconds=180)
    # The text that streamed when its worker was killed is shown until the run goes on.
    wait_for(
        lambda: all(one.startswith("a draft") for one in lab.leftovers(within=0)),
        what="nothing left of those who gave back their places",
    )
    statuses = lab.query("SELECT DISTINCT status FROM lab_run WHERE experiment_id = ?", experiment)
    assert set(statuses) <= {("queued",), ("ended",)}


def check(lab: HarmedLab, runs: Sequence[int], unharmed: Story) -> list[Story]:
    """All ended as an unharmed run does, in one attempt, and nothing is left."""
    stories = lab.stories(runs)
    wrong = [text for story in stories for text in problems(story, unharmed)]
    wrong += [f"run {one.run}: {one.last_attempt} attempts" for one in stories if one.last_attempt != 1]
    assert not wrong, "\n".join(wrong)
    assert lab.leftovers() == []
    return stories


def test_an_experiment_stops_near_its_budget_and_everything_goes_on_when_that_is_raised(
    lab: HarmedLab, unharmed: Story, person: Person
) -> None:
    whole = unharmed.facts["input_total"] + unharmed.facts["output_total"]
    largest = max(call["input_total"] + call["output_total"] for call in unharmed.calls)
    runs, experiment = launched(lab, 4)
    asks, budget = f"/experiments/{experiment}/ask", 2 * whole
    person.send(f"{asks}/pause/")
    person.send(f"{asks}/budget/", max_tokens=budget, goes_on="on")
    assert state(lab, experiment) == "active"

    wait_until_it_stands(lab, experiment)
    used = lab.value(f"{_TOKENS} WHERE r.experiment_id = ?", experiment)
    assert budget <= used <= budget + 4 * largest
    because = lab.value("SELECT paused_because FROM lab_experiment WHERE id = ?", experiment)
    assert because.startswith(f"the budget of {budget:,} tokens is reached: ")
    reasons = lab.query("SELECT DISTINCT exit_reason FROM lab_run WHERE experiment_id = ?", experiment)
    assert set(reasons) <= {("",), ("agent",)}
    assert "is reached" in person.read(f"{asks}/budget/")

    person.send(f"{asks}/budget/", max_tokens=100 * whole, goes_on="on")
    lab.wait_until_ended(runs, seconds=360)
    stories = check(lab, runs, unharmed)
    continued = [one for story in stories for one in story.of("attempt_continued")]
    assert continued
    assert all(one["orderly"] for one in continued)
    assert not any(story.of("model_call_interrupted", "tool_call_interrupted") for story in stories)
    assert state(lab, experiment) == "ended"


def test_workers_that_are_killed_while_their_experiment_is_being_paused_lose_nothing(
    lab: HarmedLab, unharmed: Story, person: Person
) -> None:
    runs, experiment = launched(lab, 4)
    calls = "SELECT COUNT(*) FROM lab_event WHERE kind = 'model_call_finished' AND run_id >= ?"
    wait_for(lambda: lab.value(calls, min(runs)) >= 8, what="some steps", seconds=180)
    person.send(f"/experiments/{experiment}/ask/pause/")
    os.kill(lab.child("celery", "--queues runs"), signal.SIGKILL)
    wait_until_it_stands(lab, experiment)
    person.send(f"/experiments/{experiment}/ask/resume/")
    lab.wait_until_ended(runs, seconds=360)
    check(lab, runs, unharmed)
    assert state(lab, experiment) == "ended"
