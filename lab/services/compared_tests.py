"""Who passes what: the newest gradings of several runs, test by test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple, overload

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


# Order of its group, position, name: so a part is sorted.
_Key = tuple[int, int, str]
# Grading, name, group, status, position, number of the row, as the database gives them.
_Row = tuple[int, str, str, str, int, int]
# What one grading says, by name.
_Side = dict[str, _Row]


class PartOfTests(Sequence[ComparedTest]):
    """The tests of a part in order. Each is put together when it is asked for: a page shows few of them."""

    def __init__(self, part: Part, sides: Sequence[_Side], keys: list[_Key]) -> None:
        self._part = part
        self._sides = sides
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, place: int) -> ComparedTest: ...
    @overload
    def __getitem__(self, place: slice) -> list[ComparedTest]: ...
    def __getitem__(self, place: int | slice) -> ComparedTest | list[ComparedTest]:
        if isinstance(place, slice):
            return [self._test(key) for key in self._keys[place]]
        return self._test(self._keys[place])

    def _test(self, key: _Key) -> ComparedTest:
        _, position, name = key
        rows = [side.get(name) for side in self._sides]
        group = next(row[2] for row in rows if row is not None)
        results = tuple(None if row is None else Result(row[5], row[3]) for row in rows)
        return ComparedTest(name, group, self._part, position, results)


@dataclass(frozen=True, slots=True)
class ComparedTests:
    """Gradings in the order of the runs, and every test: those that differ first, then failed, then alike.

    `apart` are those that one list alone holds.
    """

    gradings: list[Grading]
    tests: dict[Part, PartOfTests]

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
    rows = (
        TestResult.objects.filter(verification__in=[one.pk for one in counted.values()])
        .order_by()
        .values_list("verification_id", "test_id", "group", "status", "position", "pk")
    )
    listed: dict[int, _Side] = {one.pk: {} for one in counted.values()}
    for row in rows.iterator(chunk_size=5_000):
        listed[row[0]][row[1]] = row
    sides = [listed[counted[run.pk].pk] if run.pk in counted else {} for run in runs]
    gradings = [
        _grading(run, name, newest.get(run.pk), len(side), graded=run.pk in counted)
        for name, run, side in zip(letters[: len(runs)], runs, sides, strict=True)
    ]
    return ComparedTests(gradings, _sorted(sides, graded=len(listed)))


def _newest(runs: Sequence[Run]) -> dict[int, Verification]:
    rows = Verification.objects.filter(run__in=[run.pk for run in runs]).order_by("n")
    return {one.run_id: one for one in rows.defer("rewards")}


def _grading(run: Run, name: str, newest: Verification | None, tests: int, *, graded: bool) -> Grading:
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
        tests=tests,
    )


def _sorted(sides: Sequence[_Side], *, graded: int) -> dict[Part, PartOfTests]:
    """What the gradings say of each test, by part. Ten thousand tests have a handful of patterns."""
    keys: dict[Part, list[_Key]] = {part: [] for part in PARTS}
    found: dict[tuple[str | None, ...], tuple[list[_Key], int]] = {}
    names = dict.fromkeys(chain.from_iterable(sides))
    for name, *rows in zip(names, *(map(side.get, names) for side in sides), strict=True):
        first = rows[0] or next(row for row in rows if row is not None)
        group = first[2]
        pattern = (group, *[row and row[3] for row in rows])
        known = found.get(pattern)
        if known is None:
            statuses = [row[3] for row in rows if row is not None]
            part = _part(group, statuses, alone=graded > 1 and len(statuses) == 1)
            known = found[pattern] = (keys[part], _GROUP_ORDER.get(group, 2))
        known[0].append((known[1], first[4], name))
    for part_keys in keys.values():
        part_keys.sort()
    return {part: PartOfTests(part, sides, part_keys) for part, part_keys in keys.items()}


def _part(name: str, statuses: Sequence[str], *, alone: bool) -> Part:
    if alone:
        return "apart"
    group: TestGroup = "pass_to_pass" if name == "pass_to_pass" else "fail_to_pass"
    passed = [status in list(TestStatus) and passes(group, TestStatus(status)) for status in statuses]
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
    state, icon, word = TEST_STATES.get(result.status) or ("slate", "unparsed", visible_text(result.status))
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
