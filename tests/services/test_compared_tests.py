"""Who passes what, test by test."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from pytest_django import DjangoAssertNumQueries

from lab.engine.events import AttemptEnded, PatchCaptured, RunEnded, VerificationFinished, VerificationStarted
from lab.engine.verify.base import TestOutcome, TestStatus
from lab.models import Run
from lab.services import compared_tests, comparisons
from lab.services.compared_tests import ComparedTests, Part
from tests import builders

pytestmark = pytest.mark.django_db

GROUPS = {"f": "fail_to_pass", "p": "pass_to_pass", "o": "other"}


def graded(
    statuses: Mapping[str, str],
    *,
    rule: str = "swe-bench",
    outcome: str = "unresolved",
    run: Run | None = None,
) -> Run:
    """A run whose grading says this; the first letter of a test's name is that of its group."""
    run = builders.run()
    builders.start(run)
    tests = [
        TestOutcome.model_validate(
            {
                "test_id": name,
                "group": GROUPS[name[0]],
                "status": status,
                "assertion": f"assert {name}" if status == "failed" else "",
                "log": "E   hidden" if status == "failed" else "",
            }
        )
        for name, status in statuses.items()
    ]
    builders.append(
        run,
        PatchCaptured(exit_reason="agent", patch=""),
        VerificationStarted(rule=rule, fail_to_pass=1, pass_to_pass=1),
        VerificationFinished(rule=rule, outcome=outcome, tests=tests, seconds=1.0),
        AttemptEnded(exit_reason="agent", steps=1, wall_seconds=1.0, agent_seconds=1.0),
        RunEnded(exit_reason="agent", verdict=outcome),
    )
    return Run.objects.get(pk=run.pk)


def names(compared: ComparedTests) -> dict[Part, list[str]]:
    return {part: [test.test_id for test in tests] for part, tests in compared.tests.items() if tests}


def test_tests_that_differ_stand_before_those_that_fail_everywhere_and_those_alike() -> None:
    first = graded({"p1": "passed", "f1": "passed", "f2": "failed", "f3": "passed", "p2": "passed"})
    second = graded({"p1": "passed", "f1": "failed", "f2": "error", "f3": "passed", "p2": "error"})
    compared = compared_tests.compare([first, second])
    assert names(compared) == {"differs": ["f1", "p2"], "failing": ["f2"], "alike": ["f3", "p1"]}
    assert compared.shared == 5


def test_a_test_that_did_not_run_is_no_pass_and_a_kept_skip_is_none_of_a_difference() -> None:
    first = graded({"f1": "passed", "p1": "skipped", "f2": "xfail"})
    second = graded({"f1": "missing", "p1": "passed", "f2": "passed"})
    compared = compared_tests.compare([first, second])
    assert names(compared) == {"differs": ["f1"], "alike": ["f2", "p1"]}
    (row,) = compared_tests.shown(compared.tests["differs"])
    assert [result.word for result in row.results if result] == ["passed", "not run"]
    assert row.chip == "f2p"


def test_what_a_failed_test_said_stands_beside_it() -> None:
    compared = compared_tests.compare([graded({"f1": "failed"}), graded({"f1": "passed"})])
    (row,) = compared_tests.shown(compared.tests["differs"])
    first, second = row.results
    assert first is not None
    assert second is not None
    assert (first.assertion, first.has_log) == ("assert f1", True)
    assert (second.assertion, second.has_log) == ("", False)


def test_lists_and_rules_that_differ_are_said() -> None:
    first = graded({"f1": "passed", "p1": "passed", "p2": "failed"})
    second = graded({"f1": "failed"}, rule="harbor")
    compared = compared_tests.compare([first, second])
    assert names(compared) == {"differs": ["f1"], "apart": ["p1", "p2"]}
    assert compared.shared == 1
    assert compared_tests.sentences(compared, one_task=False) == [
        "The runs are of different tasks: only tests of the same name stand in one row.",
        "They were graded by different rules: A by swe-bench, B by harbor.",
        "Their lists of tests differ: A 3, B 1; 2 stand in one list alone.",
    ]


def test_runs_without_a_grading_say_so_and_the_others_are_compared() -> None:
    one, other = graded({"f1": "passed"}), graded({"f1": "failed"})
    live = builders.run()
    broken = graded({"f1": "missing"}, outcome="infrastructure")
    compared = compared_tests.compare([one, live, other, broken])
    assert [grading.state for grading in compared.gradings] == ["graded", "waiting", "graded", "none"]
    (test,) = compared.tests["differs"]
    assert [result and result.status for result in test.results] == ["passed", None, "failed", None]
    alone = compared_tests.compare([one, live])
    assert names(alone) == {"alike": ["f1"]}
    assert compared_tests.sentences(alone, one_task=True) == [
        "Only A is graded, so there is nothing to compare."
    ]
    assert compared_tests.compare([live, builders.run()]).graded == []


def test_the_newest_grading_counts() -> None:
    run = graded({"f1": "failed"})
    again = VerificationFinished(
        rule="swe-bench",
        outcome="resolved",
        tests=[TestOutcome(test_id="f1", group="fail_to_pass", status=TestStatus.PASSED)],
        seconds=1.0,
    )
    builders.append(run, again)
    compared = compared_tests.compare([run, graded({"f1": "passed"})])
    assert names(compared) == {"alike": ["f1"]}


def test_six_runs_are_two_queries_and_one_more_for_what_failed_tests_said(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    made = [graded({"f1": "passed" if number else "failed", "p1": "passed"}) for number in range(6)]
    runs = comparisons.find_runs([run.pk for run in made])
    with django_assert_num_queries(2):
        compared = compared_tests.compare(runs)
    with django_assert_num_queries(1):
        compared_tests.shown(compared.tests["differs"])
    with django_assert_num_queries(0):
        compared_tests.shown(compared.tests["alike"])


def test_ten_thousand_tests_are_sorted_and_all_that_failed_tests_said_is_read() -> None:
    tests = {f"p{number}": "passed" for number in range(10_000)}
    runs = [graded(tests), graded({name: "failed" if name[-1] == "7" else "passed" for name in tests})]
    began = time.perf_counter()
    compared = compared_tests.compare(runs)
    rows = compared_tests.shown(compared.tests["differs"])
    assert (len(rows), compared.shared) == (1_000, 10_000)
    assert all(row.results[1] and row.results[1].assertion == f"assert {row.name}" for row in rows)
    assert time.perf_counter() - began < 30
    many = compared_tests.shown([*compared.tests["differs"]] * 3)
    assert many[2_500].results[1] == rows[500].results[1]
