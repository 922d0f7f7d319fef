"""Verdicts that stand apart from their trajectories: SWE-bench's reports, summaries, maps and predictions."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.formats.base import Document, Format, FormatError
from lab.engine.formats.detection import probe, recognise
from lab.engine.formats.results_maps import ResultsMap
from lab.engine.formats.swe_bench_predictions import SweBenchPredictions
from lab.engine.formats.swe_bench_report import SweBenchReport, SweBenchSummary
from lab.engine.formats.trajectory import Found, FoundGrading, Grading, Problem
from lab.engine.verify.base import Outcome, TestStatus
from tests.engine.formats.mutations import document_of, found_by, lines_of, mutated, survives

REPORTS, SUMMARIES = SweBenchReport(), SweBenchSummary()
MAPS, PREDICTIONS = ResultsMap(), SweBenchPredictions()
READERS: tuple[Format, ...] = (REPORTS, SUMMARIES, PREDICTIONS, MAPS)
INSTANCE = "owner__project-1"
ARCHIVE = "trajectories/mini-swe-agent/swe-bench-verified-500.tar.zst"


def report(*, resolved: bool = False, **changes: Any) -> dict[str, Any]:
    """As SWE-bench writes it for a target test that still fails beside a kept one."""
    status = {
        "FAIL_TO_PASS": {
            "success": ["test_b"] if resolved else [],
            "failure": [] if resolved else ["test_b"],
        },
        "PASS_TO_PASS": {"success": ["test_a"], "failure": []},
        "FAIL_TO_FAIL": {"success": [], "failure": []},
        "PASS_TO_FAIL": {"success": [], "failure": []},
    }
    return {
        "patch_is_None": False,
        "patch_exists": True,
        "patch_successfully_applied": True,
        "resolved": resolved,
        "tests_status": status,
        **changes,
    }


SUMMARY = {
    "total_instances": 6,
    "resolved_ids": ["a__a-1"],
    "unresolved_ids": ["b__b-2", "c__c-3"],
    "empty_patch_ids": ["d__d-4"],
    "error_ids": ["e__e-5"],
    "incomplete_ids": ["f__f-6"],
    "completed_ids": ["a__a-1", "b__b-2", "c__c-3"],
    "failure_reasons": {"c__c-3": "out_of_memory"},
    "schema_version": 2,
}
MAP = {"instance_a": True, "instance_b": False, "instance_c": None}
PREDS = {
    INSTANCE: {
        "model_name_or_path": "some/model",
        "instance_id": INSTANCE,
        "model_patch": "diff --git a/x b/x\n",
    },
    "owner__project-2": {
        "model_name_or_path": "some/model",
        "instance_id": "owner__project-2",
        "model_patch": "",
    },
}


def in_folder(folder: Path, value: Any, path: str = f"logs/{INSTANCE}/report.json") -> Document:
    return Document(path, document_of(folder, value).local)


def verdicts(found: list[Found]) -> dict[str, FoundGrading]:
    return {one.instance_id: one for one in found if isinstance(one, FoundGrading)}


def grading(found: list[Found]) -> Grading:
    (one,) = verdicts(found).values()
    assert one.grading is not None
    return one.grading


@pytest.mark.parametrize(
    ("value", "reader"),
    [
        (report(), REPORTS),
        ({INSTANCE: report(), "owner__project-2": report(resolved=True)}, REPORTS),
        (SUMMARY, SUMMARIES),
        ({"resolved": ["a__a-1"], "no_generation": [], "no_logs": []}, SUMMARIES),
        ({"resolved": 1, "ids_resolved": ["a__a-1"], "ids_unresolved": []}, SUMMARIES),
        (MAP, MAPS),
        (PREDS, PREDICTIONS),
        (list(PREDS.values()), PREDICTIONS),
        ({"a": 1, "b": True}, None),
        ({"instance_id": "x", "patch": "diff", "test_patch": "diff"}, None),
        ({}, None),
        ([], None),
    ],
)
def test_each_shape_is_told_from_its_content(tmp_path: Path, value: Any, reader: Format | None) -> None:
    assert recognise(READERS, probe(document_of(tmp_path, value))) is reader


def test_a_report_gives_each_test_its_status_and_keeps_the_rest(tmp_path: Path) -> None:
    (found,) = found_by(REPORTS, in_folder(tmp_path, report(infra_failure=False)))
    assert isinstance(found, FoundGrading)
    assert found.grading is not None
    assert (found.instance_id, found.grading.rule) == (INSTANCE, "swe-bench")
    assert found.grading.outcome is Outcome.UNRESOLVED
    assert [(test.test_id, test.group, test.status) for test in found.grading.tests] == [
        ("test_b", "fail_to_pass", TestStatus.FAILED),
        ("test_a", "pass_to_pass", TestStatus.PASSED),
    ]
    assert found.grading.kept == {
        "patch_is_None": False,
        "patch_exists": True,
        "patch_successfully_applied": True,
        "infra_failure": False,
    }


def test_a_report_of_several_instances_has_their_names_and_one_alone_that_of_its_folder(
    tmp_path: Path,
) -> None:
    both = {INSTANCE: report(), "owner__project-2": report(resolved=True)}
    found = verdicts(found_by(REPORTS, document_of(tmp_path, both)))
    assert {name: one.grading and one.grading.outcome for name, one in found.items()} == {
        INSTANCE: Outcome.UNRESOLVED,
        "owner__project-2": Outcome.RESOLVED,
    }
    assert len({one.origin.sha256 for one in found.values()}) == 2
    named = Document(f"{INSTANCE}.json", document_of(tmp_path, report()).local)
    assert list(verdicts(found_by(REPORTS, named))) == [INSTANCE]
    (problem,) = found_by(REPORTS, document_of(tmp_path, report(), "report.json"))
    assert isinstance(problem, Problem)
    assert "names no instance: give the folder" in problem.message


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"patch_is_None": True, "patch_exists": False, "tests_status": {}}, "there was no patch to grade"),
        (
            {"patch_successfully_applied": False, "tests_status": {}},
            "the patch did not apply, or the tests gave no result",
        ),
        (
            {"infra_failure": True, "infra_failure_reason": "out_of_memory", "tests_status": {}},
            "SWE-bench takes it for a failure of the infrastructure: out_of_memory",
        ),
        ({"resolved": True}, "the report says resolved and lists expected tests that failed"),
        (
            {"tests_status": {"FAIL_TO_PASS": {"success": ["x"], "failure": []}}},
            "the report says not resolved and lists no expected test that failed",
        ),
        ({}, ""),
    ],
)
def test_a_verdict_that_the_tests_do_not_explain_says_why(
    tmp_path: Path, changes: dict[str, Any], detail: str
) -> None:
    assert grading(found_by(REPORTS, in_folder(tmp_path, {**report(), **changes}))).detail == detail


def test_a_test_that_stands_twice_counts_once_and_as_badly_as_it_can(tmp_path: Path) -> None:
    status = {
        "PASS_TO_PASS": {"success": ["a", "b", "c"], "failure": ["b"]},
        "FAIL_TO_PASS": {"success": ["a"], "failure": []},
    }
    found = grading(found_by(REPORTS, in_folder(tmp_path, report(tests_status=status))))
    assert [(test.test_id, test.group, test.status.value) for test in found.tests] == [
        ("a", "fail_to_pass", "passed"),
        ("b", "pass_to_pass", "failed"),
        ("c", "pass_to_pass", "passed"),
    ]


def test_what_is_no_list_of_tests_is_kept_raw(tmp_path: Path) -> None:
    status = {"FAIL_TO_PASS": {"success": ["a", 7], "failure": []}, "MORE": {"success": ["z"]}}
    found = grading(found_by(REPORTS, in_folder(tmp_path, report(tests_status=status))))
    assert [test.test_id for test in found.tests] == ["a"]
    assert found.kept["tests_status"] == status


def test_a_summary_gives_each_instance_the_verdict_of_its_list(tmp_path: Path) -> None:
    found = verdicts(found_by(SUMMARIES, document_of(tmp_path, SUMMARY)))
    assert {name: one.grading.outcome.value for name, one in found.items() if one.grading} == {
        "a__a-1": "resolved",
        "b__b-2": "unresolved",
        "c__c-3": "unresolved",
        "d__d-4": "unresolved",
        "e__e-5": "unparsed",
    }
    assert found["d__d-4"].patch == ""
    assert found["c__c-3"].grading is not None
    assert found["c__c-3"].grading.detail == "SWE-bench says why it may be: out_of_memory"


def test_a_map_gives_a_verdict_for_each_instance_and_a_problem_for_what_is_none(tmp_path: Path) -> None:
    found = found_by(MAPS, document_of(tmp_path, MAP))
    assert {one.harness for one in verdicts(found).values()} == {"document"}
    assert {name: one.grading.outcome.value for name, one in verdicts(found).items() if one.grading} == {
        "instance_a": "resolved",
        "instance_b": "unresolved",
    }
    assert [one for one in found if isinstance(one, Problem)] == [
        Problem(file="document.json", place="instance_c", message="has neither true nor false")
    ]


def test_predictions_are_patches_without_a_verdict_in_every_shape(tmp_path: Path) -> None:
    rows = list(PREDS.values())
    pro = [{"instance_id": INSTANCE, "patch": "diff --git a/x b/x\n", "prefix": "@some/model"}]
    for document in (
        document_of(tmp_path, PREDS),
        document_of(tmp_path, rows),
        lines_of(tmp_path, rows),
        document_of(tmp_path, rows[0]),
        document_of(tmp_path, pro),
    ):
        assert recognise(READERS, probe(document)) is PREDICTIONS
        found = verdicts(found_by(PREDICTIONS, document))
        first = found[INSTANCE]
        assert (first.grading, first.patch, first.model) == (None, "diff --git a/x b/x\n", "some/model")
        assert len(found) == 1 or found["owner__project-2"].patch == ""


def test_a_prediction_without_a_patch_and_a_broken_line_are_problems(tmp_path: Path) -> None:
    rows = [{"instance_id": "a", "model_patch": None}, '{"instance_id": ', {"model_patch": "x"}]
    found = found_by(PREDICTIONS, lines_of(tmp_path, rows))
    assert [(type(one), one.place) for one in found if isinstance(one, Problem)] == [
        (Problem, "line 1"),
        (Problem, "line 2"),
        (Problem, "line 3"),
    ]


@pytest.mark.parametrize("reader", [REPORTS, SUMMARIES, MAPS])
def test_what_is_no_object_is_refused_by_name(tmp_path: Path, reader: Format) -> None:
    with pytest.raises(FormatError, match=r"document\.json holds no JSON object"):
        found_by(reader, document_of(tmp_path, [True]))


# Generated documents.

NAMES = st.text(min_size=1, max_size=20)


@given(st.dictionaries(NAMES, st.booleans(), min_size=1))
def test_every_map_reads_back(value: dict[str, bool]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        document = document_of(Path(folder), value)
        assert MAPS.recognises(probe(document))
        found = verdicts(found_by(MAPS, document))
    assert {
        name: one.grading.outcome is Outcome.RESOLVED for name, one in found.items() if one.grading
    } == value
    assert len({one.origin.sha256 for one in found.values()}) == len(value)


@given(
    st.lists(
        st.tuples(NAMES, st.sampled_from(["FAIL_TO_PASS", "PASS_TO_PASS"]), st.booleans()),
        unique_by=lambda t: t[0],
    )
)
def test_every_test_of_a_report_reads_back(tests: list[tuple[str, str, bool]]) -> None:
    status: dict[str, Any] = {
        name: {"success": [], "failure": []} for name in ("FAIL_TO_PASS", "PASS_TO_PASS")
    }
    for test, group, passed in tests:
        status[group]["success" if passed else "failure"].append(test)
    with tempfile.TemporaryDirectory() as folder:
        found = grading(found_by(REPORTS, in_folder(Path(folder), report(tests_status=status))))
    assert {(test.test_id, test.group.upper(), test.status.value == "passed") for test in found.tests} == set(
        tests
    )


BROKEN = st.sampled_from([report(), {INSTANCE: report()}, SUMMARY, MAP, PREDS, list(PREDS.values())])


@given(BROKEN.flatmap(mutated), st.sampled_from(READERS))
def test_broken_documents_give_what_is_left_of_them(value: Any, reader: Format) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert survives(reader, in_folder(Path(folder), value))


# Real files.


def real(path: str) -> Path:
    data = os.environ.get("LAB_TEST_DATA")
    if not data or not Path(data, path).exists():
        pytest.skip(f"absent data: set LAB_TEST_DATA to a folder with {path}")
    return Path(data, path)


@pytest.mark.parametrize(
    ("name", "resolved", "all_of_them"),
    [
        ("claude-45sonnet-10132025", 319, 730),
        ("gpt-5-250-turns-10132025", 265, 729),
        ("gpt-4o-paper", 36, 619),
    ],
)
def test_real_maps_of_swe_bench_pro_have_the_counts_that_are_known(
    name: str, resolved: int, all_of_them: int
) -> None:
    document = Document("x", real(f"results/swe-bench-pro/{name}.json"))
    assert recognise(READERS, probe(document)) is MAPS
    found = verdicts(found_by(MAPS, document))
    outcomes = collections.Counter(one.grading.outcome for one in found.values() if one.grading)
    assert (outcomes[Outcome.RESOLVED], outcomes.total()) == (resolved, all_of_them)


@pytest.mark.parametrize(
    ("instance", "resolved", "target", "kept", "broken"),
    [
        ("pandas-dev__pandas.95280573.pr_53652", True, 2, 9, 0),
        ("pydantic__pydantic.acb0f10f.pr_8316", True, 5, 150, 0),
        ("pandas-dev__pandas.95280573.pr_53856", False, 28, 595, 28),
    ],
)
def test_real_reports_have_the_tests_that_are_known(
    instance: str, resolved: bool, target: int, kept: int, broken: int
) -> None:
    path = real(f"grading/{instance}/report.json")
    document = Document(f"{instance}/report.json", path)
    assert recognise(READERS, probe(document)) is REPORTS
    found = grading(found_by(REPORTS, document))
    groups = collections.Counter(test.group for test in found.tests)
    failed = [test.group for test in found.tests if test.status is TestStatus.FAILED]
    assert (found.outcome is Outcome.RESOLVED) == resolved
    assert (groups["fail_to_pass"], groups["pass_to_pass"]) == (target, kept)
    assert failed == ["fail_to_pass"] * broken


def test_a_real_summary_with_other_names_is_read() -> None:
    document = Document("x", real("grading/report.json"))
    assert recognise(READERS, probe(document)) is SUMMARIES
    outcomes = collections.Counter(
        one.grading.outcome.value for one in verdicts(found_by(SUMMARIES, document)).values() if one.grading
    )
    assert outcomes == {"resolved": 3, "unresolved": 50}


def test_500_real_reports_fail_in_the_ways_that_are_known(tmp_path: Path) -> None:
    command = ["zstd", "-dcq", str(real(ARCHIVE))]
    kinds: collections.Counter[tuple[str, ...]] = collections.Counter()
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as unpacking,
        tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive,
    ):
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith("report.json") else None
            if file is None:
                continue
            document = in_folder(tmp_path, json.load(file), member.name)
            assert recognise(READERS, probe(document)) is REPORTS
            (one,) = verdicts(found_by(REPORTS, document)).values()
            assert one.instance_id == Path(member.name).parent.name
            assert one.grading is not None
            failed = {test.group for test in one.grading.tests if test.status is TestStatus.FAILED}
            kinds[one.grading.outcome.value, *sorted(failed)] += 1
    assert kinds == {
        ("resolved",): 371,
        ("unresolved", "fail_to_pass"): 105,
        ("unresolved", "pass_to_pass"): 13,
        ("unresolved", "fail_to_pass", "pass_to_pass"): 11,
    }
