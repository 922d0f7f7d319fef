"""SWE-bench's gradings: `report.json` of an instance, with a status for each test, and a whole run's summary.

A report lists the expected tests that came out well and those that did not: whether one of the latter failed,
broke or never ran, it does not say. Releases differ in whether a report stands under its instance's name; one
that does not is the report of the instance that its folder is named after.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lab.engine.formats.base import Document, FormatError, Probe, load_json
from lab.engine.formats.leftovers import unread
from lab.engine.formats.reading import items, mapping, text
from lab.engine.formats.trajectory import Found, FoundGrading, Grading, Origin, Problem
from lab.engine.llm.base import JSONObject, without_surrogates
from lab.engine.verify.base import Outcome, TestGroup, TestOutcome, TestStatus

RULE = "swe-bench"
_GROUPS: dict[str, TestGroup] = {
    "FAIL_TO_PASS": "fail_to_pass",
    "PASS_TO_PASS": "pass_to_pass",
    "FAIL_TO_FAIL": "other",
    "PASS_TO_FAIL": "other",
}
# A test that stands in both lists of a group came out badly.
_LISTS = (("failure", TestStatus.FAILED), ("success", TestStatus.PASSED))


class SweBenchReport:
    """Reads a report of one instance, or of several by their names."""

    name = "swe-bench-report"
    title = "SWE-bench: report.json with a status for each test"

    def recognises(self, probe: Probe) -> bool:
        root = probe.root
        if _is_report(root):
            return True
        return bool(root) and all(_is_report(mapping(report)) for report in root.values())

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: no JSON object.
        """
        for document in documents:
            root = load_object(document)
            digest = document.sha256()
            reports = {instance_of(document): root} if _has_verdict(root) else root
            for instance, report in reports.items():
                yield self._found(document, digest, instance, report)

    def _found(self, document: Document, digest: str, instance: str, report: Any) -> Found:
        if not instance:
            message = "names no instance: give the folder of the instance's name that the report stands in"
            return Problem(file=document.path, place="", message=message)
        if not isinstance(report, dict) or not isinstance(report.get("resolved"), bool):
            message = "does not say by true or false whether it is resolved"
            return Problem(file=document.path, place=instance, message=message)
        return FoundGrading(
            origin=origin_of(self.name, document, digest, instance),
            instance_id=instance,
            grading=_grading(report),
        )


def load_object(document: Document) -> JSONObject:
    """
    Raises:
        FormatError: no JSON object.
    """
    root = load_json(document)
    if not isinstance(root, dict):
        raise FormatError(f"{document.path} holds no JSON object")
    return root


def origin_of(name: str, document: Document, digest: str, place: str) -> Origin:
    """Many verdicts stand in one file, and short reports are the same bytes: the place tells them apart."""
    identity = hashlib.sha256(f"{digest}\0{place}".encode("utf-8", "surrogatepass")).hexdigest()
    return Origin(format=name, file=document.path, place=place, sha256=identity)


def instance_of(document: Document) -> str:
    """The instance that a report without a name in it belongs to: its folder's, else its own name's."""
    folder = document.folder.rpartition("/")[2]
    if folder:
        return folder
    stem = document.name.removesuffix(".json").removesuffix(".report")
    return stem if "__" in stem else ""


def _has_verdict(root: JSONObject) -> bool:
    """Whether the object is a report itself rather than reports by their instances' names."""
    return "resolved" in root and not isinstance(root["resolved"], dict)


def _is_report(report: Mapping[str, Any]) -> bool:
    named = isinstance(report.get("tests_status"), dict) or "patch_successfully_applied" in report
    return named and isinstance(report.get("resolved"), bool)


def _grading(report: JSONObject) -> Grading:
    status = mapping(report.get("tests_status"))
    tests = _tests(status)
    resolved = report["resolved"]
    kept = unread(report, {"resolved": bool, "tests_status": dict})
    strange = _strange(status)
    return Grading(
        rule=RULE,
        outcome=Outcome.RESOLVED if resolved else Outcome.UNRESOLVED,
        tests=tests,
        detail=_detail(report, tests),
        kept={**kept, "tests_status": strange} if strange else kept,
    )


def _tests(status: JSONObject) -> tuple[TestOutcome, ...]:
    """Each test once: in the first group that names it."""
    found: dict[str, TestOutcome] = {}
    for name, group in _GROUPS.items():
        lists = mapping(status.get(name))
        for which, outcome in _LISTS:
            for test in items(lists.get(which)):
                if isinstance(test, str):
                    identifier = without_surrogates(test)
                    found.setdefault(identifier, TestOutcome(test_id=identifier, group=group, status=outcome))
    return tuple(found.values())


def _strange(status: JSONObject) -> JSONObject:
    """What stands under `tests_status` and was not read as lists of tests."""
    return {
        name: lists
        for name, lists in status.items()
        if name not in _GROUPS
        or not isinstance(lists, dict)
        or any(
            which not in dict(_LISTS)
            or not isinstance(tests, list)
            or not all(isinstance(test, str) for test in tests)
            for which, tests in lists.items()
        )
    }


def _detail(report: JSONObject, tests: Sequence[TestOutcome]) -> str:
    bad = any(test.status is TestStatus.FAILED and test.group != "other" for test in tests)
    if report["resolved"]:
        return "the report says resolved and lists expected tests that failed" if bad else ""
    if reason := text(report.get("infra_failure_reason")):
        return f"SWE-bench takes it for a failure of the infrastructure: {reason}"
    if report.get("patch_is_None") is True or report.get("patch_exists") is False:
        return "there was no patch to grade"
    if tests and not bad:
        return "the report says not resolved and lists no expected test that failed"
    if not tests and report.get("patch_successfully_applied") is False:
        return "the patch did not apply, or the tests gave no result"
    return ""


class _List(NamedTuple):
    """What it means that an instance stands in a list of a summary."""

    field: str
    outcome: Outcome
    detail: str = ""
    patch: str | None = None


# An instance stands where the first of these lists has it.
_SUMMARY = (
    _List("resolved_ids", Outcome.RESOLVED),
    _List("ids_resolved", Outcome.RESOLVED),
    _List("resolved", Outcome.RESOLVED),
    _List("empty_patch_ids", Outcome.UNRESOLVED, "the patch was empty", ""),
    _List("no_generation", Outcome.UNRESOLVED, "there was no patch to grade"),
    _List("error_ids", Outcome.UNPARSED, "the grading came to no result"),
    _List("no_logs", Outcome.UNPARSED, "the grading came to no result"),
    _List("unresolved_ids", Outcome.UNRESOLVED),
    _List("ids_unresolved", Outcome.UNRESOLVED),
)
_NAMES = frozenset(one.field for one in _SUMMARY)


class SweBenchSummary:
    """Reads the report of a whole run: lists of the instances that came to the same end."""

    name = "swe-bench-summary"
    title = "SWE-bench: summary of a run with lists of instances"

    def recognises(self, probe: Probe) -> bool:
        lists = [probe.root[name] for name in _NAMES if isinstance(probe.root.get(name), list)]
        named = any(name in probe.root for name in ("resolved_ids", "ids_resolved", "no_generation"))
        return named and bool(lists) and all(isinstance(one, str) for each in lists for one in each)

    def grouping(self, document: Document, probe: Probe) -> str:
        return document.path

    def read(self, documents: Sequence[Document]) -> Iterator[Found]:
        """
        Raises:
            FormatError: no JSON object.
        """
        for document in documents:
            root = load_object(document)
            digest = document.sha256()
            reasons = mapping(root.get("failure_reasons"))
            seen: set[str] = set()
            for meaning in _SUMMARY:
                for number, instance in enumerate(items(root.get(meaning.field)), start=1):
                    if not isinstance(instance, str) or not instance:
                        place = f"{meaning.field}, entry {number}"
                        yield Problem(file=document.path, place=place, message="is no name of an instance")
                    elif instance not in seen:
                        seen.add(instance)
                        reason = text(reasons.get(instance))
                        yield self._found(document, digest, instance, meaning, reason)

    def _found(
        self, document: Document, digest: str, instance: str, meaning: _List, reason: str
    ) -> FoundGrading:
        told = f"SWE-bench says why it may be: {reason}" if reason else ""
        return FoundGrading(
            origin=origin_of(self.name, document, digest, instance),
            instance_id=instance,
            # Made of the names of model and run.
            harness=document.name.removesuffix(".json"),
            grading=Grading(
                rule=RULE,
                outcome=meaning.outcome,
                detail="; ".join(one for one in (meaning.detail, told) if one),
            ),
            patch=meaning.patch,
        )
