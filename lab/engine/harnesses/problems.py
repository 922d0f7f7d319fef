"""What is wrong with a harness, field by field: said in full sentences, and all of it at once."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lab.engine.errors import InvalidValueError

_EXCERPT = 80
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother = 3, 40, _EXCERPT
# What may be given in place of a value of a wrong type, by pydantic's word for the mistake.
_WAYS_OUT = {
    "missing": "is missing; write it",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "string_type": "must be a text; put it in quotes",
}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    `field` is its path, with tools by name (`tools.Bash.parameters`), `value` an excerpt of what stands
    there, `message` what is wrong with it and the way out. A warning forbids nothing.
    """

    field: str
    value: str
    message: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.field}: {self.value} {self.message}" if self.value else f"{self.field}: {self.message}"


class InvalidConfigError(InvalidValueError):
    """A harness that cannot be used, with everything that is wrong with it; `field` and `value` are the first
    problem's."""

    def __init__(self, problems: Sequence[Problem], *, source: str = "") -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(first.field, first.value, first.message)
        said = "\n".join(map(str, self.problems))
        self.args = (f"{source}: {said}" if source else said,)


def error(field: str, value: object, message: str) -> Problem:
    """A problem that forbids the harness."""
    return Problem(field, excerpt(value), message)


def warning(field: str, value: object, message: str) -> Problem:
    """A problem that forbids nothing."""
    return Problem(field, excerpt(value), message, "warning")


def refusal(field: str, refused: InvalidValueError) -> Problem:
    """What was refused elsewhere, as a problem of this field."""
    return Problem(field, excerpt(refused.value), refused.reason)


def excerpt(value: object) -> str:
    """A value, short enough to stand in a sentence, however large or deep it is."""
    shown = repr(value[: _EXCERPT + 1]) if isinstance(value, str) else _REPR.repr(value)
    return shown if len(shown) <= _EXCERPT else f"{shown[: _EXCERPT - 1]}…"


def of_validation(
    failed: ValidationError, raw: object, *, prefix: str = "", known: Sequence[str] = ()
) -> list[Problem]:
    """pydantic's errors as problems. `prefix` goes before each field, `known` are the names of the top."""
    found = failed.errors(include_url=False, include_context=True)
    return [_of_detail(one, raw, prefix, known) for one in found]


def _of_detail(detail: ErrorDetails, raw: object, prefix: str, known: Sequence[str]) -> Problem:
    location = detail["loc"]
    field = ".".join(filter(None, [prefix, path_of(location, raw)])) or "harness"
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        return error(field, value, f"is not known here{_choices(known, location)}; take it out")
    if kind == "missing":
        return Problem(field, "", _WAYS_OUT[kind])
    if kind == "literal_error":
        return error(field, value, f"is not known; choose {detail['ctx']['expected']}")
    message = _WAYS_OUT.get(kind) or f"cannot be used: {_sentence(detail['msg'])}"
    return error(field, value, message)


def _sentence(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should be", "it must be")


def _choices(known: Sequence[str], location: tuple[int | str, ...]) -> str:
    if len(location) != 1 or not known:
        return ""
    return f" (known: {', '.join(known)})"


def path_of(location: Sequence[int | str], raw: object) -> str:
    """A place in `raw` as people read it: a list's entries by their name where they have one, else by number
    from 1."""
    parts: list[str] = []
    at: Any = raw
    for step in location:
        at = _entered(at, step)
        name = at.get("name") if isinstance(step, int) and isinstance(at, Mapping) else None
        if isinstance(step, int):
            parts.append(name if isinstance(name, str) and 0 < len(name) <= _EXCERPT else str(step + 1))
        else:
            parts.append(step[:_EXCERPT])
    return ".".join(parts)


def _entered(at: Any, step: int | str) -> Any:
    try:
        return at[step]
    except (LookupError, TypeError):
        return None
