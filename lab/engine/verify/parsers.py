"""Reads test results out of what a test runner wrote. Pure.

The results of one test add up to the worst: a test that passed and then broke in its teardown is an error.
`known` are the ids one hopes to find; they settle where an id ends when the text alone does not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple, Protocol

from lab.engine.tasks.spec import TestRunner
from lab.engine.verify.base import TestStatus
from lab.engine.verify.rules import worst

LOG_LIMIT_CHARACTERS = 20_000


class ParsedTest(NamedTuple):
    """One test's status, the line that says why it failed, and its part of the output."""

    status: TestStatus
    assertion: str = ""
    log: str = ""


ParsedTests = dict[str, ParsedTest]


class Parser(Protocol):
    """Reads a test runner's text output. Finds nothing where there is nothing; never raises."""

    def __call__(self, log: str, *, known: Collection[str] = ()) -> ParsedTests: ...


def shortened(text: str, limit: int = LOG_LIMIT_CHARACTERS) -> str:
    """The beginning and the end of a text, with a mark that counts what is left out between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def add_result(
    tests: ParsedTests, test_id: str, status: TestStatus, assertion: str = "", log: str = ""
) -> None:
    """Put one more result of a test to those before it."""
    before = tests.get(test_id)
    if before is not None:
        status = worst((before.status, status))
        assertion = before.assertion or assertion
        log = "\n".join(text for text in (before.log, log) if text)
    tests[test_id] = ParsedTest(status, assertion, shortened(log))


_WORDS = {
    "PASSED": TestStatus.PASSED,
    "FAILED": TestStatus.FAILED,
    "ERROR": TestStatus.ERROR,
    "SKIPPED": TestStatus.SKIPPED,
    "XFAIL": TestStatus.XFAIL,
    "XPASS": TestStatus.XPASS,
}
_WORD = "(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)"
_PERCENT = r"(?: \(.*\))?(?:\s+\[\s*\d+%\])?\s*"
_VERBOSE = re.compile(rf"(\S*::.+?) {_WORD}{_PERCENT}")
_DISTRIBUTED = re.compile(rf"\[gw\d+\] (?:\[\s*\d+%\] )?{_WORD} (\S*::.*)")
_ALONE = re.compile(rf"{_WORD}{_PERCENT}")
_GLUED = re.compile(rf".*{_WORD}{_PERCENT}")
_BEGUN = re.compile(r"(\S+\.py::[^\s\[]+(?:\[.*?\])?)(?=\s|$)")
_SUMMARY_LINE = re.compile(rf"{_WORD} (?!\[\d+\] )(\S.*)")
_SECTION = re.compile(r"=+ (.+?) =+")
_TITLE = re.compile(r"_{2,} (.+?) _{2,}")
_PROGRESS, _SUMMARY, _DETAILS = "progress", "summary", "details"


class _PytestReader:
    """Walks through a pytest log section by section: progress lines, details, short summary."""

    def __init__(self, known: Collection[str]) -> None:
        self.tests: ParsedTests = {}
        self.known = set(known)
        self.section = _PROGRESS
        self.begun = ""
        self.title = ""
        self.details: dict[str, list[str]] = {}

    def read(self, line: str) -> None:
        header = _SECTION.fullmatch(line)
        if header:
            self._enter(header[1])
        elif self.section == _PROGRESS:
            self._read_progress(line)
        elif self.section == _SUMMARY:
            self._read_summary(line)
        else:
            self._read_details(line)

    def _enter(self, title: str) -> None:
        self.begun = self.title = ""
        if title == "test session starts":
            self.section = _PROGRESS
        elif title == "short test summary info":
            self.section = _SUMMARY
        elif title in {"FAILURES", "ERRORS", "PASSES", "XFAILURES", "XPASSES"} or title.startswith(
            ("warnings summary", "slowest ")
        ):
            # What tests printed is repeated below such titles and must not be taken for results.
            self.section = _DETAILS

    def _read_progress(self, line: str) -> None:
        if match := _DISTRIBUTED.fullmatch(line):
            self._found(match[2].rstrip(), match[1])
        elif match := _VERBOSE.fullmatch(line):
            self._found(match[1], match[2])
        elif begun := self._begins(line):
            self.begun = begun
            # Output without a line end of its own, and the result right behind it.
            if match := _GLUED.fullmatch(line.removeprefix(begun)):
                self._found(begun, match[1])
        elif self.begun and (match := _ALONE.fullmatch(line)):
            self._found(self.begun, match[1])

    def _begins(self, line: str) -> str:
        match = _BEGUN.match(line)
        if not match:
            return ""
        path = match[1].partition("::")[0]
        longest = max(
            (name for name in self.known if name.startswith(path) and line.startswith(f"{name} ")),
            key=len,
            default="",
        )
        return longest or match[1]

    def _found(self, test_id: str, word: str) -> None:
        self.known.add(test_id)
        self.begun = ""
        add_result(self.tests, test_id, _WORDS[word])

    def _read_summary(self, line: str) -> None:
        match = _SUMMARY_LINE.fullmatch(line)
        if not match:
            return
        word, rest = match.groups()
        test_id = rest if word == "PASSED" else _without_reason(rest, self.known)
        assertion = rest.removeprefix(test_id).removeprefix(" - ")
        if "::" in test_id:
            add_result(self.tests, test_id, _WORDS[word], assertion)
        elif word == "ERROR":
            add_collection_error(self.tests, test_id, self.known, assertion, "")

    def _read_details(self, line: str) -> None:
        title = _TITLE.fullmatch(line)
        if title:
            self.title = re.sub(r"^ERROR at (setup|teardown) of |^ERROR collecting ", "", title[1])
            self.details.setdefault(self.title, [])
        elif self.title:
            self.details[self.title].append(line)

    def finish(self) -> ParsedTests:
        for test_id, test in self.tests.items():
            path, _, rest = test_id.partition("::")
            lines = self.details.get(rest.replace("::", ".") if rest else path)
            if lines and test.status in (TestStatus.FAILED, TestStatus.ERROR) and not test.log:
                log = "\n".join(lines).strip("\n")
                self.tests[test_id] = ParsedTest(
                    test.status, first_error_line(log) or test.assertion, shortened(log)
                )
        return self.tests


def first_error_line(log: str) -> str:
    """The first line that pytest marks with an E, without the mark."""
    match = re.search(r"^E\s+(.*)$", log, re.MULTILINE)
    return match[1].strip() if match else ""


def _without_reason(text: str, known: Collection[str]) -> str:
    """The id in `id - reason`, where both may hold " - "."""
    cuts = [match.start() for match in re.finditer(" - ", text)]
    for cut in [len(text), *reversed(cuts)]:
        if text[:cut] in known:
            return text[:cut]
    for cut in cuts:
        if text[:cut].count("[") == text[:cut].count("]"):
            return text[:cut]
    return text[: cuts[0]] if cuts else text


def add_collection_error(
    tests: ParsedTests, path: str, known: Collection[str], assertion: str, log: str
) -> None:
    """A test file that could not be collected: an error of the file, and of every known test in it."""
    add_result(tests, path, TestStatus.ERROR, assertion, log)
    for test_id in known:
        if test_id.startswith(f"{path}::"):
            add_result(tests, test_id, TestStatus.ERROR, assertion, log)


def parse_pytest(log: str, *, known: Collection[str] = ()) -> ParsedTests:
    """Results in a pytest log: progress lines of `-v`, with or without output between id and result, and the
    short summary of `-rA`."""
    reader = _PytestReader(known)
    for line in log.splitlines():
        reader.read(line)
    return reader.finish()


_HEAD = re.compile(r"([\w.]+) \(([\w.]+\.[\w.]+)\)(?: \([^)]*\)| \[[^]]*\])*")
_RUNNING = re.compile(rf".*?{_HEAD.pattern} \.\.\. ?(.*)")
_DESCRIBED = re.compile(r".* \.\.\. ?(.*)")
_RESULT = re.compile(
    r"(?:(ok)|(FAIL)|(ERROR)|(skipped (?:'.*'|\".*\"))|(expected failure)|(unexpected success))\s*"
)
_RESULTS = (
    TestStatus.PASSED,
    TestStatus.FAILED,
    TestStatus.ERROR,
    TestStatus.SKIPPED,
    TestStatus.XFAIL,
    TestStatus.XPASS,
)
_FAILURE = re.compile(rf"(FAIL|ERROR): {_HEAD.pattern}")
_TOTAL = re.compile(r"Ran (\d+) tests? in [\d.]+s")
_ENDING = re.compile(r"(?:OK|FAILED)(?: \((.*)\))?")
_IMPORT = re.compile(r"Failed to import test module: (\S+)")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:: .*)?$", re.MULTILINE)


class _UnittestReader:
    """Walks through the output of `unittest -v`: a line a test, blocks of failures, the count at the end."""

    def __init__(self, known: Collection[str]) -> None:
        self.known = known
        self.begun: list[str] = []
        self.results: dict[str, TestStatus] = {}
        self.described = False
        self.total: int | None = None
        self.counts: dict[str, int] = {}

    def read(self, line: str) -> None:
        running = _RUNNING.fullmatch(line)
        head = _HEAD.fullmatch(line)
        described = _DESCRIBED.fullmatch(line) if self.described else None
        self.described = False
        if running:
            self.begun.append(unittest_id(running[1], running[2]))
            self._result(running[3])
        elif head:
            # A test with a docstring: its first line follows, with the result behind it.
            self.begun.append(unittest_id(head[1], head[2]))
            self.described = True
        elif described:
            self._result(described[1])
        elif total := _TOTAL.fullmatch(line):
            self.total = int(total[1])
        elif self.total is not None and (ending := _ENDING.fullmatch(line)):
            pairs = (part.split("=") for part in (ending[1] or "").split(", ") if "=" in part)
            self.counts = {name: int(count) for name, count in pairs}
        else:
            self._result(line)

    def _result(self, text: str) -> None:
        match = _RESULT.fullmatch(text)
        if match and self.begun and match.lastindex and self.total is None:
            # The last such word before the next test is the runner's; one before it was printed by the test.
            self.results[self.begun[-1]] = _RESULTS[match.lastindex - 1]

    def finish(self, failures: ParsedTests) -> ParsedTests:
        tests = {test_id: ParsedTest(status) for test_id, status in self.results.items()}
        for test_id, failure in failures.items():
            before = tests.get(test_id)
            tests[test_id] = failure if before is None else failure._replace(status=failure.status)
        if self._adds_up(tests):
            for test_id in self.begun:
                tests.setdefault(test_id, ParsedTest(TestStatus.PASSED))
        return tests

    def _adds_up(self, tests: ParsedTests) -> bool:
        """Whether the count at the end leaves only passes for tests whose result was lost."""
        if self.total is None or self.total != len(self.begun):
            return False
        listed = {
            "skipped": TestStatus.SKIPPED,
            "expected failures": TestStatus.XFAIL,
            "unexpected successes": TestStatus.XPASS,
        }
        return all(
            self.counts.get(name, 0) == sum(test.status is status for test in tests.values())
            for name, status in listed.items()
        )


def unittest_id(name: str, where: str) -> str:
    """`test_a (m.Case)` before Python 3.11 and `test_a (m.Case.test_a)` since are both `m.Case.test_a`."""
    return where if where.rpartition(".")[2] == name else f"{where}.{name}"


def _unittest_failures(log: str, known: Collection[str]) -> ParsedTests:
    tests: ParsedTests = {}
    for title, block in _unittest_blocks(log):
        match = _FAILURE.match(title)
        if not match:
            continue
        status = TestStatus.FAILED if match[1] == "FAIL" else TestStatus.ERROR
        assertions = _EXCEPTION.findall(block)
        assertion = assertions[-1] if assertions else ""
        test_id = unittest_id(match[2], match[3])
        module = _IMPORT.search(block)
        affected = module[1] if module else match[3] if match[2].startswith(("setUp", "tearDown")) else ""
        for name in [test_id, *(name for name in known if affected and name.startswith(f"{affected}."))]:
            add_result(tests, name, status, assertion, block)
    return tests


def _unittest_blocks(log: str) -> Iterator[tuple[str, str]]:
    """Title and text of every failure: both stand between lines of = and -."""
    for part in re.split(r"^={70}\n", log, flags=re.MULTILINE)[1:]:
        title, _, rest = part.partition("\n")
        rest = rest.partition(f"{'-' * 70}\n")[2]
        yield title, rest.partition(f"\n{'-' * 70}\n")[0].strip("\n")


def parse_unittest(log: str, *, known: Collection[str] = ()) -> ParsedTests:
    """Results in the output of `python -m unittest -v`.

    A test whose result is lost between lines that it printed passed when the runner's own count at the end
    leaves nothing else; otherwise it has no result.
    """
    reader = _UnittestReader(known)
    for line in log.splitlines():
        reader.read(line)
    return reader.finish(_unittest_failures(log, known))


PARSERS: dict[TestRunner, Parser] = {"pytest": parse_pytest, "unittest": parse_unittest}
