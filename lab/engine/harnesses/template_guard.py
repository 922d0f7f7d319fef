"""Reads a template's source into a syntax tree in which everything that costs something is paid for.

Only the statements and expressions listed here exist; each template is limited in length, parts and depth, so
that compiling one is bounded too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from jinja2 import nodes
from jinja2.environment import Environment
from jinja2.visitor import NodeTransformer

from lab.engine.harnesses.template_filters import FILTERS, TESTS, known
from lab.engine.harnesses.template_work import ITEM, PART, RefusedError

LONGEST_TEMPLATE = 200_000
"""Characters of a template's source."""
_MOST_PARTS = 10_000
_DEEPEST = 60
_MOST_BRACKETS = 20

_STATEMENTS = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Assign, nodes.AssignBlock),
    *(nodes.FilterBlock, nodes.With),
)
_EXPRESSIONS = (
    *(nodes.Name, nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.Operand),
    *(nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Filter, nodes.Test, nodes.Call, nodes.Compare),
    *(nodes.Concat, nodes.CondExpr, nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos),
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow),
)
_ALLOWED = (*_STATEMENTS, *_EXPRESSIONS)
_WRITTEN_AS = {
    nodes.CallBlock: "call",
    nodes.FromImport: "from … import",
    nodes.NSRef: "an attribute that is set",
    nodes.Scope: "autoescape",
}


class RefusedAtLineError(RefusedError):
    """A refusal of something that stands in a known line of the template."""

    def __init__(self, line: int | None, reason: str) -> None:
        self.line = line or 0
        super().__init__(reason)


def read(environment: Environment, source: str) -> nodes.Template:
    """The tree of a template, as it is written.

    Raises:
        RefusedError: too long, too deeply nested, or with something no template may have.
        jinja2.TemplateSyntaxError: no template.
    """
    if len(source) > LONGEST_TEMPLATE:
        raise RefusedError(
            f"has {len(source):,} characters, and a template has at most {LONGEST_TEMPLATE:,}; shorten it"
        )
    _check_brackets(environment, source)
    tree = environment.parse(source)
    _check_nodes(tree)
    return tree


def _check_brackets(environment: Environment, source: str) -> None:
    """Jinja's parser recurses many frames deep for every open bracket: refused before it is asked."""
    depth = 0
    for line, kind, text in environment.lex(source):
        if kind != "operator":
            continue
        depth += (text in "([{") - (text in ")]}")
        if depth > _MOST_BRACKETS:
            raise RefusedAtLineError(
                line, f"has more than {_MOST_BRACKETS} brackets in one another; use `set`"
            )


def _check_nodes(tree: nodes.Template) -> None:
    waiting: list[tuple[nodes.Node, int]] = [(tree, 0)]
    parts = 0
    while waiting:
        node, depth = waiting.pop()
        parts += 1
        _check_node(node)
        if depth > _DEEPEST:
            raise RefusedAtLineError(node.lineno, f"is nested more than {_DEEPEST} levels deep; use `set`")
        if parts > _MOST_PARTS:
            raise RefusedAtLineError(node.lineno, f"has more than {_MOST_PARTS:,} parts; shorten it")
        waiting.extend((child, depth + 1) for child in node.iter_child_nodes())


def _check_node(node: nodes.Node) -> None:
    if not isinstance(node, _ALLOWED):
        written = _WRITTEN_AS.get(type(node), type(node).__name__.lower())
        raise RefusedAtLineError(
            node.lineno, f"uses {written!r}, which a harness template cannot; leave it out"
        )
    if isinstance(node, nodes.For) and node.recursive:
        raise RefusedAtLineError(node.lineno, "uses a recursive loop, which a harness template cannot")
    if isinstance(node, (nodes.Call, nodes.Filter, nodes.Test)):
        if node.dyn_args or node.dyn_kwargs:
            raise RefusedAtLineError(node.lineno, "passes on arguments with * or **; write them one by one")
        _check_name(node)
    if isinstance(node, (nodes.TemplateData, nodes.Const)) and _unpaired(node):
        raise RefusedAtLineError(node.lineno, "has half of a surrogate pair in it, which no text can hold")


def _check_name(node: nodes.Call | nodes.Filter | nodes.Test) -> None:
    try:
        if isinstance(node, nodes.Filter):
            known("filter", FILTERS, node.name)
        elif isinstance(node, nodes.Test):
            known("test", TESTS, node.name)
    except RefusedError as refused:
        raise RefusedAtLineError(node.lineno, str(refused)) from None


def _unpaired(node: nodes.TemplateData | nodes.Const) -> bool:
    text = node.data if isinstance(node, nodes.TemplateData) else node.value
    return isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text)


class Guard(NodeTransformer):
    """Puts what a compiled template would do unseen into the hidden filters of the sandbox."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        tested = [node.test] if node.test else []
        node.iter = _hidden("~loop", cast(nodes.Expr, node.iter), nodes.Const(_cost([*node.body, *tested])))
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = (node.arg.start, node.arg.stop, node.arg.step)
        return _hidden("~slice", node.node, *(bound or nodes.Const(None) for bound in bounds))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _read(node.expr)
        for operand in node.ops:
            operand.expr = _read(operand.expr)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _hidden("~join", nodes.List(node.nodes, lineno=node.lineno))

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return node if _constant(node.items) else _hidden("~built", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return node if node.ctx != "load" or _constant(node.items) else _hidden("~built", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return node if _constant(pair.value for pair in node.items) else _hidden("~built", node)


def _hidden(name: str, value: nodes.Expr, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(arguments), [], None, None, lineno=value.lineno)


def _read(node: nodes.Expr) -> nodes.Expr:
    constant = isinstance(node, nodes.Const) or (isinstance(node, nodes.List) and _constant(node.items))
    return node if constant else _hidden("~read", node)


def _constant(items: Iterable[nodes.Expr]) -> bool:
    return all(isinstance(item, nodes.Const) for item in items)


def _cost(body: list[nodes.Node]) -> int:
    """Units of one round: what it writes and computes, without the loops in it, which pay for themselves."""
    units = ITEM
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        units += PART + (len(node.data) if isinstance(node, nodes.TemplateData) else 0)
        if not isinstance(node, nodes.For):
            waiting.extend(node.iter_child_nodes())
    return units
