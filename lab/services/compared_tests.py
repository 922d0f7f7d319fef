"""Who passes what: the newest gradings of several runs, test by test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from django.db.models import Q

from lab.engine.verify.base import Outcome, TestGroup, TestStatus
from lab.engine.verify.rules import passes
from lab.models import Run, TestResult, Verification
from lab.render.compared_tests import ShownResult, ShownTest
from lab.render.text import cut_in_the_middle, one_line, visible_text
from lab.services.compared_patches import LETTERS
from lab.services.gradings import CHIPS, TEST_STATES, Badge
from lab.services.run_pages import badge_of

# What these say of single tests is no result of theirs.
_BROKE_OFF = (Outcome.INFRASTRUCTURE, Outcome.TASK_INVALID)
_GROUP_ORDER = {"fail_to_pass": 0, "pass_to_pass": 1}
_ASSERTION_CHARACTERS = 160
_NAME_CHARACTERS = 80
# Beyond so many results it is cheaper to read what all failed tests said than to name each.
_NAMED_RESULTS = 2_000

Part = Literal["differs", "failing", "alike", "apart"]
PARTS: tuple[Part, ...] = ("differs", "failing", "alike", "apart")


class Grading(NamedTuple):
    """One side's newest grading. `state`: "graded", "waiting" (not yet) or "none".

    `rule` and `tests` (how many its list holds) are those of a grading; `detail` says why it has no verdict.
    """

    name: str
    run: int
    badge: Badge
    state: Literal["graded", "waiting", "none"]
    rule: str
    detail: str
    tests: int


class Result(NamedTuple):
    """One test's result in one grading: the number of its row, and its status."""

    id: int
    status: str


class ComparedTest(NamedTuple):
    """A test of one name. `results`: one a side, None where its grading does not list it or there is none."""

    test_id: str
    group: str
    part: Part
    position: int
    results: tuple[Result | None, ...]


@dataclass(frozen=True, slots=True)
class ComparedTests:
    """Gradings in the order of the runs, and every test: those that differ first, then failed, then alike.

    `apart` are those that one list alone holds.
    """

    gradings: list[Grading]
    tests: dict[Part, list[ComparedTest]]

    @property
    def graded(self) -> list[Grading]:
        return [one for one in self.gradings if one.state == "graded"]

    @property
    def shared(self) -> int:
        """How many tests there are of which two gradings or more say something."""
        return sum(len(found) for part, found in self.tests.items() if part != "apart")


def compare(runs: Sequence[Run], *, letters: Sequence[str] = LETTERS) -> ComparedTests:
    """The newest gradings of the runs side by side. Two queries, whatever the number of runs and tests."""
    newest = _newest(runs)
    counted = {
        pk: verification
        for pk, verification in newest.items()
        if verification.outcome not in _BROKE_OFF  # a run of them is not graded
    }
    places = {counted[run.pk].pk: place for place, run in enumerate(runs) if run.pk in counted}
    rows = (
        TestResult.objects.filter(verification__in=list(places))
        .order_by()
        .values_list("verification_id", "pk", "test_id", "group", "status", "position")
    )
    found: dict[str, tuple[str, int, list[Result | None]]] = {}
    sizes: dict[int, int] = {}
    for verification, pk, test_id, group, status, position in rows.iterator(chunk_size=5_000):
        entry = found.get(test_id)
        if entry is None:
            entry = found[test_id] = (group, position, [None] * len(runs))
        entry[2][places[verification]] = Result(pk, status)
        sizes[verification] = sizes.get(verification, 0) + 1
    gradings = [
        _grading(run, name, newest.get(run.pk), sizes, graded=run.pk in counted)
        for name, run in zip(letters[: len(runs)], runs, strict=True)
    ]
    return ComparedTests(gradings, _sorted(found, graded=len(places)))


def _newest(runs: Sequence[Run]) -> dict[int, Verification]:
    rows = Verification.objects.filter(run__in=[run.pk for run in runs]).order_by("n")
    return {one.run_id: one for one in rows.defer("rewards")}


def _grading(
    run: Run, name: str, newest: Verification | None, sizes: Mapping[int, int], *, graded: bool
) -> Grading:
    if newest is None:
        state: Literal["waiting", "none"] = "none" if run.status == Run.Status.ENDED else "waiting"
        return Grading(name, run.pk, badge_of(run), state, "", "", 0)
    return Grading(
        name=name,
        run=run.pk,
        badge=badge_of(run),
        state="graded" if graded else "none",
        rule=newest.rule,
        detail=one_line(newest.detail, 300),
        tests=sizes.get(newest.pk, 0),
    )


def _sorted(
    found: Mapping[str, tuple[str, int, list[Result | None]]], *, graded: int
) -> dict[Part, list[ComparedTest]]:
    parts: dict[Part, list[ComparedTest]] = {part: [] for part in PARTS}
    good = _Good()
    for test_id, (group, position, results) in found.items():
        statuses = [result.status for result in results if result is not None]
        part = _part(group, statuses, good, alone=graded > 1 and len(statuses) == 1)
        parts[part].append(ComparedTest(test_id, group, part, position, tuple(results)))
    for tests in parts.values():
        tests.sort(key=lambda test: (_GROUP_ORDER.get(test.group, 2), test.position, test.test_id))
    return parts


class _Good(dict[tuple[str, str], bool]):
    """Group and status -> whether that is what a grading wants, looked up ten thousand times."""

    def __missing__(self, key: tuple[str, str]) -> bool:
        group: TestGroup = "pass_to_pass" if key[0] == "pass_to_pass" else "fail_to_pass"
        self[key] = key[1] in list(TestStatus) and passes(group, TestStatus(key[1]))
        return self[key]


def _part(group: str, statuses: Sequence[str], good: _Good, *, alone: bool) -> Part:
    if alone:
        return "apart"
    passed = [good[group, status] for status in statuses]
    if all(passed):
        return "alike"
    return "differs" if any(passed) else "failing"


def shown(tests: Iterable[ComparedTest]) -> list[ShownTest]:
    """Rows of a table with what each failed test said; one query for all of them."""
    rows = list(tests)
    results = [result for row in rows for result in row.results if result is not None]
    said = _said(results)
    return [
        ShownTest(
            name=cut_in_the_middle(name := visible_text(row.test_id), _NAME_CHARACTERS),
            full_name=name,
            chip=CHIPS.get(row.group, ""),
            results=tuple(result and _shown(result, said) for result in row.results),
        )
        for row in rows
    ]


def _said(results: Sequence[Result]) -> dict[int, tuple[str, bool]]:
    """Number of a result -> its assertion line, and whether it has a log."""
    telling = [result.id for result in results if result.status != TestStatus.PASSED]
    if not telling:
        return {}
    rows = TestResult.objects.filter(pk__in=telling)
    if len(telling) > _NAMED_RESULTS:
        inside = TestResult.objects.filter(pk__in=telling[:_NAMED_RESULTS]).values("verification")
        rows = TestResult.objects.filter(verification__in=inside).exclude(assertion="", log="")
    found = rows.order_by().annotate(logged=~Q(log="")).values_list("pk", "assertion", "logged")
    return {pk: (one_line(assertion, _ASSERTION_CHARACTERS), logged) for pk, assertion, logged in found}


def _shown(result: Result, said: Mapping[int, tuple[str, bool]]) -> ShownResult:
    state, icon, word = TEST_STATES.get(result.status, ("slate", "unparsed", visible_text(result.status)))
    assertion, has_log = said.get(result.id, ("", False))
    return ShownResult(result.id, state, icon, word, assertion, has_log)


def sentences(compared: ComparedTests, *, one_task: bool) -> list[str]:
    """What one has to know of the gradings to read the table: other tasks, rules, lists."""
    graded = compared.graded
    said = []
    if not one_task:
        said.append("The runs are of different tasks: only tests of the same name stand in one row.")
    if len({one.rule for one in graded}) > 1:
        rules = ", ".join(f"{one.name} by {visible_text(one.rule)}" for one in graded)
        said.append(f"They were graded by different rules: {rules}.")
    apart = len(compared.tests["apart"])
    if apart or len({one.tests for one in graded}) > 1:
        lists = ", ".join(f"{one.name} {one.tests:,}" for one in graded)
        alone = f"; {apart:,} stand in one list alone" if apart else ""
        said.append(f"Their lists of tests differ: {lists}{alone}.")
    if len(graded) == 1:
        said.append(f"Only {graded[0].name} is graded, so there is nothing to compare.")
    return said
