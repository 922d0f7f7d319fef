"""Skeletons of Python source."""

from __future__ import annotations

import pytest

from lab.engine.tools.python_source import skeleton, syntax_error


def shown(text: str, *, shortest: int = 4) -> list[tuple[int, str]]:
    return skeleton(text, text.split("\n")[:-1], shortest=shortest, docstrings=True)


def test_only_the_outermost_long_body_is_left_out() -> None:
    inner = "        b = 1\n" * 4
    text = f"def f():\n    a = 1\n    def g():\n{inner}    return g\n"
    assert shown(text) == [(1, "def f():"), (2, "... lines 2-8 left out ...")]


def test_decorators_and_signatures_of_several_lines_stay() -> None:
    head = "@wrap(\n    1,\n)\nasync def f(\n    a,\n    b,\n):\n"
    text = head + "    a = 1\n    a = 2\n    a = 3\n    return a\n\nx = 1\n"
    assert shown(text) == [
        *enumerate(head.splitlines(), start=1),
        (8, "... lines 8-11 left out ..."),
        (12, ""),
        (13, "x = 1"),
    ]


def test_the_decorators_of_what_a_body_begins_with_go_with_it() -> None:
    text = "def f():\n    @wrap\n    def g():\n        return 1\n    return g\n"
    assert shown(text) == [(1, "def f():"), (2, "... lines 2-5 left out ...")]


def test_a_signature_with_the_body_on_its_line_stays() -> None:
    text = "def f(): return [\n    1,\n    2,\n    3,\n    4,\n]\n"
    assert shown(text) == [(1, "def f(): return ["), (2, "... lines 2-6 left out ...")]


def test_a_body_below_the_shortest_stays() -> None:
    text = "def f():\n    a = 1\n    a = 2\n    a = 3\n"
    assert shown(text) == list(enumerate(text.split("\n")[:-1], start=1))
    assert len(shown(text, shortest=3)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffdef f():\n    a = 1\n    a = 2\n    a = 3\n    a = 4\n",
        "def f():\r\n    a = 1\r\n    a = 2\n    a = 3\n    a = 4\n",
    ],
)
def test_a_byte_order_mark_and_mixed_line_ends_are_no_mistake(text: str) -> None:
    assert [number for number, _ in shown(text)] == [1, 2]
    assert syntax_error(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "def (\n",
        "x = '\0'\n",
        "x = " + "-" * 100_000 + "1\n",
        "x = " + "(" * 1000 + ")" * 1000 + "\n",
        "if a:\n  x\n y\n",
    ],
    ids=["syntax", "nul", "signs", "brackets", "indentation"],
)
def test_what_cannot_be_parsed_is_a_syntax_error_with_a_reason(text: str) -> None:
    with pytest.raises(SyntaxError) as caught:
        shown(text)
    assert str(caught.value)
    assert syntax_error(text) == str(caught.value)


def test_source_too_large_to_parse_has_no_skeleton_and_no_known_mistake() -> None:
    text = "x = 1\n" * 100_000
    with pytest.raises(SyntaxError, match="500000 characters"):
        shown(text)
    assert syntax_error(text) == ""
