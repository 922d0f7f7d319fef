"""Which names a template asks for from outside, in all its branches, without rendering it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from jinja2 import nodes

from lab.engine.harnesses.template_sandbox import described, has_method

_GUARDS = frozenset({"default", "d", "defined", "undefined"})


class Path(NamedTuple):
    """A placeholder with its attributes, as far as they are written out: `("output", "text")`."""

    names: tuple[str, ...]
    line: int


class Asked(NamedTuple):
    """What a template asks for. `guarded` is what it may do without: it says `is defined` or `default`."""

    paths: list[Path]
    guarded: frozenset[tuple[str, ...]]

    def unknown(self, sample: Mapping[str, object]) -> tuple[int, str] | None:
        """Line and reason of the first placeholder that the sample has no value for.

        A sample's None may stand for anything, so what is asked of it is not looked at.
        """
        for path in self.paths:
            reason = self._unknown(path.names, sample)
            if reason:
                return path.line, reason
        return None

    def _unknown(self, names: tuple[str, ...], sample: Mapping[str, object]) -> str | None:
        value: object = sample
        for end, name in enumerate(names, start=1):
            if isinstance(value, Mapping) and name in value:
                value = value[name]
            elif value is None or names[:end] in self.guarded or (end > 1 and has_method(value, name)):
                return None
            elif end == 1:
                return f"uses the unknown name {name!r}"
            else:
                owner = ".".join(names[: end - 1])
                return f"asks for {f'{owner}.{name}'!r}, but {owner!r} is {described(value)}"
        return None


def asked(tree: nodes.Template) -> Asked:
    """What a template asks for, without what it sets itself. What one branch sets counts as set after it."""
    guarded = {
        path.names
        for node in tree.find_all((nodes.Filter, nodes.Test))
        if node.name in _GUARDS and node.node is not None and (path := _path(node.node)) is not None
    }
    return Asked(list(_in_all(tree.body, set())), frozenset(guarded))


def _in_all(statements: list[nodes.Node], own: set[str]) -> Iterator[Path]:
    for statement in statements:
        yield from _in(statement, own)


def _in(node: nodes.Node, own: set[str]) -> Iterator[Path]:
    """The placeholders of a statement or an expression. What a statement sets is added to `own`."""
    if isinstance(node, nodes.For):
        yield from _in(node.iter, own)
        inner = own | _set_by(node.target) | {"loop"}
        yield from _in_all([*([node.test] if node.test else []), *node.body], inner)
        yield from _in_all(node.else_, set(own))
    elif isinstance(node, nodes.With):
        yield from _in_all(list(node.values), own)
        yield from _in_all(node.body, own.union(*map(_set_by, node.targets)))
    elif isinstance(node, (nodes.Assign, nodes.AssignBlock)):
        parts = [node.node] if isinstance(node, nodes.Assign) else [*([node.filter] if node.filter else [])]
        yield from _in_all(list(parts), own)
        yield from _in_all(node.body if isinstance(node, nodes.AssignBlock) else [], set(own))
        own |= _set_by(node.target)
    elif isinstance(node, nodes.FilterBlock):
        yield from _in(node.filter, own)
        yield from _in_all(node.body, set(own))
    elif (path := _path(node)) is not None:
        if path.names[0] not in own:
            yield path
    else:
        yield from _in_all(list(node.iter_child_nodes()), own)


def _set_by(target: nodes.Node) -> set[str]:
    names = {name.name for name in target.find_all(nodes.Name)}
    return names | {target.name} if isinstance(target, nodes.Name) else names


def _path(node: nodes.Node) -> Path | None:
    names: list[str] = []
    while not isinstance(node, nodes.Name):
        if isinstance(node, nodes.Getattr):
            names.append(node.attr)
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
            if not isinstance(node.arg.value, str):
                return None
            names.append(node.arg.value)
        else:
            return None
        node = node.node
    return Path((node.name, *reversed(names)), node.lineno)
