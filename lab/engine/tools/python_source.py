"""Python source seen from outside: whether it can be parsed, and its skeleton without long bodies."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# The parser takes some hundred bytes of memory for each character.
LARGEST_CHARACTERS = 500_000


def syntax_error(text: str) -> str:
    """What is wrong with the source, "" when nothing is. Source that is too large is taken for right."""
    if len(text) > LARGEST_CHARACTERS:
        return ""
    try:
        _parsed(text)
    except SyntaxError as error:
        return _worded(error)
    return ""


def skeleton(text: str, lines: list[str], *, shortest: int, docstrings: bool) -> list[tuple[int, str]]:
    """Numbered lines (from 1) without the bodies of functions that have `shortest` lines or more.

    With `docstrings` those of classes lose their inner lines too, from five lines on. A note stands at the
    first line of each piece left out. `lines` are those of `text`.

    Raises:
        SyntaxError: the source cannot be parsed, or is too large to try; the message says so and where.
    """
    if len(text) > LARGEST_CHARACTERS:
        raise SyntaxError(f"it has more than {LARGEST_CHARACTERS} characters")
    try:
        tree = _parsed(text)
    except SyntaxError as error:
        raise SyntaxError(_worded(error)) from None
    kept, at = [], 1
    for first, last in _outermost(_ranges(tree, lines, shortest, docstrings)):
        kept += [(number, lines[number - 1]) for number in range(at, first)]
        kept.append((first, f"... lines {first}-{last} left out ..."))
        at = last + 1
    return kept + [(number, lines[number - 1]) for number in range(at, len(lines) + 1)]


def _parsed(text: str) -> ast.Module:
    # A lone CR would end a line here and nowhere else.
    source = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", " ")
    try:
        return ast.parse(source)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "it is nested too deeply") from None


def _worded(error: SyntaxError) -> str:
    return f"{error.msg} (line {error.lineno})" if error.lineno else str(error.msg)


def _ranges(tree: ast.Module, lines: list[str], shortest: int, docstrings: bool) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first, last = _body(node, lines)
            if last - first + 1 >= shortest:
                yield first, last
        elif (
            docstrings and isinstance(node, ast.ClassDef) and ast.get_docstring(node, clean=False) is not None
        ):
            first, last = node.body[0].lineno, node.body[0].end_lineno or 0
            if last - first >= 4:
                yield first + 1, last - 1


def _body(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> tuple[int, int]:
    """First and last line of a function's body, decorators of what it begins with included."""
    statement = node.body[0]
    decorators = [decorator.lineno for decorator in getattr(statement, "decorator_list", [])]
    first = min([statement.lineno, *decorators])
    before = lines[first - 1].encode("utf-8", "surrogateescape")[: statement.col_offset]
    if not decorators and before.strip():
        # The body begins on the line of its signature, which stays.
        first += 1
    return first, node.body[-1].end_lineno or first


def _outermost(ranges: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The ranges in order, without those inside of another one."""
    end = 0
    for first, last in sorted(ranges, key=lambda span: (span[0], -span[1])):
        if first > end:
            yield first, last
            end = last
