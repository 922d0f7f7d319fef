"""What requests and gradings sum to is what the roll-ups say, and where it is not, that is found."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from lab.engine.events import (
    AttemptEnded,
    ModelCallInterrupted,
    RunEnded,
    VerificationFinished,
    VerificationStarted,
)
from lab.models import Run, RunFacts
from lab.services import recounts, sample
from tests import builders

pytestmark = pytest.mark.django_db


def two_attempts() -> Run:
    """An attempt that infrastructure ended in its third step, and one that was judged."""
    run = builders.run()
    builders.start(run)
    broken = AttemptEnded(exit_reason="infrastructure_error", steps=3, wall_seconds=9.0)
    lost = ModelCallInterrupted(step=3, request=1, reason="the worker died")
    steps = [*builders.bash_step(1, "ls", ""), *builders.bash_step(2, "ls", "")]
    builders.append(run, *steps, builders.asked(3), lost, broken)
    builders.start(run, attempt=2)
    builders.append(run, *builders.bash_step(1, "ls", ""), builders.asked(2), attempt=2)
    builders.append(run, builders.failed_request(2), builders.asked(2, request=2), attempt=2)
    builders.append(run, builders.answered(2, request=2), *builders.ending(steps=2), attempt=2)
    return run


def equal(run: Run) -> recounts.Recount:
    """The recount, which the roll-up is equal to."""
    found = recounts.recount([run.pk])[run.pk]
    assert RunFacts.objects.values_list(*recounts.Recount._fields).get(pk=run.pk) == tuple(found)
    return found


def test_requests_of_all_attempts_count_and_steps_and_verdict_are_the_newests() -> None:
    found = equal(two_attempts())
    assert (found.steps, found.verdict) == (2, "unresolved")
    assert (found.calls, found.failed_calls) == (6, 1)
    assert (found.cost, found.cost_unknown, found.usage_unknown) == (Decimal("0.0232"), 2, 2)
    assert (found.cache_read, found.cache_write, found.output_total) == (4 * 1800, None, 4 * 318)


def test_a_run_without_a_request_has_no_known_sum() -> None:
    run = builders.run()
    builders.start(run)
    found = equal(run)
    assert (found.calls, found.cost, found.input_total, found.verdict) == (0, None, None, "")


def test_what_a_person_broke_off_is_not_judged() -> None:
    run = builders.run()
    builders.start(run)
    builders.append(
        run,
        *builders.final_step(1),
        VerificationStarted(rule="swe-bench", fail_to_pass=3, pass_to_pass=42),
        VerificationFinished(rule="swe-bench", outcome="infrastructure", seconds=1.9),
        AttemptEnded(exit_reason="cancelled", steps=1, wall_seconds=9.0),
        RunEnded(exit_reason="cancelled"),
    )
    assert equal(run).verdict == ""


def test_runs_of_the_sample_lab_agree(settings: Settings, tmp_path: Path) -> None:
    settings.LAB_DATA_DIR = tmp_path
    sample.play()
    counted = recounts.recount()
    assert len(counted) == 96
    for row in RunFacts.objects.values_list("run", *recounts.Recount._fields):
        assert row[1:] == tuple(counted[row[0]])
    assert list(recounts.differing()) == []


def test_a_roll_up_that_its_rows_contradict_is_found_with_both_figures() -> None:
    right, wrong = two_attempts(), two_attempts()
    RunFacts.objects.filter(pk=wrong.pk).update(output_total=7, verdict="resolved", steps=9)
    expected = [
        recounts.Difference(wrong.pk, "steps", 9, 2),
        recounts.Difference(wrong.pk, "output_total", 7, 4 * 318),
        recounts.Difference(wrong.pk, "verdict", "resolved", "unresolved"),
    ]
    assert list(recounts.differing()) == expected
    assert list(recounts.differing([right.pk])) == []


def test_a_roll_up_that_is_gone_is_found() -> None:
    run = two_attempts()
    RunFacts.objects.filter(pk=run.pk).delete()
    assert {one.field for one in recounts.differing()} >= {"steps", "calls", "cost", "verdict"}


def test_an_end_from_outside_that_says_other_steps_is_no_contradiction() -> None:
    run = builders.run()
    builders.start(run)
    unread = AttemptEnded(exit_reason="internal_error", steps=0, wall_seconds=9.0)
    builders.append(run, *builders.bash_step(1, "ls", ""), unread, RunEnded(exit_reason="internal_error"))
    assert recounts.recount()[run.pk].steps == 1
    assert RunFacts.objects.get(pk=run.pk).steps == 0
    assert list(recounts.differing()) == []


def test_a_run_that_goes_on_is_not_judged() -> None:
    run = builders.run()
    builders.start(run)
    RunFacts.objects.filter(pk=run.pk).update(calls=7)
    assert list(recounts.differing()) == []
