"""Gradings as pages show them: the outcome, counts as "n of m", failing tests first, a log for each test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lab.engine.key_shapes import mask_key_shapes
from lab.engine.verify.base import TestGroup, TestStatus
from lab.engine.verify.rules import passes
from lab.models import Event, RunFacts, TestResult, Verification
from lab.render.moments import OUTCOMES
from lab.render.text import cut_in_the_middle, one_line, visible_text
from lab.services.trajectories import text_of

FAILING_SHOWN = 5


class Badge(NamedTuple):
    """State as class, icon and word."""

    name: str
    icon: str
    word: str


class GradedTest(NamedTuple):
    """One test of a grading. `log_part` is where its log is fetched from, "" without one."""

    id: int
    name: str
    full_name: str
    chip: str
    status: str
    state: str
    icon: str
    assertion: str
    has_log: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The run's latest grading: outcome, counts as "n of m", failing tests first."""

    badge: Badge
    rule: str
    n: int
    detail: str
    fail_to_pass: str
    pass_to_pass: str
    failing: list[GradedTest]
    failing_count: int
    test_count: int


# A test's status -> how it is shown: class, icon, word.
TEST_STATES: dict[str, tuple[str, str, str]] = {
    "passed": ("passed", "ok", "passed"),
    "failed": ("failed", "cross", "failed"),
    "error": ("failed", "cross", "error"),
    "skipped": ("quiet", "cancelled", "skipped"),
    "xfail": ("quiet", "ok", "expected failure"),
    "xpass": ("warning", "warning", "unexpected pass"),
    "missing": ("slate", "unparsed", "not run"),
}
CHIPS = {"fail_to_pass": "f2p", "pass_to_pass": "p2p"}


def passed_of(passed: int | None, total: int | None) -> str:
    return "unknown" if passed is None or total is None else f"{passed} of {total}"


def verdict_of(verification: Verification, facts: RunFacts) -> Verdict:
    name, icon, word = OUTCOMES.get(verification.outcome, ("invalid", "unparsed", verification.outcome))
    expected = TestResult.objects.filter(verification=verification).exclude(group="other")
    failing = [test for test in expected.exclude(status="passed") if not _passes(test)]
    rows = _sorted_tests(failing)
    return Verdict(
        badge=Badge(name, icon, word),
        rule=verification.rule,
        n=verification.n,
        detail=one_line(verification.detail, 600),
        fail_to_pass=passed_of(facts.fail_to_pass_passed, facts.fail_to_pass_total),
        pass_to_pass=passed_of(facts.pass_to_pass_passed, facts.pass_to_pass_total),
        failing=rows[:FAILING_SHOWN],
        failing_count=len(rows),
        test_count=(facts.fail_to_pass_total or 0) + (facts.pass_to_pass_total or 0),
    )


def _passes(test: TestResult) -> bool:
    group: TestGroup = "pass_to_pass" if test.group == "pass_to_pass" else "fail_to_pass"
    return passes(group, TestStatus(test.status))


def all_tests(*, run_id: int) -> list[GradedTest]:
    """Every test of the latest grading: failed first, then F2P, P2P, others."""
    verification = Verification.objects.filter(run_id=run_id).order_by("-n").first()
    return _sorted_tests(list(TestResult.objects.filter(verification=verification))) if verification else []


def newest_grading(*, run_id: int) -> int | None:
    """The number of the event with the latest grading's whole output, None when there is none."""
    found = Event.objects.filter(run=run_id, kind="verification_finished").order_by("-seq")
    return found.values_list("seq", flat=True).first()


def log_of_test(*, test_id: int) -> str:
    """The log of one graded test, whole, with everything masked that looks like a key.

    Raises:
        LookupError: there is no such test.
        BodyMissingError: the stored log is gone or damaged.
    """
    test = TestResult.objects.select_related("verification").filter(pk=test_id).first()
    if test is None:
        raise LookupError(f"there is no graded test {test_id}")
    gradings = Event.objects.filter(run=test.verification.run_id, kind="verification_finished").order_by(
        "seq"
    )
    grading = gradings[test.verification.n - 1 : test.verification.n].first()
    tests = grading.payload.get("tests") if grading else None
    if not tests or len(tests) < test.position:
        return mask_key_shapes(test.log)
    return mask_key_shapes(text_of(tests[test.position - 1].get("log") or ""))


def _sorted_tests(results: list[TestResult]) -> list[GradedTest]:
    groups = {"fail_to_pass": 0, "pass_to_pass": 1}
    ordered = sorted(
        results, key=lambda test: (test.status == "passed", groups.get(test.group, 2), test.position)
    )
    return [_test_row(test) for test in ordered]


def _test_row(test: TestResult) -> GradedTest:
    state, icon, word = TEST_STATES.get(test.status, ("slate", "unparsed", test.status))
    name = visible_text(test.test_id)
    return GradedTest(
        id=test.pk,
        name=cut_in_the_middle(name),
        full_name=name,
        chip=CHIPS.get(test.group, ""),
        status=word,
        state=state,
        icon=icon,
        assertion=one_line(test.assertion, 160),
        has_log=bool(test.log),
    )
