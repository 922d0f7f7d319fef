"""Reads the JUnit file that pytest writes: results that no printed line can be taken for."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection

from lab.engine.verify.base import TestStatus
from lab.engine.verify.parsers import (
    ParsedTests,
    add_collection_error,
    add_result,
    first_error_line,
)

_ILLEGAL = re.compile("[^\t\n\r\x20-\x7e\x80-\ud7ff\ue000-\ufffd]")


def parse_junit(data: bytes, *, known: Collection[str] = ()) -> ParsedTests | None:
    """Results in a JUnit file of the family xunit1; None when it is no complete file.

    JUnit knows a test by class and name; `known` ids are recognised by these, others are put together from
    the file they are in. A test that passed although it was expected to fail counts as passed: JUnit has no
    word for it.
    """
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        return None
    try:
        root = ElementTree.fromstring(data)  # noqa: S314 without a document type there are no entities
    except ElementTree.ParseError:
        return None
    names = {_junit_name(test_id): test_id for test_id in known}
    tests: ParsedTests = {}
    for case in root.iter("testcase"):
        classname, name = case.get("classname", ""), case.get("name", "")
        status, assertion, log = _result(case)
        test_id = names.get((classname, name)) or _put_together(classname, name, case.get("file", ""))
        if status is TestStatus.ERROR and not classname and "::" not in test_id:
            add_collection_error(tests, test_id, known, assertion, log)
        else:
            add_result(tests, test_id, status, assertion, log)
    return tests


def _junit_name(test_id: str) -> tuple[str, str]:
    """Class and name as pytest writes them for an id."""
    address, bracket, parameters = test_id.partition("[")
    parts = address.split("::")
    parts[0] = re.sub(r"\.py$", "", parts[0].replace("/", "."))
    parts[-1] += bracket + parameters
    return ".".join(parts[:-1]), _escaped(parts[-1])


def _escaped(text: str) -> str:
    return _ILLEGAL.sub(lambda match: f"#x{ord(match[0]):0{2 if ord(match[0]) <= 0xFF else 4}X}", text)


def _put_together(classname: str, name: str, file: str) -> str:
    if not classname:
        return file or f"{name.replace('.', '/')}.py"
    module = re.sub(r"\.py$", "", file.replace("/", "."))
    if not file or not f"{classname}.".startswith(f"{module}."):
        # The test is inherited from another file, or the file is not told: classes begin with a capital.
        match = re.match(r"((?:[^A-Z.][^.]*\.?)+)", classname)
        module = match[1].rstrip(".") if match else classname
        file = f"{module.replace('.', '/')}.py"
    classes = classname[len(module) :].strip(".").split(".") if len(classname) > len(module) else []
    return "::".join([file, *classes, name])


def _result(case: ElementTree.Element) -> tuple[TestStatus, str, str]:
    printed = "\n".join(
        child.text.strip("\n") for child in case if child.tag in {"system-out", "system-err"} and child.text
    )
    status, assertion, log = TestStatus.PASSED, "", ""
    for child in case:
        if child.tag == "error":
            status = TestStatus.ERROR
        elif child.tag == "failure":
            status = TestStatus.FAILED if status is not TestStatus.ERROR else status
        elif child.tag == "skipped":
            status = TestStatus.XFAIL if child.get("type") == "pytest.xfail" else TestStatus.SKIPPED
        else:
            continue
        message, text = child.get("message", ""), child.text or ""
        assertion = (
            assertion or first_error_line(text) if message == "collection failure" else _first_line(message)
        )
        log = "\n".join(part for part in (log, text or message) if part)
    return status, assertion, "\n".join(part for part in (log, printed) if part)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
