"""The roll-up that pages and lists read, where it could say more than the log knows."""

from __future__ import annotations

import pytest

from lab.engine.events import AttemptEnded, ControlAsked, RunEnded, VerificationFinished, VerificationStarted
from lab.models import Run
from lab.services import run_pages
from lab.services.facts import rebuild_facts
from tests import builders

pytestmark = pytest.mark.django_db


def broken_off(run: Run, *, reason: str, verdict: str | None) -> Run:
    """A run whose grading ended without a result."""
    builders.start(run)
    builders.append(
        run,
        *builders.final_step(1),
        VerificationStarted(rule="swe-bench", fail_to_pass=3, pass_to_pass=42),
        ControlAsked(control="cancel", person="mara"),
        VerificationFinished(
            rule="swe-bench", outcome="infrastructure", tests=builders.graded("unresolved"), seconds=1.9
        ),
        AttemptEnded(exit_reason=reason, steps=1, wall_seconds=9.0, agent_seconds=8.0),
        RunEnded(exit_reason=reason, verdict=verdict),
    )
    run.refresh_from_db()
    return Run.objects.for_rows().get(pk=run.pk)


def test_a_run_cancelled_while_it_was_graded_is_cancelled_and_not_infrastructure() -> None:
    run = broken_off(builders.run(), reason="cancelled", verdict=None)
    assert run_pages.badge_of(run).word == "cancelled"
    assert run_pages.panel(run).verdict is None
    assert rebuild_facts(run_id=run.pk).verdict == ""


def test_a_grading_that_broke_says_unknown_and_not_0_of_its_tests() -> None:
    run = broken_off(builders.run(), reason="agent", verdict="infrastructure")
    assert run_pages.badge_of(run).word == "infrastructure"
    verdict = run_pages.panel(run).verdict
    assert verdict is not None
    assert (verdict.fail_to_pass, verdict.pass_to_pass) == ("unknown", "unknown")
