"""The sandbox that harness templates are compiled for and run in.

No attribute of a Python object is ever read: `a.b` is a key of a mapping, one of a few methods of a text,
list or mapping, or what a loop says of itself. What a compiled template would do unseen (loops, slices,
comparisons, `~`) is rewritten in its syntax tree into filters that no template can name, because filters
know the budget of the rendering they run in.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from jinja2 import StrictUndefined
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing, pass_context

from lab.engine.harnesses.template_filters import (
    FILTERS,
    TESTS,
    Function,
    joined,
    replaced,
    stripped,
    text_of,
)
from lab.engine.harnesses.template_work import ITEM, RefusedError, Work, insist, size, work_of

_LONGEST_RANGE = 100_000
_MOST_BITS = 4_096
_NAMES_SHOWN = 20


class Method:
    """Something a template may call: the only kind of value that `()` works on."""

    __slots__ = ("function", "subject")

    def __init__(self, function: Function, subject: object) -> None:
        self.function = function
        self.subject = subject

    def __call__(self, work: Work, *arguments: object, **named: object) -> object:
        return self.function(work, self.subject, *arguments, **named)


class Unknown(StrictUndefined):
    """A name or an attribute that does not exist, with the names that do."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        name, owner = self._undefined_name, self._undefined_obj
        if self._undefined_hint:
            return f"uses a value that does not exist: {self._undefined_hint}"
        if owner is missing:
            return f"uses the unknown name {name!r}"
        return f"asks for {name!r}, which is not in {described(owner)}"


def described(value: object) -> str:
    """What a value is, and which names or how many items it has: `a mapping that has output, seconds`."""
    if isinstance(value, Mapping):
        names = [str(key)[:60] for key in value][:_NAMES_SHOWN]
        return f"a mapping that has {', '.join(names)}" if names else "a mapping that has nothing in it"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, Sequence):
        return f"a list that has {len(value)} items"
    return f"a value of type {type(value).__name__}"


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja with the lab's own rules for attributes, calls and operators."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self) -> None:
        # Unoptimized: the optimizer would compute constants while compiling, outside every budget.
        super().__init__(
            undefined=Unknown, keep_trailing_newline=True, optimized=False, finalize=_written, cache_size=0
        )
        self.filters = {**FILTERS, **HIDDEN}
        self.tests = dict(TESTS)
        self.globals = {"range": RANGE}

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        return False

    def is_safe_callable(self, obj: object) -> bool:
        return isinstance(obj, Method)

    def getattr(self, obj: object, attribute: str) -> object:
        """`obj.attribute`. The methods of a mapping go before its keys, as in Jinja."""
        insist(obj)
        function = _methods(obj).get(attribute)
        if function is not None:
            return Method(function, obj)
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        if isinstance(obj, LoopContext) and attribute in _OF_A_LOOP:
            return getattr(obj, attribute)
        return self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: object, argument: object) -> object:
        """`obj[argument]`: a key or an index."""
        insist(obj)
        if isinstance(obj, LoopContext) and isinstance(argument, str):
            return self.getattr(obj, argument)
        if isinstance(obj, (Mapping, str, list, tuple, range)):
            with contextlib.suppress(LookupError, TypeError):
                return cast("Mapping[object, object]", obj)[argument]
        return self.undefined(obj=obj, name=cast(str, argument))

    def call(__self, __context: Context, __obj: object, *args: object, **kwargs: object) -> object:  # noqa: N805, B902
        """Call a method, which is paid for."""
        kwargs.pop("_loop_vars", None)
        insist(__obj)
        if not isinstance(__obj, Method):
            raise RefusedError(
                "calls something that is no function; only `range` and a few methods can be called"
            )
        work = work_of(__context)
        work.charge(1)
        for argument in (*args, *kwargs.values()):
            work.charge_value(argument)
        return __obj(work, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """An operator between two values, refused before it would make something huge."""
        work = work_of(context)
        work.charge(1)
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            return _calculated(operator, left, right)
        for operand in (left, right):
            work.charge_value(operand)
        if operator == "+" and type(left) in _KINDS and type(left) is type(right):
            work.charge_result(size(left) + size(right))
        elif operator == "*" and isinstance(left, int) and type(right) in _KINDS:
            work.charge_result(size(right) * max(left, 0))
        elif operator == "*" and isinstance(right, int) and type(left) in _KINDS:
            work.charge_result(size(left) * max(right, 0))
        else:
            raise RefusedError(
                f"uses {operator!r} between {_kind(left)} and {_kind(right)}; it works on numbers only"
                + (", write `~` to put texts together" if operator in "+%" else "")
            )
        return _OPERATORS[operator](left, right)


_KINDS: dict[type, str] = {str: "text", list: "list", tuple: "tuple"}
_OPERATORS: dict[str, Callable[[Any, Any], object]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def _calculated(name: str, left: int | float, right: int | float) -> object:
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() + right.bit_length()
        if name == "**":
            bits = left.bit_length() * abs(right)
        if bits > _MOST_BITS:
            raise RefusedError(
                f"calculates with a whole number of more than {_MOST_BITS} bits; use smaller numbers"
            )
    return _OPERATORS[name](left, right)


@pass_context
def _written(context: Context, value: object) -> str:
    """What `{{ value }}` writes."""
    work_of(context).charge_value(value)
    return text_of(value)


@pass_context
def _looped(context: Context, value: object, cost: int) -> object:
    """What a `for` goes over: all its rounds are paid for before the first."""
    insist(value)
    if not isinstance(value, (str, list, tuple, range, set, frozenset, Mapping)):
        raise RefusedError(f"loops over a value ({type(value).__name__}) that is no list")
    work_of(context).charge(cost * len(value))
    return value


@pass_context
def _sliced(context: Context, value: object, *given: object) -> object:
    """`value[start:stop:step]`: how a text is cut that is longer than any a template can make."""
    for operand in (value, *given):
        insist(operand)
    if not isinstance(value, (str, list, tuple, range)):
        raise RefusedError(f"cuts a value ({type(value).__name__}) that is neither text nor list")
    bounds = slice(*cast("tuple[int | None, ...]", given))
    length = len(range(*bounds.indices(len(value))))
    work_of(context).charge_result(length if isinstance(value, str) else ITEM * length)
    return value[bounds]


@pass_context
def _read(context: Context, value: object) -> object:
    """A value that is compared."""
    work_of(context).charge_reading(value)
    return value


@pass_context
def _built(context: Context, value: object) -> object:
    """A list, tuple or mapping written in the template: a list of lists can be far larger than it looks."""
    work_of(context).charge_value(value)
    return value


@pass_context
def _concatenated(context: Context, values: list[object]) -> str:
    work = work_of(context)
    work.charge_value(values)
    return joined(work, "", [text_of(value) for value in values])


HIDDEN: dict[str, Function] = {
    "~loop": _looped,
    "~slice": _sliced,
    "~read": _read,
    "~built": _built,
    "~join": _concatenated,
}


def _range(work: Work, subject: object, *bounds: int) -> range:
    numbers = range(*bounds)
    # len() of a range past 2 ** 63 raises OverflowError.
    if numbers and abs(numbers[-1] - numbers[0]) // abs(numbers.step) >= _LONGEST_RANGE:
        raise RefusedError(f"counts a range of more than {_LONGEST_RANGE:,} numbers; use a smaller one")
    return numbers


RANGE = Method(_range, None)


def _of_text(method: Function) -> Function:
    def called(work: Work, text: str, *arguments: object, **named: object) -> object:
        work.charge_value(text)
        result = method(text, *arguments, **named)
        work.charge_value(result)
        return result

    return called


def _searching(method: Function) -> Function:
    def called(work: Work, text: object, *arguments: object, **named: object) -> object:
        work.charge_reading(text)
        return method(text, *arguments, **named)

    return called


def _stripping(method: Callable[[str, str | None], str]) -> Function:
    def called(work: Work, text: str, chars: str | None = None) -> str:
        return stripped(work, method, text, chars)

    return called


def _joining(work: Work, separator: str, texts: Sequence[str]) -> str:
    return joined(work, separator, list(texts))


def _listing(method: Callable[[dict[object, object]], Sequence[object]]) -> Function:
    def called(work: Work, mapping: dict[object, object]) -> list[object]:
        work.charge(ITEM * len(mapping))
        return list(method(mapping))

    return called


def _get(work: Work, mapping: Mapping[object, object], key: object, default: object = None) -> object:
    return mapping.get(key, default)


def _cycle(work: Work, loop: LoopContext, *values: object) -> object:
    return loop.cycle(*values)


_OF_TEXT: dict[str, Function] = {
    **{
        name: _of_text(getattr(str, name))
        for name in (
            *("capitalize", "lower", "partition", "removeprefix", "removesuffix", "split", "splitlines"),
            *("swapcase", "title", "upper"),
        )
    },
    **{
        name: _searching(getattr(str, name))
        for name in (
            *("count", "endswith", "find", "index", "isalnum", "isalpha", "isdecimal", "isdigit", "islower"),
            *("isnumeric", "isspace", "isupper", "startswith"),
        )
    },
    "strip": _stripping(str.strip),
    "lstrip": _stripping(str.lstrip),
    "rstrip": _stripping(str.rstrip),
    "join": _joining,
    "replace": replaced,
}
_OF_LIST = {name: _searching(getattr(list, name)) for name in ("count", "index")}
_OF_TUPLE = {name: _searching(getattr(tuple, name)) for name in ("count", "index")}
_OF_MAPPING: dict[str, Function] = {
    "get": _get,
    "items": _listing(lambda mapping: list(mapping.items())),
    "keys": _listing(lambda mapping: list(mapping.keys())),
    "values": _listing(lambda mapping: list(mapping.values())),
}
_OF_LOOP: dict[str, Function] = {"cycle": _cycle}
_OF_A_LOOP = frozenset(
    {"first", "index", "index0", "last", "length", "nextitem", "previtem", "revindex", "revindex0"}
)


def _methods(value: object) -> Mapping[str, Function]:
    for kind, methods in (
        (str, _OF_TEXT),
        (Mapping, _OF_MAPPING),
        (list, _OF_LIST),
        (tuple, _OF_TUPLE),
        (LoopContext, _OF_LOOP),
    ):
        if isinstance(value, kind):
            return methods
    return {}


def has_method(value: object, name: str) -> bool:
    """Whether a template may call `value.name()`."""
    return name in _methods(value)
