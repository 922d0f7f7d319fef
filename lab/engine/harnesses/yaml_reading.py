"""YAML from outside as plain data: JSON's kinds alone, within limits, and no name twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from lab.engine.errors import InvalidValueError
from lab.engine.harnesses.plain_data import unstorable

LARGEST_YAML = 8_000_000
"""Characters of a YAML text. More than a harness may have, so that a text in it that is too long is named."""
_DEEPEST = 40
_MOST_VALUES = 200_000

# libyaml is ten times as fast; without it PyYAML has its own.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")}
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


def plain_yaml(text: str) -> Any:
    """The data of a YAML text with one document; None for an empty one.

    Raises:
        InvalidValueError: no YAML, more than one document, larger or deeper than allowed, an alias that makes
            more of it, a name twice, or a value that JSON does not have; names the line and the way out.
    """
    if len(text) > LARGEST_YAML:
        raise InvalidValueError(
            "YAML",
            text[:40],
            f"has {len(text):,} characters, and at most {LARGEST_YAML:,} are read; shorten its longest text",
        )
    if unstorable(text):
        raise InvalidValueError("YAML", text[:40], unstorable(text))
    try:
        _look_through(text)
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
            return None if node is None else _Reading(loader).value(node, 0)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _unreadable(text, error) from None


def _look_through(text: str) -> None:
    """Refuse what is too deep or too large before a tree is made of it, which would recurse."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        depth += isinstance(event, _OPENING) - isinstance(event, _CLOSING)
        if depth > _DEEPEST:
            raise _refusal(event, text, f"is nested more than {_DEEPEST} levels deep; make it flatter")
        if count > _MOST_VALUES:
            raise _refusal(
                event, text, f"is the {_MOST_VALUES:,}th value, and no more are read; leave some out"
            )


class _Reading:
    """Makes values of nodes. An alias is read again each time, so that what it multiplies is counted."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._values = 0

    def value(self, node: yaml.Node, depth: int) -> Any:
        self._values += 1
        if self._values > _MOST_VALUES:
            raise _refusal(node, "", f"makes more than {_MOST_VALUES:,} values of aliases; write fewer out")
        if depth > _DEEPEST:
            raise _refusal(node, "", f"is nested more than {_DEEPEST} levels deep by aliases; write it out")
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return dict(self._entries(node, depth))
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.value(item, depth + 1) for item in node.value]
        if isinstance(node, yaml.ScalarNode) and node.tag in _PLAIN_TAGS:
            return self._scalar(node)
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        shown = node.value if isinstance(node, yaml.ScalarNode) else kind
        raise _refusal(node, shown, f"is a {kind} in YAML, which is not read here; put it in quotes")

    def _entries(self, node: yaml.MappingNode, depth: int) -> Iterator[tuple[str, Any]]:
        lines: dict[str, int] = {}
        for name_node, value_node in node.value:
            if name_node.tag == "tag:yaml.org,2002:merge":
                raise _refusal(
                    name_node, "<<", "merges a mapping, which is not read here; write its entries out"
                )
            name = self.value(name_node, depth + 1)
            if not isinstance(name, str):
                shown = name_node.value if isinstance(name_node, yaml.ScalarNode) else name
                raise _refusal(name_node, shown, "is a name that is no text in YAML; put it in quotes")
            line = name_node.start_mark.line + 1
            if name in lines:
                raise _refusal(
                    name_node, name, f"stands in line {lines[name]} already; leave one of them out"
                )
            lines[name] = line
            yield name, self.value(value_node, depth + 1)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            return self._loader.construct_object(node)
        except ValueError:
            raise _refusal(
                node, node.value, "cannot be read as the number it looks like; put it in quotes"
            ) from None


def _refusal(at: yaml.Node | yaml.Event, shown: object, reason: str) -> InvalidValueError:
    line = at.start_mark.line + 1 if at.start_mark is not None else 0
    return InvalidValueError(f"line {line}", shown[:80] if isinstance(shown, str) else shown, reason)


def _unreadable(text: str, error: yaml.YAMLError) -> InvalidValueError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    said = getattr(error, "problem", None) or str(error).partition("\n")[0]
    if mark is None:
        return InvalidValueError("YAML", text[:40], f"is no YAML: {said}; mend it")
    lines = text[:LARGEST_YAML].splitlines()
    shown = lines[mark.line][:80] if mark.line < len(lines) else ""
    return InvalidValueError(f"line {mark.line + 1}", shown, f"is no YAML: {said}; mend it there")
