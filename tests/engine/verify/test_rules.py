"""The rules are pure: what counts as passed, and what can never turn a verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.errors import InvalidValueError
from lab.engine.verify.base import Outcome, TestStatus
from lab.engine.verify.rules import rule_named, swe_bench

STATUSES = st.sampled_from([status for status in TestStatus if status is not TestStatus.MISSING])
IDS = st.sampled_from([f"tests/test_x.py::test_{letter}" for letter in "abcdefgh"])
RESULTS = st.dictionaries(IDS, STATUSES)
LISTS = st.lists(IDS, max_size=4, unique=True)
BAD = st.sampled_from([TestStatus.FAILED, TestStatus.ERROR])


def outcome(
    f2p: list[str], p2p: list[str], statuses: dict[str, TestStatus], exit_code: int | None = None
) -> Outcome:
    return swe_bench(fail_to_pass=f2p, pass_to_pass=p2p, statuses=statuses, exit_code=exit_code).outcome


@pytest.mark.parametrize(
    ("status", "as_f2p", "as_p2p"),
    [
        (TestStatus.PASSED, True, True),
        (TestStatus.XFAIL, True, True),
        (TestStatus.SKIPPED, False, True),
        (TestStatus.XPASS, False, False),
        (TestStatus.FAILED, False, False),
        (TestStatus.ERROR, False, False),
        (None, False, False),
    ],
)
def test_what_counts_as_passed_follows_the_benchmark(
    status: TestStatus | None, as_f2p: bool, as_p2p: bool
) -> None:
    found = {"other": TestStatus.PASSED} | ({"a": status} if status else {})
    assert (outcome(["a"], [], found) is Outcome.RESOLVED) is as_f2p
    found["b"] = TestStatus.PASSED
    assert (outcome(["b"], ["a"], found) is Outcome.RESOLVED) is as_p2p


def test_an_expected_test_without_a_result_is_missing() -> None:
    judgement = swe_bench(fail_to_pass=["a"], pass_to_pass=["b"], statuses={"b": TestStatus.PASSED})
    assert judgement.outcome is Outcome.UNRESOLVED
    assert [(test.test_id, test.group, test.status.value) for test in judgement.tests] == [
        ("a", "fail_to_pass", "missing"),
        ("b", "pass_to_pass", "passed"),
    ]


def test_other_tests_are_listed_last_and_decide_nothing() -> None:
    statuses = {"z": TestStatus.FAILED, "a": TestStatus.PASSED, "y": TestStatus.ERROR}
    judgement = swe_bench(fail_to_pass=["a"], pass_to_pass=[], statuses=statuses, exit_code=1)
    assert judgement.outcome is Outcome.RESOLVED
    assert [(test.test_id, test.group) for test in judgement.tests] == [
        ("a", "fail_to_pass"),
        ("y", "other"),
        ("z", "other"),
    ]


def test_no_result_at_all_is_unparsed() -> None:
    judgement = swe_bench(fail_to_pass=["a"], pass_to_pass=["b"], statuses={}, exit_code=0)
    assert judgement.outcome is Outcome.UNPARSED
    assert "no test result" in judgement.detail


def test_an_exit_code_that_no_failing_test_explains_is_unparsed() -> None:
    judgement = swe_bench(fail_to_pass=["a"], pass_to_pass=[], statuses={"a": TestStatus.PASSED}, exit_code=3)
    assert judgement.outcome is Outcome.UNPARSED
    assert "exit code 3" in judgement.detail


def test_an_id_cut_at_a_blank_stands_for_all_it_begins() -> None:
    statuses = {"t.py::a[int, str]": TestStatus.PASSED, "t.py::a[int, bytes]": TestStatus.PASSED}
    assert outcome(["t.py::a[int,"], [], statuses) is Outcome.RESOLVED
    statuses["t.py::a[int, bytes]"] = TestStatus.FAILED
    assert outcome(["t.py::a[int,"], [], statuses) is Outcome.UNRESOLVED
    assert outcome(["t.py::a"], [], statuses) is Outcome.UNRESOLVED


def test_an_unknown_rule_is_named_with_those_there_are() -> None:
    with pytest.raises(
        InvalidValueError, match=r"verification\.rule: 'golf' is no rule; use one of swe-bench"
    ):
        rule_named("golf")


@given(LISTS, RESULTS)
def test_a_task_without_f2p_tests_is_never_resolved(p2p: list[str], statuses: dict[str, TestStatus]) -> None:
    assert outcome([], p2p, statuses) is Outcome.TASK_INVALID


@given(LISTS, LISTS, RESULTS, IDS, BAD)
def test_turning_a_result_bad_never_resolves(
    f2p: list[str], p2p: list[str], statuses: dict[str, TestStatus], changed: str, status: TestStatus
) -> None:
    worse = {**statuses, changed: status}
    if outcome(f2p, p2p, worse) is Outcome.RESOLVED:
        assert changed not in [*f2p, *p2p]
        assert outcome(f2p, p2p, statuses | {changed: TestStatus.PASSED}) is Outcome.RESOLVED


@given(LISTS, LISTS, RESULTS, IDS)
def test_losing_a_result_never_resolves(
    f2p: list[str], p2p: list[str], statuses: dict[str, TestStatus], lost: str
) -> None:
    fewer = {name: status for name, status in statuses.items() if name != lost}
    if outcome(f2p, p2p, fewer) is Outcome.RESOLVED:
        assert lost not in [*f2p, *p2p]


@given(st.data(), LISTS, LISTS, RESULTS)
def test_order_does_not_matter(
    data: st.DataObject, f2p: list[str], p2p: list[str], statuses: dict[str, TestStatus]
) -> None:
    shuffled = dict(data.draw(st.permutations(list(statuses.items()))))
    judged = swe_bench(
        fail_to_pass=data.draw(st.permutations(f2p)),
        pass_to_pass=data.draw(st.permutations(p2p)),
        statuses=shuffled,
    )
    expected = swe_bench(fail_to_pass=f2p, pass_to_pass=p2p, statuses=statuses)
    assert judged.outcome is expected.outcome
    said = [
        sorted((test.test_id, test.group, test.status) for test in one.tests) for one in (judged, expected)
    ]
    assert said[0] == said[1]


@given(LISTS, LISTS, RESULTS.filter(bool), STATUSES)
def test_unrelated_tests_are_irrelevant(
    f2p: list[str], p2p: list[str], statuses: dict[str, TestStatus], status: TestStatus
) -> None:
    assert outcome(f2p, p2p, {**statuses, "unrelated": status}) is outcome(f2p, p2p, statuses)


@given(LISTS, LISTS, RESULTS, st.none() | st.integers(-9, 5))
def test_resolved_means_that_every_expected_test_is_there_and_kept(
    f2p: list[str], p2p: list[str], statuses: dict[str, TestStatus], exit_code: int | None
) -> None:
    if outcome(f2p, p2p, statuses, exit_code) is Outcome.RESOLVED:
        passed = {TestStatus.PASSED, TestStatus.XFAIL}
        assert f2p
        assert all(statuses[test] in passed for test in f2p)
        assert all(statuses[test] in passed | {TestStatus.SKIPPED} for test in p2p)
