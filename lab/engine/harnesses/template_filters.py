"""The filters and tests that a template can use. Nothing else exists.

They do what Jinja's own do, but are paid for before they run, and give lists where Jinja gives generators.
Left out on purpose: what pads or formats to a width (`center`, `format`), what depends on chance, and what
reads an attribute of a Python object.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Context, Undefined
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import htmlsafe_json_dumps, pass_context

from lab.engine.harnesses.template_work import CALL, ITEM, RefusedError, Work, insist, work_of

Function = Callable[..., object]

_WIDEST_INDENT = 100
_MOST_DECIMALS = 15
_MOST_STRIPPED = 100


def text_of(value: object) -> str:
    """The value as a template writes it."""
    return value if isinstance(value, str) else str(value)


def replaced(work: Work, text: str, old: str, new: str, count: int | None = None) -> str:
    """`str.replace`, paid for by the size of what it makes.

    Raises:
        RefusedError: the result would be too large.
    """
    work.charge_reading(text)
    times = text.count(old)
    if count is not None and count >= 0:
        times = min(times, count)
    work.charge_result(len(text) + max(0, times * (len(new) - len(old))))
    return text.replace(old, new, -1 if count is None else count)


def joined(work: Work, separator: str, texts: list[str]) -> str:
    """`str.join`, paid for by the size of what it makes.

    Raises:
        RefusedError: the result would be too large.
    """
    work.charge_result(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def stripped(work: Work, strip: Callable[[str, str | None], str], text: str, chars: str | None) -> str:
    """`str.strip` and its two sisters, whose time is the product of both lengths.

    Raises:
        RefusedError: too many characters to strip.
    """
    if chars is not None and len(chars) > _MOST_STRIPPED:
        raise RefusedError(f"strips more than {_MOST_STRIPPED} different characters; name fewer")
    work.charge_value(text)
    return strip(text, chars)


def _paid(jinja: Function, *, environment: bool = False, per_item: int = 0) -> Function:
    """Jinja's own filter for one whose result is not much larger than what it is given."""

    @pass_context
    def paid(context: Context, value: object, *arguments: object, **named: object) -> object:
        work = work_of(context)
        for argument in (*arguments, *named.values()):
            work.charge_value(argument)
            if isinstance(argument, str):
                # A path to an attribute is walked for every item.
                work.charge(argument.count(".") * _length(value))
        work.charge_value(value)
        work.charge(per_item * _length(value))
        given = (context.environment, value) if environment else (value,)
        return _paid_result(work, jinja(*given, *arguments, **named))

    return paid


def _paid_result(work: Work, result: object) -> object:
    if isinstance(result, Iterator):
        result = list(result)
    if not isinstance(result, Undefined):  # `first` of nothing, which `default` may follow
        work.charge_value(result)
    return result


def _length(value: object) -> int:
    return len(value) if isinstance(value, (str, list, tuple, dict, range)) else 1


def _free(jinja: Function) -> Function:
    @pass_context
    def free(context: Context, *arguments: object, **named: object) -> object:
        work_of(context).charge(1)
        return jinja(*arguments, **named)

    return free


@pass_context
def _first(context: Context, value: object) -> object:
    return _at_end(context, value, "first", 0)


@pass_context
def _last(context: Context, value: object) -> object:
    return _at_end(context, value, "last", -1)


def _at_end(context: Context, value: object, which: str, index: int) -> object:
    work_of(context).charge(ITEM * _length(value) if isinstance(value, dict) else 1)
    items = list(value) if isinstance(value, dict) else value
    insist(items)
    if not isinstance(items, (str, list, tuple, range)):
        raise RefusedError(f"asks for the {which} of something that is neither text nor list")
    return items[index] if items else context.environment.undefined(f"the {which} of nothing")


@pass_context
def _text(context: Context, value: object) -> str:
    work_of(context).charge_value(value)
    return text_of(value)


@pass_context
def _list(context: Context, value: Iterable[object]) -> list[object]:
    work_of(context).charge_value(value)
    return list(value)


@pass_context
def _escape(context: Context, value: object) -> str:
    work_of(context).charge_value(value)
    escaped = str(JINJA_FILTERS["escape"](text_of(value)))
    work_of(context).charge_value(escaped)
    return escaped


@pass_context
def _trim(context: Context, value: object, chars: str | None = None) -> str:
    work_of(context).charge_value(value)
    return stripped(work_of(context), str.strip, text_of(value), chars)


@pass_context
def _replace(context: Context, value: object, old: object, new: object, count: int | None = None) -> str:
    work = work_of(context)
    for given in (value, old, new):
        work.charge_value(given)
    return replaced(work, text_of(value), text_of(old), text_of(new), count)


@pass_context
def _join(
    context: Context, value: Iterable[object], d: object = "", attribute: str | int | None = None
) -> str:
    work = work_of(context)
    work.charge_value(value)
    work.charge_value(d)
    items = value if attribute is None else [_attribute(context, item, attribute) for item in value]
    texts = []
    for item in items:
        work.charge_value(item)
        texts.append(text_of(item))
    return joined(work, text_of(d), texts)


@pass_context
def _indent(
    context: Context, value: object, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    work = work_of(context)
    work.charge_value(value)
    text = text_of(value)
    wide = len(width) if isinstance(width, str) else width
    if wide > _WIDEST_INDENT:
        raise RefusedError(f"indents by {wide}, which is more than {_WIDEST_INDENT}; use a smaller width")
    work.charge_result(len(text) + wide * (1 + len(text.splitlines())))
    return cast(str, JINJA_FILTERS["indent"](text, width, first, blank))


@pass_context
def _tojson(context: Context, value: object, indent: int | None = None) -> str:
    """As Jinja's: keys in order, and `<`, `>`, `&`, `'` written as escapes."""
    work = work_of(context)
    work.charge_value(value)
    if indent is not None and not 0 <= indent <= _WIDEST_INDENT:
        raise RefusedError(f"indents by {indent}; use a width between 0 and {_WIDEST_INDENT}")

    def dumped(given: object) -> str:
        if indent is None:
            return json.dumps(given, sort_keys=True)
        pieces = []
        for piece in json.JSONEncoder(sort_keys=True, indent=indent).iterencode(given):
            work.charge(len(piece))
            pieces.append(piece)
        return "".join(pieces)

    written = str(htmlsafe_json_dumps(value, dumps=dumped))
    work.charge_value(written)
    return written


@pass_context
def _round(context: Context, value: object, precision: int = 0, method: str = "common") -> object:
    work_of(context).charge(1)
    _number("round", value)
    if abs(precision) > _MOST_DECIMALS:
        raise RefusedError(f"rounds to {precision} decimals, which is more than {_MOST_DECIMALS}; use fewer")
    return JINJA_FILTERS["round"](value, precision, method)


@pass_context
def _sum(
    context: Context,
    value: Iterable[object],
    attribute: str | int | None = None,
    start: int | float = 0,
) -> int | float:
    work_of(context).charge_value(value)
    total = start
    for item in value:
        total += _number("sum", item if attribute is None else _attribute(context, item, attribute))
    return total


def _number(what: str, value: object) -> int | float:
    insist(value)
    if isinstance(value, (int, float)):
        return value
    raise RefusedError(f"uses {what!r} on something that is no number")


def _attribute(context: Context, item: object, path: object) -> object:
    """What `sort(attribute="a.b")` means: the item's `a`, of that the `b`."""
    for part in path.split(".") if isinstance(path, str) else [path]:
        work_of(context).charge(ITEM)
        key = int(part) if isinstance(part, str) and part.isdecimal() else part
        item = context.environment.getitem(item, key)
    return item


@pass_context
def _map(context: Context, value: Iterable[object], *arguments: object, **named: object) -> list[object]:
    work_of(context).charge_value(value)
    work_of(context).charge(CALL * _length(value))
    if arguments:
        name, *rest = arguments
        apply = known("filter", FILTERS, name)
        return [apply(context, item, *rest, **named) for item in value]
    found = [_attribute(context, item, named["attribute"]) for item in value]
    if "default" in named:
        return [named["default"] if isinstance(item, Undefined) else item for item in found]
    return found


def _chosen(*, keep: bool, by_attribute: bool) -> Function:
    @pass_context
    def chosen(context: Context, value: Iterable[object], *arguments: object) -> list[object]:
        work = work_of(context)
        work.charge_value(value)
        work.charge(CALL * _length(value))
        path, *rest = arguments if by_attribute else (None, *arguments)
        test = known("test", TESTS, rest[0]) if rest else None
        kept = []
        for item in value:
            looked_at = _attribute(context, item, path) if by_attribute else item
            if bool(test(context, looked_at, *rest[1:]) if test else looked_at) is keep:
                kept.append(item)
        return kept

    return chosen


def known(kind: str, table: dict[str, Function], name: object) -> Function:
    """The filter or test of this name.

    Raises:
        RefusedError: there is none; the text names those that exist.
    """
    if isinstance(name, str) and name in table:
        return table[name]
    raise RefusedError(f"uses the unknown {kind} {name!r}; there are {', '.join(sorted(table))}")


FILTERS: dict[str, Function] = {
    **{
        name: _paid(JINJA_FILTERS[name])
        for name in ("abs", "capitalize", "dictsort", "float", "int", "items")
    },
    **{name: _paid(JINJA_FILTERS[name]) for name in ("lower", "reverse", "title", "upper", "wordcount")},
    **{
        name: _paid(JINJA_FILTERS[name], environment=True, per_item=CALL)
        for name in ("max", "min", "sort", "unique")
    },
    **{name: _free(JINJA_FILTERS[name]) for name in ("count", "d", "default", "length")},
    "e": _escape,
    "escape": _escape,
    "first": _first,
    "indent": _indent,
    "join": _join,
    "last": _last,
    "list": _list,
    "map": _map,
    "reject": _chosen(keep=False, by_attribute=False),
    "rejectattr": _chosen(keep=False, by_attribute=True),
    "replace": _replace,
    "round": _round,
    "safe": _text,
    "select": _chosen(keep=True, by_attribute=False),
    "selectattr": _chosen(keep=True, by_attribute=True),
    "string": _text,
    "sum": _sum,
    "tojson": _tojson,
    "trim": _trim,
    "truncate": _paid(JINJA_FILTERS["truncate"], environment=True),
}


_JINJA_TESTS = cast("dict[str, Function]", JINJA_TESTS)


def _comparing(jinja: Function) -> Function:
    @pass_context
    def comparing(context: Context, *operands: object) -> object:
        for operand in operands:
            work_of(context).charge_reading(operand)
        return jinja(*operands)

    return comparing


def _numeric(name: str) -> Function:
    test: Function = _JINJA_TESTS[name]

    @pass_context
    def numeric(context: Context, *operands: object) -> object:
        work_of(context).charge(1)
        return test(*(_number(name, operand) for operand in operands))

    return numeric


TESTS: dict[str, Function] = {
    **{
        name: _free(_JINJA_TESTS[name])
        for name in (
            *("boolean", "defined", "false", "float", "integer", "iterable", "mapping", "none", "number"),
            *("sequence", "string", "true", "undefined"),
        )
    },
    **{
        name: _comparing(_JINJA_TESTS[name])
        for name in (
            *("eq", "equalto", "==", "ne", "!=", "ge", ">=", "gt", "greaterthan", ">"),
            *("le", "<=", "lt", "lessthan", "<", "in", "lower", "upper"),
        )
    },
    **{name: _numeric(name) for name in ("divisibleby", "even", "odd")},
}
