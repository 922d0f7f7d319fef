"""Modules, functions and templates stay small enough to be read in one go."""

from __future__ import annotations

import ast

import pytest

from tests.house.tree import files, own_python, read

MODULE_LINES = 600
FUNCTION_LINES = 50
TEMPLATE_LINES = 150


def line_count(name: str) -> int:
    return len(read(name).splitlines())


def test_no_module_is_longer_than_600_lines() -> None:
    sources = own_python() + files(".css", ".js", under="static/", without=("static/vendor/",))
    assert [f"{name}: {line_count(name)}" for name in sources if line_count(name) > MODULE_LINES] == []


def test_no_template_is_longer_than_150_lines() -> None:
    templates = files(".html", under="templates/")
    assert templates
    assert [f"{name}: {line_count(name)}" for name in templates if line_count(name) > TEMPLATE_LINES] == []


def test_no_function_is_longer_than_50_lines() -> None:
    assert [long for name in own_python() for long in long_functions(name, read(name))] == []


def long_functions(name: str, source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES:
                found.append(f"{name}:{node.lineno} {node.name}: {lines} lines")
    return found


@pytest.mark.parametrize(("body", "long"), [(49, False), (50, True)])
def test_the_measure_counts_the_line_of_def(body: int, long: bool) -> None:
    source = "def f():\n" + "    x = 1\n" * body
    assert bool(long_functions("f.py", source)) is long
