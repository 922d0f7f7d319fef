"""Literals of Python files that are somebody else's: parsed, never imported, and nothing of them is run.

Only literals are taken: strings, numbers, lists, dictionaries, joined strings, and names that a literal was
assigned to in the same file.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.engine.errors import InvalidValueError
from lab.engine.llm.base import JSONObject

# A checkout is somebody else's: no file of wording is larger.
LARGEST_FILE = 2_000_000
_DEEPEST = 40
# Names that stand for names that stand for names: a short file can describe a value without end.
_MOST_LOOKED_AT = 1_000_000
_MOST_CHARACTERS = 10_000_000


class NotLiteralError(Exception):
    """An expression that is more than a literal."""


class Names(dict[str, ast.expr]):
    """The names of a file with what was assigned to them, and how much of it may still be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self._looked_at = self._characters = 0

    def look(self, value: object = "") -> None:
        """Raises: NotLiteralError: the file describes more than a file of wording can."""
        self._looked_at += 1
        self._characters += len(value) if isinstance(value, str) else 0
        if self._looked_at > _MOST_LOOKED_AT or self._characters > _MOST_CHARACTERS:
            raise NotLiteralError


def read_text(option: str, file: Path, *, largest: int = LARGEST_FILE) -> str:
    """A file's text. `option` is what the error shall name, `largest` is in bytes.

    Raises:
        InvalidValueError: it cannot be read, is no text, or is too large.
    """
    try:
        if file.stat().st_size > largest:
            raise InvalidValueError(option, str(file), f"is larger than {largest:,} bytes; it was not read")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidValueError(option, str(file), f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidValueError(option, str(file), "is no text in UTF-8; it was not read") from None


def parse(option: str, file: Path) -> ast.Module:
    """The syntax tree of a Python file.

    Raises:
        InvalidValueError: as `read_text`, or no Python.
    """
    try:
        return ast.parse(read_text(option, file), filename=file.name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidValueError(option, str(file), f"cannot be parsed as Python: {error}") from None


def assignments(module: ast.Module) -> Names:
    """Name -> last expression assigned to it anywhere in the file."""
    found = Names()
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
            found[node.target.id] = node.value
    return found


def literal(node: ast.expr, names: Names, depth: int = 0) -> Any:
    """The value of a literal expression.

    Raises:
        NotLiteralError: a call, a comprehension, a name from elsewhere.
    """
    if depth > _DEEPEST:
        raise NotLiteralError
    deeper = depth + 1
    names.look(node.value if isinstance(node, ast.Constant) else "")
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [literal(item, names, deeper) for item in node.elts]
    if isinstance(node, ast.Dict):
        return _dictionary(node, names, deeper)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _sum(literal(node.left, names, deeper), literal(node.right, names, deeper))
    if isinstance(node, ast.Name) and node.id in names:
        return literal(names[node.id], names, deeper)
    return _text_expression(node, names, deeper)


def _dictionary(node: ast.Dict, names: Names, depth: int) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            result.update(literal(value, names, depth))
        else:
            result[literal(key, names, depth)] = literal(value, names, depth)
    return result


def _sum(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        return [*left, *right]
    raise NotLiteralError


def _text_expression(node: ast.expr, names: Names, depth: int) -> Any:
    """Strings that are made where they stand: `"…".strip()`, `dedent("…")`, `" ".join([…])`, f-strings of
    literals."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_part(part, names, depth) for part in node.values)
    if not isinstance(node, ast.Call):
        raise NotLiteralError
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name == "strip" and isinstance(function, ast.Attribute) and not node.args:
        return str(literal(function.value, names, depth)).strip()
    if name in {"dedent", "cleandoc"} and len(node.args) == 1:
        text = str(literal(node.args[0], names, depth))
        return textwrap.dedent(text) if name == "dedent" else inspect.cleandoc(text)
    if name == "join" and isinstance(function, ast.Attribute) and len(node.args) == 1:
        return str(literal(function.value, names, depth)).join(literal(node.args[0], names, depth))
    raise NotLiteralError


def _part(part: ast.expr, names: Names, depth: int) -> str:
    if isinstance(part, ast.FormattedValue):
        if part.conversion != -1 or part.format_spec is not None:
            raise NotLiteralError
        return str(literal(part.value, names, depth))
    return str(literal(part, names, depth))


def values(module: ast.Module) -> Iterator[Any]:
    """Every list and dictionary literal of a file, outer ones first."""
    names = assignments(module)
    for node in ast.walk(module):
        if isinstance(node, ast.List | ast.Tuple | ast.Dict):
            try:
                yield literal(node, names)
            except (NotLiteralError, TypeError):
                continue


def string_of(node: ast.expr, names: Names) -> str | None:
    """The text that an expression is, None when it is none."""
    try:
        value = literal(node, names)
    except (NotLiteralError, TypeError):
        return None
    return value if isinstance(value, str) else None


def function_of(item: Any) -> JSONObject | None:
    """The function of a tool literal, bare or wrapped, its schema under `parameters`; None for anything else.

    A schema under `input_schema`, as Anthropic's API has it, is taken too.
    """
    if not isinstance(item, dict):
        return None
    function = item.get("function") if item.get("type") == "function" else item
    if not isinstance(function, dict):
        return None
    schema = function.get("parameters", function.get("input_schema"))
    name, description = function.get("name"), function.get("description", "")
    if not isinstance(schema, dict) or not isinstance(name, str) or not isinstance(description, str):
        return None
    return {"name": name, "description": description, "parameters": schema}


def functions_of(module: ast.Module) -> list[JSONObject]:
    """The functions of all tool literals of a file, as `function_of`; the same may come twice."""
    found = []
    for value in values(module):
        for item in value if isinstance(value, list) else [value]:
            function = function_of(item)
            if function is not None:
                found.append(function)
    return found


def as_template(text: str) -> str:
    """A text as a template that renders to it: braces of its own stay braces."""
    if not re.search(r"\{[{%#]|\{$", text):
        return text
    whole = text.replace("{% endraw %}", '{% endraw %}{{ "{% endraw %}" }}{% raw %}')
    return "{% raw %}" + whole + "{% endraw %}"
