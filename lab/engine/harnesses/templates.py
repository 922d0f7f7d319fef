"""Harness templates (prompts, observations, feedback) are rendered here and nowhere else.

A template is Jinja with strict names. Whoever may edit a harness may write one, so it runs in a sandbox that
can reach nothing, ends within seconds and makes a bounded text; whatever goes wrong in it is an
`InvalidValueError` that says where and what. Variables are plain data: texts, numbers, lists, mappings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import TracebackType
from typing import NoReturn

import jinja2

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.template_guard import Guard, RefusedAtLineError, read
from lab.engine.harnesses.template_names import Asked, asked
from lab.engine.harnesses.template_sandbox import Sandbox
from lab.engine.harnesses.template_work import LARGEST_TEXT, WORK, RefusedError, Work

_SANDBOX = Sandbox()
_EXCERPT = 120
_LONGEST_REASON = 1_000
_NAMES_SHOWN = 30


def render(field: str, template: str, variables: Mapping[str, object]) -> str:
    """The text that a template makes of its variables.

    Args:
        field: whose template it is, as the error shall name it.
        template: Jinja source.
        variables: plain data by name.

    Raises:
        InvalidValueError: no template, an unknown name, a mistake while rendering, or more text or work
            than a template may take.
    """
    line = 0
    try:
        compiled = _compiled(template)
        try:
            return _rendered(compiled, variables)
        except Exception as error:
            line = _line_of(compiled, error.__traceback__)
            raise
    except Exception as error:  # whatever a template's expressions raise is the template's mistake
        _refuse(field, template, error, line, variables)


def check(field: str, template: str, sample: Mapping[str, object]) -> None:
    """Whether a template can be used: in every branch it asks only for what the sample has, unless it says
    `is defined` or `default`, and with the sample it renders.

    Raises:
        InvalidValueError: as `render`, and an unknown name or attribute in any branch.
    """
    try:
        # `range` is no variable, and has no attributes.
        unknown = _asked(template).unknown({**dict.fromkeys(_SANDBOX.globals), **sample})
    except Exception as error:
        _refuse(field, template, error, 0, sample)
    if unknown:
        _refuse(field, template, RefusedAtLineError(*unknown), 0, sample)
    render(field, template, sample)


def placeholders(template: str) -> set[str]:
    """The names that a template asks for: `{"task"}` of `{{ task.statement }}`, without what it sets itself.

    Raises:
        InvalidValueError: no template.
    """
    try:
        return {path.names[0] for path in _asked(template).paths} - set(_SANDBOX.globals)
    except Exception as error:
        _refuse("template", template, error, 0, {})


@lru_cache(maxsize=128)
def _compiled(source: str) -> jinja2.Template:
    tree = Guard().visit(read(_SANDBOX, source))
    return _SANDBOX.from_string(tree)


def _rendered(compiled: jinja2.Template, variables: Mapping[str, object]) -> str:
    context = compiled.new_context({**_SANDBOX.globals, **variables, WORK: Work()}, shared=True)
    pieces = []
    written = 0
    for piece in compiled.root_render_func(context):
        written += len(piece)
        if written > LARGEST_TEXT:
            raise RefusedError(
                f"renders to more than {LARGEST_TEXT:,} characters; cut what it writes, as in `text[:5000]`"
            )
        pieces.append(piece)
    return "".join(pieces)


@lru_cache(maxsize=64)
def _asked(source: str) -> Asked:
    return asked(read(_SANDBOX, source))


def _line_of(compiled: jinja2.Template, traceback: TracebackType | None) -> int:
    line = 0
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__jinja_template__") is compiled:
            line = compiled.get_corresponding_lineno(traceback.tb_lineno)
        traceback = traceback.tb_next
    return line


def _refuse(
    field: str, template: str, error: Exception, line: int, variables: Mapping[str, object]
) -> NoReturn:
    if isinstance(error, jinja2.TemplateSyntaxError | RefusedAtLineError):
        line = _line(error)
    reason = _reason(error)[:_LONGEST_REASON]
    if reason.startswith("uses the unknown name"):
        names = sorted(str(name) for name in variables)[:_NAMES_SHOWN]
        reason += f"; the names here are {', '.join(names)}" if names else "; there are no names here"
    raise InvalidValueError(
        field, _excerpt(template, line), reason + (f" (line {line})" if line else "")
    ) from None


def _line(error: jinja2.TemplateSyntaxError | RefusedAtLineError) -> int:
    return error.line if isinstance(error, RefusedAtLineError) else error.lineno


def _reason(error: Exception) -> str:
    if isinstance(error, RefusedError | jinja2.UndefinedError):
        return str(error)
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"is no template: {error.message}"
    if isinstance(error, RecursionError | MemoryError | SyntaxError):
        return "is nested too deeply, or too large; split it with `set`"
    return f"cannot be rendered: {type(error).__name__}: {error}"


def _excerpt(template: str, line: int) -> str:
    lines = re.split(r"\r\n|\r|\n", template) if line else []
    text = lines[line - 1] if 0 < line <= len(lines) else template
    return text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "…"
