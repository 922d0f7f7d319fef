"""The roll-up that pages and lists read, where it could say more than the log knows."""

from __future__ import annotations

import datetime as dt

import pytest

from lab.engine.events import (
    AttemptContinued,
    AttemptEnded,
    ControlAsked,
    Event,
    LimitChanged,
    MessageSent,
    ModelCallInterrupted,
    Paused,
    Resumed,
    RunEnded,
    VerificationFinished,
    VerificationStarted,
)
from lab.engine.resume import where_it_stands
from lab.engine.verify.base import TestGroup, TestOutcome, TestStatus
from lab.models import Run, RunFacts
from lab.services import log, run_pages
from lab.services.facts import agent_seconds, clock_start, rebuild_facts
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


def test_as_many_tests_passed_as_the_rule_counts() -> None:
    groups: dict[TestGroup, tuple[str, ...]] = {
        "fail_to_pass": ("passed", "xfail", "skipped", "failed"),
        "pass_to_pass": ("passed", "xfail", "skipped", "xpass", "missing", "error"),
        "other": ("passed", "failed"),
    }
    outcomes = [
        TestOutcome(test_id=f"{group}[{status}]", group=group, status=TestStatus(status))
        for group, statuses in groups.items()
        for status in statuses
    ]
    run = graded_with(builders.run(), outcomes, "unresolved")
    rolled_up = run.facts
    assert (rolled_up.fail_to_pass_passed, rolled_up.fail_to_pass_total) == (2, 4)
    assert (rolled_up.pass_to_pass_passed, rolled_up.pass_to_pass_total) == (3, 6)
    verdict = run_pages.panel(run).verdict
    assert verdict is not None
    assert (verdict.fail_to_pass, verdict.pass_to_pass) == ("2 of 4", "3 of 6")
    # What the rule lets pass is not listed among what failed.
    assert [one.full_name for one in verdict.failing] == [
        *("fail_to_pass[skipped]", "fail_to_pass[failed]"),
        *("pass_to_pass[xpass]", "pass_to_pass[missing]", "pass_to_pass[error]"),
    ]


def test_a_run_that_is_resolved_with_skipped_tests_broke_none() -> None:
    outcomes = [
        TestOutcome(test_id="a", group="fail_to_pass", status=TestStatus.PASSED),
        TestOutcome(test_id="b", group="pass_to_pass", status=TestStatus.SKIPPED),
    ]
    run = graded_with(builders.run(), outcomes, "resolved")
    assert run_pages.row_of(run).pass_to_pass == ""
    verdict = run_pages.panel(run).verdict
    assert verdict is not None
    assert (verdict.pass_to_pass, verdict.failing_count, verdict.test_count) == ("1 of 1", 0, 2)


def graded_with(run: Run, outcomes: list[TestOutcome], verdict: str) -> Run:
    """A run whose patch was graded with these results."""
    builders.start(run)
    builders.append(
        run,
        *builders.final_step(1),
        VerificationStarted(rule="swe-bench", fail_to_pass=1, pass_to_pass=1),
        VerificationFinished(rule="swe-bench", outcome=verdict, tests=outcomes, seconds=1.9),
        AttemptEnded(exit_reason="agent", steps=1, wall_seconds=9.0, agent_seconds=8.0),
        RunEnded(exit_reason="agent", verdict=verdict),
    )
    return Run.objects.for_rows().get(pk=run.pk)


def at(second: float) -> dt.datetime:
    return dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=second)


def told(run: Run, *events: tuple[float, Event]) -> RunFacts:
    """The roll-up after events at these seconds."""
    stamped = [(at(second), event) for second, event in events]
    log.append(run_id=run.pk, attempt=1, lease_token=None, events=stamped)
    return RunFacts.objects.get(pk=run.pk)


STARTED, SANDBOX = builders.opening()
PAUSED_AND_CONTINUED: list[tuple[float, Event]] = [
    (0, STARTED),
    (5, SANDBOX),
    (10, builders.asked(1)),
    (12, builders.answered(1, ("Bash", "{}"))),
    (12, builders.called(1, "Bash", {"command": "make"})),
    (20, builders.printed(1, "done\n")),
    (20, ControlAsked(control="pause", person="mara", ask=1)),
    (20, Paused(person="mara", ask=1)),
    (120, Resumed(person="mara", ask=2)),
    (121, builders.asked(2)),
    (141, ModelCallInterrupted(step=2, request=1, reason="the worker died")),
    (151, AttemptContinued(continuation=1, reason="the worker died")),
    (155, SANDBOX.model_copy(update={"rebuilt": True})),
    (156, builders.asked(2, request=2).model_copy(update={"again": True})),
    (159, builders.answered(2, content="Done.", request=2)),
]


@pytest.mark.parametrize("length", range(3, len(PAUSED_AND_CONTINUED) + 1))
def test_the_clock_of_the_agent_is_the_one_that_its_limit_is_held_to(length: int) -> None:
    run = builders.run()
    run.attempts.create(n=1)
    facts = told(run, *PAUSED_AND_CONTINUED[:length])
    standing = where_it_stands(log.read_records(run_id=run.pk))

    assert agent_seconds(facts, until=None) == pytest.approx(standing.agent_seconds, abs=1.001)
    assert rebuild_facts(run_id=run.pk).agent_clock == facts.agent_clock


def test_pauses_and_the_time_of_a_dead_worker_are_not_the_agents() -> None:
    run = builders.run()
    run.attempts.create(n=1)
    facts = told(run, *PAUSED_AND_CONTINUED)

    assert agent_seconds(facts, until=None) == pytest.approx(14)
    assert agent_seconds(facts, until=at(161)) == pytest.approx(16)
    assert clock_start(facts) == at(145)
    assert facts.continuations == 1


def test_the_clock_stands_while_a_run_is_paused() -> None:
    run = builders.run()
    run.attempts.create(n=1)
    facts = told(run, *PAUSED_AND_CONTINUED[:8])

    assert agent_seconds(facts, until=at(99)) == pytest.approx(10)
    assert clock_start(facts) is None
    assert facts.pending["kind"] == "paused"
    assert facts.pending["summary"] == "mara"


def test_a_changed_limit_and_a_message_mark_the_run_for_good() -> None:
    run = builders.run()
    unchanged = told(run, (0, LimitChanged(limit="max_steps", before=9, after=9, person="mara")))
    assert not unchanged.limits_changed
    marked = told(
        run,
        (1, LimitChanged(limit="max_steps", before=9, after=12, person="mara")),
        (2, MessageSent(person="mara", message={"role": "user", "content": "go on"})),
        (3, STARTED),
    )
    assert (marked.limits_changed, marked.got_message) == (True, True)


def test_replies_of_which_nothing_was_understood_are_counted_among_all() -> None:
    run = builders.run()
    builders.start(run)
    builders.append(
        run,
        *builders.bash_step(1, "ls", "a\n"),
        *builders.unread_step(2, "I look."),
        *builders.unread_step(3, "```bash\nls\n```", drops=True, form="fence"),
        builders.asked(4),
        builders.answered(4, ("Bash", "{"), ("Bash", "{}")),
        builders.called(4, "Bash", {}, malformed="not JSON"),
        builders.told(4, "not JSON"),
        builders.called(4, "Bash", {"command": "ls"}, index=2),
        builders.printed(4, "a\n", index=2),
        builders.asked(5),
        builders.answered(5, ("Bash", "{")),
        builders.called(5, "Bash", {}, malformed="not JSON"),
        builders.told(5, "not JSON"),
    )
    run = Run.objects.for_rows().get(pk=run.pk)
    assert (run.facts.replies, run.facts.format_errors) == (5, 3)
    assert run.facts.unread_forms == {"fence": 1}
    again = rebuild_facts(run_id=run.pk)
    assert (again.replies, again.format_errors) == (5, 3)
    panel = run_pages.panel(run)
    assert [meter.used for meter in panel.limits if meter.label == "Format errors"] == ["3 of 5 replies"]
    assert panel.other_forms == (
        "1 of 5 replies holds what looks like a fenced command; this harness takes native calls only"
    )


def test_a_fence_in_the_answer_of_a_run_that_went_well_is_no_call() -> None:
    run = builders.run()
    builders.start(run)
    answer = builders.answered(2, content="Run:\n```bash\npytest\n```").model_copy(
        update={"unread_form": "fence"}
    )
    builders.append(run, *builders.bash_step(1, "ls", "a\n"), builders.asked(2), answer)
    assert run_pages.panel(Run.objects.for_rows().get(pk=run.pk)).other_forms == ""


def test_a_roll_up_of_an_older_release_gets_no_half_counts() -> None:
    run = builders.run()
    builders.start(run)
    builders.append(run, *builders.bash_step(1, "ls", "a\n"))
    RunFacts.objects.filter(pk=run.pk).update(replies=None, format_errors=None)
    builders.append(run, *builders.unread_step(2, "I look."))
    facts = RunFacts.objects.get(pk=run.pk)
    assert (facts.replies, facts.format_errors) == (None, None)
    run = Run.objects.for_rows().get(pk=run.pk)
    assert "Format errors" not in [meter.label for meter in run_pages.panel(run).limits]


def test_what_a_pending_call_is_about_is_said_for_every_family() -> None:
    run = builders.run()
    builders.start(run)
    builders.append(
        run,
        builders.asked(1),
        builders.answered(1, ("file_editor", "{}")),
        builders.called(1, "file_editor", {"command": "view", "path": "a.py", "view_range": [1, 9]}),
    )
    assert RunFacts.objects.get(pk=run.pk).pending["summary"] == "view a.py [1, 9]"
