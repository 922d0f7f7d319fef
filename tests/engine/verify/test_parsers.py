"""Results are read out of text as runners write it, with all that tests print in between."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.engine.verify.base import Outcome, TestStatus
from lab.engine.verify.junit import parse_junit
from lab.engine.verify.parsers import (
    LOG_LIMIT_CHARACTERS,
    ParsedTests,
    parse_pytest,
    parse_unittest,
    shortened,
)
from lab.engine.verify.rules import passes, swe_bench

START = "============================= test session starts ==============================\n"
SUMMARY = "=========================== short test summary info ============================\n"


def statuses(tests: ParsedTests | None) -> dict[str, str]:
    return {test_id: test.status.value for test_id, test in (tests or {}).items()}


class TestPytest:
    def test_progress_lines_and_short_summary_agree_on_every_status(self) -> None:
        log = START + (
            "tests/test_x.py::test_a PASSED                            [ 10%]\n"
            "tests/test_x.py::TestX::test_b FAILED                     [ 20%]\n"
            "tests/test_x.py::test_c SKIPPED (needs a network)         [ 30%]\n"
            "tests/test_x.py::test_d XFAIL (known)                     [ 40%]\n"
            "tests/test_x.py::test_e XPASS                             [ 50%]\n"
            "tests/test_x.py::test_f ERROR                             [100%]\n"
        )
        expected = {"a": "passed", "c": "skipped", "d": "xfail", "e": "xpass", "f": "error"}
        wanted = {f"tests/test_x.py::test_{name}": status for name, status in expected.items()}
        wanted["tests/test_x.py::TestX::test_b"] = "failed"
        assert statuses(parse_pytest(log)) == wanted
        summary = (
            START
            + "tests/test_x.py .Fsxx\n"
            + SUMMARY
            + (
                "PASSED tests/test_x.py::test_a\nSKIPPED [1] tests/test_x.py:9: needs a network\n"
                "XFAIL tests/test_x.py::test_d - known\nXPASS tests/test_x.py::test_e\n"
                "ERROR tests/test_x.py::test_f - ValueError: x\n"
                "FAILED tests/test_x.py::TestX::test_b - assert 1 == 2\n"
            )
        )
        del wanted["tests/test_x.py::test_c"]
        assert statuses(parse_pytest(summary)) == wanted
        assert parse_pytest(summary)["tests/test_x.py::TestX::test_b"].assertion == "assert 1 == 2"

    @pytest.mark.parametrize(
        "test_id",
        [
            "t.py::a[x y]",
            "t.py::a[1 - 2]",
            "t.py::a[PASSED x]",
            "t.py::a[[]",
            "t.py::a[b::c]",
            "t.py::a[é\\n]",
        ],
    )
    def test_parameters_with_blanks_and_brackets_stay_whole(self, test_id: str) -> None:
        progress = f"{START}{test_id} FAILED [ 10%]\n{SUMMARY}FAILED {test_id} - assert 1 - 2 == 3\n"
        assert statuses(parse_pytest(progress)) == {test_id: "failed"}
        summary = f"{START}{SUMMARY}FAILED {test_id} - assert [1] - 2\nPASSED {test_id}x\n"
        assert statuses(parse_pytest(summary, known=[test_id])) == {
            test_id: "failed",
            f"{test_id}x": "passed",
        }

    @pytest.mark.parametrize(
        "between",
        [
            "",
            "hello\n",
            "hello",
            "\n---- live log call ----\nINFO root:x.py:1 ok\n",
            "FAILED to connect, trying again\n",
        ],
    )
    def test_output_between_name_and_result_does_not_hide_a_pass(self, between: str) -> None:
        log = f"{START}t.py::a[x y] {between}PASSED [ 50%]\nt.py::b PASSED [100%]\n"
        assert statuses(parse_pytest(log, known=["t.py::a[x y]"])) == {
            "t.py::a[x y]": "passed",
            "t.py::b": "passed",
        }

    def test_distributed_runs_are_read(self) -> None:
        log = START + "[gw0] [ 50%] PASSED t.py::a[x y] \n[gw1] [100%] FAILED t.py::b \n"
        assert statuses(parse_pytest(log)) == {"t.py::a[x y]": "passed", "t.py::b": "failed"}

    def test_a_pass_with_a_broken_teardown_is_an_error(self) -> None:
        log = START + "t.py::a PASSED [ 50%]\nt.py::a ERROR [ 50%]\n"
        assert statuses(parse_pytest(log)) == {"t.py::a": "error"}

    def test_what_tests_print_is_no_result(self) -> None:
        log = (
            f"{START}t.py .F\n"
            "==================================== PASSES ====================================\n"
            "___________________________________ test_a ____________________________________\n"
            "----------------------------- Captured stdout call -----------------------------\n"
            f"PASSED t.py::forged\nt.py::forged PASSED [100%]\n{SUMMARY}PASSED t.py::a\n"
        )
        assert statuses(parse_pytest(log)) == {"t.py::a": "passed"}

    def test_a_file_that_cannot_be_collected_fails_every_known_test_in_it(self) -> None:
        log = f"{START}{SUMMARY}ERROR t.py - ImportError: no x\n!!!!! Interrupted: 1 error !!!!!\n"
        found = parse_pytest(log, known=["t.py::a", "t.py::B::c", "u.py::d"])
        assert statuses(found) == {"t.py": "error", "t.py::a": "error", "t.py::B::c": "error"}
        assert found["t.py::a"].assertion == "ImportError: no x"

    def test_a_failure_carries_its_assertion_and_its_part_of_the_log(self) -> None:
        log = (
            f"{START}t.py::TestX::a FAILED [100%]\n"
            "=================================== FAILURES ===================================\n"
            "___________________________________ TestX.a ____________________________________\n"
            "\n>       assert f() == 2\nE       assert 3 == 2\nE        +  where 3 = f()\n\n"
            f"{SUMMARY}FAILED t.py::TestX::a - assert 3 == 2\n"
        )
        test = parse_pytest(log)["t.py::TestX::a"]
        assert test.assertion == "assert 3 == 2"
        assert "where 3 = f()" in test.log

    def test_nothing_is_found_where_nothing_is(self) -> None:
        assert parse_pytest("bash: python: command not found\n") == {}

    @given(st.text(alphabet="t.py::a[x] PASSEDF -=_\n%1", max_size=200))
    def test_any_text_is_read_without_an_error(self, text: str) -> None:
        parse_pytest(text, known=["t.py::a[x]"])
        parse_unittest(text, known=["t.py::a[x]"])


def unittest_log(*lines: str, ending: str = "OK", total: int | None = None) -> str:
    count = sum(" ... " in line for line in lines) if total is None else total
    return "\n".join([*lines, "", "-" * 70, f"Ran {count} tests in 0.001s", "", ending, ""])


class TestUnittest:
    def test_every_status_is_read_in_both_spellings_of_an_id(self) -> None:
        log = unittest_log(
            "test_a (tests.test_x.Case.test_a) ... ok",
            "test_b (tests.test_x.Case) ... FAIL",
            "test_c (tests.test_x.Case.test_c) ... ERROR",
            "test_d (tests.test_x.Case.test_d) ... skipped 'no network'",
            "test_e (tests.test_x.Case.test_e) ... expected failure",
            "test_f (tests.test_x.Case.test_f) ... unexpected success",
        )
        assert statuses(parse_unittest(log)) == {
            "tests.test_x.Case.test_a": "passed",
            "tests.test_x.Case.test_b": "failed",
            "tests.test_x.Case.test_c": "error",
            "tests.test_x.Case.test_d": "skipped",
            "tests.test_x.Case.test_e": "xfail",
            "tests.test_x.Case.test_f": "xpass",
        }

    def test_a_docstring_stands_between_name_and_result(self) -> None:
        log = unittest_log("test_a (m.C.test_a)", "Half a cent goes up ... ok")
        assert statuses(parse_unittest(log)) == {"m.C.test_a": "passed"}

    @pytest.mark.parametrize(
        "lines",
        [
            ("test_a (m.C.test_a) ... hello", "ok"),
            ("test_a (m.C.test_a) ... hellook",),
            ("test_a (m.C.test_a) ... ", "INFO: x", "ok"),
            ("test_a (m.C.test_a) ... INFO: it is", "okay", "ok now ok"),
        ],
    )
    def test_output_between_name_and_ok_does_not_hide_a_pass(self, lines: tuple[str, ...]) -> None:
        log = unittest_log(*lines, "test_b (m.C.test_b) ... ok")
        assert statuses(parse_unittest(log)) == {"m.C.test_a": "passed", "m.C.test_b": "passed"}

    def test_output_without_a_line_end_before_the_next_name_is_no_part_of_it(self) -> None:
        log = unittest_log("test_a (m.C.test_a) ... ok", "noise test_b (m.C.test_b) ... ok")
        assert statuses(parse_unittest(log)) == {"m.C.test_a": "passed", "m.C.test_b": "passed"}

    def test_a_lost_result_is_missing_where_the_count_does_not_settle_it(self) -> None:
        log = unittest_log("test_a (m.C.test_a) ... noiseskipped 'x'", ending="OK (skipped=1)")
        assert parse_unittest(log) == {}
        assert parse_unittest("test_a (m.C.test_a) ... noise") == {}

    def test_a_printed_ok_does_not_hide_a_failure(self) -> None:
        block = ["=" * 70, "FAIL: test_a (m.C.test_a)", "-" * 70, "Traceback (most recent call last):"]
        block += ['  File "x.py", line 1, in test_a', "AssertionError: 3 != 2", ""]
        log = unittest_log("test_a (m.C.test_a) ... ok", "FAIL", *block, ending="FAILED (failures=1)")
        test = parse_unittest(log)["m.C.test_a"]
        assert (test.status, test.assertion) == (TestStatus.FAILED, "AssertionError: 3 != 2")
        assert "line 1, in test_a" in test.log

    def test_a_failing_subtest_fails_its_test(self) -> None:
        block = ["=" * 70, "FAIL: test_a (m.C.test_a) (n=3)", "-" * 70, "AssertionError: 3", ""]
        log = unittest_log("test_a (m.C.test_a) ... ", *block, ending="FAILED (failures=1)")
        assert statuses(parse_unittest(log)) == {"m.C.test_a": "failed"}

    def test_a_module_that_cannot_be_imported_fails_every_known_test_in_it(self) -> None:
        block = ["=" * 70, "ERROR: tests.test_x (unittest.loader._FailedTest.tests.test_x)", "-" * 70]
        block += ["ImportError: Failed to import test module: tests.test_x", "ImportError: no x", ""]
        log = unittest_log(*block, ending="FAILED (errors=1)", total=1)
        found = parse_unittest(log, known=["tests.test_x.C.test_a", "tests.test_xy.C.test_b"])
        assert found["tests.test_x.C.test_a"].status is TestStatus.ERROR
        assert "tests.test_xy.C.test_b" not in found

    def test_a_broken_class_set_up_fails_its_known_tests(self) -> None:
        block = ["=" * 70, "ERROR: setUpClass (m.C)", "-" * 70, "ValueError: x", ""]
        log = unittest_log(*block, ending="FAILED (errors=1)", total=0)
        found = parse_unittest(log, known=["m.C.test_a", "m.D.test_b"])
        assert statuses(found) == {"m.C.setUpClass": "error", "m.C.test_a": "error"}


def case(
    name: str, inner: str = "", *, classname: str = "tests.test_x", file: str = "tests/test_x.py"
) -> str:
    return f'<testcase classname="{classname}" name="{name}" file="{file}" line="3">{inner}</testcase>'


CASES = [
    case("test_a[x y - [1]]"),
    case(
        "test_b",
        '<failure message="assert 3 == 2&#10; + where">E   assert 3 == 2</failure>'
        "<system-out>printed</system-out>",
        classname="tests.test_x.TestX",
    ),
    case("test_c", '<skipped type="pytest.skip" message="m"/>'),
    case("test_d", '<skipped type="pytest.xfail" message="m"/>'),
    case("inherited", classname="tests.test_x.TestX", file="tests/base.py"),
    case("test_e"),
    case("test_e", '<error message="failed on teardown">t</error>'),
    case(
        "tests.test_y",
        '<error message="collection failure">E   ImportError: no z</error>',
        classname="",
        file="",
    ),
]


class TestJunit:
    def test_every_status_is_read_under_the_ids_pytest_prints(self) -> None:
        found = parse_junit(
            f"<testsuites>{''.join(CASES)}</testsuites>".encode(), known=["tests/test_y.py::test_z"]
        )
        assert statuses(found) == {
            "tests/test_x.py::test_a[x y - [1]]": "passed",
            "tests/test_x.py::TestX::test_b": "failed",
            "tests/test_x.py::test_c": "skipped",
            "tests/test_x.py::test_d": "xfail",
            "tests/test_x.py::TestX::inherited": "passed",
            "tests/test_x.py::test_e": "error",
            "tests/test_y.py": "error",
            "tests/test_y.py::test_z": "error",
        }
        assert found is not None
        failed = found["tests/test_x.py::TestX::test_b"]
        assert failed.assertion == "assert 3 == 2"
        assert failed.log == "E   assert 3 == 2\nprinted"
        assert found["tests/test_y.py::test_z"].assertion == "ImportError: no z"

    @pytest.mark.parametrize(
        "data", [b"", b"<testsuites>", b"\xff", b'<!DOCTYPE x [<!ENTITY a "b">]><testsuites>&a;</testsuites>']
    )
    def test_what_is_no_whole_report_is_none(self, data: bytes) -> None:
        assert parse_junit(data) is None


def test_a_long_log_keeps_its_beginning_and_its_end() -> None:
    text = "a" * LOG_LIMIT_CHARACTERS + "b" * 5
    short = shortened(text)
    assert short.startswith("aaa")
    assert short.endswith("bbbbb")
    assert "[5 characters left out]" in short


def grading_folders() -> list[Path]:
    data = os.environ.get("LAB_TEST_DATA")
    return sorted(path.parent for path in Path(data).glob("grading/*/report.json")) if data else []


@pytest.mark.parametrize(
    "folder", grading_folders() or [None], ids=lambda folder: folder.name if folder else "none"
)
def test_official_reports_are_reproduced_from_their_logs(folder: Path | None) -> None:
    if folder is None:
        pytest.skip(
            "absent data: set LAB_TEST_DATA to a folder with grading/<instance>/{report.json,test_output.txt}"
        )
    report = json.loads((folder / "report.json").read_text())
    groups = {
        "fail_to_pass": report["tests_status"]["FAIL_TO_PASS"],
        "pass_to_pass": report["tests_status"]["PASS_TO_PASS"],
    }
    expected = {name: [*group["success"], *group["failure"]] for name, group in groups.items()}
    log = (folder / "test_output.txt").read_text()
    found = parse_pytest(log, known=[*expected["fail_to_pass"], *expected["pass_to_pass"]])
    judgement = swe_bench(**expected, statuses={test_id: test.status for test_id, test in found.items()})
    assert (judgement.outcome is Outcome.RESOLVED) is report["resolved"]
    for name, group in groups.items():
        kept = {
            test.test_id for test in judgement.tests if test.group == name and passes(test.group, test.status)
        }
        assert kept == set(group["success"])
