"""The rules that turn test results into a verdict. Pure: no clock, no files, no sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lab.engine.errors import InvalidValueError
from lab.engine.verify.base import Judgement, Outcome, TestGroup, TestOutcome, TestStatus

# Worst last: where one id has several results, or a cut-off id stands for several tests, the worst counts.
SEVERITY: tuple[TestStatus, ...] = (
    TestStatus.PASSED,
    TestStatus.XFAIL,
    TestStatus.SKIPPED,
    TestStatus.XPASS,
    TestStatus.MISSING,
    TestStatus.FAILED,
    TestStatus.ERROR,
)

_PASSED = frozenset({TestStatus.PASSED, TestStatus.XFAIL})
# A P2P test that is skipped counts as kept, as in SWE-bench's own grading since its version 5.
_KEPT = _PASSED | {TestStatus.SKIPPED}


class Rule(Protocol):
    """Judges what a test run said of the expected tests."""

    def __call__(
        self,
        *,
        fail_to_pass: Sequence[str],
        pass_to_pass: Sequence[str],
        statuses: Mapping[str, TestStatus],
        exit_code: int | None = None,
    ) -> Judgement: ...


def worst(statuses: Sequence[TestStatus]) -> TestStatus:
    """The worst of one or more statuses."""
    return max(statuses, key=SEVERITY.index)


def passes(group: TestGroup, status: TestStatus) -> bool:
    """Whether a test of this group with this status is as the rule `swe-bench` wants it."""
    return status in (_KEPT if group == "pass_to_pass" else _PASSED)


def swe_bench(
    *,
    fail_to_pass: Sequence[str],
    pass_to_pass: Sequence[str],
    statuses: Mapping[str, TestStatus],
    exit_code: int | None = None,
) -> Judgement:
    """Resolved exactly when every F2P test passed and every P2P test was kept.

    Passed is PASSED or XFAIL; for P2P a skip counts as kept. An expected test without a result is `missing`.
    No result at all is `unparsed`; so is a non-zero exit code that no failing test explains, because then
    something outside the tests broke. A task without F2P tests cannot be resolved: it is invalid. The other
    tests come after the expected ones and decide nothing.
    """
    expected: dict[str, TestGroup] = dict.fromkeys(pass_to_pass, "pass_to_pass")
    expected.update(dict.fromkeys(fail_to_pass, "fail_to_pass"))
    order = [
        *dict.fromkeys(fail_to_pass),
        *(test for test in dict.fromkeys(pass_to_pass) if test not in fail_to_pass),
    ]
    tests = tuple(
        TestOutcome(test_id=test, group=expected[test], status=status_of(test, statuses)) for test in order
    )
    others = tuple(
        TestOutcome(test_id=test, group="other", status=statuses[test])
        for test in sorted(statuses)
        if test not in expected
    )
    outcome, detail = _decide(tests, statuses, exit_code)
    return Judgement(outcome, tests + others, detail)


def _decide(
    tests: Sequence[TestOutcome], statuses: Mapping[str, TestStatus], exit_code: int | None
) -> tuple[Outcome, str]:
    if not any(test.group == "fail_to_pass" for test in tests):
        return Outcome.TASK_INVALID, "the task names no fail-to-pass test; add at least one"
    if not statuses:
        return Outcome.UNPARSED, "no test result was found in the output of the test command"
    if not all(passes(test.group, test.status) for test in tests):
        return Outcome.UNRESOLVED, ""
    explained = {TestStatus.FAILED, TestStatus.ERROR} & set(statuses.values())
    if exit_code not in (None, 0) and not explained:
        return Outcome.UNPARSED, f"the test command ended with exit code {exit_code}, but no test failed"
    return Outcome.RESOLVED, ""


def status_of(test_id: str, statuses: Mapping[str, TestStatus]) -> TestStatus:
    """The status of an expected test.

    Published task lists hold ids cut at a blank inside their brackets (`test_a[int,` for `test_a[int, str]`):
    such an id stands for all tests it is the beginning of, and takes the worst of their statuses.
    """
    if test_id in statuses:
        return statuses[test_id]
    if "[" not in test_id or test_id.endswith("]"):
        return TestStatus.MISSING
    matching = [status for name, status in statuses.items() if name.startswith(f"{test_id} ")]
    return worst(matching) if matching else TestStatus.MISSING


RULES: dict[str, Rule] = {"swe-bench": swe_bench}


def rule_named(name: str) -> Rule:
    """The rule of that name.

    Raises:
        InvalidValueError: there is none.
    """
    try:
        return RULES[name]
    except KeyError:
        raise InvalidValueError(
            "verification.rule", name, f"is no rule; use one of {', '.join(RULES)}"
        ) from None
